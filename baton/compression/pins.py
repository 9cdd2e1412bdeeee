"""What no compression may lose: decisions, constraints, flags and numbers, found by rules and kept word for word.

A model that summarises forgets, and nobody sees what. So whoever writes the summary, what is found here is carried
beneath it in the words in which it was said (EAAPL-MAG006 §6.4, §11). The rules err towards keeping: a sentence too
many costs tokens. They know English, German and French by their words, and numbers in any language; a decision that
is told in none of those words is not known for one.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from baton.compression.cues import CONSTRAINT, DECISION, FLAG, LABEL, NUMBER_WORDS, REASON
from baton.compression.sentences import lines, sentences_of_line


class PinKind(StrEnum):
    """Why a sentence is kept; the first that fits counts."""

    DECISION = "decision"
    """What was decided, with the reason given in the same or the next sentence."""
    CONSTRAINT = "constraint"
    """A rule, such as `key:value` or "must not"."""
    FLAG = "flag"
    """A warning, something open, something that stands in the way."""
    NUMBER = "number"
    """An amount, a date, an id, a measure: anything with a digit, or a number in words."""


WHOLE: None = None
"""The reach that keeps a whole sentence."""
REACHES: tuple[int | None, ...] = (WHOLE, 4, 1)
"""How much is kept around a number where there is less and less room: words on either side of it."""

_LONGEST_LABELLED = 600
_LONGEST_VALUE = 80
_WORD = re.compile(r"\S+")
_DIGIT = re.compile(r"\d")
_EDGES = "\"'«»„“”‘’()[]{}<>.,;:!?…*_`"


_SIGNS = re.compile("[⚠🚩❗‼⛔🛑]")
_NOT_WORD = re.compile(r"\W*")
_AFTER_LABEL = re.compile(r"\w*\s*(?:\([^)]{0,60}\)|\d{1,4})?\s*[:—–]")
# `key:value` in one word; `key: value` and `"key": value` where the value is one word and ends the line.
_KEY_VALUE_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,80}:(?!//)[^\s:]")
_KEY_VALUE_LINE = re.compile(r"[\"'`]?[A-Za-z_][A-Za-z0-9_.-]{0,80}[\"'`]?: {0,4}[^\s:]\S{0,200},?")
_LIST_NUMBER = re.compile(r"\d{1,2}[.)]")
_MONTH = re.compile(
    r"(?:jan|feb|fév|mar|mär|apr|avr|ma[iy]|ju[nl]|jui|aug|aoû|sep|o[ck]t|nov|de[cz]|déc)", re.IGNORECASE
)
_IN_WORDS = re.compile(r"[-‐‑]")


@dataclass(frozen=True)
class Pin:
    """A sentence that is kept.

    Attributes:
        kind: Why.
        text: The sentence, word for word on one line; of a decision with its reason, two of them.
    """

    kind: PinKind
    text: str

    def within(self, reach: int | None) -> str:
        """Return the sentence, or of a number as much of it as a reach allows; other kinds are always whole.

        Args:
            reach: How many words to keep on either side of a number; `WHOLE` for all.

        Example:
            >>> pin = Pin(PinKind.NUMBER, "The supplier told us that the cap is EUR 500,000 per claim and year.")
            >>> pin.within(WHOLE) == pin.text, pin.within(1)
            (True, 'EUR 500,000 per')
        """
        if reach is None or self.kind is not PinKind.NUMBER:
            return self.text
        words = list(_WORD.finditer(self.text))
        spans: list[tuple[int, int]] = []
        for place in _values(words):
            first, last = max(0, place - reach), min(len(words) - 1, place + reach)
            if spans and first <= spans[-1][1] + 1:
                spans[-1] = (spans[-1][0], last)
            else:
                spans.append((first, last))
        return " … ".join(self.text[words[first].start() : words[last].end()] for first, last in spans)


def pins_of(text: str) -> list[Pin]:
    """Return what of a text no compression may lose, in its order.

    Args:
        text: Any text, such as what was said in a turn.

    Returns:
        The pins.

    Example:
        >>> for pin in pins_of("We looked around. We chose Postgres. Reason: it locks rows. Pay 30 EUR! Fine."):
        ...     print(pin.kind, "|", pin.text)
        decision | We chose Postgres. Reason: it locks rows.
        number | Pay 30 EUR!
    """
    parts = list(_parts(text))
    found: list[Pin] = []
    reason_taken = False
    for (part, kind), (following, its_kind) in pairwise([*parts, ("", None)]):
        if reason_taken:
            reason_taken = False
            continue
        if (
            kind is PinKind.DECISION
            and its_kind is not PinKind.DECISION
            and _begins(REASON, _folded(following)) is not None
        ):
            part, reason_taken = f"{part} {following}", True
        if kind is not None:
            found.append(Pin(kind, part))
    return found


def repinned(line: str) -> Pin:
    """Return the pin of a line that was pinned before; whatever it is, it stays pinned.

    Example:
        >>> repinned("Postgres it is").kind, repinned("30 EUR").kind
        (<PinKind.FLAG: 'flag'>, <PinKind.NUMBER: 'number'>)
    """
    return Pin(kind_of(line) or PinKind.FLAG, line)


def kind_of(sentence: str) -> PinKind | None:
    """Return why a sentence is to be kept, or None if it need not be.

    Example:
        >>> kind_of("returnJSON:true").value, kind_of("Nice weather today")
        ('constraint', None)
    """
    folded = _folded(sentence)
    if DECISION.search(folded):
        return PinKind.DECISION
    if CONSTRAINT.search(folded) or _has_key_value(sentence):
        return PinKind.CONSTRAINT
    if FLAG.search(folded) or _SIGNS.search(sentence):
        return PinKind.FLAG
    return None if next(_values(list(_WORD.finditer(sentence))), None) is None else PinKind.NUMBER


def _parts(text: str) -> Iterator[tuple[str, PinKind | None]]:
    """Yield the sentences of a text and why each is kept; a line with a label such as `Decision:` is one."""
    for line in lines(text):
        labelled = len(line) <= _LONGEST_LABELLED and _is_labelled(_folded(line))
        for part in (line,) if labelled else sentences_of_line(line):
            kind = kind_of(part)
            yield part, PinKind.FLAG if labelled and kind in (None, PinKind.NUMBER) else kind


def _begins(vocabulary: re.Pattern[str], folded: str) -> re.Match[str] | None:
    """Return the word of a vocabulary that a text begins with, signs before it not counted."""
    signs = _NOT_WORD.match(folded)
    return vocabulary.match(folded, signs.end() if signs else 0)


def _is_labelled(folded: str) -> bool:
    """Return whether a line begins with a label, such as `Decision 3:`."""
    label = _begins(LABEL, folded)
    return label is not None and _AFTER_LABEL.match(folded, label.end()) is not None


def _values(words: list[re.Match[str]]) -> Iterator[int]:
    """Yield the place of each word that is or has a number."""
    for place, word in enumerate(words):
        if _is_value(word[0], place, words):
            yield place


def _is_value(word: str, place: int, words: list[re.Match[str]]) -> bool:
    """Return whether a word is or has a number; the number of a list's item is none."""
    if len(word) > _LONGEST_VALUE:
        return False
    if _DIGIT.search(word):
        item = place == 0 and len(words) > 1 and _LIST_NUMBER.fullmatch(word)
        return not item or bool(_MONTH.match(words[1][0]))
    folded = _folded(word.strip(_EDGES))
    return any(NUMBER_WORDS.match(part) for part in _IN_WORDS.split(folded))


def _has_key_value(sentence: str) -> bool:
    """Return whether a sentence is or has a rule of the form `key:value`."""
    if ":" not in sentence:
        return False
    if _KEY_VALUE_LINE.fullmatch(sentence):
        return True
    return any(":" in word and _KEY_VALUE_WORD.match(word.lstrip(_EDGES)) for word in sentence.split())


def _folded(text: str) -> str:
    """Return a text in lower case and in one spelling of its accents."""
    return text.casefold() if text.isascii() else unicodedata.normalize("NFC", text).casefold()
