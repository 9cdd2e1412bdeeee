"""Reading records back, and moving old ones to the cold tier: compressed segments in the artifact store (§9).

A task's trace is one query whichever tier has the bytes, ordered by the chain's own sequence and not by time, which
has ties and runs backwards (§8.2).
"""

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import NoneType

from baton.artifacts.store import ArtifactStore
from baton.errors import ArtifactCorruptError, ArtifactError, ArtifactNotFoundError
from baton.ledger.chain import own_flaw
from baton.ledger.evidence import SEGMENT, EvidenceFile, Manifest, index_digest, index_line, pack
from baton.ledger.records import AuditRecord, Claims, EvidenceError, LedgerError, LedgerUnavailableError
from baton.ledger.store_database import BEFORE_ALL, Connection, DamagedRowError, Database, Row, hashes, scalar
from baton.ledger.store_schema import DamagedContentError, restored
from baton.wire.json_values import parse_digest
from baton.wire.zstandard import zstd

SEGMENT_RECORDS = 2_000
"""How many records a segment has at most: one is read whole for a single task."""
MOST_SEGMENT_BYTES = 1024 * 1024 * 1024
"""A segment that would grow beyond this is taken for damaged."""

_MOVED_THROUGH = "SELECT max(last_position) FROM handoff_audit_segment"
_UNFINISHED = (
    "SELECT s.first_position, s.last_position, s.segment FROM handoff_audit_segment AS s WHERE EXISTS "
    "(SELECT 1 FROM handoff_audit_content AS c WHERE c.position BETWEEN s.first_position AND s.last_position)"
)
_FORGET = "DELETE FROM handoff_audit_content WHERE position BETWEEN ? AND ?"
_REGISTER = (
    "INSERT INTO handoff_audit_segment (first_position, last_position, records, segment, archived_at) "
    "VALUES (?, ?, ?, ?, ?)"
)
_LEVEL = 9
_KEPT_SEGMENTS = 2
_NAMED = 5


@dataclass(frozen=True)
class Segment:
    """Records that follow each other, as an evidence file in the artifact store.

    Attributes:
        digest: The digest of its compressed bytes, under which the store has it.
        first_position: The first record's number in the ledger.
        last_position: The last record's.
        records: How many records it has.
        bytes: Its size.
    """

    digest: str
    first_position: int
    last_position: int
    records: int
    bytes: int


class FlawedRecordsError(LedgerError):
    """Flawed records were not moved to the cold tier; all others were.

    Attributes:
        moved: The segments that were made.
    """

    def __init__(self, moved: Sequence[Segment], flawed: Sequence[str]) -> None:
        self.moved = tuple(moved)
        more = f", and {len(flawed) - _NAMED} more" if len(flawed) > _NAMED else ""
        super().__init__(f"{'; '.join(flawed[:_NAMED])}{more}: not moved; look into it with `baton audit verify --all`")


class ColdTier:
    """Reads segments from the artifact store; the last two that were read are kept."""

    def __init__(self, artifacts: ArtifactStore | None) -> None:
        self._artifacts = artifacts
        self._kept: OrderedDict[str, dict[int, AuditRecord]] = OrderedDict()

    async def fill(self, found: Sequence[tuple[AuditRecord, str | None]]) -> list[AuditRecord]:
        """Return the records with the bytes that a segment has; a record it has not says why (`absence`)."""
        return [record if segment is None else await self._filled(record, segment) for record, segment in found]

    async def _filled(self, record: AuditRecord, segment: str) -> AuditRecord:
        try:
            held = await self._segment(segment)
        except (
            ArtifactNotFoundError,
            ArtifactCorruptError,
            EvidenceError,
            ValueError,
        ) as error:  # or it is not a digest
            return replace(record, absence=f"its segment of the cold tier is lost: {error}", lost=True)
        except (ArtifactError, LedgerUnavailableError) as error:
            return replace(record, absence=f"its segment of the cold tier can't be read: {error}")
        cold = held.get(record.position)
        if cold is None:
            return replace(record, absence=f"it is not in {segment!r}, the segment it should be in", lost=True)
        return replace(record, header=cold.header, message=cold.message)

    async def _segment(self, segment: str) -> dict[int, AuditRecord]:
        if segment in self._kept:
            self._kept.move_to_end(segment)
            return self._kept[segment]
        if self._artifacts is None:
            raise LedgerUnavailableError(f"it is {segment!r}; open the ledger with the artifact store that has it")
        data = await self._artifacts.get(parse_digest(segment).hex())
        records = await asyncio.to_thread(_read_segment, data)
        self._kept[segment] = {record.position: record for record in records}
        while len(self._kept) > _KEPT_SEGMENTS:
            self._kept.popitem(last=False)
        return self._kept[segment]


class Mover:
    """Moves records to the cold tier."""

    def __init__(self, database: Database, ledger: str, artifacts: ArtifactStore) -> None:
        self._database = database
        self._ledger = ledger
        self._artifacts = artifacts

    async def move(self, records: Sequence[AuditRecord]) -> Segment:
        """Store records, which follow each other, as a segment, register it, and let the hot tier forget them."""
        about = Manifest(
            format=SEGMENT,
            ledger=self._ledger,
            created_at=datetime.fromisoformat(str(records[-1].members["recordedAt"])),
            records=len(records),
            index=index_digest(index_line(one.hash, one.position, one.signature) for one in records),
        )
        data = await asyncio.to_thread(_write_segment, about, records)
        first, last = records[0].position, records[-1].position
        segment = Segment(await self._stored(data), first, last, len(records), len(data))
        row = (first, last, segment.records, segment.digest, about.created_at.isoformat())
        await self._database.write(lambda connection: connection.rows(_REGISTER, *row))
        await self.forget(first, last)
        return segment

    async def finish(self) -> None:
        """End what an earlier move began: forget the bytes that registered segments hold, if they still hold them."""
        for first, last, segment in await self._database.read(lambda c: [tuple(row) for row in c.rows(_UNFINISHED)]):
            if not isinstance(segment, str):
                raise DamagedRowError("a segment")
            await self._artifacts.get(parse_digest(segment).hex())
            await self.forget(first, last)

    async def forget(self, first: int, last: int) -> None:
        """Delete the bytes of records that a registered segment holds; a trigger refuses any other."""
        await self._database.write(lambda connection: connection.rows(_FORGET, first, last))

    async def _stored(self, data: bytes) -> str:
        """Put an artifact, read it back, and return its digest."""
        sha256 = await self._artifacts.put(data)
        if await self._artifacts.get(sha256) != data:
            raise ArtifactCorruptError(f"the artifact store gave back other bytes for {sha256!r} than it took")
        return f"sha256:{sha256}"


async def moved_through(database: Database) -> int:
    """Return the last position that a segment holds; what is flawed and was left behind is before it."""
    last = await database.read(lambda connection: scalar(connection, _MOVED_THROUGH))
    if not isinstance(last, int | None):
        raise DamagedRowError("a segment")
    return BEFORE_ALL if last is None else last


def without_flawed(records: Sequence[AuditRecord], flawed: list[str]) -> Iterator[Sequence[AuditRecord]]:
    """Yield the stretches of records that are as recorded, and add what is wrong with others to ``flawed``."""
    start = 0
    for at, record in enumerate(records):
        if (flaw := _flaw(record)) is not None:
            task_id = record.claims.task_id if record.claims else ""
            flawed.append(f"record {record.position}, of task {task_id!r}, is flawed ({flaw})")
            if at > start:
                yield records[start:at]
            start = at + 1
    if len(records) > start:
        yield records[start:]


def _write_segment(about: Manifest, records: Sequence[AuditRecord]) -> bytes:
    return zstd.compress(b"".join(pack(about, records)), _LEVEL)


def _read_segment(data: bytes) -> list[AuditRecord]:
    """Return the records of a segment; its hash was checked by the artifact store."""
    decompressor = zstd.ZstdDecompressor()
    try:
        plain = decompressor.decompress(data, max_length=MOST_SEGMENT_BYTES)
    except zstd.ZstdError as error:
        raise EvidenceError(f"it is not a segment: {error}") from error
    if not decompressor.eof:
        raise EvidenceError(f"it is torn, or larger than {MOST_SEGMENT_BYTES} bytes")
    return list(EvidenceFile.open(plain.removesuffix(b"\n").split(b"\n")).records())


def _flaw(record: AuditRecord) -> str | None:
    """Return what is wrong with a record; None if it is what was recorded."""
    try:
        return record.absence or own_flaw(record, record.members)
    except ValueError as error:
        return str(error)


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
_NEWEST = f"{_RECORD}ORDER BY record.position DESC LIMIT ?"
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

    async def newest(self, count: int) -> list[AuditRecord]:
        """Return the last records, in the ledger's order."""
        return (await self._records(_NEWEST, count))[::-1]

    async def pages(self, through: int) -> AsyncIterator[list[AuditRecord]]:
        """Yield all records up to a position, in the ledger's order, `PAGE` at a time."""
        after = BEFORE_ALL
        while page := await self.page(after, through):
            yield page
            after = page[-1].position

    async def index_lines(self, through: int) -> list[bytes]:
        """Return the index lines, as evidence files have them, of every record up to a position."""

        def line(row: Row) -> bytes:
            record_hash, signature = hashes(row)
            return index_line(record_hash, row["position"], signature)

        return await self._database.read(lambda connection: list(map(line, connection.rows(_INDEX, through))))

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
