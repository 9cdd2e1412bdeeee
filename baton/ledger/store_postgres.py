"""A ledger in a Postgres database of its own, which its writer can read and add to, and nothing else.

Three roles (§10.3): the owner migrates; the **writer**, whose credentials the workers have, inserts and
selects; the **keeper** makes checkpoints, moves old records to the cold tier and can delete bytes only of records
for which it has registered a segment, which stays on record; that the segment holds them, no trigger can check. An
owner or superuser can undo all of it: hence anchors outside.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import asyncpg

from baton.ledger.records import LedgerConflictError, LedgerError, LedgerUnavailableError
from baton.ledger.store_database import (
    APPEND_ONLY,
    Connection,
    Row,
    T,
    Work,
    first_line,
    refused,
    shown,
    unavailable,
)

_CONNECTIONS = 8
_WAIT_SECONDS = 15
_STATEMENTS = 100  # so many a connection keeps prepared
_SEED = 0x62617463  # of the hash that turns a task into a lock; any number does, as long as all writers have it
_APPENDING = 0x6261746F6E  # the lock that appenders share, and that `settle` takes for itself

_POSITIONS = "handoff_audit_pkey"
"""The constraint that no entry can violate by itself: its column is filled by the database."""
_BEHIND = (
    "nothing was recorded: the counter of positions is behind the records, as that of a logical replica is; its owner "
    "puts it right by SELECT setval('handoff_audit_position_seq', max(position)) FROM handoff_audit"
)
_NOT_KNOWN = "leave it out of the address: this driver does not know it, and hands it to the server as a setting"
_HOLD = (
    "SELECT pg_advisory_xact_lock(key) FROM (SELECT DISTINCT hashtextextended(task, ?::bigint) AS key "
    "FROM unnest(?::text[]) AS task ORDER BY key) AS tasks"
)
_REFUSED = (asyncpg.InsufficientPrivilegeError, asyncpg.UndefinedObjectError)
"""Rights that a role lacks, and a role that there is not."""
_BROKEN = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What the driver says of a connection that ended under it, the second in the moment in which it does."""
_NAME = {"application_name": "baton-ledger"}
_SETTINGS = {
    "synchronous_commit": "on",
    # A worker that hangs in an append must not keep others waiting for its task for ever.
    "idle_in_transaction_session_timeout": f"{_WAIT_SECONDS}s",
}
_SET = "; ".join(f"SET LOCAL {name} = '{value}'" for name, value in _SETTINGS.items())
"""The same where a connection is lent for one transaction."""
_ISOLATION = "read_committed"
"""Anyone who waited for a task's lock must see what its holder committed, whatever the default is."""
_POOLED = (
    asyncpg.ProtocolViolationError,  # "unsupported startup parameter"
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.DuplicatePreparedStatementError,
)
"""What a pooler such as PgBouncer makes of settings and prepared statements, which belong to a connection."""
_LOST = (asyncpg.PostgresConnectionError, *_BROKEN, asyncpg.OperatorInterventionError, ConnectionError)


@dataclass(frozen=True)
class PostgresConnection:
    """A transaction on a ledger's database, for a function that runs in a thread beside the event loop."""

    raw: Any
    loop: asyncio.AbstractEventLoop
    dialect: str = "postgresql"

    def rows(self, statement: str, *values: Any) -> Sequence[Row]:
        """Execute a statement and return the rows it gives."""
        found: Sequence[Row] = self._done(self.raw.fetch(numbered(statement), *values))
        return found

    def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once for each of several lists of values."""
        self._done(self.raw.executemany(numbered(statement), values))

    def _done(self, doing: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(doing, self.loop).result()


class PostgresDatabase:
    """A ledger's database."""

    dialect = "postgresql"

    def __init__(self, url: str) -> None:
        self.where = shown(url)
        self._url = url
        self._pool: Any = None
        self._earlier: Any = None  # the pool from before the pooler was found out
        self._pooled = False
        self._opening = asyncio.Lock()
        self._threads = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="ledger-postgres")

    async def read(self, work: Work[T]) -> T:
        """Return what ``work`` returns, within one transaction."""
        return await self._run(work, writing=False)

    async def write(self, work: Work[T]) -> T:
        """Return what ``work`` returns, once what it wrote is committed."""
        return await self._run(work, writing=True)

    def hold_tasks(self, connection: Connection, task_ids: Sequence[str]) -> None:
        """Keep every other writer from these tasks' chains until the transaction ends."""
        connection.rows("SELECT pg_advisory_xact_lock_shared(?::bigint)", _APPENDING)
        connection.rows(_HOLD, _SEED, sorted(set(task_ids)))

    def settle(self, connection: Connection) -> None:
        """Wait for the appends under way, half a second at most, so that no smaller position appears later."""
        connection.rows("SET LOCAL lock_timeout = '500ms'")
        try:
            connection.rows("SELECT pg_advisory_xact_lock(?::bigint)", _APPENDING)
        except asyncpg.LockNotAvailableError as error:
            raise LedgerUnavailableError(f"appends to the ledger at {self.where!r} did not end: try again") from error

    async def close(self) -> None:
        """Close every connection once what was begun is done."""
        for pool in (self._pool, self._earlier):
            if pool is not None:
                await pool.close()
        self._threads.shutdown()

    async def _run(self, work: Work[T], *, writing: bool) -> T:
        # A caller who is cancelled leaves; the connection stays taken until the thread that uses it is done.
        running = asyncio.ensure_future(self._named(work, writing))
        running.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(running)

    async def _named(self, work: Work[T], writing: bool) -> T:
        """Run ``work``, and turn what the database raises into a `LedgerError`."""
        try:
            try:
                return await self._once(work)
            except _POOLED:
                await self._expect_a_pooler()
                return await self._once(work)
            except _LOST:  # a pooled connection that the server closed meanwhile; all work can be done twice
                return await self._once(work)
        except asyncpg.IntegrityConstraintViolationError as error:
            if error.constraint_name == _POSITIONS:
                raise LedgerUnavailableError(f"{refused(self.where, error)}; {_BEHIND}") from error
            raise LedgerConflictError(f"the ledger at {self.where!r} refused a row: {first_line(error)}") from error
        except asyncpg.PostgresError as error:
            if isinstance(error, asyncpg.InsufficientPrivilegeError) and APPEND_ONLY not in str(error):
                remedy = (
                    "workers write with the address of its writer, `baton audit checkpoint` and `archive` with that of "
                    "its keeper; its owner makes these roles by `baton audit migrate --writer ROLE --keeper ROLE`"
                )
                # Rights can be given back, as a server comes back: a stage that has run is not to run again for this.
                raise LedgerUnavailableError(f"{refused(self.where, error)}; {remedy}") from error
            if isinstance(error, asyncpg.UndefinedObjectError) and "configuration parameter" in str(error):
                raise LedgerError(f"{refused(self.where, error)}; {_NOT_KNOWN}") from error
            if isinstance(error, _REFUSED) or APPEND_ONLY in str(error):
                raise refused(self.where, error) from error
            raise unavailable(self.where, error, writing=writing) from error
        except (*_BROKEN, OSError, TimeoutError) as error:
            silent = isinstance(error, TimeoutError) and not str(error)
            found = TimeoutError(f"no answer within {_WAIT_SECONDS} seconds") if silent else error
            raise unavailable(self.where, found, writing=writing) from error

    async def _once(self, work: Work[T]) -> T:
        pool = await self._connected()
        loop = asyncio.get_running_loop()
        async with pool.acquire(timeout=_WAIT_SECONDS) as connection, connection.transaction(isolation=_ISOLATION):
            if self._pooled:
                await connection.execute(_SET)
            return await loop.run_in_executor(self._threads, work, PostgresConnection(connection, loop))

    async def _connected(self) -> Any:
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=0,
                    max_size=_CONNECTIONS,
                    timeout=_WAIT_SECONDS,
                    command_timeout=_WAIT_SECONDS,
                    statement_cache_size=0 if self._pooled else _STATEMENTS,
                    server_settings=_NAME if self._pooled else _NAME | _SETTINGS,
                )
        return self._pool

    async def _expect_a_pooler(self) -> None:
        """Use connections from now on that may be others in each transaction."""
        async with self._opening:
            if not self._pooled:
                self._pooled, self._earlier, self._pool = True, self._pool, None


@lru_cache(maxsize=512)
def numbered(statement: str) -> str:
    """Return a statement with numbers in place of its question marks."""
    first, *rest = statement.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))
