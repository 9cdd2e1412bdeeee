"""What the agents of `contract_review` find and hand on, as frozen records.

The baton carries ids and scores; the clauses and findings themselves travel as an artifact, the `Report`.
"""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from baton import Baton, BatonPatch
from baton.errors import BatonError
from baton.wire.money import UsdSpent
from baton.wire.records import Record

Level = Literal["low", "moderate", "high", "extreme"]
Treatment = Literal["avoid", "reduce", "share", "retain"]
Verdict = Literal["sign", "negotiate", "do not sign"]
Grade = Annotated[int, Field(ge=1, le=5)]
"""Likelihood or consequence, from 1 to 5; `report` has the criteria."""


class ReviewError(BatonError):
    """The contract, the output folder or a parameter cannot be used; the message says what to do."""


class Line(Record):
    """A line of a document as a reader sees it, with its page and its number, both from 1."""

    text: str
    number: int
    page: int = 1


class Document(Record):
    """A document as it was read; `notes` say what a reader should know of the reading, such as pages without text."""

    name: str
    sha256: str
    pages: int
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()


class Clause(Record):
    """A clause.

    Attributes:
        id: Its number in the contract (`5.2`, `Article IV`), made unique.
        title: Its heading, or that of the clause around it.
        kind: What it is about, one of the kinds in `rules.toml`; `general` where no rule says.
        text: Its words on one line, as they are in the contract.
        page: Where it begins.
        line: Where it begins: in the file, or on the page of a PDF.
    """

    id: str
    title: str
    kind: str = "general"
    text: str = ""
    page: int = 1
    line: int = 1


class Policy(Record):
    """What the reviewing side accepts: the parameter `policy`.

    Attributes:
        party: The role whose risk it is, as the contract calls it; by default the side that buys or receives.
        appetite: The highest score, likelihood times consequence, that needs no treatment.
        accepted_laws: Governing laws that need no remark.
        max_payment_days: The longest time to pay.
        min_notice_days: The shortest notice to end the contract.
        max_renewal_notice_days: The longest notice against a renewal.
        max_monthly_interest: Percent a month on late payments.
        min_cap_months: A cap on the other side's liability below so many months of fees is low.
        max_non_compete_months: The longest restraint.
        max_confidentiality_years: The longest duty of confidence.
        expected: Kinds of clauses expected beyond those of the contract's type.
    """

    party: str | None = None
    appetite: int = Field(default=6, ge=1, le=25)
    accepted_laws: tuple[str, ...] = ("England and Wales", "Ireland", "Germany", "France", "Netherlands")
    max_payment_days: int = Field(default=60, ge=1)
    min_notice_days: int = Field(default=30, ge=1)
    max_renewal_notice_days: int = Field(default=90, ge=1)
    max_monthly_interest: float = Field(default=1.5, ge=0)
    min_cap_months: int = Field(default=12, ge=1)
    max_non_compete_months: int = Field(default=12, ge=0)
    max_confidentiality_years: int = Field(default=7, ge=1)
    expected: tuple[str, ...] = ()


class Prices(Record):
    """What a token costs, in US dollars for a million of them: the parameter `prices`."""

    prompt_per_million: UsdSpent = Decimal(0)
    completion_per_million: UsdSpent = Decimal(0)


class Finding(Record):
    """Something in the contract that a party may come to regret.

    Attributes:
        id: `F-01`, in the order of the clauses; what is missing comes last.
        rule: The rule that found it, such as `LIA-1`; `LLM-1` for a model's.
        title: What it is.
        why: Why it matters.
        clause: Where it is; None where something is missing.
        quote: The contract's own words; empty where something is missing.
        absent: The kind of clause that is missing.
        likelihood: The rule's grade.
        consequence: The rule's grade.
        because: What the rule compared, in words.
        doubt: Why a model doubts it. A finding of a rule is never removed by a model.
    """

    id: str = "F-00"
    rule: str
    title: str
    why: str
    clause: str | None = None
    quote: str = ""
    absent: str | None = None
    likelihood: Grade = 3
    consequence: Grade = 3
    because: str = ""
    doubt: str = ""


class Risk(Record):
    """One risk, taken through the process of ISO 31000:2018.

    Attributes:
        id: `R-01`, the highest first.
        finding: What it comes from.
        clause: Where that is; None where something is missing.
        title: What it is.
        event: What may happen (6.4.2, identification).
        likelihood: 1 to 5 (6.4.3, analysis).
        consequence: 1 to 5.
        score: Likelihood times consequence.
        level: The band of the score.
        accepted: Whether the score is within the appetite (6.4.4, evaluation).
        treatment: What to do (6.5).
        action: How, in a sentence.
        wording: Words to propose; empty where none are needed.
        residual: The score that is left after the treatment.
    """

    id: str
    finding: str
    clause: str | None = None
    title: str
    event: str
    likelihood: Grade
    consequence: Grade
    score: int
    level: Level
    accepted: bool
    treatment: Treatment
    action: str
    wording: str = ""
    residual: int


class Statement(Record):
    """A sentence of the summary, the clauses and findings it rests on, and the model that wrote it, if one did."""

    text: str
    clauses: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    by: str = ""


class Report(Record):
    """The whole review, filled in by one agent after the other; `report.json` is this record.

    Attributes:
        written_by: Marks the file as ours to replace.
        document: The name of the file.
        sha256: Digest of its bytes.
        pages: How many pages were read.
        notes: What a reader should know of the reading.
        title: The contract's title.
        type: What sort of contract it is.
        parties: The parties' names by their roles.
        clauses: In order.
        party: The role whose risk it is.
        other: The other side's role.
        findings: Everything found.
        uncovered: The clauses that no rule looked at any closer.
        rejected: How many of a model's findings were dropped because the contract does not have their words.
        appetite: The highest score that is accepted.
        risks: The highest first.
        verdict: What follows for the contract as a whole.
        summary: The executive summary.
    """

    written_by: Literal["baton contract_review"] = "baton contract_review"
    document: str
    sha256: str
    pages: int
    notes: tuple[str, ...] = ()
    title: str
    type: str
    parties: dict[str, str] = Field(default_factory=dict)
    clauses: tuple[Clause, ...]
    party: str = ""
    other: str = ""
    findings: tuple[Finding, ...] = ()
    uncovered: tuple[str, ...] = ()
    rejected: int = 0
    appetite: int = 6
    risks: tuple[Risk, ...] = ()
    verdict: Verdict = "sign"
    summary: tuple[Statement, ...] = ()


class ClauseKey(Record):
    """What the baton has of a clause."""

    id: str
    kind: str
    title: str


class RiskFlag(Record):
    """What the baton has of a risk: the rule that found it, where, and how high it is once scored."""

    finding: str
    rule: str
    clause: str | None = None
    score: int = 0
    treatment: str = ""


class ContractBaton(Baton):
    """The baton of `contract_review`: the eight fields, the clauses by id, the risks by rule.

    Attributes:
        extracted_clauses: The clauses whose kind is known, the first 60.
        risk_flags: The risks, the highest first once they are scored, the first 30.
    """

    extracted_clauses: list[ClauseKey] = Field(default_factory=list)
    risk_flags: list[RiskFlag] = Field(default_factory=list)


class ContractPatch(BatonPatch):
    """What a stage of `contract_review` returns."""

    extracted_clauses: list[ClauseKey] | None = None
    risk_flags: list[RiskFlag] | None = None
