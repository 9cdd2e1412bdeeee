"""The sentences that carry facts from the research to the compliance agent, and their parser.

A contract's fact is a sentence, readable by people and models. Each kind of claim has fixed forms that rules can
parse: `parse_claim(claim.sentence) == claim`. Only domains, references, dates and amounts fit into a form, so the text
of an e-mail cannot pass through it; and only one tool can make each kind of claim.
"""

import contextlib
import re
import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from activities.compliance_review.records import Amount, Domain, Reference
from baton.wire.records import Record

_TYPOGRAPHY = str.maketrans(
    {**dict.fromkeys("‘’‚‛ʼ′", "'"), **dict.fromkeys("“”„‟«»", '"'), **dict.fromkeys("‐‑‒–—―−", "-")}
)


def find_phrases(text: str, phrases: Sequence[str]) -> dict[int, int]:
    r"""Return the phrases that a text contains: their numbers and the lines where they begin, both from 1.

    Matches are whole words, in any case and across line breaks. All forms of quotation marks and dashes are equal,
    because mail programs replace them.
    """
    normalized = _normalize(text)
    patterns = [r"\s+".join(map(re.escape, _normalize(phrase).split())) for phrase in phrases]
    return {
        number: normalized.count("\n", 0, match.start()) + 1
        for number, pattern in enumerate(patterns, 1)
        if pattern and (match := re.search(rf"(?<!\w){pattern}(?!\w)", normalized))
    }


def remove_invisible(text: str) -> str:
    """Normalize a text (NFKC) and remove invisible characters."""
    text = unicodedata.normalize("NFKC", text)
    return "".join(character for character in text if unicodedata.category(character) != "Cf")


def _normalize(text: str) -> str:
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
    """Split a list in a sentence into its items."""
    return ([] if value in ("no recipient", "none") else value.split(", ")) if isinstance(value, str) else value


def _parse_counts(value: Any) -> Any:
    if isinstance(value, str):
        return {domain: count for count, _, domain in (entry.partition(" at ") for entry in _split_list(value))}
    return value


def _parse_lines(value: Any) -> Any:
    if isinstance(value, str):
        return {number: line for number, _, line in (entry.partition(" at line ") for entry in _split_list(value))}
    return value


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
    line: int | None = Field(default=None, ge=1)

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
    domains: Annotated[dict[Domain, int], BeforeValidator(_parse_counts)]
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
    found: Annotated[dict[int, int], BeforeValidator(_parse_lines)] = Field(default_factory=dict)


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
        "The domain {domain} belongs to customer {customer} of tier {tier}.",
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
        "Quote {quote} of {quoted_on} offers customer {customer} {amount}.",
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
    forms = (
        "The account of customer {customer} has the status {status} (customers.csv, line {line}).",
        "The account of customer {customer} has the status {status}.",
    )
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
            said = backed.claim.model_copy(update={"line": None}).sentence  # on whichever line
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
    """Return a member as it appears in a sentence."""
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
