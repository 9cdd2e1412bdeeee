"""A ledger outage longer than a stage's retries: the run waits, then continues."""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton.client import StepStatus, read_run
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.keys.store_keyring import Keyring
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.pipelines.line_pipelines import Returns, Stumbles, Waits
from tests.pipelines.line_stages import STAGES
from tests.support import Handle, start


async def test_a_stage_waits_for_the_ledger(server: DevServer, tmp_path: Path) -> None:
    """A stage does not start without its recorded acceptance, and its pipeline does not fail (S3-11-f)."""
    (tmp_path / "ledger").mkdir()
    safeguards = Safeguards(Keyring.generate(), tmp_path / "ledger" / "ledger.db")
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    async with pipeline_worker(client, [Waits], STAGES) as worker:
        handle = await start(worker, Waits.run, folder=str(tmp_path))
        while not (waits := [timer.name for timer in (await read_run(client, handle.id)).timers]):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert not (tmp_path / "ran").exists()
        (tmp_path / "away").rename(tmp_path / "ledger")
        result = await handle.result()

    assert waits == ["step 2: second waits for storage"]
    assert (tmp_path / "ran").read_text() == "second\n"
    run = await read_run(client, handle.id)
    assert [(step.name, step.status) for step in run.steps] == [("first", StepStatus.DONE), ("second", StepStatus.DONE)]
    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        trace = await ledger.trace(result.task_id, verifier=safeguards.keyring.public())
    assert trace.report.verdict == "valid, completeness not checked"
    stages = [
        (record.fields.to_agent, record.fields.attempt)
        for record in trace.records
        if record.fields.status == "ACCEPTED"
    ]
    assert stages == [("first", 1), ("second", result.output)]
    await assert_replays(handle, [Waits], plugin=BatonPlugin())


@pytest.mark.parametrize("is_back", [pytest.param(True, id="it is back"), pytest.param(False, id="the worker stops")])
async def test_a_result_waits_for_its_record(
    server: DevServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_back: bool
) -> None:
    """What was paid for is recorded once the ledger is back; a worker that stops returns it without (S3-11-f)."""
    (tmp_path / "ledger").mkdir()
    safeguards = Safeguards(Keyring.generate(), tmp_path / "ledger" / "ledger.db")
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    async with Worker(client, task_queue=f"returns-{uuid4()}", workflows=[Returns], activities=STAGES) as worker:
        handle = await start(worker, Returns.run, folder=str(tmp_path))
        while "what patient returned waits for the ledger" not in caplog.text:  # noqa: ASYNC110 - a log gives no event
            await asyncio.sleep(0.05)
        if is_back:
            (tmp_path / "away").rename(tmp_path / "ledger")
            await handle.result()
    if not is_back:
        (tmp_path / "away").rename(tmp_path / "ledger")
        async with pipeline_worker(client, [Returns], STAGES, task_queue=worker.task_queue):
            await handle.result()

    steps = (await read_run(client, handle.id)).steps
    assert [(step.name, step.status, step.retries) for step in steps] == [("patient", StepStatus.DONE, 0)]
    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        task_id = (await read_run(client, handle.id)).task_id or ""
        statuses = [record.fields.status for record in (await ledger.trace(task_id)).records]
    assert ("RETURNED" in statuses) is is_back


async def wait_for_outage(client: Client, handle: Handle) -> None:
    """Wait until a run waits for storage, or the server waits to try an activity again."""
    while not (await read_run(client, handle.id)).timers:
        description = (await handle.describe()).raw_description
        if any(pending.attempt > 1 for pending in description.pending_activities):
            return
        await asyncio.sleep(0.1)


async def test_an_outage_uses_up_no_try_of_a_stage(server: DevServer, tmp_path: Path) -> None:
    """A stage with two tries that fails once succeeds, though it could not begin before (S3-11-f)."""
    (tmp_path / "ledger").mkdir()
    safeguards = Safeguards(Keyring.generate(), tmp_path / "ledger" / "ledger.db")
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    async with pipeline_worker(client, [Stumbles], STAGES) as worker:
        handle = await start(worker, Stumbles.run, folder=str(tmp_path))
        await wait_for_outage(client, handle)
        (tmp_path / "away").rename(tmp_path / "ledger")
        await handle.result()

    steps = (await read_run(client, handle.id)).steps
    assert [(step.name, step.status) for step in steps] == [("first", StepStatus.DONE), ("stumbles", StepStatus.DONE)]
    await assert_replays(handle, [Stumbles], plugin=BatonPlugin())
