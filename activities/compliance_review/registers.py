"""The registers that are asked about customers, agreements, quotes and approvals: one file each, CSV or JSON.

A look-up answers with claims and with the time at which the data was retrieved. That is now for a register that is
read now; a row that was copied from elsewhere says in `retrieved_at` how old it is, and a rule about stale facts holds
for it (S5-fm-b).
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

MOST_BYTES = 64_000_000

RowT = TypeVar("RowT", bound="Row")


class Row(Record):
    """What every row of a register may say.

    Attributes:
        retrieved_at: When it was copied from where it is kept; now by default.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=False, coerce_numbers_to_str=True)

    retrieved_at: Timestamp | None = None


class CustomerRow(Row):
    """A customer: `customers.csv` or `.json`."""

    customer: Reference
    domain: NamedDomain
    tier: Reference = "standard"
    status: Reference = "active"


class AgreementRow(Row):
    """A signed agreement: `contracts`."""

    customer: Reference
    agreement: Reference
    signed_on: date
    until: date | None = None


class QuoteRow(Row):
    """A price that was offered: `prices`. The amount is in whole units and hundredths, such as `48000.00`."""

    customer: Reference
    quote: Reference
    quoted_on: date
    amount: str = Field(pattern=r"^[0-9]{1,12}(\.[0-9]{1,2})?$")
    currency: str = Field(pattern=r"^[A-Z]{3}$")


class ApprovalRow(Row):
    """An approval: `approvals`."""

    customer: Reference
    role: Reference
    amount: str = Field(pattern=r"^[0-9]{1,12}(\.[0-9]{1,2})?$")
    currency: str = Field(pattern=r"^[A-Z]{3}$")
    until: date


@dataclass(frozen=True)
class Answer:
    """What a register says.

    Attributes:
        claim: As a claim.
        retrieved_at: When the data was retrieved.
    """

    claim: Claim
    retrieved_at: datetime


@dataclass(frozen=True)
class Registers:
    r"""The registers of a folder; each is read when it is asked, so that the answer is of now.

    Attributes:
        folder: Where they are.
        now: Tells the time.

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
        """Return whose domain it is (`crm.lookup_customer`).

        Raises:
            RegisterError: The register cannot be asked, or has two answers.
        """
        now = self.now()
        found = [row for row in self._rows("customers", CustomerRow) if row.domain == domain]
        if len({row.customer for row in found}) > 1:
            raise RegisterError(f"'customers' has {len(found)} customers at the domain {domain!r}; expected one")
        if not found:
            return [Answer(Customer(domain=domain), now)]
        row = found[0]
        return [Answer(Customer(domain=domain, customer=row.customer, tier=row.tier), row.retrieved_at or now)]

    def search_contracts(self, customer: str, agreement: str) -> list[Answer]:
        """Return the agreement of a kind that a customer signed last (`contracts.search`).

        Raises:
            RegisterError: The register cannot be asked.
        """
        now = self.now()
        rows = self._rows("contracts", AgreementRow)
        found = [row for row in rows if (row.customer, row.agreement) == (customer, agreement)]
        if not found:
            return [Answer(Agreement(customer=customer, agreement=agreement), now)]
        last = max(found, key=lambda row: (row.until or date.max, row.signed_on))
        claim = Agreement(customer=customer, agreement=agreement, signed_on=last.signed_on, until=last.until)
        return [Answer(claim, last.retrieved_at or now)]

    def lookup_pricing(self, customer: str) -> list[Answer]:
        """Return the quotes that a customer was given (`crm.lookup_pricing`).

        Raises:
            RegisterError: The register cannot be asked.
        """
        now = self.now()
        found = [row for row in self._rows("prices", QuoteRow) if row.customer == customer]
        return [
            Answer(
                Quote(customer=customer, quote=row.quote, quoted_on=row.quoted_on, amount=_amount(row)),
                row.retrieved_at or now,
            )
            for row in found
        ] or [Answer(Quote(customer=customer), now)]

    def search_approvals(self, customer: str, role: str, currency: str) -> list[Answer]:
        """Return the highest approval of a role for a customer that holds longest (`approvals.search`).

        Raises:
            RegisterError: The register cannot be asked.
        """
        now = self.now()
        found = [
            row
            for row in self._rows("approvals", ApprovalRow)
            if (row.customer, row.role, row.currency) == (customer, role, currency) and row.until >= now.date()
        ]
        if not found:
            return [Answer(Approval(customer=customer, role=role), now)]
        row = max(found, key=lambda row: (_amount(row).cents, row.until))
        claim = Approval(customer=customer, role=role, amount=_amount(row), until=row.until)
        return [Answer(claim, row.retrieved_at or now)]

    def read_customer_status(self, customer: str) -> list[Answer]:
        """Return the state of a customer's account (`crm.read_customer_status`).

        Raises:
            RegisterError: The register cannot be asked, does not know the customer, or says two things.
        """
        now = self.now()
        found = [row for row in self._rows("customers", CustomerRow) if row.customer == customer]
        if len({row.status for row in found}) != 1:
            raise RegisterError(f"'customers' says {len(found)} things of customer {customer!r}; expected one")
        return [Answer(Status(customer=customer, status=found[0].status), found[0].retrieved_at or now)]

    def _rows(self, name: str, kind: type[RowT]) -> list[RowT]:
        """Return the rows of a register.

        Raises:
            RegisterError: There is none, or a row cannot be used.
        """
        paths = [path for suffix in (".csv", ".json") if (path := self.folder / f"{name}{suffix}").is_file()]
        if len(paths) != 1:
            raise RegisterError(f"found {len(paths)} registers {name!r}; expected {name}.csv or {name}.json")
        (path,) = paths
        try:
            if path.stat().st_size > MOST_BYTES:
                raise RegisterError(f"the register {path.name!r} is larger than {MOST_BYTES:,} bytes")
            text = path.read_text("utf-8-sig")
            return [kind.model_validate_json(json.dumps(row)) for row in _raw(path.suffix, text)]
        except OSError as error:
            raise RegisterError(f"the register {path.name!r} cannot be read ({error.strerror})") from None
        except ValidationError as error:
            members = ", ".join(sorted({".".join(map(str, one["loc"])) or "a row" for one in error.errors()}))
            raise RegisterError(f"the register {path.name!r} has a row that cannot be used: see {members}") from None
        except ValueError as error:
            raise RegisterError(f"the register {path.name!r} is no {path.suffix[1:].upper()} ({error})") from None


def _raw(suffix: str, text: str) -> Iterator[Any]:
    """Yield the rows of a file; an empty cell of a CSV file is a member that is not given.

    Raises:
        ValueError: It is no JSON, or no list.
    """
    if suffix == ".csv":
        for row in csv.DictReader(io.StringIO(text)):
            yield {name: value for name, value in row.items() if name and value}
        return
    rows = json.loads(text)
    if not isinstance(rows, list):
        raise ValueError("expected a list of rows")
    yield from rows


def _amount(row: QuoteRow | ApprovalRow) -> Amount:
    units, _, hundredths = row.amount.partition(".")
    return Amount(currency=row.currency, cents=int(units) * 100 + int(hundredths.ljust(2, "0") or 0))
