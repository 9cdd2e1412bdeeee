"""The writer's queue, its cache of chain ends, and their limits."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from baton.ledger.store import Ledger, LedgerOptions
from tests.ledger.material import KEYS, TASK, entry

_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from baton.ledger.store import Ledger
from tests.ledger.material import entry

async def main():
    async with Ledger(Path(sys.argv[1])) as ledger:
        await ledger.append(entry(0))
        print((await ledger.append(entry(1))).anchor, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""

_RECOVERS = """
import fcntl, mmap, sys

with open(sys.argv[1] + "-shm", "r+b") as index:
    for lock in (120, 122):  # of who writes, and of who recovers: SQLite's "WAL-mode file format", 2.3.1
        fcntl.lockf(index, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, lock)
    shared = mmap.mmap(index.fileno(), 0)
    whole, shared[:96] = shared[:96], bytes(96)  # its headers, as a writer leaves them that is killed halfway
    print("recovering", flush=True)
    sys.stdin.readline()
    shared[:96] = whole
"""
"""What SQLite does to a log whose writer was killed; it takes a moment, and here until a line is read."""


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Record every SQLite statement, and whether the event loop's thread executes it."""
    statements: list[tuple[str, bool]] = []
    connect = sqlite3.connect
    loops = threading.get_ident()

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(lambda statement: statements.append((statement, threading.get_ident() == loops)))
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    return statements


def killed_in(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)


class TestQueue:
    async def test_a_cached_chain_takes_one_transaction_without_queries(
        self, statements: list[tuple[str, bool]], ledger: Ledger
    ) -> None:
        """The process caches the ends of the chains that it wrote, for speed."""
        await ledger.append(entry(0))
        statements.clear()

        await ledger.append(entry(1))

        words = [statement.split()[0] for statement, _ in statements if not statement.startswith("--")]
        assert (words[0], words[-1], {*words[1:-1]}) == ("BEGIN", "COMMIT", {"INSERT"})
        assert not any(in_loop for _, in_loop in statements), "the event loop does not wait for the disk"

    async def test_a_chain_that_others_extend_does_not_fork(
        self, ledger: Ledger, path: Path, options: LedgerOptions
    ) -> None:
        """The tables refuse a record on a stale cached end."""
        await ledger.append(entry(0))
        async with Ledger(path, options) as second:
            await second.append(entry(1))

        head = await ledger.append(entry(2))

        assert head.sequence == 3
        assert await ledger.verify(TASK, verifier=KEYS, expected_head=head)

    async def test_an_event_recorded_by_others_is_recorded_once(
        self, ledger: Ledger, path: Path, options: LedgerOptions
    ) -> None:
        """Another worker had accepted the stage before it was lost (C-25)."""
        await ledger.append(entry(0))
        async with Ledger(path, options) as second:
            head = await second.append(entry(1))

        appended = await ledger.append_once(entry(1))

        assert appended == (head, True)
        assert (await ledger.verify_all()).records == 2

    async def test_waiting_for_a_locked_file_does_not_block_the_loop(self, ledger: Ledger, path: Path) -> None:
        """Heartbeats continue meanwhile."""
        await ledger.append(entry(0))
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")

        waiting = asyncio.create_task(ledger.append(entry(1)))
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert not waiting.done()
        connection.rollback()

        assert (await waiting).sequence == 2
        connection.close()

    async def test_a_file_in_recovery_is_waited_for(self, ledger: Ledger, path: Path) -> None:
        """After a killed writer another process recovers the file, for which SQLite has its own error."""
        await ledger.append(entry(0))
        arguments = [sys.executable, "-c", _RECOVERS, str(path)]
        third = await asyncio.create_subprocess_exec(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert third.stdout is not None
        await third.stdout.readline()

        waiting = asyncio.create_task(ledger.append(entry(1)))
        await asyncio.sleep(0)
        await third.communicate(b"\n")

        assert (await waiting).sequence == 2

    async def test_a_burst_shares_transactions(
        self, statements: list[tuple[str, bool]], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One flush serves many concurrent appends, outside the event loop."""
        await ledger.append(entry(0))
        statements.clear()

        await asyncio.gather(*(ledger.append(entry(number, task_id=f"task-{number}")) for number in range(100)))

        assert len([statement for statement, _ in statements if statement == "COMMIT"]) < 10

    async def test_a_burst_of_new_tasks_reads_no_record_of_others(
        self, statements: list[tuple[str, bool]], ledger: Ledger, path: Path
    ) -> None:
        """The work of an append does not grow with the ledger."""
        statements.clear()
        await asyncio.gather(*(ledger.append(entry(0, task_id=f"task-{number}")) for number in range(3)))

        queries = [statement for statement, _ in statements if statement.startswith("SELECT")]
        connection = sqlite3.connect(path)
        plans = [step for query in queries for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {query}")]
        connection.close()
        assert "SEARCH handoff_audit" in str(plans)
        assert [step for step in plans if step.split()[:2] == ["SCAN", "handoff_audit"]] == []

    async def test_the_cache_is_bounded(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        """A worker runs for months."""
        monkeypatch.setattr("baton.ledger.store_writer.MAX_CACHED_ENDS", 2)

        for number in range(4):
            await ledger.append(entry(0, task_id=f"task-{number}"))

        assert list(ledger._writer._ends) == ["task-2", "task-3"]


class TestKilled:
    async def test_the_end_of_the_process_loses_nothing(self, path: Path) -> None:
        """A killed worker loses no recorded completion (S3-6.2-a)."""
        killed = await asyncio.to_thread(killed_in, _KILLED, path)

        assert killed.returncode == -signal.SIGKILL, killed.stderr
        async with Ledger(path, LedgerOptions()) as ledger:
            head = await ledger.head(TASK)
        assert head is not None
        assert (head.sequence, head.anchor) == (2, killed.stdout.strip())
