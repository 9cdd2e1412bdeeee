"""Which lines open a clause: numbers, articles, paragraphs signs, capitals, lettered points.

A number at the beginning of a line may be the middle of a sentence that a PDF broke there, so a number opens a
clause only where it continues the numbering, and what follows it can begin one.
"""

import re
from dataclasses import dataclass, field

from activities.contract_review.facts import SPELLED, spelled
from activities.contract_review.records import Line

_KEYWORD = re.compile(
    r"^(article|section|clause|schedule|exhibit|annex|appendix|part|sec\.|art\.|cl\.)\s+(?:no\.\s+)?"
    rf"(\d{{1,3}}(?:\.\d{{1,3}}){{0,3}}|{SPELLED}|[IVXLC]{{1,7}}|[A-Z])\b(\s*[.:)–—-]+)?\s*(.*)$",
    re.IGNORECASE,
)
_SIGN = re.compile(r"^§\s*(\d{1,3}(?:\.\d{1,3}){0,3})(\s*[.:)–—-]+)?\s*(.*)$")
_DECIMAL = re.compile(r"^(\d{1,3}(?:\.\d{1,3}){0,4})([.):]?)(?:\s+(?:[–—-]\s+)?(\S.*))?$")
_ROMAN = re.compile(r"^([IVXLC]{1,7})\.\s+(\S.*)$")
_LETTER = re.compile(r"^([A-Z])\.\s+(\S.*)$")
_POINT = re.compile(r"^\(?([a-z]|[ivxl]{1,6}|[A-Z]|\d{1,2})\)\s+(\S.*)$")
_CONTENTS = re.compile(r"(?:\.\s?){4,}\d{1,4}$")
_OPENS = re.compile(r'^[A-Z(“"\[]')
_RUN_IN = re.compile(r'^([A-Z][^.:;“”"]{1,70})[.:]\s+(?=[A-Z“"(\[])')
_SENTENCE = re.compile(r"^(?:This|These|If|Each|Either|Neither|Unless|Where) ")
_VERB = re.compile(r"\b(?:shall|may|must|will|is|are|was|has|have|means?|does|agrees?)\b")
_WORD = re.compile(r"[^\W\d_][\w'’-]*")
# fmt: off
_SMALL = frozenset({
    "a", "an", "and", "as", "at", "by", "for", "from", "in", "into", "its", "of", "on", "or", "per", "the", "to",
    "upon", "with",
})
# fmt: on
_ATTACHED = frozenset({"schedule", "exhibit", "annex", "appendix"})
_LONGEST_TITLE = 80
_MOST_BEFORE_COLON = 4  # words of a title that is not in capitals
_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_SPELLED = frozenset(SPELLED.split("|"))

Path = tuple[int, ...]


@dataclass(frozen=True)
class Opening:
    """A line that could open a clause.

    Attributes:
        style: `number`, `article`, `attached` (a schedule), `heading` (without a number), `point`, or `letter` (`A.`).
        label: As written: `5.2`, `Article IV`, `(a)`; empty for a heading.
        path: The number as whole numbers; empty where there is none.
        rest: What follows on the line.
    """

    style: str
    label: str
    path: Path
    rest: str


def opening_of(line: Line, before: str, after: str) -> Opening | None:
    """Return what a line could open, by its shape alone.

    Args:
        line: The line.
        before: The text of the line before, empty at the top.
        after: The text of the next line.

    Example:
        >>> found = opening_of(Line(text="5.2 Cap. The total liability", number=1), "", "")
        >>> found.path, found.rest
        ((5, 2), 'Cap. The total liability')
        >>> opening_of(Line(text="30 days after the invoice", number=2), "", "") is None
        True
    """
    text = line.text
    if not text or _CONTENTS.search(text[-200:]):
        return None
    found = _keyword(text, after) or _numbered(text, line.heading > 0) or _lettered(text)
    if found:
        return found
    if line.heading or _stands_out(text, before, after) or text.upper().startswith("IN WITNESS WHEREOF"):
        return Opening("heading", "", (), text)
    return None


def split_title(rest: str, after: str, *, heading: bool = False) -> tuple[str, str]:
    """Return the title that stands after a number, and the words of the clause itself.

    Args:
        rest: The line after its number.
        after: The next line.
        heading: Whether the line is a Markdown heading, all of which is title.

    Example:
        >>> split_title("Payment Terms. Invoices are due", "")
        ('Payment Terms', 'Invoices are due')
        >>> split_title("The Supplier shall deliver.", "")
        ('', 'The Supplier shall deliver.')
    """
    if heading:
        return rest.rstrip(".:"), ""
    found = _RUN_IN.match(rest)
    if found and (is_title(found[1]) or (is_title(found[1], strict=False) and not _VERB.search(found[1]))):
        return found[1], rest[found.end() :]
    if rest.endswith(".") and is_title(rest[:-1]) and ". " not in rest and not _VERB.search(rest.lower()):
        return rest[:-1], ""
    fresh = not after or opening_of(Line(text=after, number=1), "", "") is not None
    ends = fresh or (_OPENS.match(after) and (not _in_capitals(after) or _is_short_beside(rest, after)))
    ends = ends and not _SENTENCE.match(rest) and not (_in_capitals(rest) and _VERB.search(rest.lower()))
    if rest and ends and rest[-1] not in ".;," and ". " not in rest and is_title(rest.rstrip(":"), strict=not fresh):
        return rest.rstrip(":"), ""
    return "", rest


def is_title(text: str, *, strict: bool = True) -> bool:
    """Return whether a text reads like a title: short, and most of its longer words with a capital.

    Args:
        text: The text.
        strict: Otherwise the first word alone may have one ("Limitation of liability").
    """
    words = _WORD.findall(text[: _LONGEST_TITLE + 1])
    if not words or len(text) > _LONGEST_TITLE or len(words) > 10 or not words[0][0].isupper():
        return False
    if not strict:
        return len(words) <= 8
    counted = [word for word in words if word.lower() not in _SMALL]
    capitals = sum(word[0].isupper() for word in counted)
    return bool(10 * capitals >= 7 * max(1, len(counted)))


def is_heading(text: str) -> bool:
    """Return whether a whole line reads like a title: no sentence, and no number that opens something else.

    Example:
        >>> is_heading("POSITION AND DUTIES"), is_heading("The Employee shall work"), is_heading("1.1 Duties")
        (True, False, False)
    """
    is_title_alone = text[-1:] not in tuple(".;,:") and is_title(text) and not _VERB.search(text.lower())
    return is_title_alone and not (_keyword(text, "") or _DECIMAL.match(text))


def reads_as_sentence(text: str) -> bool:
    """Return whether a text says something of somebody, as wordings do and titles do not.

    Example:
        >>> reads_as_sentence("The Customer shall pay."), reads_as_sentence("Payment of fees")
        (True, False)
    """
    return _VERB.search(text.lower()) is not None


def follows(candidate: Path, last: Path) -> bool:
    """Return whether a number can come after another one: its first point, or the next of it or one above.

    Up to two numbers may be missing, as in contracts from which a clause was struck.

    Example:
        >>> follows((5, 1), (5,)), follows((6,), (5, 3)), follows((12, 5), (5, 3))
        (True, True, False)
    """
    if not last:
        return candidate[0] <= 1 and set(candidate[1:]) <= {1}
    if candidate == (*last, 1):
        return True
    depth = len(candidate)
    if depth <= len(last) and candidate[:-1] == last[: depth - 1] and 1 <= candidate[-1] - last[depth - 1] <= 3:
        return True
    return depth > 1 and candidate[-1] == 1 and depth - 1 <= len(last) and follows(candidate[:-1], last)


@dataclass
class Points:
    """The lettered points that are open: (a), (b), and (i), (ii) below them."""

    _open: list[tuple[str, int]] = field(default_factory=list)
    _labels: list[str] = field(default_factory=list)

    def take(self, mark: str) -> list[str] | None:
        """Return the labels from the outermost to ``mark``, or None where it continues no list.

        Example:
            >>> points = Points()
            >>> [points.take(mark) for mark in ("a", "b", "i", "ii", "c", "30")]
            [['(a)'], ['(b)'], ['(b)', '(i)'], ['(b)', '(ii)'], ['(c)'], None]
        """
        readings = _readings(mark)
        for depth in range(len(self._open) - 1, -1, -1):
            style, last = self._open[depth]
            if readings.get(style) == last + 1:
                del self._open[depth:], self._labels[depth:]
                return self._push(style, last + 1, mark)
        used = {style for style, _ in self._open}
        for style in ("roman", "alpha", "digit", "capital"):
            if readings.get(style) == 1 and style not in used and len(self._open) < 4:
                return self._push(style, 1, mark)
        return None

    def _push(self, style: str, number: int, mark: str) -> list[str]:
        self._open.append((style, number))
        self._labels.append(f"({mark})")
        return list(self._labels)


@dataclass
class TopPoints:
    """Points that count the clauses of a contract themselves: (1), (2) or a), b)."""

    _style: str = ""
    _last: int = 0

    def take(self, mark: str) -> int:
        """Return which clause a mark opens, or 0 where it continues no count: it is a point of the clause then.

        Example:
            >>> points = TopPoints()
            >>> [points.take(mark) for mark in ("1", "a", "i", "2", "30")]
            [1, 0, 0, 2, 0]
        """
        readings = _readings(mark)
        style = self._style or next((style for style, number in readings.items() if number == 1), "")
        if readings.get(style) != self._last + 1:
            return 0
        self._style, self._last = style, self._last + 1
        return self._last


def _readings(mark: str) -> dict[str, int]:
    """Return what a point's mark can mean: `i` is a letter and a number."""
    found: dict[str, int] = {}
    if mark.isdecimal():
        found["digit"] = int(mark)
    elif len(mark) == 1 and mark.isupper():
        found["capital"] = ord(mark) - 64
    elif len(mark) == 1:
        found["alpha"] = ord(mark) - 96
    if mark.islower() and set(mark) <= set("ivxl"):
        found["roman"] = _roman(mark.upper())
    return found


def _roman(text: str) -> int:
    """Return the value of a Roman number.

    Example:
        >>> _roman("XIV")
        14
    """
    values = [_VALUES[letter] for letter in text]
    return sum(-value if value < nxt else value for value, nxt in zip(values, [*values[1:], 0], strict=True))


def _keyword(text: str, after: str) -> Opening | None:
    """Read `Article IV`, `Section 4.2`, `§ 4`, `Schedule A`; not a sentence that begins with a reference."""
    sign = _SIGN.match(text)
    if sign:
        word, number, ended, rest = "§", sign[1], sign[2], sign[3]
    else:
        found = _KEYWORD.match(text)
        if not found:
            return None
        word, number, ended, rest = found[1].lower(), found[2], found[3], found[4]
    if (rest and not (ended or split_title(rest, after)[0])) or (rest and not _OPENS.match(rest)):
        return None
    label = f"{word} {number}" if sign else f"{word.capitalize()} {number.upper()}"
    if word in _ATTACHED:
        return Opening("attached", label, (), rest)
    path = tuple(int(part) for part in number.split(".")) if number[0].isdecimal() else ()
    if not path and number.lower() in _SPELLED:
        path = (spelled(number),)
    if not path and set(number.upper()) <= _VALUES.keys():
        path = (_roman(number.upper()),)
    if not path:
        return Opening("attached", label, (), rest)
    return Opening("article" if word in ("article", "art.", "part") else "number", label, path, rest)


def _numbered(text: str, heading: bool) -> Opening | None:
    """Read `5.`, `5.2`, `5)` and `IV.` before something that can begin a clause."""
    found = _DECIMAL.match(text)
    if found:
        rest = found[3] or ""
        dotted = bool(found[2]) or "." in found[1]
        if (dotted or heading or is_title(rest)) and (not rest or _OPENS.match(rest)):
            path = tuple(int(part) for part in found[1].split("."))
            return Opening("number", found[1], path[:-1] if len(path) == 2 and not path[1] else path, rest)
        return None
    roman = _ROMAN.match(text)
    if roman and is_title(roman[2]):
        return Opening("article", roman[1], (_roman(roman[1]),), roman[2])
    return None


def _lettered(text: str) -> Opening | None:
    found = _POINT.match(text)
    if found:
        return Opening("point", found[1], (), found[2])
    found = _LETTER.match(text)
    return Opening("letter", found[1], (), found[2]) if found and _OPENS.match(found[2]) else None


def _stands_out(text: str, before: str, after: str) -> bool:
    """Return whether a line in capitals is a heading, and not part of a paragraph in capitals."""
    letters = [letter for letter in text[: _LONGEST_TITLE + 1] if letter.isalpha()]
    if len(text) > _LONGEST_TITLE or len(letters) < 4 or text[-1] in ".,;" or not all(map(str.isupper, letters)):
        return False
    return (not before or before[-1] in ".;:") and not _in_capitals(after)


def _is_short_beside(rest: str, after: str) -> bool:
    """Return whether a line in capitals ends of itself: a paragraph is broken where it is about as long as the next."""
    return _in_capitals(rest) and 3 * len(rest) < 2 * len(after)


def stands_alone(text: str, before: str, after: str) -> bool:
    """Return whether a line without number or capitals is a title by where it stands, as one in bold type is.

    Args:
        text: The line.
        before: The text of the line before.
        after: The text of the next line.

    Example:
        >>> stands_alone("Payment Terms", "It ends in May.", "Fees are due."), stands_alone("Late payment", "", "")
        (True, True)
        >>> stands_alone("Payment Terms", "which are told in the", "below."), stands_alone("Ash shall pay", "", "")
        (False, False)
        >>> stands_alone("Payment:", "", "Fees are due."), stands_alone("Subject to what is told in the rest:", "", "")
        (True, False)
    """
    if before and before[-1] not in ".;:":
        return False
    alone, title = not before and not after, text.rstrip(":")
    if title != text and len(title.split()) > _MOST_BEFORE_COLON:  # what introduces a list ends so as well
        return is_heading(title)
    return is_heading(title) or (
        alone and title[-1:] not in (*".;,", "") and is_title(title, strict=False) and not _VERB.search(title.lower())
    )


def runs_in(text: str, before: str) -> str:
    """Return the title that a paragraph without a number begins with, empty where it has none.

    Args:
        text: The line.
        before: The text of the line before.

    Example:
        >>> runs_in("Governing law. This is governed by", ""), runs_in("Fees: The Customer shall pay", "It ends.")
        ('Governing law', 'Fees')
        >>> runs_in("The Supplier pays. It shall", ""), runs_in("Delaware. The courts", "by the laws of")
        ('', '')
    """
    found = _RUN_IN.match(text)
    if found is None or (before and before[-1] not in ".;:"):
        return ""
    title = found[1]
    is_short = len(title.split()) <= _MOST_BEFORE_COLON and title.split()[0].lower() not in _SMALL
    fits = is_title(title) or (is_short and is_title(title, strict=False))
    return title if fits and not _VERB.search(title.lower()) else ""


def _in_capitals(text: str) -> bool:
    """Return whether a line shouts, as disclaimers do over many lines."""
    beginning = text[:_LONGEST_TITLE]
    return beginning[:1].isalpha() and beginning.upper() == beginning
