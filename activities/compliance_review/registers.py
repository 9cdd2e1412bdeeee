"""The registers that are asked about customers, agreements, quotes and approvals: one file each, CSV or JSON.

A look-up answers with claims and with the time at which the data was retrieved. That is now for a register that is
read now; a row that was copied from elsewhere says in `retrieved_at` how old it is.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from activities.compliance_review.claims import Agreement, Approval, Claim, Customer, Quote, Status
from activities.compliance_review.records import Amount, NamedDomain, Reference, RegisterError
from baton.wire.records import Record, Timestamp

_MOST_BYTES = 64_000_000
RowT = TypeVar("RowT", bound="Row")


class Row(Record):
    """What every row of a register may have: when it was copied from where it is kept; now by default."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=False, coerce_numbers_to_str=True)

    customer: Reference
    retrieved_at: Timestamp | None = None


class CustomerRow(Row):
    """A customer: `customers.csv` or `.json`."""

    domain: NamedDomain
    tier: Reference = "standard"
    status: Reference = "active"


class AgreementRow(Row):
    """A signed agreement: `contracts`."""

    agreement: Reference
    signed_on: date
    until: date | None = None


class MoneyRow(Row):
    """An amount in whole units and hundredths, such as `48000.00`."""

    amount: str = Field(pattern=r"^[0-9]{1,12}(\.[0-9]{1,2})?$")
    currency: str = Field(pattern=r"^[A-Z]{3}$")

    @property
    def money(self) -> Amount:
        """The amount as a record."""
        units, _, hundredths = self.amount.partition(".")
        return Amount(currency=self.currency, cents=int(units) * 100 + int(hundredths.ljust(2, "0") or 0))


class QuoteRow(MoneyRow):
    """A price that was offered: `prices`."""

    quote: Reference
    quoted_on: date


class ApprovalRow(MoneyRow):
    """An approval: `approvals`."""

    role: Reference
    until: date


@dataclass(frozen=True)
class Answer:
    """What a register says, and when that was retrieved."""

    claim: Claim
    retrieved_at: datetime


@dataclass(frozen=True)
class Registers:
    r"""The registers of a folder; each is read when it is asked, so that the answer is of now.

    Every look-up raises `RegisterError` if the register cannot be asked, or contradicts itself.

    Example:
        >>> import tempfile
        >>> from datetime import UTC
        >>> noon = datetime(2026, 6, 27, 12, tzinfo=UTC)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "customers.csv").write_text("customer,domain,tier\nC-7,acme.example,enterprise")
        ...     answers = Registers(Path(folder), lambda: noon).lookup_customer("acme.example")
        >>> print(answers[0].claim.sentence)
        The domain acme.example belongs to customer C-7 of tier enterprise.
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

    def search_contracts(self, customer: str, agreement: str) -> list[Answer]:
        """Return the agreement of a kind that a customer signed last (`contracts.search`)."""
        now = self.now()
        rows = self._rows("contracts", AgreementRow)
        found = [row for row in rows if (row.customer, row.agreement) == (customer, agreement)]
        if not found:
            return [Answer(Agreement(customer=customer, agreement=agreement), now)]
        last = max(found, key=lambda row: (row.until or date.max, row.signed_on))
        claim = Agreement(customer=customer, agreement=agreement, signed_on=last.signed_on, until=last.until)
        return [Answer(claim, last.retrieved_at or now)]

    def lookup_pricing(self, customer: str) -> list[Answer]:
        """Return the quotes that a customer was given (`crm.lookup_pricing`)."""
        now = self.now()
        answers = []
        for row in self._rows("prices", QuoteRow):
            if row.customer == customer:
                claim = Quote(customer=customer, quote=row.quote, quoted_on=row.quoted_on, amount=row.money)
                answers.append(Answer(claim, row.retrieved_at or now))
        return answers or [Answer(Quote(customer=customer), now)]

    def search_approvals(self, customer: str, role: str, currency: str) -> list[Answer]:
        """Return the highest approval of a role for a customer that holds longest (`approvals.search`)."""
        now = self.now()
        wanted = (customer, role, currency)
        rows = [row for row in self._rows("approvals", ApprovalRow) if (row.customer, row.role, row.currency) == wanted]
        in_force = [row for row in rows if row.until >= now.date()]
        if not in_force:
            return [Answer(Approval(customer=customer, role=role), now)]
        row = max(in_force, key=lambda row: (row.money.cents, row.until))
        claim = Approval(customer=customer, role=role, amount=row.money, until=row.until)
        return [Answer(claim, row.retrieved_at or now)]

    def read_customer_status(self, customer: str) -> list[Answer]:
        """Return the state of a customer's account (`crm.read_customer_status`)."""
        now = self.now()
        found = [row for row in self._rows("customers", CustomerRow) if row.customer == customer]
        if len({row.status for row in found}) != 1:
            raise RegisterError(f"'customers' says {len(found)} things of customer {customer!r}; expected one")
        return [Answer(Status(customer=customer, status=found[0].status), found[0].retrieved_at or now)]

    def _rows(self, name: str, kind: type[RowT]) -> list[RowT]:
        """Return the rows of a register."""
        paths = [path for suffix in (".csv", ".json") if (path := self.folder / f"{name}{suffix}").is_file()]
        if len(paths) != 1:
            raise RegisterError(f"found {len(paths)} registers {name!r}; expected {name}.csv or {name}.json")
        (path,) = paths
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise RegisterError(f"the register {path.name!r} is larger than {_MOST_BYTES:,} bytes")
            text = path.read_text("utf-8-sig")
            return [kind.model_validate_json(json.dumps(row)) for row in _raw(path.suffix, text)]
        except OSError as error:
            raise RegisterError(f"the register {path.name!r} cannot be read ({error.strerror})") from None
        except ValidationError as error:
            members = ", ".join(sorted({".".join(map(str, one["loc"])) or "a row" for one in error.errors()}))
            raise RegisterError(f"the register {path.name!r} has a row that cannot be used: see {members}") from None
        except ValueError as error:
            raise RegisterError(f"the register {path.name!r} is not {path.suffix[1:].upper()} ({error})") from None


def _raw(suffix: str, text: str) -> Iterator[Any]:
    """Yield the rows of a file; an empty cell of a CSV file is a member that is not given."""
    if suffix == ".csv":
        for row in csv.DictReader(io.StringIO(text)):
            yield {name: value for name, value in row.items() if name and value}
        return
    rows = json.loads(text)
    if not isinstance(rows, list):
        raise ValueError("expected a list of rows")
    yield from rows
