"""The port to a database: run a function on a connection, for reading or for writing, and name what failed.

What the ledger does is written once, in SQL that both databases understand, as plain functions on a `Connection`.
Only what they differ in is in `sqlite.py`, `postgres.py` and the migrations.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from baton.ledger.errors import LedgerError, LedgerUnavailableError

APPEND_ONLY = "handoff_audit is append-only"
"""What the triggers say."""

BEFORE_ALL = -(2**63) - 1
"""Before the smallest position that the tables hold: who wrote past the ledger may not have begun at 1."""

_NAMED_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^&]*", re.IGNORECASE)

T = TypeVar("T")


class Row(Protocol):
    """A row, by the number or the name of its columns."""

    def __getitem__(self, column: Any, /) -> Any:
        """Return a value."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the values."""


class Connection(Protocol):
    """A transaction that is under way; a `?` in a statement stands for the next value."""

    @property
    def dialect(self) -> str:
        """`"sqlite"` or `"postgresql"`."""

    def rows(self, statement: str, *values: Any) -> Sequence[Row]:
        """Execute a statement and return the rows it gives."""

    def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Execute a statement that gives no rows once for each of several lists of values, in their order."""


Work = Callable[[Connection], T]


class Database(Protocol):
    """Where the ledger's tables are; one per process and event loop."""

    @property
    def dialect(self) -> str:
        """`"sqlite"` or `"postgresql"`."""

    async def read(self, work: Work[T]) -> T:
        """Return what ``work`` returns, within one transaction that only reads."""

    async def write(self, work: Work[T]) -> T:
        """Return what ``work`` returns, once what it wrote is durable; nothing is written if it raises."""

    def hold_tasks(self, connection: Connection, task_ids: Sequence[str]) -> None:
        """Keep every other writer from these tasks' chains until the transaction ends."""

    def settle(self, connection: Connection) -> None:
        """Return once every record with a smaller position than the largest one is committed."""

    async def close(self) -> None:
        """Close every connection."""


def scalar(connection: Connection, statement: str, *values: Any) -> Any:
    """Return the first value of the first row that a statement gives, or None without one."""
    found = connection.rows(statement, *values)
    return found[0][0] if found else None


def refused(where: str, error: BaseException) -> LedgerError:
    """Return the error for what the tables, or the rights of a role, do not allow."""
    return LedgerError(f"the ledger at {where!r} refused: {first_line(error)}")


def unavailable(where: str, error: BaseException, *, writing: bool) -> LedgerUnavailableError:
    """Return the error for a ledger that cannot be written, or even read, right now."""
    remedy = (
        "nothing was recorded, so nothing may continue. "
        "Check the database and its disk, then append again: what was recorded after all is not recorded twice"
        if writing
        else "check the database, and that it may be read by who asks"
    )
    return LedgerUnavailableError(f"the ledger at {where!r} cannot be used: {first_line(error)}; {remedy}")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text: what follows may quote values."""
    return str(error).partition("\n")[0] or type(error).__name__


def shown(url: str) -> str:
    """Return a database URL as messages may show it: without its password, also where that makes it no URL."""
    scheme, sign, rest = url.partition("://")
    account, at, place = _NAMED_PASSWORD.sub(r"\1***", rest).rpartition("@")
    user, colon, _ = account.partition(":")
    return f"{scheme}{sign}{user}{':***' if colon else ''}{at}{place}" if sign else url
