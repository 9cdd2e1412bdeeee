"""A ledger in a Postgres database, which its writer can only read and append to.

Three roles (§10.3): the owner migrates. The **writer**, whose credentials the workers have, inserts and selects. The
**keeper** makes checkpoints and moves old records to the cold tier; it can delete only the bytes of records for which
it registered a segment. The registration stays on record, but no trigger can check that the segment holds them. An
owner or superuser can bypass all of this, hence the anchors outside.

A pooler such as PgBouncer can give each transaction another connection. So each transaction makes its own settings,
and no statement is prepared.
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
from baton.ledger.store_database import Connection, Database, Row, T, Work, refused_error

_WAIT_SECONDS = 15
_ANSWER_SECONDS = 20  # longer than the statement timeout
_PATIENT_SECONDS = 86_400
_LOCK_SEED = 0x62617463  # of the hash of a task's lock: arbitrary, the same for all writers
_APPEND_LOCK = 0x6261746F6E  # shared by appends, exclusive for `settle`

_ADDRESS = re.compile(
    r"postgres(ql)?://([^@/?#\[\]]*@)?"  # the account
    r"([^@/?#:,]*|\[[^@/?#\]]*\])(:\d+)?(,([^@/?#:,]*|\[[^@/?#\]]*\])(:\d+)?)*"  # hosts, each with its port
    r"(/[^@?#]*)?(\?([^=&@#]+=[^&#]*(&|$))*)?"  # the database, and what else is set
)
"""An unambiguous address: an unescaped character of the password could start another part."""
_SHOWN_PARTS = ("host", "port", "user", "dbname")
"""The parts of an address that messages show; all others can be secret."""
_POSITION_CONSTRAINT = "handoff_audit_pkey"
"""The constraint on a column that the database fills, so no entry violates it by itself."""
_COUNTER_REMEDY = (
    "nothing was recorded: the position sequence is behind the records, as in a logical replica; its owner corrects "
    "it with SELECT setval('handoff_audit_position_seq', max(position)) FROM handoff_audit"
)
_RIGHTS_REMEDY = (
    "workers need the address of its writer, `baton audit checkpoint` and `archive` that of its keeper; its owner "
    "gives these roles their rights with `baton audit migrate --writer ROLE --keeper ROLE`"
)
_CONTENT = "handoff_audit_content"
"""The table with a partition for each month."""
_LOCK_TASKS = (
    "SELECT pg_advisory_xact_lock(key) FROM (SELECT DISTINCT hashtextextended(task, ?::bigint) AS key "
    "FROM unnest(?::text[]) AS task ORDER BY key) AS tasks"
)
_DEFAULTS: dict[str, Any] = {
    "application_name": "baton-ledger",
    "client_encoding": "UTF8",
    "connect_timeout": _WAIT_SECONDS,
    # Detects a server that disappears while this side waits for its answer.
    "keepalives_idle": _WAIT_SECONDS,
    "keepalives_interval": 5,
    "tcp_user_timeout": _WAIT_SECONDS * 1_000,
}
"""The defaults, which an address can override."""
_BEGIN = "; ".join(
    [
        # After waiting for a task's lock, a writer must see what the lock's holder committed.
        "BEGIN ISOLATION LEVEL READ COMMITTED",
        "SET LOCAL synchronous_commit = on",
        f"SET LOCAL statement_timeout = '{_WAIT_SECONDS}s'",
        # A worker that hangs in an append must not block its task forever.
        f"SET LOCAL idle_in_transaction_session_timeout = '{_WAIT_SECONDS}s'",
    ]
)


@dataclass(frozen=True)
class PostgresConnection:
    """A transaction on a Postgres database."""

    raw: psycopg.Connection[Row]
    dialect: str = "postgresql"

    def rows(self, statement: str, *values: Any) -> Sequence[Row]:
        """Execute a statement and return its rows."""
        cursor = self.raw.execute(statement.replace("?", "%s"), values or None)
        return cursor.fetchall() if cursor.description else []

    def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once for each of several lists of values."""
        self.raw.cursor().executemany(statement.replace("?", "%s"), values)


class _TimedConnection(psycopg.Connection[Row]):
    """A connection that closes if the server does not answer: a hanging server enforces no statement timeout."""

    is_patient = False

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for the server's answer."""
        if self.is_patient:
            return super().wait(gen, interval, timeout or _PATIENT_SECONDS)
        deadline = time.monotonic() + _ANSWER_SECONDS
        try:
            return super().wait(gen, interval, timeout or _ANSWER_SECONDS)
        except psycopg.OperationalError:
            if time.monotonic() >= deadline:
                self.close()
            raise


class PostgresDatabase(Database):
    """A ledger in a Postgres database."""

    dialect = "postgresql"
    driver = psycopg

    def __init__(self, url: str) -> None:
        parts = _parse_address(url)
        super().__init__(" ".join(f"{name}={parts[name]}" for name in _SHOWN_PARTS if name in parts))
        self._address = _DEFAULTS | parts

    def hold_tasks(self, connection: Connection, task_ids: Sequence[str]) -> None:
        """Lock these tasks' chains against other writers until the transaction ends."""
        connection.rows("SELECT pg_advisory_xact_lock_shared(?::bigint)", _APPEND_LOCK)
        connection.rows(_LOCK_TASKS, _LOCK_SEED, sorted(set(task_ids)))

    def settle(self, connection: Connection) -> None:
        """Wait at most half a second for running appends, so that no smaller position appears later."""
        connection.rows("SET LOCAL lock_timeout = '500ms'")
        try:
            connection.rows("SELECT pg_advisory_xact_lock(?::bigint)", _APPEND_LOCK)
        except errors.LockNotAvailable as error:
            raise LedgerUnavailableError(f"appends to the ledger at {self.where!r} are still running: retry") from error

    def drop_months(self, connection: Connection) -> None:
        """Drop the bytes of whole months that the cold tier holds."""
        connection.rows("SELECT handoff_audit_drop_months()")

    def _run_transaction(self, work: Work[T], *, writing: bool) -> T:
        """Run ``work``; where the month has no partition yet, after adding it."""
        try:
            return self._run_connected(work)
        except errors.CheckViolation as error:
            if error.diag.constraint_name is not None or error.diag.table_name != _CONTENT:
                raise
        self._run_connected(lambda connection: connection.rows("SELECT handoff_audit_add_months()"))
        return self._run_connected(work)

    def _run_connected(self, work: Work[T]) -> T:
        """Run ``work`` on this thread's connection, or on a new one if it is lost: all work can be repeated."""
        connection = self._connections.get(threading.get_ident())
        if connection is not None:
            try:
                return self._run_on(connection, work)
            except psycopg.OperationalError:
                if not connection.closed:
                    raise
        new = self._connections[threading.get_ident()] = self._get_connection()
        return self._run_on(new, work)

    def _run_on(self, connection: _TimedConnection, work: Work[T]) -> T:
        connection.is_patient = self.is_patient
        begin = f"{_BEGIN}; SET LOCAL statement_timeout = 0" if self.is_patient else _BEGIN
        return self._commit_work(connection, begin, lambda: work(PostgresConnection(connection)))

    def _get_connection(self) -> _TimedConnection:
        return _TimedConnection.connect(
            **self._address, autocommit=True, prepare_threshold=None, row_factory=_make_named_rows
        )

    def _translate_error(self, error: Exception, *, writing: bool) -> LedgerError:
        if isinstance(error, errors.UniqueViolation) and error.diag.constraint_name == _POSITION_CONSTRAINT:
            return LedgerUnavailableError(f"{refused_error(self.where, error)}; {_COUNTER_REMEDY}")
        if isinstance(error, errors.InsufficientPrivilege):
            # Unavailable, because rights can be restored: a finished stage must not run again for this.
            return LedgerUnavailableError(f"{refused_error(self.where, error)}; {_RIGHTS_REMEDY}")
        if isinstance(error, errors.UndefinedObject):  # a missing role
            return refused_error(self.where, error)
        return super()._translate_error(error, writing=writing)


def _parse_address(url: str) -> dict[str, Any]:
    try:
        parts = conninfo_to_dict(url) if _ADDRESS.fullmatch(url) else None
    except psycopg.ProgrammingError:  # its text can quote the password
        parts = None
    if parts is None:
        raise ValueError(
            "the address cannot be read (and is not shown, because it can contain a password); expected "
            "postgresql://user:password@host:port/database, with parameters of libpq, and characters such as "
            "% @ / ? # [ in the password percent-encoded: %25 %40 %2F %3F %23 %5B"
        )
    return parts


def _make_named_rows(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], Row]:
    """Return the row factory for a cursor's columns."""
    return _make_row_type(*(column.name for column in cursor.description or ()))


@lru_cache(maxsize=64)
def _make_row_type(*names: str) -> Callable[[Sequence[Any]], Row]:
    indexes = {name: index for index, name in enumerate(names)}

    class Named(tuple[Any, ...]):
        """A row."""

        def __getitem__(self, column: Any) -> Any:
            return super().__getitem__(indexes.get(column, column))

    return Named
