"""Concurrent lines of steps: a run with restored outcomes starts the same steps."""

import asyncio
import uuid

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from baton import PipelineResult, Spend
from baton.client import StepStatus, fork, read_run
from baton.testing import assert_replays, pipeline_worker
from baton.wire.names import ANSWER
from tests.pipelines.line_pipelines import Buys, Catches, Lines, Pays
from tests.pipelines.line_stages import STAGES
from tests.support import answer_to, start, until


async def test_a_simultaneous_update_and_signal_are_restored_in_order(client: Client) -> None:
    """The signal's line began its next step first, though the update came earlier."""
    queue = f"lines-{uuid.uuid4()}"
    async with pipeline_worker(client, [Lines], STAGES, task_queue=queue) as worker:
        handle = await start(worker, Lines.run)
        await until(handle, lambda now: {"first", "second"} <= {step.name for step in now.waiting_for})
        first, second = [await answer_to(handle, title) for title in ("first", "second")]
    async with asyncio.TaskGroup() as group:  # with nobody at work, so that both come in one task
        group.create_task(handle.execute_update(ANSWER, first))
        await asyncio.sleep(0.3)
        await handle.signal(ANSWER, second)
        async with pipeline_worker(client, [Lines], STAGES, task_queue=queue):
            result = await handle.result()
            forked = await fork(client, handle.id, "gamma", by="ann", why="once more")
            forked_result = await forked.result()

    assert sorted(result.baton["decision_log"]) == ["alpha", "beta", "gamma"]
    assert PipelineResult.model_validate(forked_result).baton["decision_log"] == result.baton["decision_log"]
    await assert_replays(handle, [Lines])


async def test_a_failed_stage_can_be_handled(client: Client) -> None:
    """The run reads back with the failed step, and its history replays."""
    async with pipeline_worker(client, [Catches], STAGES) as worker:
        handle = await start(worker, Catches.run, raises=True)
        result = await handle.result()

    assert result.output == "stage 'once' failed: ValueError: it cannot be done"
    [step] = (await read_run(client, handle.id)).steps
    assert (step.name, step.status, step.failure) == ("once", StepStatus.FAILED, "ValueError: it cannot be done")
    await assert_replays(handle, [Catches])


async def test_charges_reach_the_server_at_once(client: Client) -> None:
    """Otherwise the SDK would delay all but the first heartbeat for minutes."""
    queue = f"pays-{uuid.uuid4()}"
    async with Worker(client, task_queue=queue, workflows=[Pays], activities=STAGES) as worker:
        handle = await start(worker, Pays.run)
        while True:
            pending = (await handle.describe()).raw_description.pending_activities
            details = b"".join(payload.data for activity in pending for payload in activity.heartbeat_details.payloads)
            if b'"prompt_tokens":2000' in details:
                break
            await asyncio.sleep(0.05)
        await handle.terminate()


@pytest.mark.parametrize(
    ("how", "accepted", "billed"),
    [
        pytest.param("is accepted", Spend(micro_usd=200, prompt_tokens=20), (200, 20), id="accepted"),
        pytest.param("is refused", Spend(), (400, 40), id="refused"),
        pytest.param("raises", Spend(), (140, 0), id="raised"),
    ],
)
async def test_the_cost_of_failed_work_is_reported(
    client: Client, how: str, accepted: Spend, billed: tuple[int, int]
) -> None:
    """Of rejected attempts, failed fan-outs and stages that raised."""
    async with pipeline_worker(client, [Buys], STAGES) as worker:
        handle = await start(worker, Buys.run, how=how)
        if accepted:
            await until(handle, lambda now: any(step.kind == "sleep" for step in now.waiting_for))
        else:
            with pytest.raises(WorkflowFailureError):
                await handle.result()
        run = await read_run(client, handle.id)
        if accepted:
            await handle.terminate()

    assert run.state.spend == accepted
    assert (run.billed.micro_usd, run.billed.prompt_tokens) == billed
    assert run.to_json_object()["billed"] == run.billed.model_dump(mode="json")
