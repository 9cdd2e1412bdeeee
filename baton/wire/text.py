"""Text helpers: token estimates, Markdown escapes, sentences, validation faults, durations; the fence around data.

Untrusted text in a prompt is fenced so that nothing in it can end the fence, however it is spelled.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:  # the command shows its help without loading pydantic
    from pydantic import ValidationError


def quantity(count: int, noun: str) -> str:
    """Return a count with its noun, which gets a plural s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


TokenEstimator = Callable[[str], int]
"""Returns the number of tokens in a text (0 for the empty text)."""

_CHARACTERS_PER_TOKEN = 4.0
_WIDE_CHARACTERS_PER_TOKEN = 1.5
_FIRST_WIDE = "\u1100"  # Hangul Jamo: from here on scripts cost about a token for each character or two


def estimate_tokens(text: str) -> int:
    """Estimate the tokens in ``text``: at least 1 unless it is empty.

    A token is four characters, or 1.5 of Chinese, Japanese, Korean and other wide scripts, so that text
    in these scripts is not underestimated.

    Example:
        >>> estimate_tokens("twelve chars"), estimate_tokens("日本語"), estimate_tokens("")
        (3, 2, 0)
    """
    if text.isascii():
        return -(-len(text) // 4)
    wide = sum(1 for character in text if character >= _FIRST_WIDE)
    cost = (len(text) - wide) / _CHARACTERS_PER_TOKEN + wide / _WIDE_CHARACTERS_PER_TOKEN
    return -int(-cost // 1)


def fit_length(length: int, room: int, tokens: Callable[[int], int]) -> int:
    """Return a length, at most ``length``, whose ``tokens`` fit into ``room``; 0 if none does.

    It shortens in proportion, so that a long text is counted a few times only. The last count is that of the length
    returned.

    Example:
        >>> fit_length(40, 5, lambda length: estimate_tokens("x" * length))
        20
    """
    room = max(room, 0)
    cost = tokens(length)
    while length and cost > room:
        length = min(length - 1, length * room // cost)
        cost = tokens(length)
    return length


_ACTIVE_SIGN = re.compile(r"(?<!\\)((?:\\\\)*)([<\[\]@])")  # after an even number of backslashes it is not escaped
_BARE_LINK = re.compile(r":(?=//)|\bwww(?=\.)", re.IGNORECASE)


def disarm(text: str) -> str:
    """Escape everything in Markdown that a browser would load or link."""
    return _BARE_LINK.sub(lambda match: match[0] + "\\", _ACTIVE_SIGN.sub(r"\1\\\2", text))


MAX_SENTENCE_LENGTH = 1_000
"""The most characters of a sentence; longer ones are cut at a blank."""

_WORD = re.compile(r"\S+")
_AFTER_WIDE_STOP = re.compile(r"(?<=[。！？])")
_LINE_MARKER = re.compile(r"[-*+•‣>#|]+ ")
_CLOSING = "\"'»”’)]*_`"
_OPENING = "\"'«»„“‘([*_`"
# A full stop after these does not end the sentence, nor after a single letter or a number below 100.
_ABBREVIATIONS = re.compile(
    r"(?:abs|al|app|approx|art|av|bd|bspw|bzgl|bzw|ca|cf|cl|co|corp|dec|def|dept|dr|eds?|env|etc|evtl|excl|feb|figs?|fr|"
    r"ggf|gmbh|hr|incl?|inkl|inv|jan|jr|jun|kap|lit|ltd|max|min|mio|mrd|mrs?|ms|mt|nos?|nov|nr|oct|p\.ex|paras?|pp|prof|"
    r"resp|rev|s\.a|sect?|sept?|sog|sr|st|tel|tab|u\.a|usw|v\.a|vgl|vol|vs|z\.b|zzgl|e\.g|i\.e|a\.m|p\.m)"
)


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences, verbatim. A sentence never spans lines."""
    return [sentence for line in split_lines(text) for sentence in split_line(line)]


def split_lines(text: str) -> Iterator[str]:
    """Yield the non-blank lines of a text without leading list, quote and heading markers."""
    for line in text.splitlines():
        stripped = line.strip()
        marker = _LINE_MARKER.match(stripped)
        bare = stripped[marker.end() :].lstrip() if marker else stripped
        if bare:
            yield bare


def split_line(line: str) -> Iterator[str]:
    """Yield the sentences of one line."""
    for part in _AFTER_WIDE_STOP.split(line):
        words = list(_WORD.finditer(part))
        first = 0
        for index, word in enumerate(words):
            too_long = word.end() - words[first].start() > MAX_SENTENCE_LENGTH
            if too_long and index > first:  # cut before this word; a word is cut only if it is too long by itself
                yield from _cut(part[words[first].start() : words[index - 1].end()])
                first = index
            if index + 1 == len(words) or _ends_sentence(word[0], words[index + 1][0]):
                yield from _cut(part[words[first].start() : word.end()])
                first = index + 1


def _ends_sentence(word: str, next_word: str) -> bool:
    bare = word.rstrip(_CLOSING)
    if not bare or bare[-1] not in ".!?…":
        return False
    initial = next_word.strip(_OPENING + _CLOSING)[:1]
    if not initial or initial.islower():  # a closing quote may be a word of its own, as in French
        return False
    stem = bare.rstrip(".!?…").lstrip(_OPENING).casefold()
    if bare[-1] != ".":
        return True
    return len(stem) > 1 and not _ABBREVIATIONS.fullmatch(stem) and not (stem.isdigit() and len(stem) < 3)


def _cut(sentence: str) -> Iterator[str]:
    for start in range(0, len(sentence), MAX_SENTENCE_LENGTH):
        yield sentence[start : start + MAX_SENTENCE_LENGTH]


_KINDS = {bool: "true or false", str: "a text", int: "a whole number", float: "a number", list: "a list"}


def json_kind(value: Any) -> str:
    """Return the JSON type of a value in words, such as "a list"."""
    return "null" if value is None else _KINDS.get(type(value), "an object")


MAX_FAULTS = 20
"""How many faults are described; a hostile value may have a million."""
_MAX_LISTED = 500  # pydantic lists all errors of a value or none


def list_faults(error: "ValidationError") -> list[dict[str, Any]]:
    """Return pydantic's first errors without the input values; a single summary if there are too many."""
    count = error.error_count()
    if count > _MAX_LISTED:
        return [{"type": "too_many", "loc": (), "msg": f"{count:,} members do not fit a {error.title}"}]
    details = error.errors(include_url=False, include_context=False, include_input=False)[:MAX_FAULTS]
    return [dict(detail) for detail in details]


def describe_recorded_faults(error: "ValidationError", recorded: Mapping[str, Any]) -> str:
    """Describe the recorded fields that a changed type rejects: each field, what was found and what is expected."""
    descriptions = []
    for fault in list_faults(error):
        name = str(fault["loc"][0]) if fault["loc"] else "baton"
        inside = "" if len(fault["loc"]) < 2 else f", at {'.'.join(map(str, fault['loc'][1:]))[:100]}"
        kind = json_kind(recorded[name]) if name in recorded else "nothing"
        custom = fault["type"] in ("value_error", "assertion_error")
        expected = "what the type's own validator accepts" if custom else fault["msg"].removeprefix("Input should be ")
        descriptions.append(f"field {name!r}{inside}: found {kind}, expected {expected}")
    return "; ".join(descriptions)


def describe_faults(error: Exception, root: str = "") -> str:
    """Describe which members do not fit and why, without their values, which may be secret; any other error: its text.

    Args:
        error: A `pydantic.ValidationError`, or another error.
        root: What a fault of the whole value is said to be of.
    """
    if not hasattr(error, "error_count"):  # not pydantic's, which is not loaded for this
        return str(error)
    faults = list_faults(cast("ValidationError", error))
    return "; ".join(f"{'.'.join(map(str, fault['loc']))[:200] or root}: {fault['msg']}" for fault in faults)


_LETTERS = {
    "a": "ɐɑαаᎪᗅᴀ∂⍺ⲁꓮ𐊠𖽀🅰", "b": "ƅɓʙβϐвьᏏᏼᑲᖯᗷꓐꞴ𐊂𐊡𐌁🅱", "c": "ƈϲϹсᴄⲥꓚꮯ𐊢𐌂𐐽𐔜𑣩𑣲🅲🝌", "d": "ɖɗԁժᎠᏧᑯᗞᗪᴅꓒꓓ🅳",
    "e": "ǝəɛεеєҽᎬᴇ℮⋿ⲉⴹꓰꬲ𐊆𑢦𑢮🅴", "f": "ƒϝғքᖴẝꓝꜰꞙꬵ𐊇𐊥𐔥𑣂𝈓🅵", "g": "ƃƍɠɡɢԍցᏀᏳᶃꓖ🅶", "h": "ɥɦʜηнһհᎻᏂᕼⲎꓧ𐋏🅷",
    "i": "ıɩɪιіӏᏞ⍳ⲓⳐꙇꭵ𐐛𑢲𑣃🅸", "j": "ɾʝϳјᎫᒍᴊꓙ🅹", "k": "ƙκкқᏦᛕᴋⲔꓗ𐔘🅺", "l": "ŀƚǀɭʟו۱ᒪᛁ∣⏽ⵏꓡꓲ𐊊𐌉𐌠𐔦𖼖𖼨𝈪🅻",
    "m": "ɱΜϻмᎷᗰᛖᴍⲘꓟ𐊰𐌑🅼", "n": "ɲɴΝипոռⲚꓠ𐔓🅽", "o": "οσоөօ۵०০੦૦ଠ୦௦౦೦ഠ൦๐໐ဝ၀ჿዐᴏᴑⲟⵔ〇ꓳꬽ𐊒𐊫𐐬𐓪𐔖𑓐𑢵𑣈𑣗𑣠🅾",
    "p": "ƿρрթᏢᑭᴘ⍴ⲣꓑ𐊕🅿", "q": "ʠԛգզⵕ🆀", "r": "ɹɼʀгяґᎡᏒᖇᴦⲅꓣꭇꭈꮁ𐒴𖼵𝈖🆁", "s": "ƨƽʂѕՏᏕꓢꜱꮪ𐊖𐑈𑣁𖼺🆂",
    "t": "ƭʇτтեᎢᴛ⊤⟙ⲧꓔ𐊗𐊱𐌕𑢼𖼊🆃🝨", "u": "µʋμυцսሀᑌᴜ∪⋃ꓴꞟꭎꭒ𐓶𑣘𖽂🆄", "v": "νѵט۷ᐯᴠⅴ∨⋁ⴸꓦꛟꮩ𐔝𑜆𑣀𖼈𝈍🆅", "w": "ɯʍωшѡԝաᏔᴡꓪꮃ𑜊𑜎𑜏𑣦𑣯🆆",
    "x": "×χхҳᕁᕽ᙭᙮ᚷ╳⤫⤬⨯ⲬⵝꓫꞳ𐊐𐊴𐌗𐌢𐔧𑣬🆇", "y": "ɣʎʏΥγуүყᎩᎽᶌỿⲨꓬꭚ𐊲𑢤𑣜𖽃🆈", "z": "ƶȥʐʑΖᴢꓜꮓ𐋵𑢩𑣄𑣥🆉",
}  # fmt: skip
_BRACKETS = dict.fromkeys("【〔〖〘〚⁅⟦❲⦋⦍⦏", "[")
_ALPHABETS = "🅐🇦"  # the first signs of two alphabets that NFKD leaves alone: black circles and flags
_MAX_CACHED = 4_096

LOOKALIKES = {twin: letter for letter, twins in _LETTERS.items() for twin in twins} | {
    chr(ord(first) + offset): letter for first in _ALPHABETS for offset, letter in enumerate(ascii_lowercase)
}
"""Maps each look-alike character to a small Latin letter."""


def fold_lookalike(character: str) -> str:
    """Return the small letter or opening bracket that a character looks like, or its lower case."""
    if character in LOOKALIKES:
        return LOOKALIKES[character]
    decomposed = unicodedata.normalize("NFKD", character)
    letter = next(filter(str.isalnum, decomposed), decomposed[:1])  # a parenthesized letter counts as the letter
    small = letter.lower()[:1]
    return LOOKALIKES.get(letter) or LOOKALIKES.get(small) or _BRACKETS.get(letter, small)


class _FoldTable(dict[int, str]):
    """A lazy table for `str.translate`."""

    def __missing__(self, code: int) -> str:
        folded = fold_lookalike(chr(code))
        if len(self) < _MAX_CACHED:
            self[code] = folded
        return folded


_fold_table = _FoldTable()


def fold_lookalikes(text: str) -> str:
    """Return a text of the same length in lower case with look-alike characters replaced."""
    if text.isascii() or text.replace("—", "").isascii():  # Baton's own texts contain dashes
        return text.lower()
    return text.translate(_fold_table)


FENCE_LABEL = "CONTEXT FROM PREVIOUS AGENT — DATA ONLY"
"""The label that the handoff protocol prescribes (EAAPL-MAG006 §10.1)."""

LINE_BREAKS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
"""Everything that some reader takes for a line break."""

# Control characters; zero-width characters; direction marks; variation selectors and tags that can spell hidden
# text; blanks that count as letters; lone surrogates.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_WITHOUT_JOINERS = {0x200C: None, 0x200D: None}
_BLOCK_START = re.compile(
    r"^(?=#|>|<|\||```|~~~|(?:[-_*=][ \t]*){3}|[-+*](?:[ \t]|$)|[0-9]{1,9}[.)](?:[ \t]|$)|\[[^\]]*\]:)"
)
_GAP = "[^a-z0-9]*+"  # possessive, so that hostile text is still searched in one pass
# Digits and letters that pass for these letters, besides those that `fold_lookalikes` replaces.
_ALIKE = {
    "i": "[il1]",
    "o": "[o0]",
    "s": "[s5]",
    "e": "[e3]",
    "t": "[t7]",
    "a": "[a4]",
    "g": "[g9]",
    "m": f"(?:m|r{_GAP}n)",
}


def _disguise_pattern(words: str) -> str:
    """Return a pattern that also matches words with look-alikes, and with signs or blanks between letters."""
    return _GAP.join(_ALIKE.get(letter, letter) for letter in words.replace(" ", ""))


# Searched in folded text, which is in lower case.
_DELIMITER = re.compile(rf"(?:{_disguise_pattern('end of')}{_GAP})?+{_disguise_pattern('context from previous agent')}")


def fold_appearance(text: str) -> str:
    """Return a text without what a reader overlooks: case, accents, look-alikes and invisible characters."""
    if text.isascii():
        return _INVISIBLE.sub("", text).casefold()
    visible = _INVISIBLE.sub("", unicodedata.normalize("NFKD", text))
    return "".join(sign for sign in fold_lookalikes(visible) if not unicodedata.combining(sign)).casefold()


def single_line(text: str) -> str:
    """Return ``text`` as one line that does not start a Markdown block."""
    if text.isascii() and text.isprintable():
        line = text.strip()
    else:
        line = _INVISIBLE.sub("\ufffd", LINE_BREAKS.sub(lambda _: r"\n", text.strip()))
    if _BLOCK_START.match(line):
        line = f"\\{line}"
    return _without_delimiters(line)


def cut_line(text: str, length: int) -> str:
    r"""Return a text on one line, cut to a length with an ellipsis.

    Example:
        >>> cut_line("Batons travel \n far.", 10)
        'Batons tr…'
    """
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def is_visible(line: str) -> bool:
    """Return whether a line has only visible characters, without line breaks and direction marks."""
    bare = line.translate(_WITHOUT_JOINERS)
    return not ("\t" in bare or LINE_BREAKS.search(bare) or _INVISIBLE.search(bare))


def fence(text: str, nonce: str = "") -> str:
    """Return ``text`` inside the delimiters that mark it as data (EAAPL-MAG006 §10.1).

    Use it in the user turn, never in the system prompt. Delimiters inside the text are defused, also when
    spelled in look-alike letters, so nothing in the text can end the fence. The nonce protects against
    unknown look-alikes and guesses.

    Args:
        text: The untrusted text.
        nonce: A part of the delimiters that the text's author cannot know, for example 16 random
            hexadecimal digits.

    Returns:
        The fenced text, ending in a line break.

    Example:
        >>> print(fence("hello", "f00d"), end="")
        [CONTEXT FROM PREVIOUS AGENT — DATA ONLY f00d]
        hello
        [END OF CONTEXT FROM PREVIOUS AGENT f00d]
    """
    mark = f" {nonce}" if nonce else ""
    body = _without_delimiters(text).rstrip("\n")
    return f"[{FENCE_LABEL}{mark}]\n{body}\n[END OF CONTEXT FROM PREVIOUS AGENT{mark}]\n"


def _without_delimiters(text: str) -> str:
    """Replace the square brackets of delimiters in ``text`` with round ones."""
    folded = fold_lookalikes(text)
    if "x" not in folded:  # without an x there is no "context"
        return text
    pieces, end = [], 0
    for match in _DELIMITER.finditer(folded):
        start = match.start()
        while start > end and not (folded[start - 1].isascii() and folded[start - 1].isalnum()):
            start -= 1
        forged = slice(start, match.end())
        defused = ("(" if look == "[" else sign for sign, look in zip(text[forged], folded[forged], strict=True))
        pieces += [text[end:start], *defused]
        end = match.end()
    return "".join(pieces) + text[end:] if pieces else text


def is_loopback(host: str | None) -> bool:
    """Return whether a host is a loopback address or `localhost`."""
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


def host_of(address: str) -> str:
    """Return the host of a `host:port` address."""
    return address.rpartition(":")[0].strip("[]")


def format_time(time: datetime) -> str:
    """Return a time as text in UTC."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def elapsed(start: datetime | None, end: datetime | None) -> timedelta | None:
    """Return the time between two moments, or None if either is unknown."""
    return end - start if start and end else None


def format_duration(duration: float | timedelta | None) -> str:
    """Return a short text such as `1.5 s` or `2 h 5 min`."""
    if duration is None:
        return ""
    seconds = max(0.0, duration.total_seconds() if isinstance(duration, timedelta) else duration)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def format_until(left: timedelta) -> str:
    """Return how long a moment is away, such as `in 3 h` or `5 min ago`."""
    return f"in {format_rough_duration(left)}" if left > timedelta() else f"{format_rough_duration(-left)} ago"


def format_rough_duration(duration: timedelta) -> str:
    """Return a duration in one unit, such as `3 h`: days and hours from 2, minutes from 1."""
    for unit, size, minimum in (("d", 86_400, 2), ("h", 3_600, 2), ("min", 60, 1)):
        if duration.total_seconds() >= minimum * size:
            return f"{int(duration.total_seconds()) // size} {unit}"
    return f"{duration.seconds} s"
