"""`baton audit verify --run`: a ledger held against the heads in a run's history."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.client import WorkflowFailureError
from temporalio.common import RawValue
from temporalio.worker import Worker
from typer.testing import CliRunner, Result

from baton.cli.app import make_app
from baton.cli.options import ExitCode
from baton.client import fork, roll_back
from baton.core.messages import StageReturn
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.records import Kind
from baton.ledger.store import Ledger, LedgerOptions
from baton.testing import opened_past_guards
from tests.handoff.handoff_pipelines import PIPELINES, FourAgents, SignedOff
from tests.handoff.handoff_stages import STAGES
from tests.support import Handle, approve, sealing_worker, start

NAME = "audit-of-runs"


@pytest.fixture(scope="module")
def safeguards(tmp_path_factory: pytest.TempPathFactory) -> Safeguards:
    """Return separate keys and a separate ledger for these tests."""
    return replace(
        Safeguards.development(tmp_path_factory.mktemp("safeguards")), name=NAME
    )  # other tests' runs on this server wrote to other ledgers


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    async with sealing_worker(server, safeguards, PIPELINES, STAGES) as running:
        yield running


async def test_the_run_must_belong_to_the_task(
    worker: Worker, server: DevServer, safeguards: Safeguards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heads of another task's run prove nothing; they made the task valid once."""
    run, other_run = [await start(worker, FourAgents.run) for _ in range(2)]
    task, other_task = [(await handle.result()).task_id for handle in (run, other_run)]
    environment = {"TEMPORAL_ADDRESS": server.address, "COLUMNS": "200"}
    monkeypatch.chdir(tmp_path)  # the demo's keys may be here

    async def verify(*words: str) -> Result:
        line = ["audit", "verify", *words, "--ledger", str(safeguards.ledger), "--ledger-name", NAME]
        return await asyncio.to_thread(CliRunner().invoke, make_app(), line, env=environment)

    accepted, refused = await verify(task, "--run", run.id), await verify(task, "--run", other_run.id)

    assert (accepted.exit_code, "8 records · anchored through 8" in accepted.stdout) == (0, True), accepted.output
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"the run is of task {other_task!r}, so its heads prove nothing about task {task!r}" in refused.stderr


async def test_verify_all_compares_every_run_by_default(
    worker: Worker, server: DevServer, safeguards: Safeguards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs' histories reveal a deleted end and a deleted task (C-26)."""
    task_id, other_task = [(await (await start(worker, FourAgents.run)).result()).task_id for _ in range(2)]
    keys = tmp_path / "public.json"
    keys.write_text(safeguards.keyring.public().to_json(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    async def verify(ledger: Path, *words: str) -> Result:
        line = ["audit", "verify", *words, "--ledger", str(ledger), "--ledger-name", NAME, "--keys", str(keys)]
        return await asyncio.to_thread(CliRunner().invoke, make_app(), line, env={"TEMPORAL_ADDRESS": server.address})

    def cut(name: str, condition: str) -> Path:
        copy = tmp_path / name
        with closing(sqlite3.connect(safeguards.ledger)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        with opened_past_guards(copy) as database:
            database.execute(f"DELETE FROM handoff_audit WHERE {condition}")
            database.execute("DELETE FROM handoff_audit_checkpoint")
        return copy

    last = cut("last.db", f"task_id = '{task_id}' AND sequence = (SELECT max(sequence) FROM handoff_audit)")
    task = cut("task.db", f"task_id = '{other_task}'")

    ledger_result, task_result = (
        await verify(cut("whole.db", "false"), "--all"),
        await verify(Path(safeguards.ledger), task_id),
    )
    assert (ledger_result.exit_code, task_result.exit_code) == (0, 0), ledger_result.output + task_result.output
    for ledger in (last, task):
        result = await verify(ledger, "--all")
        assert (result.exit_code, result.stdout.startswith("INVALID")) == (1, True), result.output
        unseen = await verify(ledger, "--all", "--no-runs")
        assert (unseen.exit_code, unseen.stdout.startswith("VALID, completeness not checked")) == (4, True)


@activity.defn(dynamic=True)
async def forging(args: Sequence[RawValue]) -> StageReturn:
    """Run as any stage, and return a malformed anchor."""
    return StageReturn(stage=activity.info().activity_type, seq=1, anchor="of no chain")


async def test_a_forged_anchor_does_not_stop_the_comparison_of_other_runs(
    worker: Worker, server: DevServer, safeguards: Safeguards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one hostile worker could make every audit incomplete."""
    async with Worker(worker.client, task_queue="forging", workflows=[FourAgents], activities=[forging]) as forger:
        hostile = await start(forger, FourAgents.run)
        with pytest.raises(WorkflowFailureError):
            await hostile.result()
    await (await start(worker, FourAgents.run)).result()
    monkeypatch.chdir(tmp_path)
    line = ["audit", "verify", "--all", "--ledger", str(safeguards.ledger), "--ledger-name", NAME]

    result = await asyncio.to_thread(CliRunner().invoke, make_app(), line, env={"TEMPORAL_ADDRESS": server.address})

    assert (result.exit_code, result.stdout.startswith("VALID  ")) == (ExitCode.UNREADABLE, True), result.output
    assert f"the history of run {hostile.id!r} were not compared" in result.stderr


async def test_every_decision_of_a_person_is_on_record(worker: Worker, safeguards: Safeguards) -> None:
    """Temporal forgets who approved, rolled back or forked, once retention deletes the run; the ledger does not."""
    handle = await start(worker, SignedOff.run)
    await approve(worker.client, handle)
    task_id = (await handle.result()).task_id
    await roll_back(worker.client, handle.id, "release manager", by="ben", why="looked again")
    denied: Handle = worker.client.get_workflow_handle(handle.id)
    await approve(worker.client, denied, yes=False)
    with pytest.raises(WorkflowFailureError):
        await denied.result()
    forked = await fork(worker.client, handle.id, "release manager", by="cat", why="once more")
    await approve(worker.client, forked)
    await forked.result()

    async with Ledger(safeguards.ledger, LedgerOptions(name=NAME, create=False)) as ledger:
        trace = await ledger.trace(task_id)
    decisions = [
        (header.status, header.actor, header.to_agent) for header in trace.headers if header.kind == Kind.DECISION
    ]

    assert decisions == [
        ("APPROVE", "ann", "release manager"),
        ("ROLL_BACK", "ben", "release manager"),
        ("DENY", "ann", "release manager"),
        ("FORK", "cat", "release manager"),
        ("APPROVE", "ann", "release manager"),
    ]
