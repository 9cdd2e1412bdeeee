"""Characters that a reader, or a model, takes for another one: a text means what it looks like.

The detector reads through them, and the fence around data is not ended by them. Not in here are characters whose
compatibility form is the letter itself, such as full-width ones: Unicode's own normal forms take care of those.
"""

import unicodedata
from string import ascii_lowercase

_LETTERS = {
    "a": "аɑαᴀⲁ∂ɐ🅰", "b": "ьвβϐʙƅɓᏼᖯ🅱", "c": "сϲᴄⲥƈ🅲", "d": "ԁɗᴅժɖ🅳", "e": "еєεҽɛᴇⲉəǝ🅴",
    "f": "ғƒꜰϝք🅵", "g": "ɡցɢԍɠƃ🅶", "h": "һհʜнɦηɥ🅷", "i": "іιɪıɩӏꭵⲓ🅸", "j": "јϳᴊʝɾ🅹", "k": "кκᴋқƙ🅺",
    "l": "ʟɭוƚŀǀ🅻", "m": "мᴍɱϻɯ🅼", "n": "пոɴռɲи🅽", "o": "оοσօᴏ०๐໐ⲟө🅾", "p": "рρᴘթⲣƿ🅿",
    "q": "ԛգʠ🆀", "r": "гʀɼґяᴦɹ🆁", "s": "ѕꜱʂƨ🆂", "t": "тτᴛƭեʇⲧ🆃", "u": "υսᴜцʋµμ🆄", "v": "νѵᴠⅴט🆅",
    "w": "ԝѡᴡաωʍш🆆", "x": "хχҳ×🆇", "y": "уγүʏʎ🆈", "z": "ᴢʐȥʑƶ🆉",
}  # fmt: skip
_BRACKETS = dict.fromkeys("【〔〖〘〚⁅⟦❲⦋⦍⦏", "[")
_ALPHABETS = "🅐🇦"  # where each of two begins that Unicode does not take for letters: in black circles, and of flags

TWINS = {twin: letter for letter, twins in _LETTERS.items() for twin in twins} | {
    chr(ord(first) + at): letter for first in _ALPHABETS for at, letter in enumerate(ascii_lowercase)
}
"""The letter that each character looks like, after NFKD and in lower case; of several, the latest in the alphabet."""

_MOST_KEPT = 4_096


class _Looks(dict[int, str]):
    """What each character looks like, worked out when it is first met, as `str.translate` takes it."""

    def __missing__(self, code: int) -> str:
        small = chr(code).lower()
        form = unicodedata.normalize("NFKD", small).lower()  # again: a mathematical letter has its small form only now
        letter = next(filter(str.isalnum, form), form[:1])  # of one in brackets the letter
        look = TWINS.get(small) or TWINS.get(letter) or _BRACKETS.get(letter, letter)
        if len(self) < _MOST_KEPT:
            self[code] = look
        return look


_looks = _Looks()


def looks(text: str) -> str:
    """Return what a text looks like in lower case, a character for each of its characters.

    Args:
        text: Any text. What is made of several letters, such as a ligature, is taken for the first of them.

    Example:
        >>> looks("［ЕND ÓF】"), looks("plain")
        ('[end of】', 'plain')
    """
    if text.isascii() or text.replace("—", "").isascii():  # a dash, which our own pages have, looks like no letter
        return text.lower()
    return text.translate(_looks)
