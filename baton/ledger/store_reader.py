"""Reading records back, from whichever tier has them, as if there were one.

A task's trace is one query, ordered by the chain's own sequence and not by time, which has ties and runs
backwards (§8.2).
"""

import itertools
from collections.abc import AsyncIterator
from types import NoneType

from baton.ledger.evidence import index_line
from baton.ledger.records import AuditRecord, Claims
from baton.ledger.store_archive import ColdTier
from baton.ledger.store_database import BEFORE_ALL, Connection, Database, Row, scalar
from baton.ledger.store_rows import DamagedContentError, restored

PAGE = 1_000
"""How many records are read at a time where all are."""

# The segment, the one that can have them, is asked for only where the bytes are not hot.
_RECORD = """SELECT record.position, record.task_id, record.sequence, record.previous_hash, record.record_hash,
    record.event_key, record.message_hash, record.recorded_at, record.key_id, record.signature,
    content.codec, content.bytes,
    CASE WHEN content.position IS NULL THEN (
        SELECT segment FROM handoff_audit_segment AS s WHERE s.first_position <= record.position
        ORDER BY s.first_position DESC LIMIT 1
    ) END AS segment
FROM handoff_audit AS record LEFT JOIN handoff_audit_content AS content ON content.position = record.position
"""
TRACE = f"{_RECORD}WHERE record.task_id = ? ORDER BY record.sequence"
"""The one query that reconstructs a task."""
_PAGE = f"{_RECORD}WHERE record.position >= ? AND record.position <= ? ORDER BY record.position LIMIT ?"
_NEWEST = f"{_RECORD}WHERE record.position <= ? ORDER BY record.position DESC LIMIT ?"
_NEWEST_OF_TASK = f"{_RECORD}WHERE record.position <= ? AND record.task_id = ? ORDER BY record.position DESC LIMIT ?"
# What the columns of a record can be: SQLite keeps whatever is put into one.
_TYPES = frozenset(
    itertools.product(
        *((int,), (str,), (int,), (bytes,), (bytes,), (str,), (bytes,), (str,)),
        *((str, NoneType), (bytes, NoneType), (int, NoneType), (bytes, NoneType), (str, NoneType)),
    )
)
_INDEX = "SELECT record_hash, position, signature FROM handoff_audit WHERE position <= ? ORDER BY position"


class Reader:
    """Reads one ledger's records."""

    def __init__(self, database: Database, cold: ColdTier) -> None:
        self._database = database
        self._cold = cold

    async def task(self, task_id: str) -> list[AuditRecord]:
        """Return a task's whole chain, in order; none if the ledger has nothing of it."""
        return await self._records(TRACE, task_id)

    async def page(self, after: int, through: int, limit: int = PAGE) -> list[AuditRecord]:
        """Return the records behind the position ``after``, in the ledger's order, ``limit`` at most."""
        return await self._records(_PAGE, after + 1, through, limit) if after < through else []

    async def newest(self, count: int, task_id: str | None, through: int) -> list[AuditRecord]:
        """Return the last records up to a position, of one task or of all, in the ledger's order."""
        if task_id is None:
            return (await self._records(_NEWEST, through, count))[::-1]
        return (await self._records(_NEWEST_OF_TASK, through, task_id, count))[::-1]

    async def pages(self, through: int) -> AsyncIterator[list[AuditRecord]]:
        """Yield all records up to a position, in the ledger's order, `PAGE` at a time."""
        after = BEFORE_ALL
        while page := await self.page(after, through):
            yield page
            after = page[-1].position

    async def index_lines(self, through: int) -> list[bytes]:
        """Return the index lines, as evidence files have them, of every record up to a position."""
        return await self._database.read(
            lambda connection: [index_line(*row) for row in connection.rows(_INDEX, through)]
        )

    async def end(self) -> int:
        """Return the last position; no record with a smaller one will appear later."""

        def work(connection: Connection) -> int:
            self._database.settle(connection)
            return scalar(connection, "SELECT max(position) FROM handoff_audit") or 0

        return await self._database.read(work)

    async def _records(self, query: str, *values: int | str) -> list[AuditRecord]:
        def work(connection: Connection) -> list[tuple[AuditRecord, str | None]]:
            return [_record(row) for row in connection.rows(query, *values)]

        found = await self._database.read(work)
        if any(segment is not None for _, segment in found):
            return await self._cold.fill(found)
        return [record for record, _ in found]


def _record(row: Row) -> tuple[AuditRecord, str | None]:
    """Return the record of a row, and the segment to look into if the hot tier does not have its bytes."""
    if tuple(map(type, row)) not in _TYPES:
        return _damaged(row), None
    (
        position,
        task_id,
        sequence,
        previous_hash,
        record_hash,
        event_key,
        message_hash,
        recorded_at,
        key_id,
        signature,
        codec,
        stored,
        segment,
    ) = row
    header, message, absence = b"", b"", None
    if stored is not None:
        try:
            header, message = restored(codec, stored)
        except DamagedContentError as error:
            absence = str(error)
    elif segment is None:
        absence = "its bytes are gone, and no segment of the cold tier has them"
    claims = Claims(task_id, sequence, previous_hash, event_key, message_hash, recorded_at, key_id)
    record = AuditRecord(header, message, signature, position, record_hash, claims, absence, absence is not None)
    return record, segment


def _damaged(row: Row) -> AuditRecord:
    """Return the record of a row that no writer of these tables can have written: verification names it."""
    claimed = row["record_hash"] if isinstance(row["record_hash"], bytes) else b""
    absence = "its row in the ledger's tables holds what is of another type"
    return AuditRecord(b"", b"", position=row["position"], claimed_hash=claimed, absence=absence, lost=True)
