"""The ledger's database, and the one in an SQLite file: for one machine, any number of processes.

What the ledger does is written once, in SQL that both databases understand, as plain functions on a `Connection`.
Both are used in one way, by `Database`. They differ in what is below it, in `store_postgres`, and in the tables of
`store_schema`.
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
"""What the triggers say."""

BEFORE_ALL = -(2**63) - 1
"""Before the smallest position that the tables hold: who wrote past the ledger may not have begun at 1."""

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


_READERS = 4


class Database(ABC):
    """Where the ledger's tables are, for one event loop: one thread writes and a few read, each on its connection."""

    dialect: str
    """`"sqlite"` or `"postgresql"`."""
    driver: Any
    """A module as Python's DB-API has it (PEP 249), which both drivers are."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ledger-writer")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="ledger-reader")
        self._connections: dict[int, Any] = {}  # the driver's, by thread
        self._closed = False

    async def read(self, work: Work[T]) -> T:
        """Return what ``work`` returns, within one transaction that only reads."""
        return await self._run(self._readers, work, writing=False)

    async def write(self, work: Work[T]) -> T:
        """Return what ``work`` returns, once what it wrote is durable; nothing is written if it raises."""
        return await self._run(self._writer, work, writing=True)

    async def close(self) -> None:
        """Close every connection once what was begun is done."""
        self._closed = True
        await asyncio.to_thread(self._shut_down)

    @abstractmethod
    def hold_tasks(self, connection: Connection, task_ids: Sequence[str]) -> None:
        """Keep every other writer from these tasks' chains until the transaction ends."""

    @abstractmethod
    def settle(self, connection: Connection) -> None:
        """Return once every record with a smaller position than the largest one is committed."""

    @abstractmethod
    def _transaction(self, work: Work[T], *, writing: bool) -> T:
        """Run ``work`` in a transaction on this thread's connection."""

    async def _run(self, threads: ThreadPoolExecutor, work: Work[T], *, writing: bool) -> T:
        if self._closed:
            raise LedgerUnavailableError(
                f"the ledger at {self.where!r} was closed, and nothing is recorded in it or read from it; use it "
                "within its `async with`"
            )
        return await asyncio.get_running_loop().run_in_executor(threads, self._translated, work, writing)

    def _translated(self, work: Work[T], writing: bool) -> T:
        """Run ``work``, and turn what the driver raises into a `LedgerError`."""
        try:
            return self._transaction(work, writing=writing)
        except (self.driver.Error, OSError) as error:
            raise self._explained(error, writing=writing) from error

    def _explained(self, error: Exception, *, writing: bool) -> LedgerError:
        if APPEND_ONLY in str(error):
            return refused(self.where, error)
        if isinstance(error, self.driver.IntegrityError):
            return LedgerConflictError(f"the ledger at {self.where!r} refused a row: {first_line(error)}")
        return unavailable(self.where, error, writing=writing)

    def _committed(self, opened: Any, begin: str, work: Callable[[], T]) -> T:
        """Run ``work`` between a BEGIN and a COMMIT."""
        try:
            opened.execute(begin)
            result = work()
            opened.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(self.driver.Error):  # the connection may be gone
                opened.rollback()  # does nothing where nothing was begun
            raise
        return result

    def _shut_down(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        while self._connections:
            self._connections.popitem()[1].close()


class DamagedRowError(LedgerError):
    """A row holds what no writer puts there: SQLite keeps whatever its owner puts into a column."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}: its row in the ledger's tables holds what is of another type; find out who wrote it: "
            "`baton audit verify --all`"
        )


def hashes(row: Row) -> tuple[bytes, bytes | None]:
    """Return the hash and the signature in a row of the index."""
    record_hash, signature = row["record_hash"], row["signature"]
    if not (isinstance(record_hash, bytes) and len(record_hash) == 32 and isinstance(signature, bytes | None)):
        raise DamagedRowError("a record")
    return record_hash, signature


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


_PAUSE = 0.01  # seconds between two tries to set up a connection
_NO_TEXT = "Could not decode to UTF-8"
_MISTRUST = ("trusted_schema=off", "cell_size_check=on")
_PRAGMAS = (
    "journal_mode=wal",
    "synchronous=full",
    "foreign_keys=on",
    "recursive_triggers=on",  # or INSERT OR REPLACE deletes a row without asking the delete trigger
    *_MISTRUST,
)


@dataclass(frozen=True)
class SqliteConnection:
    """A transaction on a ledger's file."""

    raw: sqlite3.Connection
    dialect: str = "sqlite"

    def rows(self, statement: str, *values: Any) -> Sequence[Row]:
        """Execute a statement and return the rows it gives; a text that is none comes as its bytes."""
        try:
            return self.raw.execute(statement, values).fetchall()
        except sqlite3.OperationalError as error:
            if not str(error).startswith(_NO_TEXT):
                raise
        # Somebody put it there past the tables' guards. Asked for each text of a whole ledger, this would take long.
        self.raw.text_factory = _text
        try:
            return self.raw.execute(statement, values).fetchall()
        finally:
            self.raw.text_factory = str

    def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once for each of several lists of values."""
        self.raw.executemany(statement, values)


class SqliteDatabase(Database):
    """A ledger's file."""

    dialect = "sqlite"
    driver = sqlite3

    def __init__(self, path: Path, *, wait: float = 15.0, create: bool = True) -> None:
        super().__init__(str(path))
        self.path = path
        self._wait = wait
        self._create = create
        self._identity: tuple[int, int] | None = None  # which file it is: device and inode

    def hold_tasks(self, connection: object, task_ids: Sequence[str]) -> None:
        """Do nothing: BEGIN IMMEDIATE keeps every other writer from the whole file."""

    def settle(self, connection: object) -> None:
        """Do nothing: positions are given in the order of commits."""

    def _transaction(self, work: Work[T], *, writing: bool) -> T:
        """Run ``work``; where no file may be made beside this one, it is read as it lies there."""
        still = None if writing else self._still()
        if still is not None:
            return self._read_still(work, still)
        opened = self._connected()
        self._check_still_there()
        return self._committed(
            opened, "BEGIN IMMEDIATE" if writing else "BEGIN", lambda: work(SqliteConnection(opened))
        )

    def _read_still(self, work: Work[T], still: tuple[int, ...]) -> T:
        try:
            where = f"{self.path.absolute().as_uri()}?immutable=1"
            with contextlib.closing(sqlite3.connect(where, uri=True, isolation_level=None)) as opened:
                opened.row_factory = sqlite3.Row
                for pragma in _MISTRUST:
                    opened.execute(f"PRAGMA {pragma}")
                return work(SqliteConnection(opened))
        finally:
            if self._still() != still:
                raise LedgerUnavailableError(
                    f"the ledger at {self.where!r} was written while it was read, so that may not fit together; "
                    "read it again"
                )

    def _still(self) -> tuple[int, ...] | None:
        """Return which state the file is in, or None where SQLite can read it as usual, or somebody has it open."""
        path = Path(os.path.realpath(self.path))
        if os.access(path.parent, os.W_OK) or os.path.exists(f"{path}-wal") or not path.is_file():
            return None
        found = path.stat()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _explained(self, error: Exception, *, writing: bool) -> LedgerError:
        """Return the error; where rights to the file are missing, it says which."""
        remedy = None if isinstance(error, sqlite3.IntegrityError) else self._missing_rights(writing=writing)
        if remedy is None:
            return super()._explained(error, writing=writing)
        return LedgerUnavailableError(f"the ledger at {self.where!r} cannot be used: {first_line(error)}; {remedy}")

    def _missing_rights(self, *, writing: bool) -> str | None:
        may_write = os.access(self.path.parent, os.W_OK)
        if writing and self.path.exists() and not (may_write and os.access(self.path, os.W_OK)):
            return "who records must be allowed to write the file and its folder, and nothing was recorded"
        if not writing and not may_write and os.access(self.path, os.R_OK):
            return (
                "of one that is in use, or was when it was copied, SQLite must read the files -wal and -shm beside it "
                "as well: have its owner make a copy (`.backup` of sqlite3)"
            )
        return None

    def _connected(self) -> sqlite3.Connection:
        """Return this thread's connection."""
        found: sqlite3.Connection | None = self._connections.get(threading.get_ident())
        if found is None:
            self._find()
            found = self._open()
            self._identity = self._identity or self._identified()
        return found

    def _open(self) -> sqlite3.Connection:
        """Return a new connection; this thread may take its time."""
        # The thread that shuts down is another one; until then none uses the connection of another.
        opened = sqlite3.connect(self.path, timeout=self._wait, isolation_level=None, check_same_thread=False)
        opened.row_factory = sqlite3.Row
        try:
            self._prepare(opened)
        except BaseException:
            opened.close()
            raise
        self._connections[threading.get_ident()] = opened
        return opened

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Set up a connection; SQLite itself does not wait to change a new file to WAL while another one opens it."""
        until = time.monotonic() + self._wait
        while True:
            try:
                for pragma in _PRAGMAS:
                    connection.execute(f"PRAGMA {pragma}")
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > until:
                    raise
            time.sleep(_PAUSE)

    def _identified(self) -> tuple[int, int]:
        """Return which file is at the path now."""
        found = os.stat(self.path)
        return found.st_dev, found.st_ino

    def _check_still_there(self) -> None:
        """Make sure that the file at the path is the one that is open."""
        try:
            same = self._identified() == self._identity
        except FileNotFoundError:
            same = False
        if not same:
            raise LedgerUnavailableError(
                f"the ledger's file at {self.where!r} is gone, or replaced by another: put it back, or restart "
                "the worker if the other one is to be used from now on"
            )

    def _find(self) -> None:
        """Make the file if it is not there, for its owner only: it holds every message."""
        if self._identity is not None:
            self._check_still_there()
        if self.path.exists():
            return
        if not self._create:
            raise LedgerUnavailableError(
                f"there is no ledger at {self.where!r}; check the path: a worker with safeguards makes the file "
                "when it opens it"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))


def _text(stored: bytes) -> str | bytes:
    """Return a text, or the bytes of what is none: SQLite keeps whatever is put into a column."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def _is_busy(error: BaseException | None) -> bool:
    """Return whether somebody else has the file, also for bringing it in order after a writer that was killed."""
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
