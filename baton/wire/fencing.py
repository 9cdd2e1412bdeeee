"""Text of others in a prompt, fenced so that nothing in it can end the fence, however it is spelled."""

import re
import unicodedata
from string import ascii_lowercase

_LETTERS = {
    "a": "ɐɑαаᎪᗅᴀ∂⍺ⲁꓮ𐊠𖽀🅰", "b": "ƅɓʙβϐвьᏏᏼᑲᖯᗷꓐꞴ𐊂𐊡𐌁🅱", "c": "ƈϲсᴄⲥꓚꮯ𐊢𐌂𐐽𐔜𑣩𑣲🅲🝌", "d": "ɖɗԁժᎠᏧᑯᗞᗪᴅꓒꓓ🅳",
    "e": "ǝəɛεеєҽᎬᴇ℮⋿ⲉⴹꓰꬲ𐊆𑢦𑢮🅴", "f": "ƒϝғքᖴẝꓝꜰꞙꬵ𐊇𐊥𐔥𑣂𝈓🅵", "g": "ƃƍɠɡɢԍցᏀᏳᶃꓖ🅶", "h": "ɥɦʜηнһհᎻᏂᕼⲎꓧ𐋏🅷",
    "i": "ıɩɪιіӏᏞ⍳ⲓⳐꙇꭵ𐐛𑢲𑣃🅸", "j": "ɾʝϳјᎫᒍᴊꓙ🅹", "k": "ƙκкқᏦᛕᴋⲔꓗ𐔘🅺", "l": "ŀƚǀɭʟו۱ᒪᛁ∣⏽ⵏꓡꓲ𐊊𐌉𐌠𐔦𖼖𖼨𝈪🅻",
    "m": "ɱΜϻмᎷᗰᛖᴍⲘꓟ𐊰𐌑🅼", "n": "ɲɴΝипոռⲚꓠ𐔓🅽", "o": "οσоөօ۵०০੦૦ଠ୦௦౦೦ഠ൦๐໐ဝ၀ჿዐᴏᴑⲟⵔ〇ꓳꬽ𐊒𐊫𐐬𐓪𐔖𑓐𑢵𑣈𑣗𑣠🅾",
    "p": "ƿρрթᏢᑭᴘ⍴ⲣꓑ𐊕🅿", "q": "ʠԛգզⵕ🆀", "r": "ɹɼʀгяґᎡᏒᖇᴦⲅꓣꭇꭈꮁ𐒴𖼵𝈖🆁", "s": "ƨƽʂѕՏᏕꓢꜱꮪ𐊖𐑈𑣁𖼺🆂",
    "t": "ƭʇτтեᎢᴛ⊤⟙ⲧꓔ𐊗𐊱𐌕𑢼𖼊🆃🝨", "u": "µʋμυцսሀᑌᴜ∪⋃ꓴꞟꭎꭒ𐓶𑣘𖽂🆄", "v": "νѵט۷ᐯᴠⅴ∨⋁ⴸꓦꛟꮩ𐔝𑜆𑣀𖼈𝈍🆅", "w": "ɯʍωшѡԝաᏔᴡꓪꮃ𑜊𑜎𑜏𑣦𑣯🆆",
    "x": "×χхҳᕁᕽ᙭᙮ᚷ╳⤫⤬⨯ⲬⵝꓫꞳ𐊐𐊴𐌗𐌢𐔧𑣬🆇", "y": "ɣʎʏΥγуүყᎩᎽᶌỿⲨꓬꭚ𐊲𑢤𑣜𖽃🆈", "z": "ƶȥʐʑΖᴢꓜꮓ𐋵𑢩𑣄𑣥🆉",
}  # fmt: skip
_BRACKETS = dict.fromkeys("【〔〖〘〚⁅⟦❲⦋⦍⦏", "[")
_ALPHABETS = "🅐🇦"  # the first letters of two alphabets that Unicode does not take for letters: black circles, flags
_MOST_KEPT = 4_096

LOOKALIKES = {twin: letter for letter, twins in _LETTERS.items() for twin in twins} | {
    chr(ord(first) + at): letter for first in _ALPHABETS for at, letter in enumerate(ascii_lowercase)
}
"""The small Latin letter that each character looks like."""


def look(character: str) -> str:
    """Return the character that one looks like: a small letter, an opening bracket, or itself in lower case."""
    if character in LOOKALIKES:
        return LOOKALIKES[character]
    form = unicodedata.normalize("NFKD", character)
    letter = next(filter(str.isalnum, form), form[:1])  # of a letter in brackets the letter
    small = letter.lower()[:1]
    return LOOKALIKES.get(letter) or LOOKALIKES.get(small) or _BRACKETS.get(letter, small)


class _Looks(dict[int, str]):
    """What characters look like, as `str.translate` takes it; worked out when one is first met."""

    def __missing__(self, code: int) -> str:
        seen = look(chr(code))
        if len(self) < _MOST_KEPT:
            self[code] = seen
        return seen


_looks = _Looks()


def looks(text: str) -> str:
    """Return what a text looks like in lower case, a character for each of its characters."""
    if text.isascii() or text.replace("—", "").isascii():  # a dash, which our own pages have, looks like no letter
        return text.lower()
    return text.translate(_looks)


FENCE_LABEL = "CONTEXT FROM PREVIOUS AGENT — DATA ONLY"
"""The label that the handoff protocol prescribes (EAAPL-MAG006 §10.1)."""

LINE_BREAKS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
"""What begins a new line for some reader."""

# Control characters; characters without a width; those that change the direction of writing; variation
# selectors and tags that spell hidden text; blanks that count as letters; halves of a pair.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_WITHOUT_JOINERS = {0x200C: None, 0x200D: None}
_BLOCK_START = re.compile(
    r"^(?=#|>|<|\||```|~~~|(?:[-_*=][ \t]*){3}|[-+*](?:[ \t]|$)|[0-9]{1,9}[.)](?:[ \t]|$)|\[[^\]]*\]:)"
)
_GAP = "[^a-z0-9]*+"  # possessive: a text made to be slow to search is still searched in one pass
# Letters that signs, or other letters, are taken for besides those that `looks` knows.
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


def _spelled(words: str) -> str:
    """Return a pattern for words that look-alikes, and signs or blanks between letters, do not evade."""
    return _GAP.join(_ALIKE.get(letter, letter) for letter in words.replace(" ", ""))


# In a text as it looks, which is in lower case.
_DELIMITER = re.compile(rf"(?:{_spelled('end of')}{_GAP})?+{_spelled('context from previous agent')}")


def single_line(text: str) -> str:
    """Return ``text`` on one line that opens no block of Markdown."""
    if text.isascii() and text.isprintable():
        line = text.strip()
    else:
        line = _INVISIBLE.sub("\ufffd", LINE_BREAKS.sub(lambda _: r"\n", text.strip()))
    if _BLOCK_START.match(line):
        line = f"\\{line}"
    return _without_delimiters(line)


def is_shown(line: str) -> bool:
    """Return whether every character of a name or another short line is visible, and none breaks or turns the line."""
    bare = line.translate(_WITHOUT_JOINERS)
    return not ("\t" in bare or LINE_BREAKS.search(bare) or _INVISIBLE.search(bare))


def fence(text: str, nonce: str = "") -> str:
    """Return ``text`` inside the delimiters that mark it as data (EAAPL-MAG006 §10.1).

    It belongs in the user turn, never into the system prompt. Whatever spells one of the delimiters inside
    the text is changed, also in letters that look alike, so nothing in it can end the fence.
    The nonce protects against unknown look-alikes and against guesses.

    Args:
        text: What is to be shown as data, of any number of lines.
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
    """Return ``text`` with a round bracket where a square one would open one of the delimiters."""
    seen = looks(text)
    if "x" not in seen:  # no context, and so no delimiter
        return text
    pieces, done = [], 0
    for match in _DELIMITER.finditer(seen):
        opening = match.start()
        while opening > done and not (seen[opening - 1].isascii() and seen[opening - 1].isalnum()):
            opening -= 1
        forged = slice(opening, match.end())
        defused = ("(" if look == "[" else sign for sign, look in zip(text[forged], seen[forged], strict=True))
        pieces += [text[done:opening], *defused]
        done = match.end()
    return "".join(pieces) + text[done:] if pieces else text
