"""The sentences in which facts cross from the research to the compliance agent, and reading them back.

A fact of a contract is a sentence, for people and models. Here each kind of sentence has one form, of which rules can
read what it says: `claim_of(claim.sentence) == claim`. Nothing that somebody wrote has a place in them but domains,
references, dates and amounts, so an e-mail cannot speak through them; and of each kind it is known which tool alone
can say it.
"""

import re
from abc import abstractmethod
from collections.abc import Hashable
from datetime import date
from typing import ClassVar, Self

from pydantic import Field, ValidationError

from activities.compliance_review.records import Amount, Attachment, Domain, Reference
from baton.wire.records import Record

_DIGEST = r"sha256:[0-9a-f]{64}"
_REF = r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}"
_RULE = r"[A-Za-z][A-Za-z0-9-]{0,19}"
_DOMAIN = r"[a-z0-9.-]{1,253}"
_DATE = r"[0-9]{4}-[0-9][0-9]-[0-9][0-9]"
_AMOUNT = r"[0-9]{1,14}\.[0-9][0-9] [A-Z]{3}"


class Claim(Record):
    """What a sentence says.

    Attributes:
        tool: The only tool that can say it.
    """

    tool: ClassVar[str]
    form: ClassVar[re.Pattern[str]]

    @property
    @abstractmethod
    def sentence(self) -> str:
        """The claim as a sentence."""

    @property
    def subject(self) -> Hashable:
        """What the claim is about: two claims about the same thing contradict each other, unless they are equal."""
        return type(self)

    @classmethod
    @abstractmethod
    def read(cls, found: re.Match[str]) -> Self:
        """Return the claim of a sentence that has its form."""


class Message(Claim):
    """Which e-mail it is about."""

    tool = "mailbox.read"
    form = re.compile(rf"The proposed e-mail is ({_DIGEST})\.")
    digest: str

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        return f"The proposed e-mail is {self.digest}."

    @classmethod
    def read(cls, found: re.Match[str]) -> Self:
        """Return the claim of a sentence that has its form."""
        return cls(digest=found[1])


class Recipients(Claim):
    """Who it goes to: how many at which domain, and how many nobody can tell."""

    tool = "mailbox.read"
    form = re.compile(
        rf"The e-mail goes to (?:nobody|([0-9]+ at {_DOMAIN}(?:, [0-9]+ at {_DOMAIN})*)); "
        r"([0-9]+) addresses are unreadable\."
    )
    domains: dict[Domain, int]
    unreadable: int = Field(default=0, ge=0)

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        listed = ", ".join(f"{count} at {domain}" for domain, count in sorted(self.domains.items()))
        return f"The e-mail goes to {listed or 'nobody'}; {self.unreadable} addresses are unreadable."

    @classmethod
    def read(cls, found: re.Match[str]) -> Self:
        """Return the claim of a sentence that has its form."""
        pairs = [one.split(" at ") for one in found[1].split(", ")] if found[1] else []
        return cls(domains={domain: int(count) for count, domain in pairs}, unreadable=int(found[2]))


class Attached(Claim):
    """What is attached to it."""

    tool = "mailbox.read"
    form = re.compile(r"Attached is (?:nothing|([a-z0-9]{1,12} of [0-9]+ KB(?:, [a-z0-9]{1,12} of [0-9]+ KB)*))\.")
    files: tuple[Attachment, ...] = ()

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        return f"Attached is {', '.join(f'{one.type} of {one.kilobytes} KB' for one in self.files) or 'nothing'}."

    @classmethod
    def read(cls, found: re.Match[str]) -> Self:
        """Return the claim of a sentence that has its form."""
        pairs = [one.removesuffix(" KB").split(" of ") for one in found[1].split(", ")] if found[1] else []
        return cls(files=tuple(Attachment(type=kind, kilobytes=int(size)) for kind, size in pairs))


class Named(Claim):
    """The highest amounts of money that it names."""

    tool = "mailbox.read"
    form = re.compile(rf"The highest amount named is (?:none|({_AMOUNT}(?:, {_AMOUNT})*))\.")
    amounts: tuple[Amount, ...] = ()

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        return f"The highest amount named is {', '.join(map(shown, self.amounts)) or 'none'}."

    @classmethod
    def read(cls, found: re.Match[str]) -> Self:
        """Return the claim of a sentence that has its form."""
        return cls(amounts=tuple(map(_amount, found[1].split(", "))) if found[1] else ())


class Phrases(Claim):
    """Which of a rule's phrases it has, by number; the phrases themselves are in the policy."""

    tool = "mailbox.search"
    form = re.compile(
        rf"Of the ([0-9]+) phrases of rule ({_RULE}) the e-mail has (?:none|number ([0-9]+(?:, [0-9]+)*))\."
    )
    rule: str
    of: int
    found: tuple[int, ...] = ()

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        has = f"number {', '.join(map(str, self.found))}" if self.found else "none"
        return f"Of the {self.of} phrases of rule {self.rule} the e-mail has {has}."

    @property
    def subject(self) -> Hashable:
        """What the claim is about."""
        return type(self), self.rule

    @classmethod
    def read(cls, found: re.Match[str]) -> Self:
        """Return the claim of a sentence that has its form."""
        numbers = tuple(map(int, found[3].split(", "))) if found[3] else ()
        return cls(rule=found[2], of=int(found[1]), found=numbers)


class InForce(Claim):
    """Which policy the research went by."""

    tool = "policy.search"
    form = re.compile(rf"The policy in force is ({_DIGEST})\.")
    digest: str

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        return f"The policy in force is {self.digest}."

    @classmethod
    def read(cls, found: re.Match[str]) -> Self:
        """Return the claim of a sentence that has its form."""
        return cls(digest=found[1])


class Customer(Claim):
    """Whose domain it is."""

    tool = "crm.lookup_customer"
    form = re.compile(rf"The domain ({_DOMAIN}) belongs to (?:no customer|customer ({_REF}) of tier ({_REF}))\.")
    domain: Domain
    customer: Reference | None = None
    tier: Reference | None = None

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        who = f"customer {self.customer} of tier {self.tier}" if self.customer else "no customer"
        return f"The domain {self.domain} belongs to {who}."

    @property
    def subject(self) -> Hashable:
        """What the claim is about."""
        return type(self), self.domain

    @classmethod
    def read(cls, found: re.Match[str]) -> Self:
        """Return the claim of a sentence that has its form."""
        return cls(domain=found[1], customer=found[2], tier=found[3])


class Agreement(Claim):
    """Whether a customer signed an agreement, and until when it is in force."""

    tool = "contracts.search"
    form = re.compile(
        rf"Customer ({_REF}) (?:has not signed the agreement ({_REF})"
        rf"|signed the agreement ({_REF}) on ({_DATE}), (?:with no end|until ({_DATE})))\."
    )
    customer: Reference
    agreement: Reference
    signed_on: date | None = None
    until: date | None = None

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        if self.signed_on is None:
            return f"Customer {self.customer} has not signed the agreement {self.agreement}."
        end = f"until {self.until}" if self.until else "with no end"
        return f"Customer {self.customer} signed the agreement {self.agreement} on {self.signed_on}, {end}."

    @property
    def subject(self) -> Hashable:
        """What the claim is about."""
        return type(self), self.customer, self.agreement

    @classmethod
    def read(cls, found: re.Match[str]) -> Self:
        """Return the claim of a sentence that has its form."""
        signed = date.fromisoformat(found[4]) if found[4] else None
        until = date.fromisoformat(found[5]) if found[5] else None
        return cls(customer=found[1], agreement=found[2] or found[3], signed_on=signed, until=until)


class Quote(Claim):
    """What a customer was offered, and when."""

    tool = "crm.lookup_pricing"
    form = re.compile(
        rf"(?:No quote for customer ({_REF}) is on record"
        rf"|Quote ({_REF}) of ({_DATE}) offers customer ({_REF}) ({_AMOUNT}))\."
    )
    customer: Reference
    quote: Reference | None = None
    quoted_on: date | None = None
    amount: Amount | None = None

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        if self.quote is None or self.amount is None:
            return f"No quote for customer {self.customer} is on record."
        return f"Quote {self.quote} of {self.quoted_on} offers customer {self.customer} {shown(self.amount)}."

    @property
    def subject(self) -> Hashable:
        """What the claim is about."""
        return type(self), self.customer, self.quote

    @classmethod
    def read(cls, found: re.Match[str]) -> Self:
        """Return the claim of a sentence that has its form."""
        if found[1]:
            return cls(customer=found[1])
        day = date.fromisoformat(found[3])
        return cls(customer=found[4], quote=found[2], quoted_on=day, amount=_amount(found[5]))


class Approval(Claim):
    """Up to which amount a role approved an offer to a customer."""

    tool = "approvals.search"
    form = re.compile(
        rf"(?:No approval of ({_REF}) for customer ({_REF}) is on record"
        rf"|The ({_REF}) approved up to ({_AMOUNT}) for customer ({_REF}) until ({_DATE}))\."
    )
    customer: Reference
    role: Reference
    amount: Amount | None = None
    until: date | None = None

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        if self.amount is None:
            return f"No approval of {self.role} for customer {self.customer} is on record."
        return f"The {self.role} approved up to {shown(self.amount)} for customer {self.customer} until {self.until}."

    @property
    def subject(self) -> Hashable:
        """What the claim is about."""
        return type(self), self.customer, self.role

    @classmethod
    def read(cls, found: re.Match[str]) -> Self:
        """Return the claim of a sentence that has its form."""
        if found[2]:
            return cls(customer=found[2], role=found[1])
        return cls(customer=found[5], role=found[3], amount=_amount(found[4]), until=date.fromisoformat(found[6]))


class Status(Claim):
    """The state of a customer's account."""

    tool = "crm.read_customer_status"
    form = re.compile(rf"The account of customer ({_REF}) has the status ({_REF})\.")
    customer: Reference
    status: Reference

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        return f"The account of customer {self.customer} has the status {self.status}."

    @property
    def subject(self) -> Hashable:
        """What the claim is about."""
        return type(self), self.customer

    @classmethod
    def read(cls, found: re.Match[str]) -> Self:
        """Return the claim of a sentence that has its form."""
        return cls(customer=found[1], status=found[2])


KINDS: tuple[type[Claim], ...] = (
    Message,
    Recipients,
    Attached,
    Named,
    Phrases,
    InForce,
    Customer,
    Agreement,
    Quote,
    Approval,
    Status,
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
        found = kind.form.fullmatch(sentence)
        if found:
            try:
                return kind.read(found)
            except (ValueError, ValidationError):  # a form it has, but a day or domain that there is not
                return None
    return None


def shown(amount: Amount) -> str:
    """Return an amount as a sentence shows it.

    Example:
        >>> shown(Amount(currency="EUR", cents=120_050))
        '1200.50 EUR'
    """
    return f"{amount.cents // 100}.{amount.cents % 100:02} {amount.currency}"


def _amount(text: str) -> Amount:
    value, currency = text.split(" ")
    return Amount(currency=currency, cents=int(value.replace(".", "")))
