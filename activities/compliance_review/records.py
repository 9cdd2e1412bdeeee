"""The records of `compliance_review`.

No record holds an address, a name or a sentence of an e-mail, only domains of recipients and amounts.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from baton.errors import BatonError
from baton.wire.records import CompactRecord, Record

Judgement = Literal["approved", "needs_review", "violates_policy"]
"""What a model concludes: the e-mail may be sent, needs a person's review, or may not be sent unchanged."""

Verdict = Literal["not_judged", "approved", "needs_review", "violates_policy"]
"""A judgement, or `not_judged`: rules compare, and give no verdict."""

Result = Literal["agrees", "differs", "not found"]
"""How the facts compare with one rule; `not found` if a required fact is missing."""

Severity = Literal["block", "review"]
"""The weight of a rule that the facts differ from: a model that judges may not judge more leniently."""

Domain = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+$")]
"""The domain of an address, in lower-case ASCII."""


def parse_domain(text: str) -> str:
    """Return a domain in lower-case ASCII, or an empty text if it is invalid."""
    try:
        return text.strip().rstrip(".").encode("idna").decode("ascii").lower()
    except UnicodeError:
        return ""


def _normalize_domain(text: Any) -> Any:
    return parse_domain(text.strip().removeprefix("@")) if isinstance(text, str) else text


NamedDomain = Annotated[Domain, BeforeValidator(_normalize_domain)]
"""A domain as written in policies and registers: any case and script, with or without @."""

Reference = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
"""The id of a customer, quote or agreement in a register; never a person's name."""

SCHEMA_NAME = "ComplianceDecision"
SCHEMA_VERSION = "1.2"


class ComplianceError(BatonError):
    """The mailbox, the policy or a parameter cannot be used; the message says what to do."""


class RegisterError(BatonError):
    """A register is unreadable or invalid; it answers nothing."""


class Amount(CompactRecord):
    """An amount of money, in hundredths of a currency of ISO 4217."""

    currency: str = Field(pattern=r"^[A-Z]{3}$")
    cents: int = Field(ge=0, le=10**15)


class Mail(Record):
    """The properties of a proposed e-mail that rules need."""

    digest: str
    domains: dict[Domain, int]
    unreadable: int = 0
    amounts: tuple[Amount, ...] = ()
    text: str | None = Field(default="", exclude=True, repr=False)


class RuleOutcome(CompactRecord):
    """The result of one rule, its reason, and the session events that support it."""

    rule: str
    title: str
    severity: Severity
    result: Result
    because: str
    facts: tuple[str, ...] = ()


class Concern(CompactRecord):
    """A point that a model raises for a person's review; it can hold an e-mail back, never release it."""

    text: str
    facts: tuple[str, ...]
    by: str


class ComplianceDecision(Record):
    """The decision of the compliance agent: version 1.2 of the output schema `ComplianceDecision`."""

    verdict: Verdict
    message: str
    handoff_id: str
    policy: str
    policy_version: str
    outcomes: tuple[RuleOutcome, ...]
    concerns: tuple[Concern, ...] = ()
    set_aside: tuple[str, ...] = ()

    def results(self, result: Result) -> list[RuleOutcome]:
        """Return the outcomes with this result, in the policy's order."""
        return [outcome for outcome in self.outcomes if outcome.result == result]
