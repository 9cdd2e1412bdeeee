"""The spellings in which a set of texts is searched: as it stands, folded, decoded, and each disguise undone."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from baton.protocol.detector.automata import any_of, automaton
from baton.protocol.detector.decoding import decode, encoded
from baton.protocol.detector.folding import fold, latin, odd

LAYERS = 6
"""So many layers of encoding are taken off."""

_SIGN = r"[\x00-/:-@\[-`{-\x7f]"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ROT13 = str.maketrans(_LETTERS, _LETTERS[13:] + _LETTERS[:13])
# One sign stands for i or for l: both are tried.
_LEET = (str.maketrans("013456789@$!|+", "oieasgtbgasilt"), str.maketrans("01345789@$", "oleastbgas"))
# Beginnings of the words that matter most, in the languages whose rules are also looked for in squeezed text.
_STEMS = [
    *(
        "ignor",
        "disreg",
        "forget",
        "overri",
        "bypass",
        "discar",
        "neglec",
        "instru",
        "prompt",
        "previo",
        "system",
        "reveal",
    ),
    *("vergis", "anweis", "vorher", "oubli", "consig", "olvid", "dimenti", "istruz", "esque", "negee", "zignor"),
    *("poprze", "polece"),
]

_leet = r"[g-z][0134578@$!][a-z]|[a-z][0134578@$!][g-z]|[g-z][013457@$][0-9@$][a-z]|[a-z][013457@$][0-9@$][g-z]"
_spaced = rf"{_SIGN}[a-z0-9@$!|](?:{_SIGN}+[a-z0-9@$!|]){{5}}{_SIGN}"
_rot13 = r"(?-u:\b)(?:gur|naq|nyy|lbhe|lbh|vafgehpgvba|cerivbhf|vtaber|flfgrz|cebzcg|sbetrg|qvfertneq|cyrnfr)"
_reversed = (
    r"(?-u:\b)(?:eht|dna|lla|ruoy|uoy|snoitcurtsni|suoiverp|erongi|metsys|tpmorp|tegrof|dragersid|esaelp)(?-u:\b)"
)
_broken = r"(?-u:\b)" + any_of(
    f"{stem[:at]}{_SIGN}+" + f"{_SIGN}*".join(stem[at:]) for stem in _STEMS for at in range(1, len(stem))
)
_apart = r"(?:[\u{3040}-\u{9fff}\u{ac00}-\u{d7a3}][ .*_-]{1,2}){4}"

DISGUISES = any_of([_leet, _spaced, _rot13, _reversed, _broken])
"""Occurs in a text brought down to ASCII that holds words in one of the disguises that `views` undoes."""

_disguised = automaton(DISGUISES)


class Script(Enum):
    """What is left of a text in a view, and so which rules are looked for in it."""

    LATIN = "brought down to ASCII: phrases in Latin letters, and markup"
    NATIVE = "as written: rules for other scripts"
    LETTERS = "nothing but letters: phrases without their blanks"


@dataclass(frozen=True, slots=True)
class View:
    """One spelling of all texts.

    Attributes:
        name: `plain`, `folded`, `lookalike`, `leet`, `rot13`, `reversed` or `squeezed`; after `decoded+` if an
            encoding was taken off first.
        texts: The texts so spelled, in their order.
        script: Which rules apply.
        disguised: Whether someone took the trouble to hide the words, which tells against them.
        unread: Whether these texts are still encoded after `LAYERS` layers.
    """

    name: str
    texts: list[str]
    script: Script = Script.LATIN
    disguised: bool = False
    unread: bool = False


def spaced_apart(whole: str) -> bool:
    """Return whether letters of Eastern scripts stand apart, which they do not by themselves.

    Example:
        >>> spaced_apart("忽 略 之 前 的"), spaced_apart("a b c d e f")
        (True, False)
    """
    return not whole.isascii() and automaton(_apart)(whole)


def views(texts: Sequence[str]) -> Iterator[View]:
    """Yield every spelling in which well-formed texts have to be searched."""
    layer, prefix = list(texts), ""
    for _ in range(LAYERS + 1):
        yield from _spellings(layer, prefix)
        after = [decode(text) if encoded(text) else text for text in layer]
        if after == layer:
            return
        layer = ["" if new == old else new for new, old in zip(after, layer, strict=True)]
        prefix = "decoded+"
    yield View(f"{prefix}unread", layer, disguised=True, unread=True)


_BLANKS = re.compile(r"\s{2,}")
_REPEATED = re.compile(r"([^\w\s])\1{3,}")
_blanks = automaton(r"\s\s")
_repeated = automaton(r"[!-/:-@\[-`{-~]{4}|[^\x00-\x7f]{4}")
_NOT_LETTERS = re.compile(r"[\W\d_]+")
_NOT_LATIN_LETTERS = re.compile("[^a-z]+")


def tidy(text: str) -> str:
    """Return the text with its blanks and repeated signs cut down, so that padding pulls no words apart.

    Example:
        >>> tidy("ignore      all ======== rules")
        'ignore all === rules'
    """
    if _blanks(text):
        text = _BLANKS.sub(lambda blanks: "\n" if "\n" in blanks[0] else " ", text)
    return _REPEATED.sub(r"\1\1\1", text) if _repeated(text) else text


def _spellings(texts: list[str], prefix: str) -> Iterator[View]:
    """Yield the spellings of one layer."""
    whole, hidden = "\n".join(texts).lower(), bool(prefix)
    strange = False
    if not whole.isascii():
        strange = odd(whole)
        native = [tidy(fold(text) if strange else text.lower()) for text in texts]
        yield View(prefix + ("folded" if strange else "plain"), native, Script.NATIVE, hidden)
        if strange or spaced_apart(whole):
            letters = [_NOT_LETTERS.sub("", text) for text in native]
            yield View(f"{prefix}squeezed", letters, Script.LETTERS, True)
        if strange:
            yield View(f"{prefix}plain", [tidy(latin(text, see_through=False)) for text in texts], disguised=hidden)
    plain = [tidy(latin(text)) for text in texts]
    whole = "\n".join(["", *plain, ""])
    yield View(prefix + ("lookalike" if strange else "plain"), plain, disguised=hidden or strange)
    if not _disguised(whole):
        return
    for name, pattern, changes in _UNDOING:
        if automaton(pattern)(whole):
            yield from (View(prefix + name, [change(text) for text in plain], disguised=True) for change in changes)
    if automaton(_spaced)(whole) or automaton(_broken)(whole):
        letters = [_NOT_LATIN_LETTERS.sub("", text.translate(_LEET[0])) for text in plain]
        yield View(f"{prefix}squeezed", letters, Script.LETTERS, True)


def _leet_read(table: dict[int, int]) -> Callable[[str], str]:
    """Return the function that reads leet by one table."""
    return lambda text: text.translate(table)


def _words_reversed(text: str) -> str:
    """Return the words in their order, each of them turned round."""
    return " ".join(word[::-1] for word in text.split())


_UNDOING: tuple[tuple[str, str, tuple[Callable[[str], str], ...]], ...] = (
    ("leet", _leet, tuple(map(_leet_read, _LEET))),
    ("rot13", _rot13, (_leet_read(_ROT13),)),
    ("reversed", _reversed, (lambda text: text[::-1], _words_reversed)),
)
