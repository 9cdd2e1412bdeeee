"""The spellings in which a message is searched: as written, as it looks, decoded, and without disguises.

Covered are look-alike, invisible and full-width letters, accents, leet, spaced, broken and reversed words, ROT13,
and text in base64, hexadecimal, binary and decimal codes, percent and quoted-printable encoding, HTML entities,
escapes, Unicode tags and variation selectors. Not covered are pictures, compressed data and other ciphers.
"""

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote

from pydantic_core import SchemaValidator, core_schema

from baton.wire.text import fold_lookalike

SEPARATOR = "\x1e"
"""Separates the texts of a message; it occurs in none of them."""

WRAP = "\x0b"
"""Replaces a line break before a small letter, which is usually within a sentence."""

MAX_LAYERS = 6
"""How many layers of encoding are decoded; what is still encoded is read as `TOO_DEEP`."""

TOO_DEEP = "encoded too deep\x07"

Search = Callable[[str], bool]
"""Returns whether a pattern occurs in a text. The text must not contain lone surrogates: it would not be searched."""


@cache
def automaton(pattern: str) -> Search:
    """Compile a pattern in the syntax of Rust's `regex`, once per process."""
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python


class Spelling(NamedTuple):
    """One reading of a message's texts, joined by `SEPARATOR`."""

    name: str
    text: str
    native: bool = False
    disguised: bool = True


def list_spellings(raw: str) -> Iterator[Spelling]:
    """Yield the readings of a text that are worth a search, the plain one first."""
    plain = _to_latin(raw, _PLAIN)
    yield Spelling("plain", plain, disguised=False)
    if native := _to_native(raw):
        yield Spelling("plain", native, native=True, disguised=False)
    folded = _to_latin(raw, _FOLDED)
    if folded != plain:
        yield Spelling("lookalike", folded)
    yield from _undo_disguises("", folded)
    for _ in range(MAX_LAYERS):
        if not _may_be_encoded(raw):
            return
        raw, encoded = decode(raw), raw
        if raw == encoded:
            return
        yield Spelling("decoded", folded := _to_latin(raw, _FOLDED))
        if native := _to_native(raw):
            yield Spelling("decoded", native, native=True)
        yield from _undo_disguises("decoded+", folded)
    if _may_be_encoded(raw) and decode(raw) != raw:
        yield Spelling("encoded too deep", TOO_DEEP)


def words(text: str, start: str = ".", end: str = ".") -> str:
    """Convert lower-case ASCII to words with one sign between them."""
    text = text.encode().translate(_SIGNS).decode()
    runs = sorted({*_RUN.findall(text)}, key=len, reverse=True)
    if len(runs) <= _FEW_RUNS:
        for run in runs:
            text = text.replace(run, _merge(run))
    else:
        text = _merge(text)
    return f"{start}{text.strip(' ./~')}{end}"


def _merge(text: str) -> str:
    """Merge each run of signs into one sign."""
    for pair, sign in _MERGED:
        while pair in text:
            text = text.replace(pair, sign)
    return text


def letters(text: str) -> str:
    """Return only the letters of lower-case ASCII."""
    return text.encode().translate(None, _NOT_LETTERS).decode()


def tidy(text: str) -> str:
    """Shorten floods of blanks or of one sign, so that they do not separate windows."""
    return _FLOOD.sub(r"\1\1\1", _BLANKS.sub(" ", text))


def decode(text: str) -> str:
    """Decode one layer of encoding: replace each run that decodes to text."""
    for hint, run, decoder in _ENCODINGS:
        if automaton(hint)(text):
            text = run.sub(lambda match, decoder=decoder: _decode_run(match[0], decoder), text)  # type: ignore[misc]
    return text


_SIGNS = bytearray(code if chr(code).isalnum() else 0x20 for code in range(128)) + bytearray(range(128, 256))
for _sign, _spelled in {".": ".!?:;", "/": f"\n\r{SEPARATOR}", "~": WRAP, '"': '"`'}.items():
    for _code in _spelled.encode():
        _SIGNS[_code] = ord(_sign)
_RUN = re.compile('[ ./~"]{2,}')
_FEW_RUNS = 30  # prose has fewer kinds; each is replaced at once, where merging reads the text for each pair
_MERGED = (
    ("  ", " "),
    *((pair, sign) for sign in "./~" for pair in (f" {sign}", f"{sign} ")),
    (' "', '"'),
    ('" ', '"'),
    *((pair, ".") for pair in ("//", "~~", "/~", "~/", "./", "/.", ".~", "~.", "..")),
    *((pair, '"') for pair in ('."', '/"', '~"', '".', '"/', '"~', '""')),
)
"""Pairs of signs and their replacements; in this order no pair comes back, and each needs few passes."""
_NOT_LETTERS = bytes(code for code in range(128) if not 97 <= code <= 122)
_BLANKS = re.compile(r"[ \t]{3,}")
_FLOOD = re.compile(r"([^\w\x1e])\1{3,}")


class _Letters(dict[int, str | None]):
    """A `str.translate` table to lower-case ASCII; marks and invisible characters are removed."""

    def __init__(self, fold: bool) -> None:
        super().__init__({code: chr(code).lower() for code in range(128)})
        self._fold = fold

    def __missing__(self, code: int) -> str | None:
        sign, kind = chr(code), unicodedata.category(chr(code))
        letter: str | None
        if kind[0] == "M" or kind == "Cf" or sign in _FILLERS:
            letter = None
        elif self._fold or kind[0] in "PSZ":
            letter = fold_lookalike(sign)
        else:
            letter = _BARE.get(sign.lower()) or unicodedata.normalize("NFD", sign)[0].lower()
        self[code] = letter if letter is None or letter.isascii() else " "
        return self[code]


_BARE = {"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ß": "ss", "æ": "ae", "œ": "oe", "ı": "i", "þ": "th", "ə": " "}
_FILLERS = "\u115f\u1160\u3164\uffa0"
_PLAIN, _FOLDED = _Letters(fold=False), _Letters(fold=True)
_STACKED_MARKS = r"\p{M}{9}"
_OWN_SCRIPT = (
    r"[\u{370}-\u{1cff}\u{1f00}-\u{1fff}\u{2e80}-\u{d7ff}\u{f900}-\u{faff}\u{fb1d}-\u{fdff}\u{fe70}-\u{fefc}🔓🔒]"
)
_APART = re.compile("(?<=[\u3040-\u9fff\uac00-\ud7a3])[ .*_\u200b-]{1,2}(?=[\u3040-\u9fff\uac00-\ud7a3])")


_WRAPPED = re.compile("\n(?=[a-zà-öø-ÿ])")


def _to_latin(text: str, table: _Letters) -> str:
    if "\n" in text:
        text = _WRAPPED.sub(WRAP, text)
    return text.lower() if text.isascii() else text.translate(table)


def _to_native(text: str) -> str | None:
    """Return a text in lower case and composed form, or None if all of it is Latin."""
    if text.isascii() or not automaton(_OWN_SCRIPT)(text):
        return None
    text = text.replace("\ufdfa", " ").replace("\ufdfb", " ").lower()  # each decomposes to a whole sentence
    if not automaton(_STACKED_MARKS)(text):  # ordering many marks takes quadratic time
        text = unicodedata.normalize("NFKC", text)
    return _APART.sub("", text)


_ROT13 = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")
_LEET = (str.maketrans("013456789@$!|+", "oieasgtbgasilt"), str.maketrans("01345789@$", "oleastbgas"))
_EDGE = r"(?-u:\b)"
_SIGNS_FOR = {"o": "0", "i": "1!|", "e": "3", "a": "4@", "s": "5$", "t": "7+", "b": "8", "g": "69", "l": "1|"}
_STEMS = ("ignor", "previo", "instru", "system", "prompt", "reveal", "disreg", "forget", "overri", "rules", "secret")


def _leet_patterns(stem: str) -> Iterator[str]:
    """Yield patterns for a stem with a sign for at least one of its letters."""
    either = [f"[{letter}{_SIGNS_FOR.get(letter, '')}]" for letter in stem]
    for index, letter in enumerate(stem):
        if letter in _SIGNS_FOR:
            yield stem[:index] + f"[{_SIGNS_FOR[letter]}]" + "".join(either[index + 1 :])


_LEET_WORD = "|".join(pattern for stem in _STEMS for pattern in _leet_patterns(stem))
_ROT13_WORD = rf"{_EDGE}(?:gur|naq|nyy|lbhe|lbh|vafgehpgvba|cerivbhf|vtaber|flfgrz|cebzcg|sbetrg|qvfertneq|cyrnfr)"
_REVERSED_WORD = (
    rf"{_EDGE}(?:eht|dna|lla|ruoy|uoy|snoitcurtsni|suoiverp|erongi|metsys|tpmorp|tegrof|dragersid|esaelp){_EDGE}"
)

_DISGUISED = "|".join((_LEET_WORD, _ROT13_WORD, _REVERSED_WORD))


def _undo_disguises(prefix: str, text: str) -> Iterator[Spelling]:
    """Yield the readings without letter disguises, if there are signs of them."""
    if not automaton(_DISGUISED)(text):
        return
    if automaton(_LEET_WORD)(text):
        yield from (Spelling(f"{prefix}leet", text.translate(table)) for table in _LEET)
    if automaton(_ROT13_WORD)(text):
        yield Spelling(f"{prefix}rot13", text.translate(_ROT13))
    if automaton(_REVERSED_WORD)(text):
        texts = text.split(SEPARATOR)
        yield Spelling(f"{prefix}reversed", SEPARATOR.join(text[::-1] for text in texts))
        reversed_words = (" ".join(word[::-1] for word in text.split()) for text in texts)
        yield Spelling(f"{prefix}reversed", SEPARATOR.join(reversed_words))


_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")


def _decode_run(run: str, decoder: Callable[[str], str | None]) -> str:
    decoded = decoder(run)
    return run if decoded is None else decoded.replace(SEPARATOR, " ")


def _decode_text(raw: bytes) -> str | None:
    """Return bytes as text between blanks, if they are printable text of at least five characters."""
    text = raw.replace(b"\0", b"").decode("utf-8", "replace")
    return None if len(text) < 5 or _UNPRINTABLE.search(text) else f" {text} "


def _decode_base64(run: str) -> str | None:
    """Decode base64 at each of the four alignments, because other letters may precede it."""
    digits = "".join(run.split()).rstrip("=").replace("-", "+").replace("_", "/")
    for skipped in range(4):
        body = digits[skipped:]
        body = body[: len(body) - (len(body) % 4 == 1)]
        text = _decode_text(base64.b64decode(body + "=" * (-len(body) % 4)))
        if text is not None:
            return text
    return None


def _decode_hexadecimal(run: str) -> str | None:
    digits = re.sub(r"0x|[^0-9a-fA-F]", "", run)
    return _decode_text(bytes.fromhex(digits[: len(digits) // 2 * 2]))


def _decode_codes(run: str) -> str | None:
    """Decode decimal or binary character codes."""
    groups = re.findall(r"\d+", run)
    is_binary = all(set(group) <= {"0", "1"} for group in groups)
    if is_binary:
        groups = [octet for group in groups for octet in re.findall("[01]{7,8}", group)]
    return _decode_text(bytes(code for group in groups if (code := int(group, 2 if is_binary else 10)) < 256))


def _decode_escape(run: str) -> str | None:
    r"""Decode one escape of a programming language: ``\u0069``, ``\x69``, ``\u{69}``, ``\151``, ``\n``."""
    if run[1] in "nrt":
        return "\n" if run[1] == "n" else " "
    code = int(run[1:], 8) if run[1] in "01" else int(run[2:].strip("{}"), 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def _decode_selectors(run: str) -> str | None:
    codes = map(ord, run)
    return _decode_text(bytes(code - 0xFE00 if code < 0xFE10 else code - 0xE0100 + 16 for code in codes))


# Four base64 letters that encode ASCII text.
_QUAD = "[I-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]"
_HEX_HINT = r"(?:[2-7][0-9A-Fa-f]){10}|(?:(?:0x)?[2-7][0-9A-Fa-f][ :,_-]{1,2}){9}|(?:[eE][3-9][89abAB][0-9a-fA-F]){5}"
_CODES_HINT = r"(?:[01]{7,8}[ ,]{0,2}){7}|(?:(?:[3-9][0-9]|1[01][0-9]|12[0-6])[ ,;]{1,2}){10}"


def _decode_quoted_printable(run: str) -> str:
    return binascii.a2b_qp(run).decode("utf-8", "replace")


def _decode_tags(run: str) -> str:
    return f" {''.join(chr(ord(tag) - 0xE0000) for tag in run)} "


_BASE64_HINT = rf"[A-Za-z0-9+/]{{14}}==?(?:[^=]|$)|(?:{_QUAD}){{4}}|[A-Za-z0-9+/]{{65}}"
_BASE64_RUN = r"[A-Za-z0-9+/_-]{14,}={0,2}(?:[ \t\r\n]{1,2}[A-Za-z0-9+/_-]{14,}={0,2})*"
_HEX_RUN = r"(?:[0-9A-Fa-f]{2}){10,}|(?:(?:0x)?[0-9A-Fa-f]{2}[ :,_-]{1,2}){9,}(?:0x)?[0-9A-Fa-f]{2}"
_ESCAPE_RUN = r"\\(?:u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,6}\}|x[0-9A-Fa-f]{2}|[01][0-7]{2}|[nrt])"
# A cheap pattern that hints at a run (Rust), the run (Python, linear), and its decoder.
_ENCODINGS: tuple[tuple[str, re.Pattern[str], Callable[[str], str | None]], ...] = (
    (r"[\u{e0020}-\u{e007e}]", re.compile("[\U000e0020-\U000e007e]+"), _decode_tags),
    (
        r"[\u{fe00}-\u{fe0f}\u{e0100}-\u{e01ef}]{4}",
        re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}"),
        _decode_selectors,
    ),
    (r"%[0-9A-Fa-f]{2}", re.compile(r"(?:%[0-9A-Fa-f]{2})+"), unquote),
    (r"\\(?:[uxnrt]|[01][0-7]{2})", re.compile(_ESCAPE_RUN), _decode_escape),
    (r"&(?:#|[A-Za-z]{2,8};)", re.compile(r"&#?\w{1,10};?"), html.unescape),
    (r"(?:=[2-7][0-9A-F]){3}", re.compile(r"(?:=[0-9A-F]{2})+"), _decode_quoted_printable),
    (_BASE64_HINT, re.compile(_BASE64_RUN), _decode_base64),
    (_HEX_HINT, re.compile(_HEX_RUN), _decode_hexadecimal),
    (_CODES_HINT, re.compile(r"(?:[01]{7,8}[ ,]{0,2}){7,}|(?:\d{2,3}[ ,;]{1,2}){10,}\d{2,3}"), _decode_codes),
)


def _may_be_encoded(text: str) -> bool:
    """Search the hints one by one: joined, their automaton outgrows its cache on every new text."""
    return any(automaton(hint)(text) for hint, _, _ in _ENCODINGS)
