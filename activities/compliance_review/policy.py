"""A policy, as rules with ids in TOML; and the registers that are asked: customers and quotes, in CSV."""

import csv
import hashlib
import io
import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from activities.compliance_review.claims import Claim, Customer, Quote, Status
from activities.compliance_review.records import (
    Amount,
    ComplianceError,
    NamedDomain,
    Reference,
    RegisterError,
    Severity,
)
from baton.wire.records import Record, Timestamp

_LARGEST_POLICY = 1_000_000  # bytes
_MOST_FAULTS = 5


Phrase = Annotated[str, Field(min_length=2, max_length=120)]


class RuleTerms(Record):
    """What every rule has: an id, a sentence, what a violation amounts to, the last day on which it applies."""

    id: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,19}$")
    title: str = Field(min_length=1, max_length=200)
    severity: Severity = "block"
    valid_until: date | None = None


class RecipientsRule(RuleTerms):
    """Every recipient is one of us, at an allowed domain, or at the domain of a customer of one of the tiers."""

    kind: Literal["recipients"]
    own: tuple[NamedDomain, ...] = ()
    allowed: tuple[NamedDomain, ...] = ()
    blocked: tuple[NamedDomain, ...] = ()
    tiers: tuple[Reference, ...] = ()


class StatusRule(RuleTerms):
    """Every customer's account has an accepted status at the time of the decision."""

    kind: Literal["status"]
    accepted: tuple[Reference, ...] = ("active",)


class QuoteRule(RuleTerms):
    """Every amount that the e-mail names is that of a quote of at most so many days."""

    kind: Literal["quote"]
    max_days: int = Field(ge=0, le=3650)


class PhrasesRule(RuleTerms):
    """Some phrases are never sent; they are found as whole words, in any case."""

    kind: Literal["phrases"]
    forbidden: tuple[Phrase, ...] = Field(min_length=1, max_length=200)


Rule = Annotated[
    RecipientsRule | StatusRule | QuoteRule | PhrasesRule,
    Field(discriminator="kind"),
]
"""Any rule; `kind` says which."""


class Policy(Record):
    """A policy: its name, its version, and its rules, each id once."""

    name: str = Field(min_length=1, max_length=200)
    version: str = Field(min_length=1, max_length=40)
    rules: tuple[Rule, ...] = Field(min_length=1, max_length=100)

    @property
    def digest(self) -> str:
        """The SHA-256 of the policy's content, however its file is written."""
        return "sha256:" + hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def known_domains(self) -> frozenset[str]:
        """Return the domains that need no customer: our own, and those that the rules for recipients allow."""
        rules = [rule for rule in self.rules if isinstance(rule, RecipientsRule)]
        return frozenset(domain for rule in rules for domain in (*rule.own, *rule.allowed))

    def own_domains(self) -> frozenset[str]:
        """Return our own domains, as the rules for recipients name them."""
        return frozenset(domain for rule in self.rules if isinstance(rule, RecipientsRule) for domain in rule.own)


def read_policy(path: Path) -> Policy:
    """Return the policy of a file."""
    try:
        if path.stat().st_size > _LARGEST_POLICY:
            raise ComplianceError(f"the policy {path.name!r} is larger than {_LARGEST_POLICY:,} bytes")
        return policy_of(json.dumps(tomllib.loads(path.read_text("utf-8-sig")), default=str), path.name)
    except OSError as error:
        raise ComplianceError(f"the policy {str(path)!r} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise ComplianceError(f"the policy {path.name!r} is not TOML: {error}") from None


def policy_of(data: str, name: str) -> Policy:
    """Return the policy of a JSON text; messages call it by ``name``."""
    try:
        policy = Policy.model_validate_json(data)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        if faults[0]["loc"] != ("rules",):  # where no rule fits, pydantic adds that there are none
            faults = [one for one in faults if one["loc"] != ("rules",) or one["type"] != "too_short"]
        what = (f"{'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg']}" for one in faults[:_MOST_FAULTS])
        raise ComplianceError(f"the policy {name!r} cannot be used: {'; '.join(what)}") from None
    ids = [rule.id for rule in policy.rules]
    twice = sorted({id for id in ids if ids.count(id) > 1})
    if twice:
        raise ComplianceError(
            f"the policy {name!r} has more than one rule {', '.join(twice)}; give each an id of its own"
        )
    return policy


_LARGEST_REGISTER = 64_000_000  # bytes
RowT = TypeVar("RowT", bound="Row")


class Row(Record):
    """What every row of a register may have: when it was copied from where it is kept; now by default."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=False, coerce_numbers_to_str=True)

    customer: Reference
    retrieved_at: Timestamp | None = None


class CustomerRow(Row):
    """A customer: `customers.csv`."""

    domain: NamedDomain
    tier: Reference = "standard"
    status: Reference = "active"


class QuoteRow(Row):
    """A price that was offered: `prices.csv`; the amount is in whole units and hundredths, such as `48000.00`."""

    quote: Reference
    quoted_on: date
    amount: str = Field(pattern=r"^[0-9]{1,12}(\.[0-9]{1,2})?$")
    currency: str = Field(pattern=r"^[A-Z]{3}$")

    @property
    def money(self) -> Amount:
        """The amount as a record."""
        return Amount(currency=self.currency, cents=int(Decimal(self.amount) * 100))


@dataclass(frozen=True)
class Answer:
    """What a register says, and when that was retrieved."""

    claim: Claim
    retrieved_at: datetime


@dataclass(frozen=True)
class Registers:
    r"""The registers of a folder; each is read when it is asked, so that the answer is of now.

    Every look-up raises `RegisterError` if the register cannot be asked, or contradicts itself.
    """

    folder: Path
    now: Callable[[], datetime]

    def lookup_customer(self, domain: str) -> list[Answer]:
        """Return whose domain it is (`crm.lookup_customer`)."""
        now = self.now()
        found = [row for row in self._rows("customers", CustomerRow) if row.domain == domain]
        if len({row.customer for row in found}) > 1:
            raise RegisterError(f"'customers' has {len(found)} customers at the domain {domain!r}; expected one")
        if not found:
            return [Answer(Customer(domain=domain), now)]
        claim = Customer(domain=domain, customer=found[0].customer, tier=found[0].tier)
        return [Answer(claim, found[0].retrieved_at or now)]

    def lookup_pricing(self, customer: str) -> list[Answer]:
        """Return the quotes that a customer was given (`crm.lookup_pricing`)."""
        now = self.now()
        answers = []
        for row in self._rows("prices", QuoteRow):
            if row.customer == customer:
                claim = Quote(customer=customer, quote=row.quote, quoted_on=row.quoted_on, amount=row.money)
                answers.append(Answer(claim, row.retrieved_at or now))
        return answers or [Answer(Quote(customer=customer), now)]

    def read_customer_status(self, customer: str) -> list[Answer]:
        """Return the state of a customer's account (`crm.read_customer_status`)."""
        now = self.now()
        found = [row for row in self._rows("customers", CustomerRow) if row.customer == customer]
        if len({row.status for row in found}) != 1:
            raise RegisterError(f"'customers' says {len(found)} things of customer {customer!r}; expected one")
        return [Answer(Status(customer=customer, status=found[0].status), found[0].retrieved_at or now)]

    def _rows(self, name: str, kind: type[RowT]) -> list[RowT]:
        path = self.folder / f"{name}.csv"
        try:
            if path.stat().st_size > _LARGEST_REGISTER:
                raise RegisterError(f"the register {path.name!r} is larger than {_LARGEST_REGISTER:,} bytes")
            rows = csv.DictReader(io.StringIO(path.read_text("utf-8-sig")))  # an empty cell is a member not given
            given = ({column: value for column, value in row.items() if column and value} for row in rows)
            return [kind.model_validate_json(json.dumps(row)) for row in given]
        except OSError as error:
            raise RegisterError(f"the register {path.name!r} cannot be read ({error.strerror})") from None
        except ValidationError as error:
            members = ", ".join(sorted({".".join(map(str, one["loc"])) or "a row" for one in error.errors()}))
            raise RegisterError(f"the register {path.name!r} has a row that cannot be used: see {members}") from None
        except (ValueError, csv.Error) as error:
            raise RegisterError(f"the register {path.name!r} is not CSV ({error})") from None
