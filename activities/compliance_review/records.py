"""What the agents of `compliance_review` find and hand on, as frozen records that cross process borders as JSON.

No record holds an address, a name or a sentence of an e-mail: of recipients there are domains, of prices amounts.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from baton.errors import BatonError
from baton.wire.records import CompactRecord, Record

Verdict = Literal["approved", "needs_review", "violates_policy"]
"""What follows: it may be sent, a person has to look, or it may not be sent as it is."""

Result = Literal["met", "violated", "unknown"]
"""What became of one rule; `unknown` wherever a fact that it needs is not there."""

Severity = Literal["block", "review"]
"""What a violation amounts to: it may not be sent, or a person has to look."""

Domain = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+$")]
"""The part of an address behind the @, in lower case and ASCII."""


def domain_of(text: str) -> str:
    """Return a domain in lower case and ASCII; empty where it cannot be one."""
    try:
        return text.strip().rstrip(".").encode("idna").decode("ascii").lower()
    except UnicodeError:
        return ""


def _named(text: Any) -> Any:
    return domain_of(text.strip().removeprefix("@")) if isinstance(text, str) else text


NamedDomain = Annotated[Domain, BeforeValidator(_named)]
"""A domain as people write it into policies and registers: in any case and script, also behind an @."""

Reference = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
"""What a register calls a customer, a quote or a kind of agreement; never the name of a person."""

SCHEMA_NAME = "ComplianceDecision"
SCHEMA_VERSION = "1.2"


class ComplianceError(BatonError):
    """The mailbox, the policy or a parameter cannot be used as asked; the message says what to do."""


class RegisterError(BatonError):
    """A register cannot be asked, or what it holds cannot be used; nothing is known from it."""


class Amount(CompactRecord):
    """An amount of money, in hundredths of a currency of ISO 4217."""

    currency: str = Field(pattern=r"^[A-Z]{3}$")
    cents: int = Field(ge=0, le=10**15)


class Mail(Record):
    """A proposed e-mail, as far as rules speak of it."""

    digest: str
    domains: dict[Domain, int]
    unreadable: int = 0
    amounts: tuple[Amount, ...] = ()
    text: str | None = Field(default="", exclude=True, repr=False)


class RuleOutcome(CompactRecord):
    """What one rule came to, why, and the session events that it rests on."""

    rule: str
    title: str
    severity: Severity
    result: Result
    because: str
    facts: tuple[str, ...] = ()


class Concern(CompactRecord):
    """What a model finds worth a person's look; it can hold an e-mail back, and let none pass."""

    text: str
    facts: tuple[str, ...]
    by: str


class ComplianceDecision(Record):
    """What the compliance agent decides: version 1.2 of the output schema `ComplianceDecision`."""

    verdict: Verdict
    message: str
    handoff_id: str
    policy: str
    policy_version: str
    outcomes: tuple[RuleOutcome, ...]
    concerns: tuple[Concern, ...] = ()
    set_aside: tuple[str, ...] = ()

    def results(self, result: Result) -> list[RuleOutcome]:
        """Return the rules with a result, in the policy's order."""
        return [one for one in self.outcomes if one.result == result]
