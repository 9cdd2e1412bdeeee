"""The first agent: a contract as clauses with an id, a title, a kind and a place, and the facts in them."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from activities.contract_review.facts import find_facts
from activities.contract_review.headings import (
    Opening,
    Path,
    Points,
    TopPoints,
    follows,
    is_heading,
    opening_of,
    runs_in,
    split_title,
    stands_alone,
)
from activities.contract_review.kinds import kind_of, type_of
from activities.contract_review.records import Clause, Document, Extraction, Line, ReviewError
from activities.contract_review.rows import unfolded

PREAMBLE = "Preamble"
"""The id of what stands before the first clause."""

_MOST_CLAUSES = 20_000
_HYPHENATED = re.compile(r"(?<=[a-z])- (?=(?!and\b|or\b|to\b)[a-z])")  # `third-` ends a line, `party` begins the next
_LONGEST_TITLE = 120
_CONTRACT = re.compile(r"(?i)\b(?:agreement|contract|terms|deed|addendum)\b")

_NO_CONTRACT = "Neither a clause that contracts have nor the word was found: it may be no contract"


@dataclass
class _Draft:
    """A clause while its lines are still being read."""

    id: str
    title: str
    parent: str | None
    point: bool
    first: Line
    last: Line
    words: list[str] = field(default_factory=list)
    style: str = ""  # `heading`, `run-in` or `attached` where it has no number

    def take(self, line: Line, text: str) -> None:
        """Add a line's words."""
        if text:
            self.words.append(text)
            self.last = line


def extract(document: Document) -> Extraction:
    """Return the clauses of a contract, each with its kind and place, and the facts in them.

    Every word of the contract is in exactly one clause or title. A contract without any numbering or headings
    is one clause.

    Args:
        document: The contract as it was read.

    Returns:
        The clauses in order, ids unique.

    Raises:
        ReviewError: There are more clauses than any contract has; it is probably something else.
    """
    lines = unfolded(document.lines)
    reader = _read(lines)
    if _is_undivided(reader.drafts):
        reader, titled = _read(lines, points=True), _read(lines, titles=True)
        if len(_telling(titled.drafts)) > max(1, len(_telling(reader.drafts))):  # no lines of an address
            reader = titled
    clauses = _with_kinds(reader.drafts)
    title = reader.title or document.name
    is_one = any(_CONTRACT.search(text) for text in (title, *(line.text for line in lines)))
    is_one = is_one or not {clause.kind for clause in clauses} <= {"general", "parties"}
    return Extraction(
        document=document.name,
        sha256=document.sha256,
        type=type_of(title, clauses),
        title=title,
        pages=document.pages,
        clauses=clauses,
        facts=tuple(find_facts(clauses)),
        notes=document.notes if is_one else (*document.notes, _NO_CONTRACT),
    )


def _is_undivided(drafts: Sequence[_Draft]) -> bool:
    """Return whether nothing was found but headings that tell nothing, such as those of signatures, and attachments."""
    body = list(takewhile(lambda draft: draft.style != "attached", drafts))
    others = [draft for draft in body if draft.style]
    lengths = [sum(map(len, draft.words)) for draft in others]
    is_counted = any(not (draft.style or draft.point or draft.id in (PREAMBLE, "I")) for draft in body)
    is_most = 2 * sum(lengths) <= sum(sum(map(len, draft.words)) for draft in body)
    return not is_counted and is_most and not _telling(others)  # `I.` by itself is the letter after `H.`


def _telling(drafts: Sequence[_Draft]) -> set[str]:
    """Return the titles that name what contracts settle."""
    titles = {draft.title for draft in drafts if not draft.point and draft.id != PREAMBLE}
    return {title for title in titles if kind_of(title, "") != "general"}


def _read(lines: Sequence[Line], *, points: bool = False, titles: bool = False) -> "_Reader":
    """Return the reader of a whole contract.

    Args:
        lines: The contract's.
        points: Whether `(1)`, `a)` or `A.` may count its clauses: they do where nothing else does.
        titles: Whether titles that stand alone may part them, where these do not either.
    """
    reader = _Reader(points=points, titles=titles)
    texts = [line.text for line in lines]
    for at, line in enumerate(lines):
        before = texts[at - 1] if at else ""
        after = texts[at + 1] if at + 1 < len(texts) else ""
        reader.read(line, before, after)
    return reader


class _Reader:
    """Reads line by line and knows where in the numbering it is.

    Attributes:
        drafts: The clauses so far.
        title: The contract's title, once it was read.
    """

    def __init__(self, *, points: bool, titles: bool) -> None:
        self.drafts: list[_Draft] = []
        self.title = ""
        self._ids: Counter[str] = Counter()
        self._titles: dict[str, str] = {}
        self._headings = 0
        self._number: Path = ()
        self._article: Path = ()
        self._prefix = ""  # where numbering began anew: the heading or schedule it did so under
        self._heading: str | None = None
        self._level = 0  # of that heading, in Markdown
        self._may_restart = False
        self._sections: dict[Path, str] = {}
        self._section: str | None = None
        self._points = Points()
        self._top = TopPoints() if points else None
        self._stand_alone = titles
        self._address: _Draft | None = None  # `1 High Street` could be clause 1, until `1.` is
        self._untitled = False  # `ARTICLE I` stood alone: its title may be the next line

    def read(self, line: Line, before: str, after: str) -> None:
        """Take the next line."""
        if not line.text:
            return
        if self._untitled and is_heading(line.text):
            self._untitled = False
            self.drafts[-1].title = self._titles[self.drafts[-1].id] = line.text
            return
        found = opening_of(line, before, after)
        if found is None and self._stand_alone:
            found = self._titled(line.text, before, after)
        if not self.drafts:
            self._begin(line, found)
            if found is None or found.style == "heading":
                return
        if found is None or not self._open(line, found, after):
            self.drafts[-1].take(line, line.text)

    def _titled(self, text: str, before: str, after: str) -> Opening | None:
        """Return what a title without number or capitals opens, on a line of its own or at the head of a paragraph.

        The first of the latter has to name what contracts settle: before it stand `Date:` and the like.
        """
        if stands_alone(text, before, after):
            return Opening("heading", "", (), text.rstrip(":"))
        title = runs_in(text, before)
        is_title = title and (self._headings or kind_of(title, "") != "general")
        return Opening("run-in", "", (), text) if is_title else None

    def _begin(self, line: Line, found: Opening | None) -> None:
        """Open the preamble; a heading at the very top is the contract's title."""
        if found is not None and found.style == "heading":
            self.title = line.text[:_LONGEST_TITLE]
        elif found is None and len(line.text) <= _LONGEST_TITLE and line.text[-1] not in ".,;":
            self.title = line.text
        preamble = _Draft(PREAMBLE, self.title or PREAMBLE, None, False, line, line)
        self._ids[PREAMBLE] += 1
        self.drafts.append(preamble)
        if found is None:
            preamble.take(line, line.text)

    def _open(self, line: Line, found: Opening, after: str) -> bool:
        """Open the clause that a line announces; return False where it announces none."""
        counts = found.style in ("point", "letter", "article")  # C and I are Roman numbers as well
        number = self._top.take(found.label) if self._top and counts else 0
        if number:
            label = f"({found.label})" if found.style == "point" else found.label
            found = Opening("number", label, (number,), found.rest)
        if found.style == "letter":
            return False
        if found.style == "point":
            labels = self._points.take(found.label) if self._section else None
            if labels is None or self._section is None:
                return False
            parent = self._section + "".join(labels[:-1])
            self._add(
                line, self._section + "".join(labels), self._titles[self._section], parent, found.rest, point=True
            )
            return True
        self._untitled = found.style in ("article", "attached") and not found.rest
        title, rest = split_title(found.rest, after, heading=bool(line.heading))
        if found.style in ("heading", "attached", "run-in"):
            if found.style == "heading" and self._titles_still(line):
                return False
            if found.rest.upper().startswith("IN WITNESS WHEREOF"):
                title, rest = "Signatures", found.rest
            elif found.style == "heading":  # a heading is a title as a whole
                title, rest = found.rest, ""
            self._open_heading(line, found, title or found.label, rest)
            return True
        return self._open_number(line, found, title, rest)

    def _titles_still(self, line: Line) -> bool:
        """Return whether a heading is a title of the contract below another one, such as a company's name."""
        if len(self.drafts) > 1 or self.drafts[0].words not in ([], [self.title]) or not _CONTRACT.search(line.text):
            return False
        if not _CONTRACT.search(self.title):
            self.title = self.drafts[0].title = line.text[:_LONGEST_TITLE]
        return True

    def _open_heading(self, line: Line, found: Opening, title: str, rest: str) -> None:
        """Open a clause without a number of its own."""
        self._headings += not found.label
        id = found.label or f"H{self._headings}"
        self._section = self._heading = self._add(line, id, title or id, None, rest)
        self.drafts[-1].style = found.style
        self._level = line.heading
        self._may_restart = True
        self._points = Points()

    def _open_number(self, line: Line, found: Opening, title: str, rest: str) -> bool:
        """Open a numbered clause, if its number can come here."""
        path = found.path
        if found.style == "article":
            return self._open_article(line, found, title, rest)
        is_bare = line.text.startswith(f"{found.label} ") and not line.heading
        if path == (1,) and self._address is self.drafts[-1] and not is_bare:
            self._give_back(self.drafts.pop())
        if not follows(path, self._number):
            if not (self._may_restart and follows(path, ())):
                return False
            self._prefix, self._sections = f"{self._heading} ", {}
        above = None if 0 < line.heading < self._level else self._heading  # a lower title heads no higher one
        parent = self._sections.get(path[:-1]) if len(path) > 1 else above
        inherited = self._titles.get(parent or "", "")
        id = self._add(line, self._prefix + found.label, title or inherited or found.label, parent, rest)
        self._enter(id, path)
        self._may_restart = False
        if path == (1,) and is_bare:
            self._address = self.drafts[-1]
        return True

    def _give_back(self, address: _Draft) -> None:
        """Put what was no clause to the words before it."""
        above = self.drafts[-1]
        for words in (f"{address.id} {address.title}", *address.words):
            above.take(address.last, words)
        self._ids[address.id] -= 1
        self._number, self._section, self._address = (), None, None

    def _open_article(self, line: Line, found: Opening, title: str, rest: str) -> bool:
        """Open an article; its sections carry its number on (4.1) or are counted anew (Section 1)."""
        if not follows(found.path, self._article):
            return False
        self._prefix, self._sections = "", {}
        self._heading = self._add(line, found.label, title or found.label, None, rest)
        self._article = found.path
        self._enter(self._heading, found.path)
        self._may_restart = True
        return True

    def _enter(self, id: str, path: Path) -> None:
        """Go on counting from a number."""
        self._number = path
        self._sections = {key: value for key, value in self._sections.items() if len(key) < len(path)} | {path: id}
        self._section, self._points = id, Points()

    def _add(self, line: Line, id: str, title: str, parent: str | None, rest: str, *, point: bool = False) -> str:
        """Add a clause under an id that no other has, and return the id."""
        if len(self.drafts) >= _MOST_CLAUSES:
            raise ReviewError(f"more than {_MOST_CLAUSES:,} clauses; give one contract alone")
        self._ids[id] += 1
        unique = id if self._ids[id] == 1 else f"{id} ({self._ids[id]})"
        self._titles[unique] = title[:_LONGEST_TITLE]
        draft = _Draft(unique, title[:_LONGEST_TITLE], parent, point, line, line)
        draft.take(line, rest)
        self.drafts.append(draft)
        return unique


def _with_kinds(drafts: list[_Draft]) -> tuple[Clause, ...]:
    """Return the clauses; one that says nothing of its kind has its parent's."""
    clauses: dict[str, Clause] = {}
    for draft in drafts:
        above = clauses.get(draft.parent) if draft.parent else None
        text = _HYPHENATED.sub("-", " ".join(draft.words))
        own_title = draft.title if above is None or draft.title != above.title else ""
        clauses[draft.id] = Clause(
            id=draft.id,
            title=draft.title,
            kind="parties" if draft.id == PREAMBLE else kind_of(own_title, text, above.kind if above else "general"),
            text=text,
            parent=draft.parent,
            point=draft.point,
            page=draft.first.page,
            line=draft.first.number,
            last_page=draft.last.page,
            last_line=draft.last.number,
        )
    return tuple(clauses.values())
