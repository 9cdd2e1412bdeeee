"""What the agents of `contract_review` find and hand on, as frozen records that cross process borders as JSON.

A finding about words carries the words; one about their absence says what was looked for. The baton carries only
ids and key facts: the clauses themselves are an artifact.
"""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from baton.core.baton import Baton, BatonPatch
from baton.errors import BatonError
from baton.wire.money import UsdSpent
from baton.wire.records import CompactRecord, Record

Format = Literal["text", "markdown", "pdf"]
Kind = Literal[
    "parties",
    "definitions",
    "term",
    "renewal",
    "termination",
    "suspension",
    "services",
    "service_levels",
    "payment",
    "liability",
    "indemnity",
    "insurance",
    "warranty",
    "confidentiality",
    "intellectual_property",
    "data_protection",
    "audit",
    "non_compete",
    "non_solicitation",
    "assignment",
    "change",
    "force_majeure",
    "governing_law",
    "dispute_resolution",
    "notices",
    "entire_agreement",
    "general",
]
"""What a clause is about; `general` where no rule says."""

ContractType = Literal["services", "nda", "saas", "employment", "other"]
FactKind = Literal["date", "amount", "period", "percentage", "party", "definition"]
Level = Literal["low", "moderate", "high", "extreme"]
Treatment = Literal["avoid", "reduce", "share", "retain"]
Verdict = Literal["sign", "negotiate", "do not sign"]
Grade = Annotated[int, Field(ge=1, le=5)]
"""Likelihood or consequence, from 1 to 5; `risk` has the criteria."""


class ReviewError(BatonError):
    """The contract, the output folder or a parameter cannot be used as asked; the message says what to do."""


class Line(CompactRecord):
    """A line of the contract as a reader sees it.

    Attributes:
        text: Its words, without mark-up.
        number: In a text or Markdown file, the line; in a PDF, the line of its page. From 1.
        page: From 1; text files count form feeds.
        heading: The level of a Markdown heading, 0 elsewhere.
    """

    text: str
    number: int = Field(ge=1)
    page: int = Field(default=1, ge=1)
    heading: int = Field(default=0, ge=0, le=6)


class Document(Record):
    """A contract as it was read.

    Attributes:
        name: The file's own name.
        format: How it was read.
        sha256: Digest of the file's bytes.
        pages: How many there are.
        lines: In order, blank ones included.
        notes: What the reader should know of the reading: pages without text, an assumed encoding.
    """

    name: str
    format: Format
    sha256: str
    pages: int
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()


class Clause(CompactRecord):
    """A clause, or a point of one.

    Attributes:
        id: As the contract numbers it (`5.2`, `5.2(a)`, `Article IV`), made unique.
        title: Its heading, or its parent's.
        kind: What it is about.
        text: Its own words on one line, without those of the clauses below it.
        parent: The clause it belongs to, or None at the top.
        point: True for lettered points, which the rules read as part of their clause.
        page: Where it begins.
        line: Where it begins, on the page in a PDF and in the file elsewhere.
        last_page: Where it ends.
        last_line: Where it ends.
    """

    id: str
    title: str
    kind: Kind = "general"
    text: str
    parent: str | None = None
    point: bool = False
    page: int
    line: int
    last_page: int
    last_line: int


class Fact(CompactRecord):
    """Something the contract states that can be compared or computed with.

    Attributes:
        kind: What it is.
        clause: Where it stands.
        quote: The words.
        value: Its normal form: `2026-01-31`, `USD 1200.00`, `30 days`, `1.5 % per month`; a party's name; a term.
        role: Of a party: what the contract calls it (`Supplier`). Of an amount: the words before it.
    """

    kind: FactKind
    clause: str
    quote: str
    value: str
    role: str = ""


class Extraction(Record):
    """What the first agent hands on.

    Attributes:
        document: The name of the file.
        sha256: Digest of its bytes.
        type: What sort of contract it is, by its title and words.
        title: Its own title.
        pages: How many pages were read.
        clauses: In order.
        facts: In order of the clauses.
        notes: What the reader should know of the reading.
    """

    document: str
    sha256: str
    type: ContractType
    title: str
    pages: int
    clauses: tuple[Clause, ...]
    facts: tuple[Fact, ...]
    notes: tuple[str, ...] = ()

    def parties(self) -> dict[str, str]:
        """Return the parties' names by their roles."""
        return {fact.role: fact.value for fact in self.facts if fact.kind == "party"}


class Prices(Record):
    """What a token costs, in US dollars for a million of them.

    Attributes:
        prompt_per_million: Tokens read.
        completion_per_million: Tokens written.
    """

    prompt_per_million: UsdSpent = Decimal(0)
    completion_per_million: UsdSpent = Decimal(0)


class Policy(Record):
    """What the reviewing side accepts: the criteria of the review, given as the parameter `policy`.

    Attributes:
        party: The role whose risk it is, as the contract calls it; by default the side that buys or receives.
        appetite: The highest score, likelihood times consequence, that needs no treatment.
        accepted_laws: Governing laws that need no comment; matched as words, in any case.
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
    expected: tuple[Kind, ...] = ()


class Finding(CompactRecord):
    """Something in the contract that a party may come to regret.

    Attributes:
        id: `F-01`, in order of the contract; what is missing comes last.
        rule: The rule that found it, such as `LIA-1`; `LLM-…` for a model's.
        title: What it is, in a few words of ours.
        why: Why it matters, in a sentence.
        clause: Where it stands; None where something is missing.
        quote: The contract's own words; empty where something is missing.
        absent: The kind of clause that is missing.
        page: Of the clause.
        line: Of the clause.
        more: Other clauses it rests on.
        likelihood: The rule's starting point for the analysis of the risk.
        consequence: The same.
        because: What moved the starting point, in words.
        doubt: Why a model doubts it; a finding of a rule is never removed by one.
    """

    id: str
    rule: str
    title: str
    why: str
    clause: str | None = None
    quote: str = ""
    absent: Kind | None = None
    page: int = 0
    line: int = 0
    more: tuple[str, ...] = ()
    likelihood: Grade = 3
    consequence: Grade = 3
    because: str = ""
    doubt: str = ""


class Analysis(Record):
    """What the second agent hands on.

    Attributes:
        party: The role whose risk it is.
        other: The other side's role.
        findings: Everything found.
        rules: How many rules were applied.
        rejected: How many of a model's findings were dropped because the contract does not bear them out.
    """

    party: str
    other: str
    findings: tuple[Finding, ...]
    rules: int
    rejected: int = 0


class Risk(CompactRecord):
    """One risk, taken through the process of ISO 31000:2018.

    Attributes:
        id: `R-01`, the highest first.
        finding: What it comes from.
        clause: Where that stands; None where something is missing.
        title: What it is.
        event: What may happen (6.4.2, identification).
        likelihood: 1 to 5 (6.4.3, analysis).
        likelihood_reason: Why.
        consequence: 1 to 5.
        consequence_reason: Why.
        score: Likelihood times consequence.
        level: Its band.
        accepted: Whether the score is within the appetite (6.4.4, evaluation).
        treatment: What to do (6.5).
        action: How, in a sentence.
        wording: Words to propose; empty where none are needed.
        residual: The score that is left once that is done.
    """

    id: str
    finding: str
    clause: str | None = None
    title: str
    event: str
    likelihood: Grade
    likelihood_reason: str
    consequence: Grade
    consequence_reason: str
    score: int = Field(ge=1, le=25)
    level: Level
    accepted: bool
    treatment: Treatment
    action: str
    wording: str = ""
    residual: int = Field(ge=1, le=25)


class Register(Record):
    """What the third agent hands on: the risk register.

    Attributes:
        appetite: The highest score that is accepted.
        risks: The highest first.
        verdict: What follows for the contract as a whole.
    """

    appetite: int
    risks: tuple[Risk, ...]
    verdict: Verdict


class Statement(CompactRecord):
    """A sentence of the executive summary and what it rests on.

    Attributes:
        text: The sentence.
        clauses: The clauses it rests on.
        findings: The findings it rests on; a statement about something missing has no clause.
        by: The model that wrote it; empty for the rules.
    """

    text: str
    clauses: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    by: str = ""


class Report(Record):
    """What the last agent hands on; `report.json` is this record.

    Attributes:
        summary: The executive summary.
        extraction: What was read.
        analysis: What was found.
        risks: The risk register.
    """

    summary: tuple[Statement, ...]
    extraction: Extraction
    analysis: Analysis
    risks: Register


class ClauseKey(CompactRecord):
    """What the baton says of a clause."""

    id: str
    kind: Kind
    title: str


class RiskFlag(CompactRecord):
    """What the baton says of a risk: the rule that found it, where, and how high it is once scored."""

    finding: str
    rule: str
    clause: str | None = None
    score: int = 0
    treatment: str = ""


class ContractBaton(Baton):
    """The baton of `contract_review`: the eight fields, the clauses by id, the risks by rule.

    Attributes:
        extracted_clauses: The clauses that a rule or model could put a kind to, the first 60.
        risk_flags: The risks, the highest first once they are scored, the first 30.
    """

    extracted_clauses: list[ClauseKey] = Field(default_factory=list)
    risk_flags: list[RiskFlag] = Field(default_factory=list)


class ContractPatch(BatonPatch):
    """What a stage of `contract_review` returns."""

    extracted_clauses: list[ClauseKey] | None = None
    risk_flags: list[RiskFlag] | None = None
