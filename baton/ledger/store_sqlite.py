"""A ledger in one SQLite file: for one machine, any number of processes.

Three things that SQLite's defaults get wrong for a hash chain: the driver starts its transaction after the
read, so two appends join to the same record and neither fails (BEGIN IMMEDIATE instead); a commit may be lost
with the power (synchronous FULL, so an acknowledged record is on the disk); and readers wait for the writer (WAL).

A write to a quick disk takes less time than handing it to a thread and back. So `write_at_once` does it where it is
called, for as long as commits take less than a millisecond and nobody else is writing.
"""

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baton.ledger.errors import LedgerConflictError, LedgerUnavailableError
from baton.ledger.store_database import APPEND_ONLY, NotAtOnceError, Row, T, Work, first_line, refused, unavailable

_READERS = 4
_WRITING = "BEGIN IMMEDIATE"
_PAUSE = 0.01  # seconds between two tries to set up a connection
_SOON = 0.001  # seconds for which a commit may hold up an event loop
_LATELY = 8  # so many commits tell whether the disk is as quick as that
_FLUSHED_WITHIN = 0.02  # seconds after which the disk has what was not waited for
_LOG_COMMITS = 128  # after so many the log is brought into the file, which takes some hundredths of a second
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


class SqliteDatabase:
    """A ledger's file.

    Args:
        path: The file; it is made, readable by its owner only, together with its folder.
        wait: For how many seconds to wait while another process writes.
        create: Make the file if it is not there; otherwise that is an error.
    """

    dialect = "sqlite"

    def __init__(self, path: Path, *, wait: float = 15.0, create: bool = True) -> None:
        self.path = path
        self._wait = wait
        self._create = create
        # One writer at a time is all that SQLite allows; its queue is here, where waiting costs nothing.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ledger-writer")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="ledger-reader")
        self._mine = threading.local()  # each thread has a connection of its own
        self._opened: list[sqlite3.Connection] = []
        self._identity: tuple[int, int] | None = None  # which file it is: device and inode
        self._here: sqlite3.Connection | None = None  # for writing at once: it waits for nobody
        self._commits: deque[float] = deque(maxlen=_LATELY)  # the seconds that the last ones took
        self._in_log = 0  # how many were made at once since the log began
        self._taken_in = False  # whether most of it is in the file
        self._flushes = True  # whether the disk has a commit there before the next step
        self._unflushed: float | None = None  # since when there are some that the disk may not have
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def read(self, work: Work[T]) -> T:
        """Return what ``work`` returns, within one transaction that only reads."""
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    async def write(self, work: Work[T]) -> T:
        """Return what ``work`` returns, once what it wrote is on the disk."""
        self._check_open()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, self._wait_and_write, work)

    def write_at_once(self, work: Work[T], *, flush: bool = True) -> T:
        """Return what ``work`` returns, once what it wrote is in the file, and on the disk if that is asked for.

        Raises:
            NotAtOnceError: The disk is slow, or somebody else is writing.
        """
        self._check_open()
        if self._here is None or (flush and self._commits and min(self._commits) > _SOON):
            raise NotAtOnceError
        if flush is not self._flushes:
            self._here.execute(f"PRAGMA synchronous={'full' if flush else 'normal'}")
            self._flushes = flush
        try:
            result = self._transaction(_WRITING, work, self._here)
        except LedgerUnavailableError as error:
            if _is_busy(error.__cause__):
                raise NotAtOnceError from error
            raise
        if not flush:
            self._unflushed = self._unflushed or time.monotonic()
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(_FLUSHED_WITHIN, self._flush_in_time)
        self._in_log += 1
        if self._in_log == _LOG_COMMITS:
            self._writer.submit(self._take_in_log)
        elif self._in_log > _LOG_COMMITS and self._taken_in:
            self._take_in_log(self._here)
            self._in_log, self._taken_in = 0, False
        return result

    def hold_tasks(self, connection: object, task_ids: Sequence[str]) -> None:
        """Do nothing: BEGIN IMMEDIATE keeps every other writer from the whole file."""

    def settle(self, connection: object) -> None:
        """Do nothing: positions are given in the order of commits."""

    async def close(self) -> None:
        """Close the file once what was begun is done."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._writer.submit(self._flush)
        await asyncio.to_thread(self._shut_down)

    def _flush_in_time(self) -> None:
        """See to it that the disk has what was written, unless a later commit did."""
        self._timer = None
        if self._unflushed is None:
            return
        left = self._unflushed + _FLUSHED_WITHIN - time.monotonic()
        if left > 0:
            self._timer = asyncio.get_running_loop().call_later(left, self._flush_in_time)
        else:
            self._unflushed = None
            self._writer.submit(self._flush)

    def _flush(self) -> None:
        """Bring the log to the disk."""
        with contextlib.suppress(OSError):  # the next commit that is waited for tells of a disk that fails
            log = os.open(f"{self.path}-wal", os.O_RDONLY)
            try:
                os.fsync(log)
            finally:
                os.close(log)

    def _shut_down(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        while self._opened:
            self._opened.pop().close()

    def _wait_and_write(self, work: Work[T]) -> T:
        """Write in the writer's own thread; the connection that never waits is opened there as well."""
        result = self._transaction(_WRITING, work)
        if self._here is None:
            with contextlib.suppress(sqlite3.Error, OSError):
                here = self._open()
                here.execute("PRAGMA busy_timeout=0")
                here.execute("PRAGMA wal_autocheckpoint=0")
                self._here = here
        return result

    def _read(self, work: Work[T]) -> T:
        """Read; a file beside which none may be made is read as it lies there, and only while nobody writes it."""
        still = self._still()
        if still is None:
            return self._transaction("BEGIN", work)
        try:
            where = f"{self.path.absolute().as_uri()}?immutable=1"
            with contextlib.closing(sqlite3.connect(where, uri=True, isolation_level=None)) as opened:
                opened.row_factory = sqlite3.Row
                for pragma in _MISTRUST:
                    opened.execute(f"PRAGMA {pragma}")
                return work(SqliteConnection(opened))
        except sqlite3.Error as error:
            raise self._unavailable(error, writing=False) from error
        finally:
            if self._still() != still:
                raise LedgerUnavailableError(
                    f"the ledger at {str(self.path)!r} was written while it was read, so that may not fit together; "
                    "read it again"
                )

    def _still(self) -> tuple[int, ...] | None:
        """Return which state the file is in, or None where SQLite can read it as usual, or somebody has it open."""
        path = Path(os.path.realpath(self.path))
        if os.access(path.parent, os.W_OK) or os.path.exists(f"{path}-wal") or not path.is_file():
            return None
        found = path.stat()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _unavailable(self, error: Exception, *, writing: bool) -> LedgerUnavailableError:
        """Return the error for a file that cannot be used; where rights are missing, it says which."""
        may_write = os.access(self.path.parent, os.W_OK)
        if writing and self.path.exists() and not (may_write and os.access(self.path, os.W_OK)):
            remedy = "who records must be allowed to write the file and its folder, and nothing was recorded"
        elif not writing and not may_write and os.access(self.path, os.R_OK):
            remedy = (
                "of one that is in use, or was when it was copied, SQLite must read the files -wal and -shm beside it "
                "as well: have its owner make a copy (`.backup` of sqlite3)"
            )
        else:
            return unavailable(str(self.path), error, writing=writing)
        return LedgerUnavailableError(f"the ledger at {str(self.path)!r} cannot be used: {first_line(error)}; {remedy}")

    def _transaction(self, begin: str, work: Work[T], connection: sqlite3.Connection | None = None) -> T:
        """Run ``work`` between a BEGIN and a COMMIT, by default on this thread's connection."""
        try:
            connection = connection or self._connected()
            self._check_still_there()
            try:
                before = connection.total_changes
                connection.execute(begin)
                result = work(SqliteConnection(connection))
                began = time.perf_counter()
                connection.execute("COMMIT")
                wrote = connection.total_changes > before
                if wrote and (connection is not self._here or self._flushes):
                    self._commits.append(time.perf_counter() - began)
                    if connection is self._here:  # what was written before went to the disk with it
                        self._unflushed = None
            except BaseException:
                connection.rollback()  # does nothing where nothing was begun
                raise
            return result
        except sqlite3.IntegrityError as error:
            if APPEND_ONLY in str(error):
                raise refused(str(self.path), error) from error
            raise LedgerConflictError(f"the ledger at {str(self.path)!r} refused a row: {first_line(error)}") from error
        except (sqlite3.Error, OSError) as error:
            raise self._unavailable(error, writing=begin == _WRITING) from error

    def _connected(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._mine, "connection", None)
        if found is None:
            self._find()
            found = self._open()
            self._identity = self._identity or self._identified()
            self._mine.connection = found
        return found

    def _open(self) -> sqlite3.Connection:
        """Return a new connection; this thread may take its time."""
        # The thread that shuts down is another one; until then none uses the connection of another.
        opened = sqlite3.connect(self.path, timeout=self._wait, isolation_level=None, check_same_thread=False)
        self._opened.append(opened)
        opened.row_factory = sqlite3.Row
        self._prepare(opened)
        return opened

    def _take_in_log(self, connection: sqlite3.Connection | None = None) -> None:
        """Bring what was written into the file; what fails is left to the next time.

        The log only begins anew once all of it is in the file. So a thread brings in most of it, which takes its time,
        and whoever writes next the little that was added meanwhile: a log that grows makes each commit dearer.
        """
        with contextlib.suppress(sqlite3.Error, OSError, LedgerUnavailableError):
            (connection or self._connected()).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        self._taken_in = True

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

    def _check_open(self) -> None:
        """Make sure that the file was not closed.

        Raises:
            LedgerUnavailableError: It was.
        """
        if self._closed:
            raise LedgerUnavailableError(
                f"the ledger at {str(self.path)!r} was closed, and nothing is recorded in it or read from it; use it "
                "within its `async with`"
            )

    def _check_still_there(self) -> None:
        """Make sure that the file at the path is the one that is open.

        SQLite goes on writing to a file that was deleted, moved or replaced, and nobody would ever read it.

        Raises:
            LedgerUnavailableError: It is not there any more, or another one is in its place.
        """
        try:
            same = self._identified() == self._identity
        except FileNotFoundError:
            same = False
        if not same:
            raise LedgerUnavailableError(
                f"the ledger's file at {str(self.path)!r} is gone, or replaced by another: put it back, or restart "
                "the worker if the other one is to be used from now on"
            )

    def _find(self) -> None:
        """Make the file if it is not there, for its owner only: it holds every message.

        Raises:
            LedgerUnavailableError: It is not there, and shall not be made.
        """
        if self._identity is not None:
            self._check_still_there()
        if self.path.exists():
            return
        if not self._create:
            raise LedgerUnavailableError(
                f"there is no ledger at {str(self.path)!r}; check the path: a worker with safeguards makes the file "
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
