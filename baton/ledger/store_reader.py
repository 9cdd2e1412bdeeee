"""Reading records, and moving old ones to the cold tier: compressed segments in the artifact store (§9).

A task's trace is one query for both tiers. It is ordered by sequence, not by time, which has ties and can run
backwards (§8.2).
"""

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from types import NoneType

from baton.artifacts.store import ArtifactStore
from baton.core.verdict import HandoffStatus
from baton.errors import ArtifactCorruptError, ArtifactError, ArtifactNotFoundError
from baton.ledger.chain import find_flaw
from baton.ledger.evidence import SEGMENT, EvidenceFile, Manifest, index_digest, index_line, pack
from baton.ledger.records import AuditHeader, AuditRecord, Claims, EvidenceError, LedgerError, LedgerUnavailableError
from baton.ledger.store_database import BEFORE_ALL, Connection, DamagedRowError, Database, Row, hashes, scalar
from baton.ledger.store_schema import DamagedContentError, restore_record
from baton.wire.json_values import JsonFields, parse_digest
from baton.wire.zstandard import zstd

SEGMENT_RECORDS = 2_000
"""The maximum number of records in a segment; a trace reads whole segments."""
MAX_SEGMENT_BYTES = 1024 * 1024 * 1024
"""A segment that decompresses to more counts as damaged."""

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
_COMPRESSION_LEVEL = 9
_CACHED_SEGMENTS = 2
_MAX_NAMED = 5


@dataclass(frozen=True)
class Segment(JsonFields):
    """Consecutive records as an evidence file in the artifact store.

    Attributes:
        digest: The digest of its compressed bytes, which is its key in the store.
        first_position: The position of its first record.
        last_position: The position of its last record.
        records: The number of records.
        bytes: Its compressed size.
    """

    digest: str
    first_position: int
    last_position: int
    records: int
    bytes: int


class FlawedRecordsError(LedgerError):
    """Flawed records were not moved to the cold tier; all others were.

    `baton audit verify --all` says what is wrong with them.

    Attributes:
        moved: The new segments.
    """

    def __init__(self, moved: Sequence[Segment], flawed: Sequence[str]) -> None:
        self.moved = tuple(moved)
        more = f", and {len(flawed) - _MAX_NAMED} more" if len(flawed) > _MAX_NAMED else ""
        super().__init__(f"{'; '.join(flawed[:_MAX_NAMED])}{more}: not moved; run `baton audit verify --all`")


class ColdTier:
    """Reads segments from the artifact store, and caches the last two."""

    def __init__(self, artifacts: ArtifactStore | None) -> None:
        self._artifacts = artifacts
        self._cache: OrderedDict[str, dict[int, AuditRecord]] = OrderedDict()

    async def fill(self, located: Sequence[tuple[AuditRecord, str | None]]) -> list[AuditRecord]:
        """Return the records with their bytes from these segments; `absence` says why a record has none."""
        return [record if segment is None else await self._fill_record(record, segment) for record, segment in located]

    async def _fill_record(self, record: AuditRecord, segment: str) -> AuditRecord:
        try:
            segment_records = await self._load_segment(segment)
        except (ArtifactNotFoundError, ArtifactCorruptError, EvidenceError, ValueError) as error:
            return replace(record, absence=f"its segment of the cold tier is lost: {error}", lost=True)
        except (ArtifactError, LedgerUnavailableError) as error:
            return replace(record, absence=f"its segment of the cold tier can't be read: {error}")
        stored = segment_records.get(record.position)
        if stored is None:
            return replace(record, absence=f"it is not in {segment!r}, the segment it should be in", lost=True)
        return replace(record, header=stored.header, message=stored.message)

    async def _load_segment(self, segment: str) -> dict[int, AuditRecord]:
        if segment in self._cache:
            self._cache.move_to_end(segment)
            return self._cache[segment]
        if self._artifacts is None:
            raise LedgerUnavailableError(f"it is {segment!r}; open the ledger with the artifact store that has it")
        data = await self._artifacts.get(parse_digest(segment).hex())
        records = await asyncio.to_thread(_read_segment, data)
        self._cache[segment] = {record.position: record for record in records}
        while len(self._cache) > _CACHED_SEGMENTS:
            self._cache.popitem(last=False)
        return self._cache[segment]


class Mover:
    """Moves records to the cold tier."""

    def __init__(self, database: Database, ledger: str, artifacts: ArtifactStore) -> None:
        self._database = database
        self._ledger = ledger
        self._artifacts = artifacts

    async def move(self, records: Sequence[AuditRecord]) -> Segment:
        """Store consecutive records as a segment, and register it; `clear` deletes their bytes from the hot tier."""
        manifest = Manifest(
            format=SEGMENT,
            ledger=self._ledger,
            created_at=datetime.fromisoformat(str(records[-1].members["recordedAt"])),
            records=len(records),
            index=index_digest(index_line(record.hash, record.position, record.signature) for record in records),
        )
        data = await asyncio.to_thread(_write_segment, manifest, records)
        first, last = records[0].position, records[-1].position
        segment = Segment(await self._store(data), first, last, len(records), len(data))
        row = (first, last, segment.records, segment.digest, manifest.created_at.isoformat())
        await self._database.write(lambda connection: connection.rows(_REGISTER, *row))
        if self._database.dialect == "sqlite":
            await self.forget(first, last)
        return segment

    async def clear(self, segments: Sequence[Segment]) -> None:
        """Delete the bytes of new segments: where they make up a month, the whole month at once."""
        if self._database.dialect == "sqlite" or not segments:
            return
        with suppress(LedgerUnavailableError):  # it waits five seconds for those who read the month
            await self._database.write(self._database.drop_months)
        for segment in segments:
            await self.forget(segment.first_position, segment.last_position)

    async def finish(self) -> None:
        """Finish interrupted moves: delete the bytes that registered segments hold, if the store has these segments."""
        for first, last, segment in await self._database.read(lambda c: [tuple(row) for row in c.rows(_UNFINISHED)]):
            sha256 = parse_digest(str(segment)).hex()
            if not sha256:
                raise DamagedRowError("a segment")
            await self._artifacts.get(sha256)
            await self.forget(first, last)

    async def forget(self, first: int, last: int) -> None:
        """Delete the bytes of a registered segment's records; a trigger refuses any others."""
        await self._database.write(lambda connection: connection.rows(_FORGET, first, last))

    async def _store(self, data: bytes) -> str:
        """Store an artifact, read it back, and return its digest."""
        sha256 = await self._artifacts.put(data)
        if await self._artifacts.get(sha256) != data:
            raise ArtifactCorruptError(f"the artifact store returned other bytes for {sha256!r} than it was given")
        return f"sha256:{sha256}"


async def moved_through(database: Database) -> int:
    """Return the last position in a segment; flawed records before it were skipped."""
    last: int | None = await database.read(lambda connection: scalar(connection, _MOVED_THROUGH))
    return BEFORE_ALL if last is None else last


def split_at_flawed(records: Sequence[AuditRecord], flawed: dict[int, str]) -> Iterator[Sequence[AuditRecord]]:
    """Yield the runs of flawless records, and add a description of each flawed record to ``flawed``."""
    start = 0
    for index, record in enumerate(records):
        if (finding := find_flaw(record)) is not None:
            task_id = record.claims.task_id if record.claims else ""
            described = f"is flawed ({finding.flaw}): {finding.reason}"
            flawed[record.position] = f"record {record.position}, of task {task_id!r}, {described}"
            if index > start:
                yield records[start:index]
            start = index + 1
    if len(records) > start:
        yield records[start:]


def _write_segment(manifest: Manifest, records: Sequence[AuditRecord]) -> bytes:
    return zstd.compress(b"".join(pack(manifest, records)), _COMPRESSION_LEVEL)


def _read_segment(data: bytes) -> list[AuditRecord]:
    """Return the records of a segment, whose hash the artifact store checked."""
    decompressor = zstd.ZstdDecompressor()
    try:
        plain = decompressor.decompress(data, max_length=MAX_SEGMENT_BYTES)
    except zstd.ZstdError as error:
        raise EvidenceError(f"it is not a segment: {error}") from error
    if not decompressor.eof:
        raise EvidenceError(f"it is truncated, or larger than {MAX_SEGMENT_BYTES} bytes")
    return list(EvidenceFile.open(plain.removesuffix(b"\n").split(b"\n")).records())


PAGE_SIZE = 1_000
"""How many records a page has when all are read."""

# The segment is looked up only if the bytes are not in the hot tier.
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
"""The query that reconstructs a task."""
_PAGE = f"{_RECORD}WHERE record.position >= ? AND record.position <= ? ORDER BY record.position LIMIT ?"
_EVENT = f"{_RECORD}WHERE record.task_id = ? AND record.event_key LIKE ? ESCAPE '!' ORDER BY record.sequence"
_ESCAPED = str.maketrans({character: f"!{character}" for character in "!%_"})
_NEWEST = f"{_RECORD}ORDER BY record.position DESC LIMIT ?"
# The types of a record's columns; a damaged file can have others.
_TYPES = frozenset(
    itertools.product(
        *((int,), (str,), (int,), (bytes,), (bytes,), (str,), (bytes,), (str,)),
        *((str, NoneType), (bytes, NoneType), (int, NoneType), (bytes, NoneType), (str, NoneType)),
    )
)
_EARLIER = f"{_RECORD}WHERE record.position <= ? AND record.task_id IN ({{}}) ORDER BY record.task_id, record.sequence"
_BOUND = "SELECT position FROM handoff_audit WHERE position >= ? AND position <= ? ORDER BY position LIMIT 1 OFFSET ?"
_RECORDED_AT = "SELECT recorded_at FROM handoff_audit ORDER BY position DESC LIMIT 1 OFFSET ?"
_HASH = "SELECT record_hash FROM handoff_audit WHERE position = ?"
_INDEX = "SELECT record_hash, position, signature FROM handoff_audit WHERE position <= ? ORDER BY position"


class Reader:
    """Reads one ledger's records."""

    def __init__(self, database: Database, cold: ColdTier) -> None:
        self._database = database
        self._cold = cold

    async def task(self, task_id: str) -> list[AuditRecord]:
        """Return a task's chain in order; empty without records."""
        return await self._records(TRACE, task_id)

    async def acceptances(self, task_id: str, event_id: str) -> list[AuditHeader]:
        """Return the headers of a handoff's acceptances, of every attempt, in order; unreadable ones are left out."""
        key = event_id.translate(_ESCAPED)
        records = await self._records(_EVENT, task_id, f"%/{HandoffStatus.ACCEPTED}/%/{key}")
        headers = []
        for record in records:
            with suppress(ValueError):  # a damaged record, which verification reports
                headers.append(record.fields)
        return [header for header in headers if header.event_id == event_id]

    async def page(self, after: int, through: int, limit: int = PAGE_SIZE) -> list[AuditRecord]:
        """Return at most ``limit`` records after the position ``after``, in the ledger's order."""
        return await self._records(_PAGE, after + 1, through, limit) if after < through else []

    async def newest(self, count: int) -> list[AuditRecord]:
        """Return the last records, in the ledger's order."""
        return (await self._records(_NEWEST, count))[::-1]

    async def earlier(self, task_ids: Sequence[str], through: int) -> list[AuditRecord]:
        """Return the records of some tasks up to a position, chain by chain, each in order."""
        if not task_ids:
            return []
        return await self._records(_EARLIER.format(", ".join("?" * len(task_ids))), through, *task_ids)

    async def hash_at(self, position: int) -> bytes | None:
        """Return the hash of the record at a position, or None."""
        return await self._database.read(lambda connection: scalar(connection, _HASH, position))

    async def bound(self, after: int, through: int) -> int:
        """Return the position of the last record of the page after ``after``; ``through`` for the last page."""
        bound = await self._database.read(
            lambda connection: scalar(connection, _BOUND, after + 1, through, PAGE_SIZE - 1)
        )
        return through if bound is None else bound

    async def pages(self, through: int, after: int = BEFORE_ALL) -> AsyncIterator[list[AuditRecord]]:
        """Yield all records between two positions in pages, in the ledger's order."""
        while page := await self.page(after, through):
            yield page
            after = page[-1].position

    async def rate(self, count: int) -> float | None:
        """Return how many records a second the newest ``count`` came in at; None if there are fewer."""

        def work(connection: Connection) -> tuple[str | None, str | None]:
            return scalar(connection, _RECORDED_AT, count - 1), scalar(connection, _RECORDED_AT, 0)

        first, last = await self._database.read(work)
        if first is None or last is None:
            return None
        seconds = (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
        return count / max(seconds, 1e-6)

    async def index_lines(self, through: int) -> list[bytes]:
        """Return the evidence file's index line of every record up to a position."""

        def line(row: Row) -> bytes:
            record_hash, signature = hashes(row)
            return index_line(record_hash, row["position"], signature)

        return await self._database.read(lambda connection: list(map(line, connection.rows(_INDEX, through))))

    async def end(self) -> int:
        """Return the last position; no smaller one appears later."""

        def work(connection: Connection) -> int:
            self._database.settle(connection)
            return scalar(connection, "SELECT max(position) FROM handoff_audit") or 0

        return await self._database.read(work)

    async def _records(self, query: str, *values: int | str) -> list[AuditRecord]:
        def work(connection: Connection) -> list[tuple[AuditRecord, str | None]]:
            return [_to_record(row) for row in connection.rows(query, *values)]

        located = await self._database.read(work)
        if any(segment is not None for _, segment in located):
            return await self._cold.fill(located)
        return [record for record, _ in located]


def _to_record(row: Row) -> tuple[AuditRecord, str | None]:
    """Return the record of a row, and the segment that should have its bytes if the hot tier does not."""
    if tuple(map(type, row)) not in _TYPES:
        return _make_damaged_record(row), None
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
            header, message = restore_record(codec, stored)
        except DamagedContentError as error:
            absence = str(error)
    elif segment is None:
        absence = "its bytes are gone, and no segment of the cold tier covers it"
    claims = Claims(task_id, sequence, previous_hash, event_key, message_hash, recorded_at, key_id)
    record = AuditRecord(header, message, signature, position, record_hash, claims, absence, absence is not None)
    return record, segment


def _make_damaged_record(row: Row) -> AuditRecord:
    """Return an absent record for a damaged row, for verification to report."""
    claimed_hash = row["record_hash"] if isinstance(row["record_hash"], bytes) else b""
    absence = "its row in the ledger's tables is damaged"
    return AuditRecord(b"", b"", position=row["position"], claimed_hash=claimed_hash, absence=absence, lost=True)
