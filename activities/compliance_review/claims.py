"""The sentences in which facts cross from the research to the compliance agent, and reading them back.

A fact of a contract is a sentence, for people and models. Each kind of claim has forms, from which rules can read what
it says: `claim_of(claim.sentence) == claim`. Nothing that somebody wrote fits into them but domains, references, dates
and amounts, so an e-mail cannot speak through them; and one tool alone can say each kind.
"""

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import Field, ValidationError

from activities.compliance_review.records import Amount, Attachment, Domain, Reference
from baton.wire.records import Record

ClaimT = TypeVar("ClaimT", bound="Claim")

_REFERENCE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}"
_DAY = r"[0-9]{4}-[0-9][0-9]-[0-9][0-9]"
_AMOUNT = r"[0-9]{1,14}\.[0-9][0-9] [A-Z]{3}"
_DOMAIN, _FILE = r"[a-z0-9.-]{1,253}", r"[a-z0-9]{1,12} of [0-9]+ KB"


def _list(one: str, empty: str) -> str:
    return rf"{empty}|{one}(?:, {one})*"


_SLOTS = {
    "digest": r"sha256:[0-9a-f]{64}",
    "rule": r"[A-Za-z][A-Za-z0-9-]{0,19}",
    "domain": _DOMAIN,
    "domains": _list(rf"[0-9]+ at {_DOMAIN}", "no recipient"),
    "unreadable": "[0-9]+",
    "files": _list(_FILE, "nothing"),
    "amounts": _list(_AMOUNT, "none"),
    "found": _list("[0-9]+", "none"),
    "of": "[0-9]+",
    **dict.fromkeys(("customer", "tier", "agreement", "quote", "role", "status"), _REFERENCE),
    **dict.fromkeys(("signed_on", "until", "quoted_on"), _DAY),
    "amount": _AMOUNT,
}
"""What can be at each place of a form."""


class Claim(Record):
    """What a sentence says."""

    tool: ClassVar[str]
    forms: ClassVar[tuple[str, ...]]
    about: ClassVar[tuple[str, ...]] = ()

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        values = {name: _spelled(name, value) for name, value in self if value is not None}
        form = next(form for form in self.forms if set(re.findall(r"\{(\w+)\}", form)) <= values.keys())
        return form.format(**values)

    @property
    def subject(self) -> Hashable:
        """What the claim is about."""
        return type(self), *(getattr(self, name) for name in self.about)


class Message(Claim):
    """Which e-mail it is about."""

    tool = "mailbox.read"
    forms = ("The proposed e-mail is {digest}.",)
    digest: str


class Recipients(Claim):
    """Who it goes to: how many at which domain, and how many addresses cannot be read."""

    tool = "mailbox.read"
    forms = ("The e-mail goes to {domains}; {unreadable} addresses are unreadable.",)
    domains: dict[Domain, int]
    unreadable: int = Field(default=0, ge=0)


class Attached(Claim):
    """What is attached to it."""

    tool = "mailbox.read"
    forms = ("Attached is {files}.",)
    files: tuple[Attachment, ...] = ()


class Named(Claim):
    """The highest amounts of money that it names."""

    tool = "mailbox.read"
    forms = ("The highest amount named is {amounts}.",)
    amounts: tuple[Amount, ...] = ()


class Phrases(Claim):
    """Which of a rule's phrases it has, by number; the phrases themselves are in the policy."""

    tool = "mailbox.search"
    forms = ("Of the {of} phrases of rule {rule} the e-mail has: {found}.",)
    about = ("rule",)
    rule: str
    of: int
    found: tuple[int, ...] = ()


class InForce(Claim):
    """Which policy the research used."""

    tool = "policy.search"
    forms = ("The policy in force is {digest}.",)
    digest: str


class Customer(Claim):
    """Whose domain it is."""

    tool = "crm.lookup_customer"
    forms = (
        "The domain {domain} belongs to customer {customer} of tier {tier}.",
        "The domain {domain} belongs to no customer.",
    )
    about = ("domain",)
    domain: Domain
    customer: Reference | None = None
    tier: Reference | None = None


class Agreement(Claim):
    """Whether a customer signed an agreement, and until when it is in force."""

    tool = "contracts.search"
    forms = (
        "Customer {customer} signed the agreement {agreement} on {signed_on}, until {until}.",
        "Customer {customer} signed the agreement {agreement} on {signed_on}, with no end.",
        "Customer {customer} has not signed the agreement {agreement}.",
    )
    about = ("customer", "agreement")
    customer: Reference
    agreement: Reference
    signed_on: date | None = None
    until: date | None = None


class Quote(Claim):
    """What a customer was offered, and when."""

    tool = "crm.lookup_pricing"
    forms = (
        "Quote {quote} of {quoted_on} offers customer {customer} {amount}.",
        "No quote for customer {customer} is on record.",
    )
    about = ("customer", "quote")
    customer: Reference
    quote: Reference | None = None
    quoted_on: date | None = None
    amount: Amount | None = None


class Approval(Claim):
    """Up to which amount a role approved an offer to a customer."""

    tool = "approvals.search"
    forms = (
        "The {role} approved up to {amount} for customer {customer} until {until}.",
        "No approval of {role} for customer {customer} is on record.",
    )
    about = ("customer", "role")
    customer: Reference
    role: Reference
    amount: Amount | None = None
    until: date | None = None


class Status(Claim):
    """The state of a customer's account."""

    tool = "crm.read_customer_status"
    forms = ("The account of customer {customer} has the status {status}.",)
    about = ("customer",)
    customer: Reference
    status: Reference


KINDS: tuple[type[Claim], ...] = (
    *(Message, Recipients, Attached, Named, Phrases, InForce, Customer, Agreement, Quote, Approval, Status),
)
"""Every kind of claim."""


def claim_of(sentence: str) -> Claim | None:
    """Return what a sentence says, or None if it has none of the forms.

    Example:
        >>> claim_of("The domain acme.example belongs to customer C-7 of tier enterprise.")
        Customer(domain='acme.example', customer='C-7', tier='enterprise')
        >>> claim_of("Everything is approved.") is None
        True
    """
    for kind in KINDS:
        for pattern in _patterns(kind):
            if found := pattern.fullmatch(sentence):
                try:
                    return kind.model_validate({name: _read(name, text) for name, text in found.groupdict().items()})
                except (ValueError, ValidationError):  # the form fits, but the day or domain does not exist
                    return None
    return None


@dataclass(frozen=True)
class Known:
    """A fact, as a contract or a tool of the agent's own states it."""

    event: str
    claim: str
    source: str
    confidence: str


@dataclass(frozen=True)
class Backed(Generic[ClaimT]):
    """A claim, and the event that it comes from."""

    claim: ClaimT
    event: str


class Evidence:
    """The facts that a decision may rest on: certain, said by the tool that can say them, and not contradicted.

    Example:
        >>> said = "The account of customer C-7 has the status active."
        >>> by_tool = Known("1.1.4", said, "crm.read_customer_status", "high")
        >>> by_user = Known("1.1.5", said, "user", "low")
        >>> Evidence([by_user, by_tool]).set_aside
        ('1.1.5',)
    """

    def __init__(self, facts: Iterable[Known]) -> None:
        claims: list[Backed[Claim]] = []
        aside: list[str] = []
        for fact in facts:
            claim = claim_of(fact.claim) if fact.confidence == "high" else None
            if claim is None or fact.source != claim.tool:
                aside.append(fact.event)
            else:
                claims.append(Backed(claim, fact.event))
        said: dict[Hashable, set[str]] = {}
        for backed in claims:
            said.setdefault(backed.claim.subject, set()).add(backed.claim.sentence)
        aside += [one.event for one in claims if len(said[one.claim.subject]) > 1]
        self._claims = [one for one in claims if len(said[one.claim.subject]) == 1]
        self.set_aside = tuple(aside)

    def all(self, kind: type[ClaimT], **members: object) -> list[Backed[ClaimT]]:
        """Return the claims of a kind whose members have these values, the same claim once."""
        found: dict[str, Backed[ClaimT]] = {}
        for one in self._claims:
            claim = one.claim
            if isinstance(claim, kind) and all(getattr(claim, name) == value for name, value in members.items()):
                found.setdefault(claim.sentence, Backed(claim, one.event))
        return list(found.values())

    def one(self, kind: type[ClaimT], **members: object) -> Backed[ClaimT] | None:
        """Return the claim of a kind whose members have these values; None if there is none."""
        return next(iter(self.all(kind, **members)), None)


def shown(amount: Amount) -> str:
    """Return an amount as a sentence has it.

    Example:
        >>> shown(Amount(currency="EUR", cents=120_050))
        '1200.50 EUR'
    """
    return f"{amount.cents // 100}.{amount.cents % 100:02} {amount.currency}"


@cache
def _patterns(kind: type[Claim]) -> list[re.Pattern[str]]:
    patterns = []
    for form in kind.forms:
        parts = re.split(r"\{(\w+)\}", form)
        pieces = [re.escape(text) if at % 2 == 0 else f"(?P<{text}>{_SLOTS[text]})" for at, text in enumerate(parts)]
        patterns.append(re.compile("".join(pieces)))
    return patterns


def _spelled(name: str, value: Any) -> str:
    """Return a member as its place in a form has it."""
    match name:
        case "domains":
            return ", ".join(f"{count} at {domain}" for domain, count in sorted(value.items())) or "no recipient"
        case "files":
            return ", ".join(f"{one.type} of {one.kilobytes} KB" for one in value) or "nothing"
        case "amounts":
            return ", ".join(map(shown, value)) or "none"
        case "found":
            return ", ".join(map(str, value)) or "none"
        case "amount":
            return shown(value)
        case _:
            return str(value)


def _read(name: str, text: str) -> Any:
    """Return a member from its place in a form."""
    listed = [] if text in ("no recipient", "nothing", "none") else text.split(", ")
    match name:
        case "domains":
            return {domain: int(count) for count, domain in (one.split(" at ") for one in listed)}
        case "files":
            pairs = [one.removesuffix(" KB").split(" of ") for one in listed]
            return tuple(Attachment(type=kind, kilobytes=int(size)) for kind, size in pairs)
        case "amounts":
            return tuple(map(_amount, listed))
        case "found":
            return tuple(map(int, listed))
        case "amount":
            return _amount(text)
        case "of" | "unreadable":
            return int(text)
        case "signed_on" | "until" | "quoted_on":
            return date.fromisoformat(text)
        case _:
            return text


def _amount(text: str) -> Amount:
    value, currency = text.split(" ")
    return Amount(currency=currency, cents=int(value.replace(".", "")))
