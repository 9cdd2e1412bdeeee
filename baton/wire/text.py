"""Small rules of text: counts, estimated tokens, Markdown escapes, sentences, and what is wrong with a value."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from baton.wire.json_values import json_kind


def counted(number: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


TokenEstimator = Callable[[str], int]
"""A function from a text to its number of tokens (0 for the empty text)."""

_CHARACTERS_PER_TOKEN = 4.0
_WIDE_CHARACTERS_PER_TOKEN = 1.5
_FIRST_WIDE = "\u1100"  # Hangul Jamo: from here on scripts cost about a token for each character or two


def estimate_tokens(text: str) -> int:
    """Return an estimate of the tokens in ``text``, never below 1 for a text that is not empty.

    Four characters are a token; of Chinese, Japanese, Korean and other wide scripts one and a half,
    so that a text which is not Latin cannot pass any budget unseen.

    Example:
        >>> estimate_tokens("twelve chars"), estimate_tokens("日本語"), estimate_tokens("")
        (3, 2, 0)
    """
    if text.isascii():
        return -(-len(text) // 4)
    wide = sum(1 for character in text if character >= _FIRST_WIDE)
    cost = (len(text) - wide) / _CHARACTERS_PER_TOKEN + wide / _WIDE_CHARACTERS_PER_TOKEN
    return -int(-cost // 1)


_LIVE = re.compile(r"(?<!\\)((?:\\\\)*)([<\[\]@])")  # an even number of backslashes leaves what follows as it is
_BARE_LINK = re.compile(r":(?=//)|\bwww(?=\.)", re.IGNORECASE)


def inert(text: str) -> str:
    """Return ``text``, which may be Markdown, without anything that a reader's browser would load or follow."""
    return _BARE_LINK.sub(lambda found: found[0] + "\\", _LIVE.sub(r"\1\\\2", text))


LONGEST = 1_000
"""So many characters a sentence has at most; a longer one is cut at a blank."""

_WORD = re.compile(r"\S+")
_AFTER_WIDE_STOP = re.compile(r"(?<=[。！？])")
_MARKER = re.compile(r"[-*+•‣>#|]+ ")
_CLOSING = "\"'»”’)]*_`"
_OPENING = "\"'«»„“‘([*_`"
# What a full stop follows without ending the sentence; single letters and numbers below 100 never end one either.
_ABBREVIATIONS = re.compile(
    r"(?:abs|al|app|approx|art|av|bd|bspw|bzgl|bzw|ca|cf|cl|co|corp|dec|def|dept|dr|eds?|env|etc|evtl|excl|feb|figs?|fr|"
    r"ggf|gmbh|hr|incl?|inkl|inv|jan|jr|jun|kap|lit|ltd|max|min|mio|mrd|mrs?|ms|mt|nos?|nov|nr|oct|p\.ex|paras?|pp|prof|"
    r"resp|rev|s\.a|sect?|sept?|sog|sr|st|tel|tab|u\.a|usw|v\.a|vgl|vol|vs|z\.b|zzgl|e\.g|i\.e|a\.m|p\.m)"
)


def sentences(text: str) -> list[str]:
    """Return the sentences of a text in order, each a part of one of its lines, word for word."""
    return [sentence for line in lines(text) for sentence in sentences_of_line(line)]


def lines(text: str) -> Iterator[str]:
    """Yield the lines of a text that say something, without marks of lists, quotes and headings before them."""
    for line in text.splitlines():
        stripped = line.strip()
        mark = _MARKER.match(stripped)
        bare = stripped[mark.end() :].lstrip() if mark else stripped
        if bare:
            yield bare


def sentences_of_line(line: str) -> Iterator[str]:
    """Yield the sentences of one line; `sentences` does it for a whole text."""
    for part in _AFTER_WIDE_STOP.split(line):
        words = list(_WORD.finditer(part))
        begin = 0
        for number, word in enumerate(words):
            far = word.end() - words[begin].start() > LONGEST
            if far and number > begin:  # before this word, so that a word is cut only if it is too long by itself
                yield from _pieces(part[words[begin].start() : words[number - 1].end()])
                begin = number
            if number + 1 == len(words) or _ends(word[0], words[number + 1][0]):
                yield from _pieces(part[words[begin].start() : word.end()])
                begin = number + 1


def _ends(word: str, following: str) -> bool:
    """Return whether a sentence ends between two words."""
    bare = word.rstrip(_CLOSING)
    if not bare or bare[-1] not in ".!?…":
        return False
    start = following.strip(_OPENING + _CLOSING)[:1]
    if not start or start.islower():  # a closing quote that stands alone, as in French, goes with what it closes
        return False
    stem = bare.rstrip(".!?…").lstrip(_OPENING).casefold()
    if bare[-1] != ".":
        return True
    return len(stem) > 1 and not _ABBREVIATIONS.fullmatch(stem) and not (stem.isdigit() and len(stem) < 3)


def _pieces(sentence: str) -> Iterator[str]:
    """Yield a sentence, in pieces if it is one endless word."""
    for start in range(0, len(sentence), LONGEST):
        yield sentence[start : start + LONGEST]


MOST_FAULTS = 20
"""How many faults are described; a hostile value may have a million."""
_MOST_LISTED = 500  # pydantic lists all faults of a value or none


def faults(error: ValidationError) -> list[dict[str, Any]]:
    """Return the first faults that pydantic found, without the values; one for the whole where there are too many."""
    count = error.error_count()
    if count > _MOST_LISTED:
        return [{"type": "too_many", "loc": (), "msg": f"{count:,} members do not fit a {error.title}"}]
    listed = error.errors(include_url=False, include_context=False, include_input=False)[:MOST_FAULTS]
    return [dict(one) for one in listed]


def recorded_misfit(error: ValidationError, recorded: Mapping[str, Any]) -> str:
    """Return which recorded fields a type no longer takes: the field, what was found and what is expected."""
    told = []
    for fault in faults(error):
        name = str(fault["loc"][0]) if fault["loc"] else "baton"
        within = "" if len(fault["loc"]) < 2 else f", at {'.'.join(map(str, fault['loc'][1:]))[:100]}"
        found = json_kind(recorded[name]) if name in recorded else "nothing"
        own = fault["type"] in ("value_error", "assertion_error")
        expected = "what the type's own validator accepts" if own else fault["msg"].removeprefix("Input should be ")
        told.append(f"field {name!r}{within}: found {found}, expected {expected}")
    return "; ".join(told)


def misfit(error: ValidationError, whole: str = "") -> str:
    """Return which members do not fit, and why; nothing of their values, which may be secret."""
    return "; ".join(f"{'.'.join(map(str, one['loc']))[:200] or whole}: {one['msg']}" for one in faults(error))
