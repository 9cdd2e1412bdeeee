"""Code that does not fit a run's recorded past suspends the run, and nothing that this code asks for is sent."""

import asyncio
import uuid

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from baton.client import RunStatus, read_run
from baton.core.messages import PipelineInput
from baton.core.pages import PAGE, write_pages
from baton.testing import assert_replays, pipeline_worker
from tests.pipelines.misfits import MISFITS, STAGES, AtOnce, BreaksEarly, EndsEarly, Fits
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
    reason = "step 2 was recorded as stage 'pay', but the code asks for stage 'ship'"
    await asyncio.gather(*(suspended_and_repaired(client, start, misfit, Fits, reason) for misfit in MISFITS))


async def test_code_that_ends_before_a_recorded_step_does_not_fit(client: Client, past: PipelineInput) -> None:
    """Otherwise the run would be completed, or failed, without what it has done."""
    start, reason = past.model_copy(update={"continued": 1}), "the code ends before 1 of the recorded steps"
    await asyncio.gather(
        *(suspended_and_repaired(client, start, misfit, Fits, reason) for misfit in (EndsEarly, BreaksEarly))
    )


async def test_code_that_ends_before_pages_of_recorded_steps_does_not_fit(client: Client, past: PipelineInput) -> None:
    """Also of those that it has not read."""
    booked, paid = past.outcomes
    further = [paid.model_copy(update={"seq": order + 1, "order": order}) for order in range(1, 2 * PAGE)]
    start = past.model_copy(update={"continued": 1, **write_pages([booked, *further])})
    await suspended(client, start, EndsEarly, f"the code ends before {2 * PAGE - 1} of the recorded steps")


async def test_code_that_does_not_begin_an_earlier_step_does_not_fit(client: Client, past: PipelineInput) -> None:
    """Steps that ran at once cannot be restored one after the other; no timer is started to find out."""
    booked, paid = past.outcomes
    outcomes = [paid.model_copy(update={"order": 0}), booked.model_copy(update={"order": 1})]
    start = past.model_copy(update={"continued": 1, "outcomes": outcomes})
    await suspended_and_repaired(client, start, Fits, AtOnce, "step 1 ('book') was recorded as number 2 to end")


async def suspended(client: Client, start: PipelineInput, misfit: type, reason: str) -> Handle:
    queue = f"misfit-{uuid.uuid4()}"
    handle: Handle = await client.start_workflow(
        "Trip", start, id=queue, task_queue=queue, execution_timeout=LIMIT, start_signal="nudge"
    )
    async with pipeline_worker(client, [misfit], STAGES, task_queue=queue):
        run, _ = await until_suspended(client, handle, tries=2)

    assert run.status is RunStatus.RUNNING
    assert reason in (run.suspended or "")
    assert ("fork at an earlier step" in (run.suspended or "")) is (start.continued == 0)
    assert {event.event_type async for event in handle.fetch_history_events()} <= _OF_TASKS, misfit
    return handle


async def suspended_and_repaired(
    client: Client, start: PipelineInput, misfit: type, fitting: type, reason: str
) -> None:
    handle = await suspended(client, start, misfit, reason)
    async with pipeline_worker(client, [fitting], STAGES, task_queue=handle.id):
        await handle.result()
        await assert_replays(handle, [fitting])
    run = await read_run(client, handle.id)
    assert names(run) == ["book", "pay", "ship"]
    assert sorted(run.baton.decision_log) == ["Booked", "Paid", "Shipped"]
