"""The records of `contract_review`.

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
"""Likelihood or consequence, from 1 to 5."""


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


class Clause(Record):
    """A clause: its number in the contract (made unique), title, kind, text on one line, and place."""

    id: str
    title: str
    kind: str = "general"
    text: str = ""
    page: int = 1
    line: int = 1


class Policy(Record):
    """The terms that the reviewing side accepts: the parameter `policy`.

    Attributes:
        party: The role that the review protects, as named in the contract; by default the buyer or recipient.
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
    """The prices in US dollars per million tokens: the parameter `prices`."""

    prompt_per_million: UsdSpent = Decimal(0)
    completion_per_million: UsdSpent = Decimal(0)


class Finding(Record):
    """A possible disadvantage for the party: a quote of a clause, or a missing kind of clause.

    A model's findings have the rule `LLM-1`.
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


class Risk(Record):
    """A risk by ISO 31000:2018 (6.4.2 to 6.5); `residual` is the score after treatment."""

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
    """A sentence of the summary and the clauses and findings it cites; `by` names a model as author."""

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
    """A clause, as the baton names it."""

    id: str
    kind: str
    title: str


class RiskFlag(Record):
    """A risk, as the baton names it: its rule, clause, and score once known."""

    finding: str
    rule: str
    clause: str | None = None
    score: int = 0
    treatment: str = ""


class ContractBaton(Baton):
    """The baton of `contract_review`: the eight fields, the first 60 clauses by id, the first 30 risks by rule."""

    extracted_clauses: list[ClauseKey] = Field(default_factory=list)
    risk_flags: list[RiskFlag] = Field(default_factory=list)


class ContractPatch(BatonPatch):
    """The patch of a `contract_review` stage."""

    extracted_clauses: list[ClauseKey] | None = None
    risk_flags: list[RiskFlag] | None = None
