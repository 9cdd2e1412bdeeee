"""Characters that a reader, or a model, takes for another one: a text means what it looks like.

The scan reads through them, and the fence around data is not ended by them. The table is taken from Unicode's
confusables (UTS #39), for Latin letters, with some signs added that Unicode does not list. Not in it are characters
whose compatibility form is the letter itself, such as full-width ones, and capitals whose small form is listed.
"""

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
    """Return the character that one looks like: a small letter, an opening bracket, or itself in lower case.

    Example:
        >>> look("Ν"), look("Ｅ"), look("ö"), look("【"), look("世")
        ('n', 'e', 'o', '[', '世')
    """
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
    """Return what a text looks like in lower case, a character for each of its characters.

    Example:
        >>> looks("［ЕΝD ÓF】"), looks("plain")
        ('[end of】', 'plain')
    """
    if text.isascii() or text.replace("—", "").isascii():  # a dash, which our own pages have, looks like no letter
        return text.lower()
    return text.translate(_looks)
