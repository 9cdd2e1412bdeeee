"""The document's reconstruction query on Postgres, with its own client, for the roles that may read."""

import csv
import json
from pathlib import Path

import psycopg
import pytest

from baton.core.verdict import HandoffStatus
from baton.ledger.entries import handoff_entry
from baton.ledger.records import AuditEntry
from baton.ledger.store import Ledger, LedgerOptions
from tests.ledger.material import NOW, TASK, entry, message
from tests.ledger_postgres.conftest import Server, Urls, execute

QUERY = "SELECT * FROM handoff_audit WHERE taskId = :taskId ORDER BY timestamp ASC"
"""As printed in S3 §8.2."""


def handed(number: int) -> AuditEntry:
    return handoff_entry(message(number), task_id=TASK, status=HandoffStatus.ACCEPTED, timestamp=NOW)


async def append_three(urls: Urls, options: LedgerOptions) -> None:
    async with Ledger(urls.writer, options) as ledger:
        await ledger.append(entry(0, task_id="another task"))
        for number in range(3):
            await ledger.append(handed(number))


class TestQuery:
    async def test_it_runs_as_printed_in_psql(
        self, server: Server, urls: Urls, options: LedgerOptions, tmp_path: Path
    ) -> None:
        """The whole chain in order, with the message as JSON text (S3-8.2-a, S3-8.2-c, S3-7.2-k)."""
        await append_three(urls, options)
        file = tmp_path / "query.sql"
        file.write_text(QUERY, encoding="utf-8")
        for url in (urls.writer, urls.keeper):
            output = server.output("psql", "-q", "--csv", "-v", f"taskId='{TASK}'", "-f", str(file), url)
            rows = list(csv.DictReader(output.splitlines()))

            members = ("handoffid", "taskid", "fromagent", "toagent", "status", "kind")
            assert [tuple(row[name] for name in members) for row in rows] == [
                (f"handoff-{number}", TASK, f"agent-{number}", f"agent-{number + 1}", "ACCEPTED", "handoff")
                for number in range(3)
            ]
            assert [float(row["costathandoff"]) for row in rows] == [0.01, 0.02, 0.03]
            assert [json.loads(row["message"]) for row in rows] == [message(number) for number in range(3)]
            assert [row["previousrecordhash"] for row in rows[1:]] == [row["recordhash"] for row in rows[:-1]]

    async def test_it_looks_only_at_the_records_of_its_task(
        self, server: Server, urls: Urls, options: LedgerOptions
    ) -> None:
        """The condition reaches the index (S3-8.2-a)."""
        await append_three(urls, options)
        query = "SET enable_seqscan = off; EXPLAIN " + QUERY.replace(":taskId", f"'{TASK}'")

        assert "Index Cond: (task_id = " in server.output("psql", "-qAt", "-c", query, urls.owner)

    @pytest.mark.parametrize("change", ["DELETE FROM handoff_audit", "UPDATE handoff_audit SET status = 'REJECTED'"])
    async def test_nothing_is_changed_through_it(self, urls: Urls, options: LedgerOptions, change: str) -> None:
        """Not even by the owner (S3-6.2-g)."""
        await append_three(urls, options)

        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            await execute(urls.owner, change)
