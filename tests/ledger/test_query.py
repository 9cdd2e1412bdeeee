"""The document's reconstruction query in any SQL client: a view with its column names, the message as JSON text."""

import contextlib
import json
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from baton.core.verdict import HandoffStatus
from baton.ledger.entries import handoff_entry
from baton.ledger.records import AuditEntry
from baton.ledger.store import Ledger, LedgerOptions
from tests.ledger.material import NOW, TASK, completion_entry, entry, message

QUERY = "SELECT * FROM handoff_audit WHERE taskId = :taskId ORDER BY timestamp ASC"
"""As printed in S3 §8.2."""


def handed(number: int) -> AuditEntry:
    return handoff_entry(message(number), task_id=TASK, status=HandoffStatus.ACCEPTED, timestamp=NOW)


def asked(path: Path, statement: str = QUERY) -> list[dict[str, Any]]:
    """Return the rows of a query by a client that knows nothing of Baton."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(statement, {"taskId": TASK})]


class TestQuery:
    async def test_it_runs_as_printed_and_tells_the_whole_chain(self, path: Path, options: LedgerOptions) -> None:
        """Who handed what to whom, at what cost, in order and linked (S3-8.2-a, S3-8.2-c, S3-7.2-k, S3-10.3-a)."""
        async with Ledger(path, options) as ledger:
            await ledger.append(entry(0, task_id="another task"))
            for number in range(3):
                await ledger.append(handed(number))
        rows = asked(path)

        members = ("handoffId", "taskId", "fromAgent", "toAgent", "status", "kind", "costAtHandoff")
        assert [tuple(row[name] for name in members) for row in rows] == [
            (f"handoff-{number}", TASK, f"agent-{number}", f"agent-{number + 1}", "ACCEPTED", "handoff", cost)
            for number, cost in enumerate((0.01, 0.02, 0.03))
        ]
        assert [json.loads(row["message"]) for row in rows] == [message(number) for number in range(3)]
        assert [row["timestamp"] for row in rows] == sorted(row["timestamp"] for row in rows)
        assert [row["previousRecordHash"] for row in rows[1:]] == [row["recordHash"] for row in rows[:-1]]

    async def test_other_kinds_of_records_are_told_apart(self, path: Path) -> None:
        """A rejection has its reason; what an agent returned is not a handoff (S3-7.2-i, C-50)."""
        async with Ledger(path) as ledger:
            rejected = {"status": "REJECTED", "reason": "SCHEMA_INVALID", "details": "'/taskId' is missing; send it"}
            await ledger.append(handed(0).model_copy(update=rejected))
            await ledger.append(completion_entry({"risk": "low"}))
        first, last = asked(path)

        assert (first["kind"], first["status"], first["reason"]) == ("handoff", "REJECTED", "SCHEMA_INVALID")
        assert first["details"] == "'/taskId' is missing; send it"
        assert last["kind"] == "completion"

    async def test_it_looks_only_at_the_records_of_its_task(self, path: Path) -> None:
        """By an index, however large the ledger is (S3-8.2-a)."""
        async with Ledger(path) as ledger:
            await ledger.append(handed(0))
        plan = [row["detail"] for row in asked(path, f"EXPLAIN QUERY PLAN {QUERY}")]

        assert not any(step.startswith("SCAN") for step in plan)

    async def test_of_moved_records_the_index_remains(self, path: Path, options: LedgerOptions) -> None:
        """Their messages are in the cold tier, which is read with Baton (S3-9-g)."""
        async with Ledger(path, options) as ledger:
            await ledger.append(handed(0))
            await ledger.move_to_cold(timedelta(0))
        [row] = asked(path)

        assert (row["message"], row["handoffId"]) == (None, None)
        assert (row["kind"], row["status"], row["sequence"]) == ("handoff", "ACCEPTED", 1)
        assert row["recordHash"].startswith("sha256:")

    @pytest.mark.parametrize("change", ["DELETE FROM handoff_audit", "UPDATE handoff_audit SET status = 'REJECTED'"])
    async def test_nothing_is_changed_through_it(self, path: Path, change: str) -> None:
        """It only reads (S3-6.2-g)."""
        async with Ledger(path) as ledger:
            await ledger.append(handed(0))

        with pytest.raises(sqlite3.OperationalError, match="view"):
            asked(path, change)
