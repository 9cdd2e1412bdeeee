"""The ledger's database interface, and its implementation in an SQLite file for the processes of one machine.

The ledger's operations are plain functions on a `Connection`, in SQL for both SQLite and Postgres. `Database` runs
them in transactions. `store_postgres` has the other implementation, `store_schema` the tables of both.
"""

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from baton.ledger.records import LedgerConflictError, LedgerError, LedgerUnavailableError

APPEND_ONLY = "handoff_audit is append-only"
"""The message of the triggers."""

BEFORE_ALL = -(2**63) - 1
"""Less than every position; a forger's positions can be negative."""

T = TypeVar("T")


class Row(Protocol):
    """A row, with values by column number or name."""

    def __getitem__(self, column: Any, /) -> Any:
        """Return a value."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the values."""


class Connection(Protocol):
    """An open transaction; `?` in a statement is a placeholder."""

    @property
    def dialect(self) -> str:
        """`"sqlite"` or `"postgresql"`."""

    def rows(self, statement: str, *values: Any) -> Sequence[Row]:
        """Execute a statement and return its rows."""

    def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Execute a statement without a result once for each list of values, in order."""


Work = Callable[[Connection], T]


_READER_THREADS = 4


class Database(ABC):
    """A ledger's database, for one event loop: one thread writes, a few read, each on its own connection."""

    dialect: str
    """`"sqlite"` or `"postgresql"`."""
    driver: Any
    """The DB-API module (PEP 249)."""
    is_patient = False
    """Whether a transaction may take hours, as a migration can; otherwise a database that does not answer is down."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ledger-writer")
        self._readers = ThreadPoolExecutor(_READER_THREADS, thread_name_prefix="ledger-reader")
        self._connections: dict[int, Any] = {}  # the driver's, by thread
        self._closed = False

    async def read(self, work: Work[T]) -> T:
        """Run ``work`` in a read transaction and return its result."""
        return await self._run(self._readers, work, writing=False)

    async def write(self, work: Work[T]) -> T:
        """Run ``work`` in a transaction and return its result once it is durable; an exception rolls back."""
        return await self._run(self._writer, work, writing=True)

    async def close(self) -> None:
        """Finish the running work and close every connection."""
        self._closed = True
        await asyncio.to_thread(self._shut_down)

    @abstractmethod
    def hold_tasks(self, connection: Connection, task_ids: Sequence[str]) -> None:
        """Lock these tasks' chains against other writers until the transaction ends."""

    @abstractmethod
    def settle(self, connection: Connection) -> None:
        """Wait until every record below the largest position is committed."""

    @abstractmethod
    def drop_months(self, connection: Connection) -> None:
        """Drop the bytes of whole months that the cold tier holds."""

    @abstractmethod
    def _run_transaction(self, work: Work[T], *, writing: bool) -> T:
        """Run ``work`` in a transaction on this thread's connection."""

    async def _run(self, threads: ThreadPoolExecutor, work: Work[T], *, writing: bool) -> T:
        if self._closed:
            raise LedgerUnavailableError(f"the ledger at {self.where!r} is closed; use it inside its `async with`")
        return await asyncio.get_running_loop().run_in_executor(threads, self._run_translated, work, writing)

    def _run_translated(self, work: Work[T], writing: bool) -> T:
        """Run ``work`` and translate the driver's exceptions into `LedgerError`."""
        try:
            return self._run_transaction(work, writing=writing)
        except (self.driver.Error, OSError, UnicodeDecodeError) as error:  # SQLite quotes a damaged schema
            raise self._translate_error(error, writing=writing) from error

    def _translate_error(self, error: Exception, *, writing: bool) -> LedgerError:
        if APPEND_ONLY in str(error):
            return refused_error(self.where, error)
        if isinstance(error, self.driver.IntegrityError):
            return LedgerConflictError(f"the ledger at {self.where!r} refused a row: {first_line(error)}")
        return unavailable_error(self.where, error, writing=writing)

    def _commit_work(self, connection: Any, begin: str, work: Callable[[], T]) -> T:
        """Run ``work`` between a BEGIN and a COMMIT."""
        try:
            connection.execute(begin)
            result = work()
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(self.driver.Error):  # the connection can be lost
                connection.rollback()
            raise
        return result

    def _shut_down(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        while self._connections:
            self._connections.popitem()[1].close()


class DamagedRowError(LedgerError):
    """A row is damaged, or was written past the constraints. `baton audit verify --all` names the record."""

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"{subject}: its row in the ledger's tables is damaged; find out who wrote it: `baton audit verify --all`"
        )


def hashes(row: Row) -> tuple[bytes, bytes | None]:
    """Return the hash and the signature in a row of the index."""
    record_hash, signature = row["record_hash"], row["signature"]
    if len(record_hash) != 32:
        raise DamagedRowError("a record")
    return record_hash, signature


def scalar(connection: Connection, statement: str, *values: Any) -> Any:
    """Return the first value of the first row, or None without rows."""
    rows = connection.rows(statement, *values)
    return rows[0][0] if rows else None


def refused_error(where: str, error: BaseException) -> LedgerError:
    """Return the error for a statement that a constraint or missing rights refused."""
    return LedgerError(f"the ledger at {where!r} refused: {first_line(error)}")


def unavailable_error(where: str, error: BaseException, *, writing: bool) -> LedgerUnavailableError:
    """Return the error for a ledger that cannot be written, or read, now."""
    remedy = (
        "nothing was recorded, so do not continue. "
        "Check the database and its disk, then append again: no event is recorded twice"
        if writing
        else "check the database, and the rights to read it"
    )
    return LedgerUnavailableError(f"the ledger at {where!r} cannot be used: {first_line(error)}; {remedy}")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text; later lines can quote values."""
    return str(error).partition("\n")[0] or type(error).__name__


_RETRY_SECONDS = 0.01  # between two attempts to set up a connection
_INVALID_TEXT = "Could not decode to UTF-8"
_SAFETY_PRAGMAS = ("trusted_schema=off", "cell_size_check=on")
_PRAGMAS = (
    "page_size=1024",  # of a new file; an append writes a dozen pages whole, twice
    "journal_mode=wal",
    "synchronous=full",
    "foreign_keys=on",
    "recursive_triggers=on",  # otherwise INSERT OR REPLACE deletes a row without the delete trigger
    *_SAFETY_PRAGMAS,
)


@dataclass(frozen=True)
class SqliteConnection:
    """A transaction on an SQLite file."""

    raw: sqlite3.Connection
    dialect: str = "sqlite"

    def rows(self, statement: str, *values: Any) -> Sequence[Row]:
        """Execute a statement and return its rows; text that is not UTF-8 is returned as bytes."""
        try:
            return self.raw.execute(statement, values).fetchall()
        except sqlite3.OperationalError as error:
            if not str(error).startswith(_INVALID_TEXT):
                raise
        # Somebody bypassed the triggers. A text factory is slow, so it is used only here.
        self.raw.text_factory = _decode_text
        try:
            return self.raw.execute(statement, values).fetchall()
        finally:
            self.raw.text_factory = str

    def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once for each of several lists of values."""
        self.raw.executemany(statement, values)


class SqliteDatabase(Database):
    """A ledger in an SQLite file."""

    dialect = "sqlite"
    driver = sqlite3

    def __init__(self, path: Path, *, wait: float = 15.0, create: bool = True) -> None:
        super().__init__(str(path))
        self.path = path
        self._wait = wait
        self._create = create
        self._identity: tuple[int, int] | None = None  # device and inode

    def hold_tasks(self, connection: object, task_ids: Sequence[str]) -> None:
        """Do nothing: BEGIN IMMEDIATE locks the whole file against other writers."""

    def settle(self, connection: object) -> None:
        """Do nothing: positions are in the order of commits."""

    def drop_months(self, connection: object) -> None:
        """Do nothing: a file has one table for all months."""

    def _run_transaction(self, work: Work[T], *, writing: bool) -> T:
        """Run ``work`` in a transaction; in a read-only folder, on the file as an immutable one."""
        file_state = None if writing else self._read_only_state()
        if file_state is not None:
            return self._read_immutable(work, file_state)
        connection = self._get_connection()
        self._check_same_file()
        return self._commit_work(
            connection, "BEGIN IMMEDIATE" if writing else "BEGIN", lambda: work(SqliteConnection(connection))
        )

    def _read_immutable(self, work: Work[T], file_state: tuple[int, ...]) -> T:
        try:
            uri = f"{self.path.absolute().as_uri()}?immutable=1"
            with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
                connection.row_factory = sqlite3.Row
                for pragma in _SAFETY_PRAGMAS:
                    connection.execute(f"PRAGMA {pragma}")
                return work(SqliteConnection(connection))
        finally:
            if self._read_only_state() != file_state:
                raise LedgerUnavailableError(
                    f"the ledger at {self.where!r} was written during reading, so the result can be inconsistent; "
                    "read it again"
                )

    def _read_only_state(self) -> tuple[int, ...] | None:
        """Return the state of a file that must be read as immutable, or None if SQLite can open it as usual."""
        path = Path(os.path.realpath(self.path))
        if os.access(path.parent, os.W_OK) or os.path.exists(f"{path}-wal") or not path.is_file():
            return None
        status = path.stat()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def _translate_error(self, error: Exception, *, writing: bool) -> LedgerError:
        """Translate an error, and name the missing rights to the file, if any."""
        if isinstance(error, UnicodeDecodeError):
            return LedgerUnavailableError(
                f"the ledger at {self.where!r} cannot be used: its file is damaged; restore it with all of its files"
            )
        remedy = None if isinstance(error, sqlite3.IntegrityError) else self._missing_rights(writing=writing)
        if remedy is None:
            return super()._translate_error(error, writing=writing)
        return LedgerUnavailableError(f"the ledger at {self.where!r} cannot be used: {first_line(error)}; {remedy}")

    def _missing_rights(self, *, writing: bool) -> str | None:
        may_write = os.access(self.path.parent, os.W_OK)
        if writing and self.path.exists() and not (may_write and os.access(self.path, os.W_OK)):
            return "nothing was recorded: this process needs the right to write the file and its folder"
        if not writing and not may_write and os.access(self.path, os.R_OK):
            return (
                "if it is in use, or was when it was copied, SQLite also needs the files -wal and -shm beside it: "
                "have its owner make a copy (`.backup` of sqlite3)"
            )
        return None

    def _get_connection(self) -> sqlite3.Connection:
        """Return this thread's connection; open it first if needed."""
        connection: sqlite3.Connection | None = self._connections.get(threading.get_ident())
        if connection is None:
            self._ensure_file()
            connection = self._open()
            self._identity = self._identity or self._file_identity()
        return connection

    def _open(self) -> sqlite3.Connection:
        # Each thread has its own connection; only the thread that shuts down closes those of others.
        connection = sqlite3.connect(self.path, timeout=self._wait, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connections[threading.get_ident()] = connection
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Set the pragmas; SQLite does not wait for the change to WAL while another process opens the new file."""
        deadline = time.monotonic() + self._wait
        while True:
            try:
                for pragma in _PRAGMAS:
                    connection.execute(f"PRAGMA {pragma}")
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)

    def _file_identity(self) -> tuple[int, int]:
        """Return the device and inode of the file at the path."""
        status = os.stat(self.path)
        return status.st_dev, status.st_ino

    def _check_same_file(self) -> None:
        """Raise an error if the path no longer leads to the open file."""
        try:
            same = self._file_identity() == self._identity
        except FileNotFoundError:
            same = False
        if not same:
            raise LedgerUnavailableError(
                f"the ledger's file at {self.where!r} was removed or replaced: restore it, or restart the worker to "
                "use the new file"
            )

    def _ensure_file(self) -> None:
        """Create a missing file, readable by its owner only: it holds every message."""
        if self._identity is not None:
            self._check_same_file()
        if self.path.exists():
            return
        if not self._create:
            raise LedgerUnavailableError(
                f"there is no ledger at {self.where!r}; check the path: a worker with safeguards creates the file "
                "at its start"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))


def _decode_text(stored: bytes) -> str | bytes:
    """Return a text, or the bytes if they are not UTF-8."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def _is_busy(error: BaseException | None) -> bool:
    """Return whether another process has locked the file, or recovers it after a killed writer."""
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
