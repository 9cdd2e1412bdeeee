"""The cold tier: segments in the artifact store (§9)."""

import asyncio
import contextlib
import os
import sqlite3
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from baton import MemoryArtifactStore
from baton.client.faces import ArtifactStore
from baton.errors import ArtifactError
from baton.ledger.chain import ChainHead, Flaw, Verdict
from baton.ledger.records import AuditEntry, LedgerError
from baton.ledger.store import HOT_PERIOD, Ledger, LedgerOptions
from baton.ledger.store_evidence import verify_bundle
from baton.ledger.store_reader import FlawedRecordsError, Segment
from tests.ledger.material import KEYS, NOW, TASK, entry
from tests.ledger.proving import named, reason

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

T = TypeVar("T")
LATER = NOW + timedelta(days=31)


def content_rows(path: Path) -> int:
    """Return the number of records with bytes in the hot tier."""
    connection = sqlite3.connect(path)
    [(rows,)] = connection.execute("SELECT count(*) FROM handoff_audit_content")
    connection.close()
    return int(rows)


def segment_files(tmp_path: Path) -> list[Path]:
    """Return the files of the artifact store, the largest first."""
    files = [file for file in (tmp_path / "artifacts").rglob("*") if file.is_file()]
    return sorted(files, key=lambda file: file.stat().st_size, reverse=True)


@pytest.fixture
async def aged(path: Path, options: LedgerOptions) -> list[ChainHead]:
    """Write 12 records of two tasks, 8 of them more than 30 days before the others; return the heads of one."""
    heads: list[ChainHead] = []
    for first, clock in ((0, lambda: NOW), (4, lambda: LATER)):
        async with Ledger(path, replace(options, clock=clock)) as ledger:
            for number in range(first, first + (4 if first == 0 else 2)):
                new_heads = await ledger.append_all([entry(number), entry(number, task_id="another")])
                heads.append(new_heads[0])
    return heads


def file_size(path: Path) -> int:
    return path.stat().st_size


def large_entry(number: int) -> AuditEntry:
    return entry(number, message={"text": os.urandom(8_000).hex()})


@pytest.fixture
def later(options: LedgerOptions) -> LedgerOptions:
    """Return options with a clock 31 days ahead."""
    return replace(options, clock=lambda: LATER)


class TestMove:
    async def test_records_older_than_thirty_days_are_moved(
        self, path: Path, later: LedgerOptions, aged: list[ChainHead]
    ) -> None:
        """The others stay in the hot tier; nothing is moved twice (S3-9-g)."""
        assert timedelta(days=30) == HOT_PERIOD
        async with Ledger(path, later) as ledger:
            moved = await ledger.move_to_cold()
            moved_again = await ledger.move_to_cold()

        assert [(segment.first_position, segment.last_position, segment.records) for segment in moved] == [(1, 8, 8)]
        assert moved_again == []
        assert content_rows(path) == 4

    async def test_new_records_take_the_room_of_moved_ones(self, path: Path, later: LedgerOptions) -> None:
        """A ledger whose old records are archived does not grow, in a file as in Postgres."""
        async with Ledger(path, replace(later, clock=lambda: NOW)) as ledger:
            await ledger.append_all([large_entry(number) for number in range(50)])
        before = file_size(path)
        async with Ledger(path, later) as ledger:
            await ledger.move_to_cold()
            await ledger.append_all([large_entry(number) for number in range(50, 95)])

        assert file_size(path) < before * 1.1

    async def test_a_record_of_a_fast_clock_moves_with_later_records(self, path: Path, options: LedgerOptions) -> None:
        """Otherwise it would keep all later records in the hot tier."""
        for number, days in enumerate((0, 3650, 0, 31)):
            async with Ledger(path, replace(options, clock=partial(NOW.__add__, timedelta(days=days)))) as ledger:
                await ledger.append(entry(number, task_id="ahead" if days == 3650 else TASK))
        async with Ledger(path, replace(options, clock=lambda: LATER)) as ledger:
            [moved] = await ledger.move_to_cold()
            report = await ledger.verify(TASK, verifier=KEYS)

        assert (moved.first_position, moved.last_position) == (1, 3)
        assert report.verdict is Verdict.UNANCHORED

    async def test_both_tiers_are_read_together(self, path: Path, later: LedgerOptions, aged: list[ChainHead]) -> None:
        """Trace, verification, cost, checkpoint and bundle do not change by a byte (S3-9-g)."""
        async with Ledger(path, later) as ledger:
            hot_trace = await ledger.trace(TASK, verifier=KEYS)
            checkpoint = await ledger.checkpoint()
            await ledger.move_to_cold(segment_records=3)
            cold_trace = await ledger.trace(TASK, verifier=KEYS, anchors=aged)
            report = await ledger.verify_all(verifier=KEYS, anchors=aged, checkpoints=[checkpoint])
            bundle = path.parent / "bundle.zst"
            await ledger.export(bundle, [TASK])

        assert [(record.header, record.message) for record in cold_trace.records] == [
            (record.header, record.message) for record in hot_trace.records
        ]
        assert (cold_trace.report.verdict, cold_trace.cost) == (Verdict.VALID, hot_trace.cost)
        assert (report.verdict, report.records, report.checkpointed_through) == (Verdict.VALID, 12, 12)
        assert verify_bundle(bundle, verifier=KEYS, anchors=aged)

    async def test_events_stay_unique_after_a_move(
        self, path: Path, later: LedgerOptions, aged: list[ChainHead]
    ) -> None:
        """A moved event is not recorded again, and the chain continues its moved end (C-25)."""
        async with Ledger(path, later) as ledger:
            await ledger.move_to_cold(timedelta(0))
            assert await ledger.append(entry(0)) == aged[0]
            head = await ledger.append(entry(9), after=aged[-1])
            assert await ledger.verify(TASK, verifier=KEYS, expected_head=head)

        assert head.sequence == 7

    async def test_segments_are_compressed(self, ledger: Ledger, tmp_path: Path) -> None:
        """They are smaller than the separately compressed records (S3-9-f)."""
        text = {"conversationHistorySummary": "Clause 4.2 flagged as potentially unlimited liability. " * 20}
        await ledger.append_all([entry(number, message=text) for number in range(200)])

        [moved] = await ledger.move_to_cold(timedelta(0))

        plain = zstd.decompress(await asyncio.to_thread(segment_files(tmp_path)[0].read_bytes))
        assert len(plain) > 200 * 1_100
        assert moved.bytes * 8 < len(plain)

    async def test_without_an_artifact_store_nothing_is_moved(self, path: Path) -> None:
        """The error says so."""
        async with Ledger(path) as ledger:
            with pytest.raises(LedgerError, match="without an artifact store"):
                await ledger.move_to_cold()

    async def test_a_flawed_record_is_not_moved(self, path: Path, later: LedgerOptions, aged: list[ChainHead]) -> None:
        """It stays for inspection and is named; all others are moved."""
        execute(
            path,
            "DROP TRIGGER handoff_audit_no_update",
            "UPDATE handoff_audit SET recorded_at = '2020-01-01T00:00:00.000000Z' WHERE position = 5",
        )

        async with Ledger(path, later) as ledger:
            with pytest.raises(FlawedRecordsError, match=r"record 5, of task .* is flawed \(index\)") as error:
                await ledger.move_to_cold(segment_records=2)
            moved_again = await ledger.move_to_cold(segment_records=2)
            traced = await ledger.trace(TASK)

        ranges = [(segment.first_position, segment.last_position) for segment in error.value.moved]
        assert (ranges, moved_again, content_rows(path)) == ([(1, 2), (3, 4), (6, 6), (7, 8)], [], 5)
        assert all(record.absence is None for record in traced.records)

    async def test_a_flawed_record_is_reported_once_after_a_concurrent_move(
        self, path: Path, later: LedgerOptions, aged: list[ChainHead]
    ) -> None:
        """Another process moves the records before it meanwhile, so its page is read twice."""
        execute(
            path,
            "DROP TRIGGER handoff_audit_no_update",
            "UPDATE handoff_audit SET recorded_at = '2020-01-01T00:00:00.000000Z' WHERE position = 5",
        )
        assert later.artifacts is not None
        other = replace(later, artifacts=Failing(later.artifacts, calls=2))

        async def move_four() -> None:
            async with Ledger(path, other) as ledger:
                with pytest.raises(ArtifactError):
                    await ledger.move_to_cold(segment_records=4)

        async with Ledger(path, replace(later, artifacts=Interrupted(later.artifacts, move_four))) as ledger:
            with pytest.raises(FlawedRecordsError) as error:
                await ledger.move_to_cold()

        assert str(error.value).count("record 5, of task") == 1
        assert [segment.first_position for segment in error.value.moved] == [6]


class Interrupted:
    """An artifact store during whose first call something else happens."""

    def __init__(self, store: ArtifactStore, event: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.store = store
        self.events = [event]

    async def put(self, data: bytes) -> str:
        if self.events:
            await self.events.pop()()
        return await self.store.put(data)

    async def get(self, sha256: str) -> bytes:
        return await self.store.get(sha256)

    async def has(self, sha256: str) -> bool:
        return await self.store.has(sha256)


class Failing:
    """An artifact store that works for some calls, and then fails: a disk that fills up, a network that goes."""

    def __init__(self, store: ArtifactStore, calls: int) -> None:
        self.store = store
        self.left = calls

    async def put(self, data: bytes) -> str:
        return await self._while_it_works(self.store.put(data))

    async def get(self, sha256: str) -> bytes:
        return await self._while_it_works(self.store.get(sha256))

    async def has(self, sha256: str) -> bool:
        return await self.store.has(sha256)

    async def _while_it_works(self, call: Coroutine[Any, Any, T]) -> T:
        if not self.left:
            call.close()
            raise ArtifactError("no space left on device")
        self.left -= 1
        return await call


class TestCrash:
    @pytest.mark.parametrize("calls", range(2))
    async def test_a_failing_store_loses_nothing(
        self, path: Path, later: LedgerOptions, aged: list[ChainHead], calls: int
    ) -> None:
        """After a failure at any step every record is readable, and the next move completes it (T5)."""
        store = Failing(MemoryArtifactStore(), calls)
        async with Ledger(path, replace(later, artifacts=store)) as ledger:
            with pytest.raises(ArtifactError, match="no space"):
                await ledger.move_to_cold()
            assert content_rows(path) == 12
            store.left = 100
            assert await ledger.verify(TASK, verifier=KEYS, anchors=aged)
            assert [segment.records for segment in await ledger.move_to_cold()] == [8]
            assert await ledger.verify(TASK, verifier=KEYS, anchors=aged)

    async def test_an_interrupted_move_is_finished(
        self, path: Path, later: LedgerOptions, aged: list[ChainHead]
    ) -> None:
        """The segment is registered but the bytes are in the hot tier: the next move deletes them (T5)."""
        with refusing_deletes(path):
            async with Ledger(path, later) as ledger:
                with pytest.raises(LedgerError, match="append-only"):
                    await ledger.move_to_cold()
                assert await ledger.verify(TASK, verifier=KEYS, anchors=aged)
        assert content_rows(path) == 12

        async with Ledger(path, later) as ledger:
            assert await ledger.move_to_cold() == []
            assert await ledger.verify(TASK, verifier=KEYS, anchors=aged)
        assert content_rows(path) == 4

    async def test_bytes_are_kept_until_their_segment_is_readable(
        self, path: Path, later: LedgerOptions, aged: list[ChainHead], tmp_path: Path
    ) -> None:
        """A lost or damaged segment does not cost the last copy."""
        with refusing_deletes(path):
            async with Ledger(path, later) as ledger:
                with pytest.raises(LedgerError):
                    await ledger.move_to_cold()
        spoil(segment_files(tmp_path)[0])

        async with Ledger(path, later) as ledger:
            with pytest.raises(ArtifactError):
                await ledger.move_to_cold()
            assert await ledger.verify(TASK, verifier=KEYS, anchors=aged)
        assert content_rows(path) == 12

    async def test_two_concurrent_moves_move_each_record_once(
        self, path: Path, later: LedgerOptions, aged: list[ChainHead]
    ) -> None:
        """The second continues after the first, and nothing is lost."""
        async with Ledger(path, later) as first, Ledger(path, later) as second:
            moved = await asyncio.gather(*(ledger.move_to_cold(segment_records=1) for ledger in (first, second)))
            assert await first.verify(TASK, verifier=KEYS, anchors=aged)

        assert content_rows(path) == 4
        assert sorted(segment.first_position for segments in moved for segment in segments) == list(range(1, 9))


class TestLoss:
    @pytest.fixture
    async def cold(self, path: Path, later: LedgerOptions, aged: list[ChainHead]) -> Segment:
        async with Ledger(path, later) as ledger:
            [moved] = await ledger.move_to_cold()
        return moved

    async def test_a_deleted_segment_is_detected(
        self, path: Path, later: LedgerOptions, cold: Segment, tmp_path: Path
    ) -> None:
        """All its records are lost, and the first one is named (P1)."""
        for file in segment_files(tmp_path):
            file.unlink()

        async with Ledger(path, later) as ledger:
            chain = await ledger.verify(TASK, verifier=KEYS)
            ledger_report = await ledger.verify_all(verifier=KEYS)

        assert named(chain) == (Verdict.INVALID, 1, Flaw.GONE)
        assert (ledger_report.verdict, ledger_report.flaws) == (Verdict.INVALID, 2)

    async def test_a_damaged_segment_is_detected(
        self, path: Path, later: LedgerOptions, cold: Segment, tmp_path: Path
    ) -> None:
        """Its name is its hash, so one changed byte is enough (P1)."""
        spoil(segment_files(tmp_path)[0])

        async with Ledger(path, later) as ledger:
            report = await ledger.verify(TASK, verifier=KEYS)

        assert named(report) == (Verdict.INVALID, 1, Flaw.GONE)
        assert "damaged" in reason(report)

    async def test_a_malformed_segment_name_is_detected(self, path: Path, later: LedgerOptions, cold: Segment) -> None:
        """It is not looked up in the store."""
        execute(
            path,
            "DROP TRIGGER handoff_audit_segment_no_update",
            "UPDATE handoff_audit_segment SET segment = '../../../etc/passwd'",
        )

        async with Ledger(path, later) as ledger:
            report = await ledger.verify(TASK, verifier=KEYS)

        assert named(report) == (Verdict.INVALID, 1, Flaw.GONE)

    async def test_an_unreachable_store_is_unverified_not_invalid(
        self, path: Path, later: LedgerOptions, cold: Segment
    ) -> None:
        """The rest of the ledger works on."""
        unreachable = replace(later, artifacts=Failing(MemoryArtifactStore(), 0))
        for options in (unreachable, replace(later, artifacts=None)):
            async with Ledger(path, options) as ledger:
                report = await ledger.verify(TASK, verifier=KEYS)
                assert named(report) == (Verdict.UNVERIFIED, 1, Flaw.MISSING)
                assert (await ledger.append(entry(20, task_id="new"))).sequence == 1

    async def test_another_segment_in_its_place_is_detected(
        self, path: Path, later: LedgerOptions, cold: Segment, tmp_path: Path
    ) -> None:
        """A genuine segment of other records does not replace this one."""
        async with Ledger(path, later) as ledger:
            [other_segment] = await ledger.move_to_cold(timedelta(0))
        execute(
            path,
            "DROP TRIGGER handoff_audit_segment_no_update",
            f"UPDATE handoff_audit_segment SET segment = '{other_segment.digest}' WHERE first_position = 1",
        )

        async with Ledger(path, later) as ledger:
            report = await ledger.verify(TASK, verifier=KEYS)

        assert named(report) == (Verdict.INVALID, 1, Flaw.GONE)


def spoil(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.chmod(0o600)
    file.write_bytes(data)


@contextlib.contextmanager
def refusing_deletes(path: Path) -> Iterator[None]:
    """Prevent deletes, to stop between two steps of a move."""
    execute(
        path,
        "CREATE TRIGGER crash BEFORE DELETE ON handoff_audit_content BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    )
    yield
    execute(path, "DROP TRIGGER crash")


def execute(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
