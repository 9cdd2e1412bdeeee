"""Appending under load, with kill -9, and on a full disk (security.md 2.5 T5, T6; S3-11-f)."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from baton.keys.claims import Claim, SignatureCheck
from baton.ledger.chain import ChainHead, Verdict
from baton.ledger.records import LedgerError, LedgerUnavailableError
from baton.ledger.store import Ledger, LedgerOptions
from baton.ledger.store_database import SqliteDatabase, T, Work
from baton.ledger.store_writer import Prepared, Writer
from tests.ledger.material import KEY, KEYS, NOW, TASK, entry
from tests.support.processes import started

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class AppenderLine:
    """One line that an appender printed."""

    action: str
    task_id: str
    event_id: str
    details: str


def appender(path: Path, writer: str, tasks: int, records: int, *more: str) -> subprocess.Popen[str]:
    return started("tests.ledger.appender", str(path), writer, str(tasks), str(records), *more)


def parse_lines(output: str) -> list[AppenderLine]:
    """Parse the complete lines of an appender's output."""
    return [AppenderLine(*line.split(" ", 3)) for line in output.splitlines(keepends=True) if line.endswith("\n")]


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Lock a ledger's file for writing, like another process."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


def log_size(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


async def all_there(path: Path, lines: Sequence[AppenderLine]) -> None:
    """Assert that every acknowledged record is in its place, and every chain is valid."""
    anchors = [
        ChainHead.from_anchor("baton", line.task_id, line.details.strip())
        for line in lines
        if line.action == "acknowledged"
    ]
    async with Ledger(path) as ledger:
        report = await ledger.verify_all(anchors=anchors)
    assert [finding for finding in report.findings if finding.verdict is Verdict.INVALID] == []


class TestConcurrency:
    async def test_many_appends_make_one_chain(self, ledger: Ledger) -> None:
        """16 tasks of one process, 320 records, one chain: no fork, no gap, no error (T6)."""

        async def work(writer: int) -> list[ChainHead]:
            return [await ledger.append(entry(number, event_id=f"{writer}-{number}")) for number in range(20)]

        heads = [head for chain_heads in await asyncio.gather(*map(work, range(16))) for head in chain_heads]

        assert sorted(head.sequence for head in heads) == list(range(1, 321))
        assert await ledger.verify(TASK, verifier=KEYS, anchors=heads)

    @pytest.mark.slow
    async def test_sixteen_appenders_over_several_processes_make_chains_without_forks(self, path: Path) -> None:
        """4 processes of 10 appenders each, 1,000 records on 5 chains of one new file (T6)."""
        async with asyncio.timeout(120):
            processes = [appender(path, f"p{number}", 5, 50) for number in range(4)]
            outputs = await asyncio.gather(*(asyncio.to_thread(process.communicate) for process in processes))

        lines = [line for output, _ in outputs for line in parse_lines(output)]
        assert len(lines) == 1_000
        assert {line.action for line in lines} == {"acknowledged"}
        assert len({(line.task_id, line.details) for line in lines}) == 1_000
        await all_there(path, lines)

    async def test_waiting_appends_share_a_transaction(self, path: Path) -> None:
        """Appends during a transaction are written together in the next one."""
        async with Ledger(path):
            pass
        transactions = 0

        class Counting(SqliteDatabase):
            async def write(self, work: Work[T]) -> T:
                nonlocal transactions
                transactions += 1
                return await super().write(work)

        database = Counting(path)
        writer = Writer(database, "baton", KEY, lambda: NOW)

        await asyncio.gather(*(writer.append([Prepared.of(entry(number))]) for number in range(100)))

        assert transactions <= 3
        await database.close()

    async def test_append_once_reports_a_repeated_event(self, ledger: Ledger) -> None:
        """It returns the same head, and that nothing was added, so events are counted once."""
        first = await ledger.append_once(entry(0))
        await ledger.append(entry(1))

        assert await ledger.append_once(entry(0)) == (first.head, True)
        assert not first.already_recorded

    async def test_one_event_appended_by_many_is_recorded_once(self, ledger: Ledger) -> None:
        """All of them get the same head (C-25)."""
        heads = await asyncio.gather(*(ledger.append(entry(0)) for _ in range(16)))

        assert len(set(heads)) == 1
        assert len((await ledger.trace(TASK)).records) == 1


class TestSize:
    async def test_a_record_costs_the_log_few_bytes(self, path: Path, options: LedgerOptions) -> None:
        """Every page that a record touches is written whole."""
        async with Ledger(path, options) as ledger:
            await ledger.append(entry(0))
            before = log_size(path)
            for number in range(1, 41):
                await ledger.append(entry(number, message={"text": os.urandom(800).hex()}))
            after = log_size(path)

        assert 0 < (after - before) / 40 < 12_000


class TestCrash:
    @pytest.mark.slow
    @pytest.mark.parametrize("acknowledged", [1, 7, 23, 48, 77, 110])
    async def test_kill_9_loses_no_acknowledged_record(self, path: Path, acknowledged: int) -> None:
        """Every acknowledged record exists; appending all again completes it, each event once (T5, P9, C-25)."""
        process = appender(path, "p", 3, 50)
        assert process.stdout is not None
        output_start = "".join([await asyncio.to_thread(process.stdout.readline) for _ in range(acknowledged)])
        process.kill()
        output_end, _ = await asyncio.to_thread(process.communicate)
        first_lines = parse_lines(output_start + output_end)
        await all_there(path, first_lines)

        output, _ = await asyncio.to_thread(appender(path, "p", 3, 50).communicate)

        second_lines = parse_lines(output)
        await all_there(path, [*first_lines, *second_lines])
        assert len({(line.task_id, line.details) for line in second_lines}) == 150
        heads = {(line.task_id, line.event_id): line.details for line in second_lines}
        assert all(heads[line.task_id, line.event_id] == line.details for line in first_lines)
        async with Ledger(path) as ledger:
            assert (await ledger.verify_all()).records == 150

    @pytest.mark.slow
    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no file size limit")
    async def test_a_full_disk_refuses_and_damages_nothing(self, path: Path) -> None:
        """Answers and records agree, and free space makes appends work again (F13, S3-11-f)."""
        output, _ = await asyncio.to_thread(appender(path, "p", 3, 200, str(300_000)).communicate)
        lines = parse_lines(output)
        refused = [line for line in lines if line.action == "refused"]
        assert refused
        assert all("cannot be used" in line.details for line in refused)
        assert len(lines) > len(refused)
        await all_there(path, lines)

        retried, _ = await asyncio.to_thread(appender(path, "p", 3, 200).communicate)

        assert {line.action for line in parse_lines(retried)} == {"acknowledged"}
        await all_there(path, [*lines, *parse_lines(retried)])

    async def test_a_truncated_log_is_recovered(self, path: Path, options: LedgerOptions, tmp_path: Path) -> None:
        """A copy with part of its write-ahead log has valid prefixes of its chains (T5)."""
        async with Ledger(path, options) as ledger:
            heads = [await ledger.append(entry(number)) for number in range(20)]
            for cut in (1, 1_000, 20_000, 60_000):
                copy = torn_copy(path, tmp_path / f"torn-{cut}.db", cut)
                async with Ledger(copy, options) as torn:
                    report = await torn.verify(TASK, verifier=KEYS)
                    assert report.verdict is Verdict.UNANCHORED or report.records == 0
                    assert (await torn.append(entry(99))).sequence == report.records + 1
                    missing = await torn.verify(TASK, verifier=KEYS, anchors=heads)
                    assert bool(missing) is (report.records == 20)

    async def test_a_commit_waits_for_the_disk(self, path: Path) -> None:
        """What an append recorded survives a power cut too, as this setting of SQLite promises (S3-6.2-a)."""
        database = SqliteDatabase(path)

        [[level]] = await database.write(lambda connection: connection.rows("PRAGMA synchronous"))
        await database.close()

        assert level == 2  # FULL


class TestUnavailable:
    async def test_a_briefly_locked_file_is_waited_for(self, ledger: Ledger, path: Path) -> None:
        """A short write of another process is not a failure."""
        with writing(path):
            waiting = asyncio.create_task(ledger.append(entry(0)))
            await asyncio.sleep(0)

        assert (await waiting).sequence == 1

    async def test_a_file_that_stays_locked_is_unavailable(self, path: Path) -> None:
        """The append fails, and so does the handoff; a later append succeeds (S3-11-f)."""
        async with Ledger(path):
            pass
        database = SqliteDatabase(path, wait=0.05)
        writer = Writer(database, "baton", None, lambda: NOW)

        with writing(path), pytest.raises(LedgerUnavailableError, match="locked"):
            await writer.append([Prepared.of(entry(0))])

        assert (await writer.append([Prepared.of(entry(0))]))[0].head.sequence == 1
        await database.close()

    async def test_a_signer_that_fails_fails_the_append_only(self, path: Path) -> None:
        """Nothing is recorded unsigned because the key was out of reach."""

        class Broken:
            """A key that is out of reach."""

            key_id = "broken"

            def sign(self, statement: bytes) -> bytes:
                raise ConnectionError("the key service is down")

            def check(self, claims: Sequence[Claim]) -> list[SignatureCheck]:
                return [SignatureCheck.UNKNOWN_KEY for _ in claims]

        async with Ledger(path, LedgerOptions(signer=Broken())) as ledger:
            outcomes = await asyncio.gather(
                *(ledger.append(entry(number)) for number in range(3)), return_exceptions=True
            )
            assert all(isinstance(outcome, LedgerError | ConnectionError) for outcome in outcomes)
            assert await ledger.head(TASK) is None


def torn_copy(path: Path, copy: Path, cut: int) -> Path:
    """Copy a ledger in use, without the end of its write-ahead log."""
    copy.write_bytes(path.read_bytes())
    log = Path(f"{path}-wal").read_bytes()
    Path(f"{copy}-wal").write_bytes(log[: max(len(log) - cut, 0)])
    return copy
