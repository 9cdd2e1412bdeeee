"""The sentences in which facts cross from the research to the compliance agent, and reading them back.

A fact of a contract is a sentence, for people and models. Each kind of claim has forms, from which rules can read what
it says: `claim_of(claim.sentence) == claim`. Nothing that somebody wrote fits into them but domains, references, dates
and amounts, so an e-mail cannot speak through them; and one tool alone can say each kind.
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

_TYPED = str.maketrans(
    {**dict.fromkeys("‘’‚‛ʼ′", "'"), **dict.fromkeys("“”„‟«»", '"'), **dict.fromkeys("‐‑‒–—―−", "-")}
)


def phrases_in(text: str, phrases: Sequence[str]) -> tuple[int, ...]:
    r"""Return which of some phrases a text has, by number from 1 on.

    They are found as whole words, in any case and however they are broken into lines. Quotation marks and dashes of
    any form are the same, for mail programs put others than were typed.
    """
    plain = _plain(text)
    wanted = [r"\s+".join(map(re.escape, _plain(phrase).split())) for phrase in phrases]
    return tuple(at for at, words in enumerate(wanted, 1) if words and re.search(rf"(?<!\w){words}(?!\w)", plain))


def without_invisible(text: str) -> str:
    """Return a text with compatible characters in their plain form, and without invisible ones."""
    text = unicodedata.normalize("NFKC", text)
    return "".join(character for character in text if unicodedata.category(character) != "Cf")


def _plain(text: str) -> str:
    """Return a text in the form in which phrases are compared."""
    return unicodedata.normalize("NFKC", without_invisible(text).translate(_TYPED).casefold())


_FIGURE = r"\d{1,3}(?:[,.'’ ]\d{3}){1,4}(?:[.,]\d{1,2})?(?!\d)|\d{1,15}(?:[.,]\d{1,2}(?!\d))?"
_SCALED = r"(?i:thousand|k|million|mio\.?|m|billion|bn)(?!\w)"
_CODES = "USD|EUR|GBP|CHF|AED|AUD|BRL|CAD|CNY|CZK|DKK|HKD|HUF|ILS|INR|JPY|KRW|MXN|NOK|NZD|PLN|RON|SEK|SGD|TRY|TWD|ZAR"
_CURRENCY = rf"(?:[$€£¥]|\b(?:{_CODES}))"
_AMOUNT_NAMED = re.compile(
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
    """Return the highest amount that a text names in each currency."""
    highest: dict[str, int] = {}
    for found in _AMOUNT_NAMED.finditer(" ".join(text.split())):
        sign, digits = found["c1"] or found["c2"], found["n1"] or found["n2"]
        scale = (found["s1"] or found["s2"] or "").strip(" .").lower()
        if grouped := re.search(r"[.,'’ ]\d{3}(?:[,.](\d{1,2}))?$", digits):
            whole = digits[: grouped.start(1) - 1] if grouped[1] else digits
            digits = re.sub(r"\D", "", whole) + (f".{grouped[1]}" if grouped[1] else "")
        value = Decimal(digits.replace(",", ".")) * _SCALES.get(scale, 1)
        currency = _CURRENCIES.get(sign.lower().removesuffix("s"), sign)
        highest[currency] = max(min(int(value * 100), 10**15), highest.get(currency, 0))
    return tuple(Amount(currency=currency, cents=cents) for currency, cents in sorted(highest.items()))


ClaimT = TypeVar("ClaimT", bound="Claim")


def _listed(value: Any) -> Any:
    """Return the parts of a list as a sentence has it."""
    return ([] if value in ("no recipient", "none") else value.split(", ")) if isinstance(value, str) else value


def _counted(value: Any) -> Any:
    if isinstance(value, str):
        return {domain: count for count, _, domain in (one.partition(" at ") for one in _listed(value))}
    return value


def _amount(value: Any) -> Any:
    if isinstance(value, str):
        units, _, currency = value.partition(" ")
        return {"currency": currency, "cents": int(units.replace(".", ""))}
    return value


Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Sum = Annotated[Amount, BeforeValidator(_amount)]


class Claim(Record):
    """What a sentence says."""

    model_config = ConfigDict(frozen=True, strict=False)

    tool: ClassVar[str]
    forms: ClassVar[tuple[str, ...]]
    about: ClassVar[tuple[str, ...]] = ()

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        values = {name: _spelled(value) for name, value in self if value is not None}
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
    digest: Digest


class Recipients(Claim):
    """Who it goes to: how many at which domain, and how many addresses cannot be read."""

    tool = "mailbox.read"
    forms = ("The e-mail goes to {domains}; {unreadable} addresses are unreadable.",)
    domains: Annotated[dict[Domain, int], BeforeValidator(_counted)]
    unreadable: int = Field(default=0, ge=0)


class Named(Claim):
    """The highest amounts of money that it names."""

    tool = "mailbox.read"
    forms = ("The highest amount named is {amounts}.",)
    amounts: Annotated[tuple[Sum, ...], BeforeValidator(_listed)] = ()


class Phrases(Claim):
    """Which of a rule's phrases it has, by number; the phrases themselves are in the policy."""

    tool = "mailbox.search"
    forms = ("Of the {of} phrases of rule {rule} the e-mail has: {found}.",)
    about = ("rule",)
    rule: Reference
    of: int
    found: Annotated[tuple[int, ...], BeforeValidator(_listed)] = ()


class InForce(Claim):
    """Which policy the research used."""

    tool = "policy.search"
    forms = ("The policy in force is {digest}.",)
    digest: Digest


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
    amount: Sum | None = None


class Status(Claim):
    """The state of a customer's account."""

    tool = "crm.read_customer_status"
    forms = ("The account of customer {customer} has the status {status}.",)
    about = ("customer",)
    customer: Reference
    status: Reference


KINDS: tuple[type[Claim], ...] = (*(Message, Recipients, Named, Phrases, InForce, Customer, Quote, Status),)
"""Every kind of claim."""


def claim_of(sentence: str) -> Claim | None:
    """Return what a sentence says, or None if it has none of the forms."""
    for kind in KINDS:
        for pattern in _patterns(kind):
            with contextlib.suppress(ValidationError):  # the form fits, but the day or domain does not exist
                if (found := pattern.fullmatch(sentence)) and (
                    claim := kind.model_validate(found.groupdict())
                ).sentence == sentence:
                    return claim
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
    """The facts that a decision may rest on: certain, said by the tool that can say them, and not contradicted."""

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
    """Return an amount as a sentence has it."""
    return f"{amount.cents // 100}.{amount.cents % 100:02} {amount.currency}"


@cache
def _patterns(kind: type[Claim]) -> list[re.Pattern[str]]:
    return [re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(form))) for form in kind.forms]


def _spelled(value: Any) -> str:
    """Return a member as its place in a form has it."""
    match value:
        case dict():
            return ", ".join(f"{count} at {domain}" for domain, count in sorted(value.items())) or "no recipient"
        case tuple():
            return ", ".join(map(_spelled, value)) or "none"
        case Amount():
            return shown(value)
        case _:
            return str(value)
