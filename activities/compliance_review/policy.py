"""A policy of rules in TOML, and the registers of customers and quotes in CSV."""

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

_MAX_POLICY_BYTES = 1_000_000
_MAX_ERRORS = 5


Phrase = Annotated[str, Field(min_length=2, max_length=120)]


class RuleTerms(Record):
    """The members of every rule: id, title, severity of a violation, and last day of validity."""

    id: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,19}$")
    title: str = Field(min_length=1, max_length=200)
    severity: Severity = "block"
    valid_until: date | None = None


class RecipientsRule(RuleTerms):
    """Every recipient is at an own or allowed domain, or at that of a customer of the given tiers."""

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
    """Every amount in the e-mail matches a quote that is at most `max_days` old."""

    kind: Literal["quote"]
    max_days: int = Field(ge=0, le=3650)


class PhrasesRule(RuleTerms):
    """None of the phrases is in the e-mail, as whole words in any case."""

    kind: Literal["phrases"]
    forbidden: tuple[Phrase, ...] = Field(min_length=1, max_length=200)


Rule = Annotated[
    RecipientsRule | StatusRule | QuoteRule | PhrasesRule,
    Field(discriminator="kind"),
]
"""Any rule, distinguished by `kind`."""


class Policy(Record):
    """A policy; the ids of its rules are unique."""

    name: str = Field(min_length=1, max_length=200)
    version: str = Field(min_length=1, max_length=40)
    rules: tuple[Rule, ...] = Field(min_length=1, max_length=100)

    @property
    def digest(self) -> str:
        """The SHA-256 of the content, independent of the file's formatting."""
        return "sha256:" + hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def known_domains(self) -> frozenset[str]:
        """Return the own and allowed domains, which need no customer."""
        rules = [rule for rule in self.rules if isinstance(rule, RecipientsRule)]
        return frozenset(domain for rule in rules for domain in (*rule.own, *rule.allowed))

    def own_domains(self) -> frozenset[str]:
        """Return the own domains of the recipient rules."""
        return frozenset(domain for rule in self.rules if isinstance(rule, RecipientsRule) for domain in rule.own)


def read_policy(path: Path) -> Policy:
    """Read a policy from a TOML file."""
    try:
        if path.stat().st_size > _MAX_POLICY_BYTES:
            raise ComplianceError(f"the policy {path.name!r} is larger than {_MAX_POLICY_BYTES:,} bytes")
        return parse_policy(json.dumps(tomllib.loads(path.read_text("utf-8-sig")), default=str), path.name)
    except OSError as error:
        raise ComplianceError(f"the policy {str(path)!r} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise ComplianceError(f"the policy {path.name!r} is not TOML: {error}") from None


def parse_policy(data: str, name: str) -> Policy:
    """Parse a policy from JSON; errors refer to it as ``name``."""
    try:
        policy = Policy.model_validate_json(data)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        if errors[0]["loc"] != ("rules",):  # if no rule is valid, pydantic adds that there are none
            errors = [item for item in errors if item["loc"] != ("rules",) or item["type"] != "too_short"]
        descriptions = (
            f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg']}" for item in errors[:_MAX_ERRORS]
        )
        raise ComplianceError(f"the policy {name!r} cannot be used: {'; '.join(descriptions)}") from None
    ids = [rule.id for rule in policy.rules]
    duplicates = sorted({id for id in ids if ids.count(id) > 1})
    if duplicates:
        raise ComplianceError(
            f"the policy {name!r} has more than one rule {', '.join(duplicates)}; give each a unique id"
        )
    return policy


_MAX_REGISTER_BYTES = 64_000_000
RowT = TypeVar("RowT", bound="Row")


class Row(Record):
    """A row of a register; `retrieved_at` is when it was copied from its source, now by default."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=False, coerce_numbers_to_str=True)

    line: int = 1
    customer: Reference
    retrieved_at: Timestamp | None = None


class CustomerRow(Row):
    """A row of `customers.csv`."""

    domain: NamedDomain
    tier: Reference = "standard"
    status: Reference = "active"


class QuoteRow(Row):
    """A row of `prices.csv`: an offered price, in units and hundredths, such as `48000.00`."""

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
    """A register's answer and its retrieval time."""

    claim: Claim
    retrieved_at: datetime


@dataclass(frozen=True)
class Registers:
    """The registers of a folder; each look-up reads its file, so answers are current.

    Every look-up raises `RegisterError` if the register is unreadable or contradicts itself.
    """

    folder: Path
    now: Callable[[], datetime]

    def lookup_customer(self, domain: str) -> list[Answer]:
        """Return the customer that owns the domain (`crm.lookup_customer`)."""
        now = self.now()
        rows = [row for row in self._read_rows("customers", CustomerRow) if row.domain == domain]
        if len({row.customer for row in rows}) > 1:
            raise RegisterError(f"'customers' has {len(rows)} customers at the domain {domain!r}; expected one")
        if not rows:
            return [Answer(Customer(domain=domain), now)]
        claim = Customer(domain=domain, customer=rows[0].customer, tier=rows[0].tier, line=rows[0].line)
        return [Answer(claim, rows[0].retrieved_at or now)]

    def lookup_pricing(self, customer: str) -> list[Answer]:
        """Return the quotes for a customer (`crm.lookup_pricing`)."""
        now = self.now()
        answers = []
        for row in self._read_rows("prices", QuoteRow):
            if row.customer == customer:
                claim = Quote(
                    customer=customer, quote=row.quote, quoted_on=row.quoted_on, amount=row.money, line=row.line
                )
                answers.append(Answer(claim, row.retrieved_at or now))
        return answers or [Answer(Quote(customer=customer), now)]

    def read_customer_status(self, customer: str) -> list[Answer]:
        """Return the status of a customer's account (`crm.read_customer_status`)."""
        now = self.now()
        rows = [row for row in self._read_rows("customers", CustomerRow) if row.customer == customer]
        statuses = {row.status for row in rows}
        if len(statuses) != 1:
            raise RegisterError(f"'customers' has {len(statuses)} statuses for customer {customer!r}; expected one")
        return [
            Answer(Status(customer=customer, status=rows[0].status, line=rows[0].line), rows[0].retrieved_at or now)
        ]

    def _read_rows(self, name: str, kind: type[RowT]) -> list[RowT]:
        path = self.folder / f"{name}.csv"
        try:
            if path.stat().st_size > _MAX_REGISTER_BYTES:
                raise RegisterError(f"the register {path.name!r} is larger than {_MAX_REGISTER_BYTES:,} bytes")
            rows = csv.DictReader(io.StringIO(path.read_text("utf-8-sig")))  # an empty cell is an absent member
            records = (
                {**{column: value for column, value in row.items() if column and value}, "line": rows.line_num}
                for row in rows
            )
            return [kind.model_validate_json(json.dumps(row)) for row in records]
        except OSError as error:
            raise RegisterError(f"the register {path.name!r} cannot be read ({error.strerror})") from None
        except ValidationError as error:
            members = ", ".join(sorted({".".join(map(str, item["loc"])) or "a row" for item in error.errors()}))
            raise RegisterError(f"the register {path.name!r} has an invalid row: check {members}") from None
        except (ValueError, csv.Error) as error:
            raise RegisterError(f"the register {path.name!r} is not CSV ({error})") from None
