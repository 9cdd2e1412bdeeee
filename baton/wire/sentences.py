"""Texts taken apart into sentences, in English, German and French, without a library and in one pass.

Where it is not clear whether a full stop ends a sentence, the text stays together: two sentences in one cost a few
tokens, half a sentence may cost its meaning.
"""

import re
from collections.abc import Iterator

LONGEST = 1_000
"""So many characters a sentence has at most; what goes on without an end is cut at a blank."""

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
    r"""Return the sentences of a text in order, each a part of one of its lines, word for word.

    A line's end ends a sentence. Marks of lists, quotes and headings before a sentence are left out; the number
    of a list's item is not, because in `3. März` it is no such number.

    Args:
        text: Any text.

    Returns:
        The sentences, none of them blank, none longer than `LONGEST`.

    Example:
        >>> sentences("- Pay Dr. Smith by 3. March. It is agreed!\nDone")
        ['Pay Dr. Smith by 3. March.', 'It is agreed!', 'Done']
    """
    return [sentence for line in lines(text) for sentence in sentences_of_line(line)]


def lines(text: str) -> Iterator[str]:
    r"""Yield the lines of a text that say something, without marks of lists, quotes and headings before them.

    Example:
        >>> list(lines("# Plan\n\n- first"))
        ['Plan', 'first']
    """
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
