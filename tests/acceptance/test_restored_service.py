"""The service is restored from a backup that is older than the ledger, as docs/operations.md tells."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

from temporalio.client import Client

from baton import PipelineInput, PipelineResult
from baton.client import PendingHandoff, inbox, read_run, roll_back
from baton.core.verdict import Code
from baton.devserver import DevServer, DevServerOptions
from baton.ledger.chain import ChainHead, Verdict
from baton.plugin import BatonPlugin
from tests.acceptance.disturbing import process
from tests.acceptance.handoff_errands import STAY, Relayed, journal, safeguards, trace_of
from tests.support import GOAL
from tests.support.processes import heard


def copied(source: Path, target: Path) -> None:
    """Copy the current state of a database over another."""
    for path in target.parent.glob(f"{target.name}*"):
        path.unlink()
    with contextlib.closing(sqlite3.connect(source)) as old, contextlib.closing(sqlite3.connect(target)) as new:
        old.backup(new)


async def until_one_waits(client: Client, workflow_id: str) -> PendingHandoff:
    """Wait for a pending handoff and return it; the test's timeout bounds the wait."""
    while not (waiting := [entry async for entry in inbox(client, workflow_id)]):  # noqa: ASYNC110 - a run gives no event
        await asyncio.sleep(0.05)
    assert waiting[0].handoff is not None
    return waiting[0].handoff


class TestRestoredService:
    async def test_earlier_handoffs_wait_for_a_person_and_a_rollback_resends_them(self, tmp_path: Path) -> None:
        """No stage starts under an answer that is recorded for another message.

        A rollback gives all that follows ids of its own, so one is enough for a run, whatever ran since the backup.
        """
        file, backup, queue = tmp_path / "runs.db", tmp_path / "backup.db", "restored"
        options = DevServerOptions(database=file, ui_port=None)
        async with DevServer(options) as server, process(server.address, queue, tmp_path, "pipelines"):
            client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards(tmp_path))])
            start = PipelineInput(goal=GOAL, params={"folder": str(tmp_path), "queue": queue})
            handle = await client.start_workflow(Relayed.run, start, id="relayed", task_queue=queue)
            async with process(server.address, queue, tmp_path, **{STAY: "draft:begun"}) as staying:
                await heard(staying, "draft:begun")
                copied(file, backup)
                (tmp_path / "go").touch()
                task_id = (await handle.result()).task_id
        copied(backup, file)
        async with (
            DevServer(options) as server,
            process(server.address, queue, tmp_path, "pipelines"),
            process(server.address, queue, tmp_path),
        ):
            client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards(tmp_path))])
            waits = await until_one_waits(client, "relayed")
            finished_stages = [act["stage"] for act in journal(tmp_path) if act["what"] == "done"]

            await roll_back(client, "relayed", "build", by="ann", why="restored")
            result = await client.get_workflow_handle("relayed", result_type=PipelineResult).result()
            anchors = (await read_run(client, "relayed")).anchors

        assert (waits.receiver, waits.reason) == ("build", Code.SIGNATURE_INVALID)
        assert finished_stages == ["draft", "build", "verify", "draft"], (
            "the stage in the air at the backup, and no other"
        )
        assert [entry.split()[0] for entry in result.final_baton().decision_log] == ["draft", "build", "verify"]
        trace = await trace_of(
            tmp_path, task_id, [ChainHead.from_anchor("baton", task_id, anchor) for anchor in anchors]
        )
        assert trace.report.verdict in (Verdict.VALID, Verdict.UNANCHORED), trace.report.findings
        accepted = [record.fields.to_agent for record in trace.records if record.fields.status == "ACCEPTED"]
        assert accepted == ["draft", "build", "verify", "build", "verify"], "what ran again is beside what ran before"
