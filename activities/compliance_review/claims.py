"""The records of `compliance_review`, and the sentences that carry facts from the research to the compliance agent.

Each kind of claim has fixed forms that rules can parse, `parse_claim(claim.sentence) == claim`, and one tool that can
make it. Only domains, references, dates and amounts fit into a form, so no text or address of an e-mail can.
"""

import contextlib
import re
import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

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


_TYPOGRAPHY = str.maketrans(
    {**dict.fromkeys("‘’‚‛ʼ′", "'"), **dict.fromkeys("“”„‟«»", '"'), **dict.fromkeys("‐‑‒–—―−", "-")}
)


def find_phrases(text: str, phrases: Sequence[str]) -> dict[int, int]:
    """Return the numbers of the phrases in a text and the lines where they begin: whole words, in any case."""
    normalized = normalize(text)
    patterns = [r"\s+".join(map(re.escape, normalize(phrase).split())) for phrase in phrases]
    return {
        number: normalized.count("\n", 0, match.start()) + 1
        for number, pattern in enumerate(patterns, 1)
        if pattern and (match := re.search(rf"(?<!\w){pattern}(?!\w)", normalized))
    }


def remove_invisible(text: str) -> str:
    """Normalize a text (NFKC) and remove invisible characters."""
    text = unicodedata.normalize("NFKC", text)
    return "".join(character for character in text if unicodedata.category(character) != "Cf")


def normalize(text: str) -> str:
    """Return the form of a text in which phrases are compared."""
    return unicodedata.normalize("NFKC", remove_invisible(text).translate(_TYPOGRAPHY).casefold())


_FIGURE = r"\d{1,3}(?:[,.'’ ]\d{3}){1,4}(?:[.,]\d{1,2})?(?!\d)|\d{1,15}(?:[.,]\d{1,2}(?!\d))?"
_SCALED = r"(?i:thousand|k|million|mio\.?|m|billion|bn)(?!\w)"
_CODES = "USD|EUR|GBP|CHF|AED|AUD|BRL|CAD|CNY|CZK|DKK|HKD|HUF|ILS|INR|JPY|KRW|MXN|NOK|NZD|PLN|RON|SEK|SGD|TRY|TWD|ZAR"
_CURRENCY = rf"(?:[$€£¥]|\b(?:{_CODES}))"
_AMOUNT = re.compile(
    rf"(?P<c1>{_CURRENCY})\s?(?P<n1>{_FIGURE})(?P<s1>\s?{_SCALED})?"
    rf"|(?<!\w)(?P<n2>{_FIGURE})(?P<s2>\s?{_SCALED})?\s?(?P<c2>(?:[€£¥]|{_CODES}|(?i:euros?|dollars?|pounds))(?!\w))"
)
_CURRENCIES = {"$": "USD", "dollar": "USD", "€": "EUR", "euro": "EUR", "£": "GBP", "pound": "GBP", "¥": "JPY"}
_SCALES = {
    **dict.fromkeys(("thousand", "k"), 10**3),
    **dict.fromkeys(("million", "mio", "m"), 10**6),
    **dict.fromkeys(("billion", "bn"), 10**9),
}


def highest_amounts(text: str) -> tuple[Amount, ...]:
    """Return the highest amount in each currency of a text."""
    highest: dict[str, int] = {}
    for match in _AMOUNT.finditer(" ".join(text.split())):
        sign, digits = match["c1"] or match["c2"], match["n1"] or match["n2"]
        scale = (match["s1"] or match["s2"] or "").strip(" .").lower()
        if grouped := re.search(r"[.,'’ ]\d{3}(?:[,.](\d{1,2}))?$", digits):
            units = digits[: grouped.start(1) - 1] if grouped[1] else digits
            digits = re.sub(r"\D", "", units) + (f".{grouped[1]}" if grouped[1] else "")
        value = Decimal(digits.replace(",", ".")) * _SCALES.get(scale, 1)
        currency = _CURRENCIES.get(sign.lower().removesuffix("s"), sign)
        highest[currency] = max(min(int(value * 100), 10**15), highest.get(currency, 0))
    return tuple(Amount(currency=currency, cents=cents) for currency, cents in sorted(highest.items()))


ClaimT = TypeVar("ClaimT", bound="Claim")


def _split_list(value: Any) -> Any:
    return ([] if value in ("no recipient", "none") else value.split(", ")) if isinstance(value, str) else value


def _parse_pairs(value: Any) -> Any:
    """Parse `2 at acme.example` and `1 at line 14`: how many recipients a domain has, where a phrase is."""
    if not isinstance(value, str):
        return value
    pairs = (entry.partition(" at ") for entry in _split_list(value))
    return (
        {**{left: right.removeprefix("line ") for left, _, right in pairs}}
        if " at line " in value
        else {right: left for left, _, right in pairs}
    )


def _parse_amount(value: Any) -> Any:
    if isinstance(value, str):
        units, _, currency = value.partition(" ")
        return {"currency": currency, "cents": int(units.replace(".", ""))}
    return value


Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Sum = Annotated[Amount, BeforeValidator(_parse_amount)]


class Claim(Record):
    """The content of a fact; subclasses define its sentence. `line` is where its register has it."""

    model_config = ConfigDict(frozen=True, strict=False)

    tool: ClassVar[str]
    forms: ClassVar[tuple[str, ...]]
    about: ClassVar[tuple[str, ...]] = ()
    line: int = Field(default=1, ge=1)

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        values = {name: _render_value(value) for name, value in self if value is not None}
        form = next(form for form in self.forms if set(re.findall(r"\{(\w+)\}", form)) <= values.keys())
        return form.format(**values)

    @property
    def subject(self) -> Hashable:
        """The key of the claim; two claims about one subject contradict each other."""
        return type(self), *(getattr(self, name) for name in self.about)


class Message(Claim):
    """The e-mail under review."""

    tool = "mailbox.read"
    forms = ("The proposed e-mail is {digest}.",)
    digest: Digest


class Recipients(Claim):
    """The number of recipients by domain, and of unreadable addresses."""

    tool = "mailbox.read"
    forms = ("The e-mail goes to {domains}; {unreadable} addresses are unreadable.",)
    domains: Annotated[dict[Domain, int], BeforeValidator(_parse_pairs)]
    unreadable: int = Field(default=0, ge=0)


class Named(Claim):
    """The highest amount of money in each currency."""

    tool = "mailbox.read"
    forms = ("The highest amount named is {amounts}.",)
    amounts: Annotated[tuple[Sum, ...], BeforeValidator(_split_list)] = ()


class Phrases(Claim):
    """The phrases of a rule in the e-mail: number and line of its text, the subject first; the policy has the words."""

    tool = "mailbox.search"
    forms = ("Of the {of} phrases of rule {rule} the e-mail has: {found}.",)
    about = ("rule",)
    rule: Reference
    of: int
    found: Annotated[dict[int, int], BeforeValidator(_parse_pairs)] = Field(default_factory=dict)


class InForce(Claim):
    """The policy of the research."""

    tool = "policy.search"
    forms = ("The policy in force is {digest}.",)
    digest: Digest


class Customer(Claim):
    """The customer that owns a domain."""

    tool = "crm.lookup_customer"
    forms = (
        "The domain {domain} belongs to customer {customer} of tier {tier} (customers.csv, line {line}).",
        "No customer with the domain {domain} is on record.",
    )
    about = ("domain",)
    domain: Domain
    customer: Reference | None = None
    tier: Reference | None = None


class Quote(Claim):
    """An offer to a customer."""

    tool = "crm.lookup_pricing"
    forms = (
        "Quote {quote} of {quoted_on} offers customer {customer} {amount} (prices.csv, line {line}).",
        "No quote for customer {customer} is on record.",
    )
    about = ("customer", "quote")
    customer: Reference
    quote: Reference | None = None
    quoted_on: date | None = None
    amount: Sum | None = None


class Status(Claim):
    """The status of a customer's account."""

    tool = "crm.read_customer_status"
    forms = ("The account of customer {customer} has the status {status} (customers.csv, line {line}).",)
    about = ("customer",)
    customer: Reference
    status: Reference


KINDS: tuple[type[Claim], ...] = (*(Message, Recipients, Named, Phrases, InForce, Customer, Quote, Status),)
"""Every kind of claim."""


def parse_claim(sentence: str) -> Claim | None:
    """Parse a sentence, or return None if it matches no form."""
    for kind in KINDS:
        for pattern in _patterns(kind):
            with contextlib.suppress(ValidationError):  # the form matches, but a date or domain is invalid
                if (match := pattern.fullmatch(sentence)) and (
                    claim := kind.model_validate(match.groupdict())
                ).sentence == sentence:
                    return claim
    return None


@dataclass(frozen=True)
class Fact:
    """A fact from a contract or from one of the agent's own tools."""

    event: str
    claim: str
    source: str
    confidence: str


@dataclass(frozen=True)
class BackedClaim(Generic[ClaimT]):
    """A claim and the event that supports it."""

    claim: ClaimT
    event: str


class Evidence:
    """The facts that a decision may rest on: certain, from the right tool, and not contradicted."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        claims: list[BackedClaim[Claim]] = []
        set_aside: list[str] = []
        for fact in facts:
            claim = parse_claim(fact.claim) if fact.confidence == "high" else None
            if claim is None or fact.source != claim.tool:
                set_aside.append(fact.event)
            else:
                claims.append(BackedClaim(claim, fact.event))
        sentences: dict[Hashable, set[str]] = {}
        for backed in claims:
            said = backed.claim.model_copy(update={"line": 1}).sentence  # on whichever line
            sentences.setdefault(backed.claim.subject, set()).add(said)
        set_aside += [backed.event for backed in claims if len(sentences[backed.claim.subject]) > 1]
        self._claims = [backed for backed in claims if len(sentences[backed.claim.subject]) == 1]
        self.set_aside = tuple(set_aside)

    def all(self, kind: type[ClaimT], **members: object) -> list[BackedClaim[ClaimT]]:
        """Return the distinct claims of a kind with these member values."""
        matches: dict[str, BackedClaim[ClaimT]] = {}
        for backed in self._claims:
            claim = backed.claim
            if isinstance(claim, kind) and all(getattr(claim, name) == value for name, value in members.items()):
                matches.setdefault(claim.sentence, BackedClaim(claim, backed.event))
        return list(matches.values())

    def one(self, kind: type[ClaimT], **members: object) -> BackedClaim[ClaimT] | None:
        """Return the first claim of a kind with these member values, or None."""
        return next(iter(self.all(kind, **members)), None)


def render_amount(amount: Amount) -> str:
    """Return an amount as it appears in a sentence."""
    return f"{amount.cents // 100}.{amount.cents % 100:02} {amount.currency}"


@cache
def _patterns(kind: type[Claim]) -> list[re.Pattern[str]]:
    return [re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(form))) for form in kind.forms]


def _render_value(value: Any) -> str:
    match value:
        case dict():
            if any(isinstance(key, str) for key in value):
                return ", ".join(f"{count} at {domain}" for domain, count in sorted(value.items()))
            return ", ".join(f"{number} at line {line}" for number, line in sorted(value.items())) or "none"
        case tuple():
            return ", ".join(map(_render_value, value)) or "none"
        case Amount():
            return render_amount(value)
        case _:
            return str(value)
