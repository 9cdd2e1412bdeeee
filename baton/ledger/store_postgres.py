"""A ledger in a Postgres database of its own, which its writer can read and add to, and nothing else.

Three roles (§10.3): the owner migrates; the **writer**, whose credentials the workers have, inserts and
selects; the **keeper** makes checkpoints, moves old records to the cold tier and can delete bytes only of records
for which it has registered a segment, which stays on record; that the segment holds them, no trigger can check. An
owner or superuser can undo all of it: hence anchors outside.

A pooler such as PgBouncer may lend a connection for one transaction only. So nothing rests on what belongs to a
connection: each transaction makes its own settings, and no statement is prepared.
"""

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict

from baton.ledger.records import LedgerError, LedgerUnavailableError
from baton.ledger.store_database import Connection, Database, Row, T, Work, refused

_WAIT_SECONDS = 15
_ANSWER_SECONDS = 20  # longer than any statement may take
_SEED = 0x62617463  # of the hash that turns a task into a lock; any number does, as long as all writers have it
_APPENDING = 0x6261746F6E  # the lock that appenders share, and that `settle` takes for itself

_ADDRESS = re.compile(
    r"postgres(ql)?://([^@/?#\[\]]*@)?"  # the account
    r"([^@/?#:,]*|\[[^@/?#\]]*\])(:\d+)?(,([^@/?#:,]*|\[[^@/?#\]]*\])(:\d+)?)*"  # hosts, each with its port
    r"(/[^@?#]*)?(\?([^=&@#]+=[^&#]*(&|$))*)?"  # the database, and what else is set
)
"""An address that is read as it was meant: a sign of the password's could end the account, or begin another part."""
_SHOWN = ("host", "port", "user", "dbname")
"""What messages show of an address: a password is not all in it that can be secret."""
_POSITIONS = "handoff_audit_pkey"
"""The constraint that no entry can violate by itself: its column is filled by the database."""
_BEHIND = (
    "nothing was recorded: the counter of positions is behind the records, as that of a logical replica is; its owner "
    "puts it right by SELECT setval('handoff_audit_position_seq', max(position)) FROM handoff_audit"
)
_RIGHTS = (
    "workers write with the address of its writer, `baton audit checkpoint` and `archive` with that of its keeper; its "
    "owner makes these roles by `baton audit migrate --writer ROLE --keeper ROLE`"
)
_HOLD = (
    "SELECT pg_advisory_xact_lock(key) FROM (SELECT DISTINCT hashtextextended(task, ?::bigint) AS key "
    "FROM unnest(?::text[]) AS task ORDER BY key) AS tasks"
)
_DEFAULTS: dict[str, Any] = {
    "application_name": "baton-ledger",
    "client_encoding": "UTF8",
    "connect_timeout": _WAIT_SECONDS,
    # A server that is gone without a word is found out while its answer is waited for.
    "keepalives_idle": _WAIT_SECONDS,
    "keepalives_interval": 5,
    "tcp_user_timeout": _WAIT_SECONDS * 1_000,
}
"""What an address may say otherwise."""
_BEGIN = "; ".join(
    [
        # Anyone who waited for a task's lock must see what its holder committed, whatever the default is.
        "BEGIN ISOLATION LEVEL READ COMMITTED",
        "SET LOCAL synchronous_commit = on",
        f"SET LOCAL statement_timeout = '{_WAIT_SECONDS}s'",
        # A worker that hangs in an append must not keep others waiting for its task for ever.
        f"SET LOCAL idle_in_transaction_session_timeout = '{_WAIT_SECONDS}s'",
    ]
)


@dataclass(frozen=True)
class PostgresConnection:
    """A transaction on a ledger's database."""

    raw: psycopg.Connection[Row]
    dialect: str = "postgresql"

    def rows(self, statement: str, *values: Any) -> Sequence[Row]:
        """Execute a statement and return the rows it gives."""
        cursor = self.raw.execute(statement.replace("?", "%s"), values or None)
        return cursor.fetchall() if cursor.description else []

    def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once for each of several lists of values."""
        self.raw.cursor().executemany(statement.replace("?", "%s"), values)


class _Connection(psycopg.Connection[Row]):
    """A connection that ends when its server owes an answer for long: one that hangs times no statement out."""

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for what the server answers."""
        until = time.monotonic() + _ANSWER_SECONDS
        try:
            return super().wait(gen, interval, timeout or _ANSWER_SECONDS)
        except psycopg.OperationalError:
            if time.monotonic() >= until:
                self.close()
            raise


class PostgresDatabase(Database):
    """A ledger's database."""

    dialect = "postgresql"
    driver = psycopg

    def __init__(self, url: str) -> None:
        parts = _parts(url)
        super().__init__(" ".join(f"{name}={parts[name]}" for name in _SHOWN if name in parts))
        self._address = _DEFAULTS | parts

    def hold_tasks(self, connection: Connection, task_ids: Sequence[str]) -> None:
        """Keep every other writer from these tasks' chains until the transaction ends."""
        connection.rows("SELECT pg_advisory_xact_lock_shared(?::bigint)", _APPENDING)
        connection.rows(_HOLD, _SEED, sorted(set(task_ids)))

    def settle(self, connection: Connection) -> None:
        """Wait for the appends under way, half a second at most, so that no smaller position appears later."""
        connection.rows("SET LOCAL lock_timeout = '500ms'")
        try:
            connection.rows("SELECT pg_advisory_xact_lock(?::bigint)", _APPENDING)
        except errors.LockNotAvailable as error:
            raise LedgerUnavailableError(f"appends to the ledger at {self.where!r} did not end: try again") from error

    def _transaction(self, work: Work[T], *, writing: bool) -> T:
        """Run ``work`` on this thread's connection, or on a new one: all work can be done twice."""
        opened = self._connections.get(threading.get_ident())
        if opened is not None:
            try:
                return self._committed(opened, _BEGIN, lambda: work(PostgresConnection(opened)))
            except psycopg.OperationalError:
                if not opened.closed:
                    raise
        new = self._connections[threading.get_ident()] = self._connected()
        return self._committed(new, _BEGIN, lambda: work(PostgresConnection(new)))

    def _connected(self) -> psycopg.Connection[Row]:
        return _Connection.connect(**self._address, autocommit=True, prepare_threshold=None, row_factory=_by_name)

    def _explained(self, error: Exception, *, writing: bool) -> LedgerError:
        if isinstance(error, errors.UniqueViolation) and error.diag.constraint_name == _POSITIONS:
            return LedgerUnavailableError(f"{refused(self.where, error)}; {_BEHIND}")
        if isinstance(error, errors.InsufficientPrivilege):
            # Rights can be given back, as a server comes back: a stage that has run is not to run again for this.
            return LedgerUnavailableError(f"{refused(self.where, error)}; {_RIGHTS}")
        if isinstance(error, errors.UndefinedObject):  # a role that there is not
            return refused(self.where, error)
        return super()._explained(error, writing=writing)


def _parts(url: str) -> dict[str, Any]:
    """Return the parts of an address."""
    try:
        parts = conninfo_to_dict(url) if _ADDRESS.fullmatch(url) else None
    except psycopg.ProgrammingError:  # whose text may quote the password
        parts = None
    if parts is None:
        raise ValueError(
            "the address cannot be read, and is not shown, as its password may be in any place; expected "
            "postgresql://user:password@host:port/database, with parameters that libpq knows, and signs such as "
            "% @ / ? # [ in the password percent-encoded: %25 %40 %2F %3F %23 %5B"
        )
    return parts


def _by_name(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], Row]:
    """Return what makes rows whose values have the names of a cursor's columns."""
    return _row(*(column.name for column in cursor.description or ()))


@lru_cache(maxsize=64)
def _row(*names: str) -> Callable[[Sequence[Any]], Row]:
    places = {name: place for place, name in enumerate(names)}

    class Named(tuple[Any, ...]):
        """A row."""

        def __getitem__(self, column: Any) -> Any:
            return super().__getitem__(places.get(column, column))

    return Named
