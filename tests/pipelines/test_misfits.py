"""Code that does not fit a run's recorded past suspends the run, and nothing that this code asks for is sent."""

import asyncio
import uuid

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from baton.client import RunStatus, read_run
from baton.core.messages import PipelineInput
from baton.testing import assert_replays, pipeline_worker
from tests.pipelines.misfits import MISFITS, STAGES, Fits
from tests.runs.test_suspended import until_suspended
from tests.support import GOAL, LIMIT, Handle, names

_OF_TASKS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
}


@pytest.fixture
async def past(client: Client) -> PipelineInput:
    """Return the input of a run that takes over a booking and a payment."""
    async with pipeline_worker(client, [Fits], STAGES) as worker:
        handle: Handle = await client.start_workflow(
            "Trip", PipelineInput(goal=GOAL), id=f"trip-{uuid.uuid4()}", task_queue=worker.task_queue
        )
        await handle.result()
    return PipelineInput(goal=GOAL, outcomes=(await read_run(client, handle.id)).state.outcomes[:2])


@pytest.mark.parametrize("continued", [pytest.param(1, id="a continued run"), pytest.param(0, id="a fork")])
async def test_nothing_of_code_that_does_not_fit_is_sent(client: Client, past: PipelineInput, continued: int) -> None:
    """No stage, timer or handler, in whatever way the code goes on after errors; the right code then finishes."""
    start = past.model_copy(update={"continued": continued})
    await asyncio.gather(*(suspended_and_repaired(client, start, misfit) for misfit in MISFITS))


async def suspended_and_repaired(client: Client, start: PipelineInput, misfit: type) -> None:
    queue = f"misfit-{uuid.uuid4()}"
    handle: Handle = await client.start_workflow(
        "Trip", start, id=queue, task_queue=queue, execution_timeout=LIMIT, start_signal="nudge"
    )
    async with pipeline_worker(client, [misfit], STAGES, task_queue=queue):
        run, _ = await until_suspended(client, handle, tries=2)

    assert run.status is RunStatus.RUNNING
    assert "step 2 was recorded as stage 'pay', but the code asks for stage 'ship'" in (run.suspended or "")
    assert ("fork at an earlier step" in (run.suspended or "")) is (start.continued == 0)
    assert {event.event_type async for event in handle.fetch_history_events()} <= _OF_TASKS, misfit

    async with pipeline_worker(client, [Fits], STAGES, task_queue=queue):
        await handle.result()
        await assert_replays(handle, [Fits])
    run = await read_run(client, handle.id)
    assert names(run) == ["book", "pay", "ship"]
    assert run.baton.decision_log == ["Booked", "Paid", "Shipped"]
