"""The spellings in which a set of texts is searched: as it stands, folded, decoded, and each disguise undone."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Self

from baton.safety.detector.automata import Search, any_of, automaton, others_than
from baton.safety.detector.decoding import decode, encoded
from baton.safety.detector.folding import fold, latin, odd

LAYERS = 6
"""So many layers of encoding are taken off."""

_SIGN = r"[\x00-/:-@\[-`{-\x7f]"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ROT13 = str.maketrans(_LETTERS, _LETTERS[13:] + _LETTERS[:13])
# One sign stands for i or for l: both are tried.
LEET = (str.maketrans("013456789@$!|+", "oieasgtbgasilt"), str.maketrans("01345789@$", "oleastbgas"))
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

_LATER = _LETTERS[6:]  # what is no digit of a hexadecimal number
_leet = any_of(
    others_than(["i18n", "l10n", "a11y", "o11y", "k8s"], [before, *signs, after])
    for signs in (["0134578@$!"], ["013457@$", "0123456789@$"])
    for before, after in ((_LATER, _LETTERS), (_LETTERS, _LATER))
)
_spaced = rf"{_SIGN}[a-z0-9@$!|](?:{_SIGN}+[a-z0-9@$!|]){{5}}{_SIGN}"
_rot13 = r"(?-u:\b)(?:gur|naq|nyy|lbhe|lbh|vafgehpgvba|cerivbhf|vtaber|flfgrz|cebzcg|sbetrg|qvfertneq|cyrnfr)"
_reversed = (
    r"(?-u:\b)(?:eht|dna|lla|ruoy|uoy|snoitcurtsni|suoiverp|erongi|metsys|tpmorp|tegrof|dragersid|esaelp)(?-u:\b)"
)
_broken = r"(?-u:\b)" + any_of(
    f"{stem[:at]}{_SIGN}+" + f"{_SIGN}*".join(stem[at:]) for stem in _STEMS for at in range(1, len(stem))
)
_pulled_apart = any_of([_spaced, _broken])
_apart = r"(?:[\u{3040}-\u{9fff}\u{ac00}-\u{d7a3}][ .*_-]{1,2}){4}"

DISGUISES_BUT_LEET = any_of([_rot13, _reversed, _pulled_apart])
"""Occurs in a text brought down to ASCII that holds words in a disguise that `views` undoes, but for leet."""
DISGUISES = any_of([_leet, DISGUISES_BUT_LEET])
"""Occurs where any of the disguises does."""

_disguised = automaton(DISGUISES)


class Script(Enum):
    """What is left of a text in a view, and so which rules are looked for in it."""

    LATIN = "brought down to ASCII: phrases in Latin letters, and markup"
    NATIVE = "as written: rules for other scripts"
    LETTERS = "nothing but letters: phrases without their blanks"


@dataclass(frozen=True)
class View:
    """One spelling of all texts, put together to one: a line break before, between and behind them, if any.

    Attributes:
        name: `plain`, `folded`, `lookalike`, `leet`, `rot13`, `reversed` or `squeezed`; after `decoded+` if an
            encoding was taken off first.
        whole: The texts so spelled, in their order.
        alike: Texts that are as long as these, each as the one in its place.
        script: Which rules apply. Of letters only, nothing stands between the texts.
        disguised: Whether someone took the trouble to hide the words, which tells against them.
        unread: Whether these texts are still encoded after `LAYERS` layers.
    """

    name: str
    whole: str
    alike: Sequence[str]
    script: Script = Script.LATIN
    disguised: bool = False
    unread: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        texts: Sequence[str],
        script: Script = Script.LATIN,
        *,
        disguised: bool = False,
        unread: bool = False,
    ) -> Self:
        """Return the view of texts that are spelled so."""
        joint = "" if script is Script.LETTERS else "\n"
        return cls(name, f"{joint}{joint.join(texts)}{joint}", texts, script, disguised, unread)

    @property
    def joint(self) -> str:
        """What stands between two texts."""
        return "" if self.script is Script.LETTERS else "\n"

    @cached_property
    def starts(self) -> list[int]:
        """Where each of the texts begins, and behind them where one more would."""
        joint = len(self.joint)
        return [*accumulate([len(text) + joint for text in self.alike], initial=joint)]

    @cached_property
    def texts(self) -> list[str]:
        """The texts, each by itself."""
        return [self.whole[start : behind - len(self.joint)] for start, behind in pairwise(self.starts)]


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
        if not encoded("\n".join(layer)):
            return
        after = [decode(text) if encoded(text) else text for text in layer]
        if after == layer:
            return
        layer = ["" if new == old else new for new, old in zip(after, layer, strict=True)]
        prefix = "decoded+"
    yield View.of(f"{prefix}unread", layer, disguised=True, unread=True)


_BLANKS = re.compile(r"\s{2,}")
_REPEATED = re.compile(r"([^\w\s])\1{3,}")
_signs = (code for code in range(128) if not chr(code).isalnum() and not chr(code).isspace())
# Of ASCII apart from the rest: what is a choice of a few words is found ten times as fast.
_blanks_of_ascii, _blanks_of_any = automaton(r"[\t\n\x0b\x0c\r ]{2}"), automaton(r"\s\s")
_repeated_of_ascii = automaton(any_of(rf"\x{{{code:x}}}{{4}}" for code in _signs))
_repeated_of_any = automaton(r"[^\x00-\x7f]{4}")
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


def _blanks(text: str) -> bool:
    """Return whether two blanks stand side by side."""
    return _blanks_of_ascii(text) or (not text.isascii() and _blanks_of_any(text))


def _repeated(text: str) -> bool:
    """Return whether a sign may stand four times in a row."""
    return _repeated_of_ascii(text) or (not text.isascii() and _repeated_of_any(text))


def untidy(texts: Sequence[str], together: str) -> bool:
    r"""Return whether any of the texts may not be tidy; ``together`` is all of them, in any case of their letters.

    Example:
        >>> untidy(["a  ", "b"], "a  \nb"), untidy(["a", "", "b"], "a\n\nb")
        (True, False)
    """
    return _repeated(together) or (_blanks(together) and _blanks("\n".join(filter(None, texts))))


def _tidied(texts: list[str]) -> list[str]:
    """Return texts, each of them tidy."""
    return [tidy(text) for text in texts] if untidy(texts, "\n".join(texts)) else texts


def _spellings(texts: list[str], prefix: str) -> Iterator[View]:
    """Yield the spellings of one layer."""
    whole, hidden = "\n".join(texts).lower(), bool(prefix)
    strange = False
    if not whole.isascii():
        strange = odd(whole)
        native = _tidied([fold(text) if strange else text.lower() for text in texts])
        yield View.of(prefix + ("folded" if strange else "plain"), native, Script.NATIVE, disguised=hidden)
        if strange or spaced_apart(whole):
            letters = [_NOT_LETTERS.sub("", text) for text in native]
            yield View.of(f"{prefix}squeezed", letters, Script.LETTERS, disguised=True)
        if strange:
            seen = _tidied([latin(text, see_through=False) for text in texts])
            yield View.of(f"{prefix}plain", seen, disguised=hidden)
        view = View.of(
            prefix + ("lookalike" if strange else "plain"),
            _tidied([latin(text) for text in texts]),
            disguised=hidden or strange,
        )
    elif untidy(texts, whole):
        view = View.of(f"{prefix}plain", [tidy(text.lower()) for text in texts], disguised=hidden)
    else:
        view = View(f"{prefix}plain", f"\n{whole}\n", texts, disguised=hidden)
    yield view
    if not _disguised(view.whole):
        return
    for name, occurs, tables in _LETTER_BY_LETTER:
        if occurs(view.whole):
            changed = (view.whole.translate(table) for table in tables)
            yield from (View(prefix + name, whole, view.alike, disguised=True) for whole in changed)
    if automaton(_reversed)(view.whole):
        yield View.of(f"{prefix}reversed", [text[::-1] for text in view.texts], disguised=True)
        yield View.of(f"{prefix}reversed", [_words_reversed(text) for text in view.texts], disguised=True)
    if automaton(_pulled_apart)(view.whole):
        letters = [_NOT_LATIN_LETTERS.sub("", text.translate(LEET[0])) for text in view.texts]
        yield View.of(f"{prefix}squeezed", letters, Script.LETTERS, disguised=True)


def _words_reversed(text: str) -> str:
    """Return the words in their order, each of them turned round."""
    return " ".join(word[::-1] for word in text.split())


_LETTER_BY_LETTER: tuple[tuple[str, Search, tuple[dict[int, int], ...]], ...] = (
    ("leet", automaton(_leet), LEET),
    ("rot13", automaton(_rot13), (_ROT13,)),
)
"""The disguises that put one sign for another."""
