"""The records of `contract_review`.

The baton carries ids and scores; the clauses and findings themselves travel as an artifact, the `Report`.
"""

from bisect import bisect_right
from typing import Annotated, Literal

from pydantic import Field

from baton import Baton, BatonPatch
from baton.errors import BatonError
from baton.wire.records import Record

Level = Literal["low", "moderate", "high", "extreme"]
Verdict = Literal["not judged", "sign", "negotiate", "do not sign"]
Grade = Annotated[int, Field(ge=1, le=5)]
"""Likelihood or consequence, from 1 to 5."""
_BANDS: tuple[tuple[int, Level], ...] = ((15, "extreme"), (10, "high"), (5, "moderate"), (1, "low"))


class ReviewError(BatonError):
    """The contract, the output folder or a parameter cannot be used; the message says what to do."""


class Line(Record):
    """A line of a document as a reader sees it, with its page and its number, both from 1."""

    text: str
    number: int
    page: int = 1


class Document(Record):
    """A document; `notes` describe problems in reading it, such as pages without text."""

    name: str
    sha256: str
    pages: int
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()


class Place(Record):
    """A line of the document, by page and number, and where it begins in a clause's text."""

    start: int = 0
    page: int
    line: int

    def __str__(self) -> str:
        return f"line {self.line}" if self.page == 1 else f"page {self.page}, line {self.line}"


class Clause(Record):
    """A clause: the lines from one that opens it to the next; its title is empty if that line has none."""

    title: str = ""
    topic: str = ""
    text: str = ""
    places: tuple[Place, ...]

    @property
    def id(self) -> str:
        """The line that opens it: numbers of a contract may repeat, and a rule cannot know what they belong to."""
        return str(self.places[0])

    def place(self, offset: int) -> Place:
        """Return the page and the line of an offset in the text."""
        return self.places[bisect_right(self.places, offset, key=lambda place: place.start) - 1]


class Policy(Record):
    """Whom the review is for: the parameter `policy`.

    Attributes:
        party: The side, as the contract names it. Without it nothing is judged.
        appetite: The highest score, likelihood times consequence, that is acceptable.
        terms: What the side accepts, in words for the model.
    """

    party: str | None = None
    appetite: int = Field(default=6, ge=1, le=25)
    terms: tuple[str, ...] = ()


class Mark(Record):
    """Words in a passage, by the topic or the sort of words of `rules.toml` that they belong to."""

    name: str
    words: str


class Passage(Record):
    """Words of a clause, quoted, with the line in which they begin; `marks` are those that were found in them."""

    clause: str
    place: Place
    quote: str
    marks: tuple[Mark, ...] = ()


class Finding(Passage):
    """A risk that a model sees for the side, with the passage that it rests on (ISO 31000:2018, 6.4.2 to 6.5)."""

    id: str = "F-00"
    title: str
    why: str
    action: str
    likelihood: Grade
    consequence: Grade

    @property
    def score(self) -> int:
        """Likelihood times consequence."""
        return self.likelihood * self.consequence

    @property
    def level(self) -> Level:
        """The band of the score."""
        return next(level for minimum, level in _BANDS if self.score >= minimum)


class Statement(Record):
    """A sentence of the summary; a model's has the clauses and findings that it cites."""

    text: str
    clauses: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    by: str = ""


class Report(Record):
    """The review, completed by each agent in turn; `report.json` is this record."""

    written_by: Literal["baton contract_review"] = "baton contract_review"
    document: str
    sha256: str
    pages: int
    notes: tuple[str, ...] = ()
    names: tuple[Passage, ...] = ()
    party: str = ""
    clauses: tuple[Clause, ...]
    passages: tuple[Passage, ...] = ()
    not_found: tuple[str, ...] = ()
    judged: bool = False
    findings: tuple[Finding, ...] = ()
    rejected: int = 0
    appetite: int = 6
    verdict: Verdict = "not judged"
    summary: tuple[Statement, ...] = ()

    @property
    def above(self) -> list[Finding]:
        """The findings that score above the appetite."""
        return [finding for finding in self.findings if finding.score > self.appetite]


class ClauseKey(Record):
    """A clause, as the baton names it."""

    id: str
    topic: str
    title: str


class RiskFlag(Record):
    """A model's finding, as the baton names it: its clause, and its score once known."""

    finding: str
    clause: str
    score: int = 0


class ContractBaton(Baton):
    """The baton of `contract_review`: the eight fields, the first 60 clauses by id, the first 30 risks."""

    extracted_clauses: list[ClauseKey] = Field(default_factory=list)
    risk_flags: list[RiskFlag] = Field(default_factory=list)


class ContractPatch(BatonPatch):
    """The patch of a `contract_review` stage."""

    extracted_clauses: list[ClauseKey] | None = None
    risk_flags: list[RiskFlag] | None = None
