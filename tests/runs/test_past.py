"""What a run starts from besides its goal, baton, params and inputs is sealed, and verified before the first step."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RawValue, RetryPolicy
from temporalio.worker import Worker

from baton import BatonPlugin, PipelineInput, PipelineResult
from baton.client import fork, read_run, roll_back
from baton.devserver import DevServer, DevServerOptions
from baton.errors import PipelineError
from baton.handoff.store_safeguards import Safeguards
from baton.keys.store_keyring import Keyring
from baton.runs.client_waiting import has_pollers
from baton.testing import assert_replays, pipeline_worker
from baton.testing.past_attacks import PAST_ATTACKS, start_payload, start_with
from tests.runs.past_pipelines import PAID, PIPELINES, STAGES, paying_after_two, paying_more
from tests.runs.test_suspended import until_suspended
from tests.support import LIMIT, Handle, approve, until_waiting

REFUSED = "the run was given a past"


@pytest.fixture
async def worker(sealing: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(sealing, PIPELINES, STAGES) as running:
        yield running


@pytest.fixture
async def attacker(server: DevServer) -> Client:
    """Return a client of somebody who may start workflows, and has neither Baton's plugin nor a key."""
    return await Client.connect(server.address)


async def started(worker: Worker, pipeline: str, **params: Any) -> Handle:
    id = f"past-{uuid.uuid4()}"
    start = PipelineInput(goal=id, params=params)
    handle = await worker.client.start_workflow(
        pipeline, start, id=id, task_queue=worker.task_queue, execution_timeout=LIMIT
    )
    await approve(worker.client, handle, "boss")
    return handle


async def forked(worker: Worker) -> Handle:
    """Return an ended fork, which took over an approval and a payment."""
    original = await started(worker, "paying")
    await original.result()
    handle = await fork(worker.client, original.id, "ship", by="bob", why="again", patch={"constraints": ["Fast"]})
    await handle.result()
    return handle


async def refusal(handle: Any) -> str:
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    return str(failed.value.cause)


async def attack(worker: Worker, attacker: Client, start: Payload, id: str | None = None) -> Any:
    id = id or f"attack-{uuid.uuid4()}"
    return await start_with(attacker, "paying", start, id=id, task_queue=worker.task_queue)


class TestHeirs:
    async def test_a_continued_run_its_roll_back_and_its_fork_go_on(self, worker: Worker) -> None:
        """Each was written by a worker or with keys; a question that names the time does not stop the next run."""
        handle = await started(worker, "lasting")
        await handle.result()
        run = await read_run(worker.client, handle.id)
        assert run.start.continued
        await assert_replays(worker.client.get_workflow_handle(handle.id, run_id=run.run_id), PIPELINES)

        for step in ("ship", "pay"):  # in the last run, and in the first, which continues as new again
            rolled_back = await roll_back(worker.client, handle.id, step, by="bob", why="again")
            await worker.client.get_workflow_handle(handle.id, run_id=rolled_back.run_id).result()
        assert (await read_run(worker.client, handle.id)).start.continued

    async def test_a_fork_goes_on(self, worker: Worker) -> None:
        handle = await forked(worker)
        assert PAID.count((await read_run(worker.client, handle.id)).start.goal) == 1
        await assert_replays(handle, PIPELINES)

    async def test_encrypted_pasts_go_on(self, server: DevServer, safeguards: Safeguards) -> None:
        """The seal is inside the encryption."""
        plugin = BatonPlugin(safeguards=replace(safeguards, encrypt=True))
        client = await Client.connect(server.address, plugins=[plugin])
        async with pipeline_worker(client, PIPELINES, STAGES) as encrypting:
            handle = await started(encrypting, "lasting")
            await handle.result()
            assert (await read_run(client, handle.id)).start.continued
            await forked(encrypting)

    async def test_a_fork_needs_keys(self, worker: Worker, server: DevServer) -> None:
        """Nothing is started without."""
        original = await started(worker, "paying")
        await original.result()
        keyless = await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])
        with pytest.raises(PipelineError, match="this client has no keys"):
            await fork(keyless, original.id, "ship", by="bob", why="again", new_id=f"{original.id}-fork")
        assert not [run async for run in keyless.list_workflows(f"WorkflowId = '{original.id}-fork'")]

    async def test_a_key_that_the_workers_lack_suspends(
        self, worker: Worker, server: DevServer, tmp_path: Path
    ) -> None:
        """Another worker may have it; nothing is lost."""
        original = await started(worker, "paying")
        await original.result()
        stranger = await Client.connect(server.address, plugins=[BatonPlugin(keyring=Keyring.generate())])
        new_id = f"{original.id}-fork"

        with pytest.raises(PipelineError, match=r"is suspended before its first stage.*there is no such key to seal"):
            await fork(stranger, original.id, "ship", by="bob", why="again", new_id=new_id)

        await stranger.get_workflow_handle(new_id).terminate()


@pytest.mark.parametrize("name", PAST_ATTACKS)
async def test_a_past_that_nobody_wrote_for_this_run_is_refused(worker: Worker, attacker: Client, name: str) -> None:
    """With one sentence, before any stage."""
    genuine = await start_payload(await forked(worker))
    paid = len(PAID)

    handle = await attack(worker, attacker, PAST_ATTACKS[name](genuine))

    assert REFUSED in await refusal(handle)
    assert len(PAID) == paid


async def test_a_past_is_used_once(worker: Worker, attacker: Client) -> None:
    """What a continued run started from is refused when it is sent again to the same workflow."""
    handle = await started(worker, "lasting")
    await handle.result()
    newest = await read_run(worker.client, handle.id)
    start = await start_payload(worker.client.get_workflow_handle(handle.id, run_id=newest.run_id))

    again = await start_with(attacker, "lasting", start, id=handle.id, task_queue=worker.task_queue)

    assert f"{REFUSED} (recorded steps, carried state or an edit), and it was written for another" in await refusal(
        again
    )


async def test_retries_of_the_server_make_no_heir(sealing: Client, worker: Worker, attacker: Client) -> None:
    """A run that timed out before a worker saw it is tried again, as the continuation of itself."""
    handle = await started(worker, "lasting")
    await handle.result()
    newest = await read_run(worker.client, handle.id)
    start = await start_payload(worker.client.get_workflow_handle(handle.id, run_id=newest.run_id))
    queue = f"past-{uuid.uuid4()}"
    again = await attacker.start_workflow(
        "lasting",
        RawValue(start),
        id=handle.id,
        task_queue=queue,
        run_timeout=timedelta(seconds=2),
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1)),
    )
    while (await attacker.get_workflow_handle(handle.id).describe()).run_id == again.first_execution_run_id:  # noqa: ASYNC110 - it has to be asked
        await asyncio.sleep(0.1)
    async with pipeline_worker(sealing, PIPELINES, STAGES, task_queue=queue):
        assert "it was written for another run" in await refusal(again)


async def test_without_safeguards_a_past_is_believed(client: Client, attacker: Client, worker: Worker) -> None:
    """Which the docs say: whoever may start workflows writes what happened."""
    genuine = await start_payload(await forked(worker))
    async with pipeline_worker(client, PIPELINES, STAGES) as trusting:
        handle = await attack(trusting, attacker, PAST_ATTACKS["seal_removed"](genuine))
        result = await client.get_workflow_handle(handle.id, result_type=PipelineResult).result()
    assert result.output == ["Shipped"]


async def test_another_namespace_is_another_run(worker: Worker, safeguards: Safeguards) -> None:
    """Also of the same workflow id and with the same keys."""
    genuine = await forked(worker)
    start = await start_payload(genuine)
    async with DevServer(DevServerOptions(ui_port=None, namespace="elsewhere")) as server:
        plugin = BatonPlugin(safeguards=safeguards)
        client = await Client.connect(server.address, namespace="elsewhere", plugins=[plugin])
        attacker = await Client.connect(server.address, namespace="elsewhere")
        async with pipeline_worker(client, PIPELINES, STAGES) as other:
            assert "it was written for another run" in await refusal(await attack(other, attacker, start, genuine.id))


async def test_safeguards_that_are_switched_on_suspend_the_runs_of_before(client: Client, sealing: Client) -> None:
    """Their past has no seal; they go on where safeguards are off."""
    async with pipeline_worker(client, PIPELINES, STAGES) as before:
        handle = await started(before, "lasting", pause=True)
        newest = client.get_workflow_handle(handle.id)
        await until_waiting(newest, "later")
    async with pipeline_worker(sealing, PIPELINES, STAGES, task_queue=before.task_queue):
        await newest.signal("nudge")
        run, _ = await until_suspended(sealing, newest, tries=1)
        assert "it was written while safeguards were off" in (run.suspended or "")
    await newest.terminate()


async def test_a_fork_of_before_is_suspended_too(client: Client, sealing: Client) -> None:
    """Where it waits, and where it is rolled back to its first own step."""
    async with pipeline_worker(client, PIPELINES, STAGES) as before:
        original = await started(before, "paying", pause=True)
        await until_waiting(original, "shipped")
        handle = await fork(client, original.id, "ship", by="bob", why="again")
        await until_waiting(handle, "shipped")
    paid = len(PAID)
    async with pipeline_worker(sealing, PIPELINES, STAGES, task_queue=before.task_queue):
        await handle.signal("nudge")
        await until_suspended(sealing, handle, tries=1)
        await roll_back(sealing, handle.id, "ship", by="bob", why="again")
        run, _ = await until_suspended(sealing, client.get_workflow_handle(handle.id), tries=1)
        assert "it was written while safeguards were off" in (run.suspended or "")
    assert len(PAID) == paid
    for each in (handle, original):
        await client.get_workflow_handle(each.id).terminate()


class TestRestoredApproval:
    @pytest.mark.parametrize(
        ("release", "difference"),
        [
            pytest.param(paying_after_two, "who may decide, how many must", id="another quorum"),
            pytest.param(paying_more, "what is asked or shown has changed", id="another question"),
        ],
    )
    async def test_it_must_answer_what_the_code_asks_now(
        self, sealing: Client, worker: Worker, release: type, difference: str
    ) -> None:
        """The fork ends before any stage, and asks to be forked earlier."""
        original = await started(worker, "paying")
        await original.result()
        paid = len(PAID)
        async with pipeline_worker(sealing, [release], STAGES) as newer:
            while not await has_pollers(sealing, newer.task_queue):  # noqa: ASYNC110 - the server tells no event
                await asyncio.sleep(0.05)
            with pytest.raises(PipelineError, match=difference):
                await fork(sealing, original.id, "ship", by="bob", why="again", task_queue=newer.task_queue)
        assert len(PAID) == paid
