"""`Pipeline.sleep`: a sleep that is a step, so that no run repeats it."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from baton import StepKind
from baton.client import StepStatus, fork, read_run, roll_back, waits
from baton.core.messages import PipelineInput
from baton.testing import pipeline_worker, run_pipeline
from tests.pipelines.line_pipelines import Hurries, Polls
from tests.pipelines.line_stages import STAGES
from tests.support import GOAL, Handle, assert_reads_back, names, start, until

PAUSE = "until the next look"
PAUSING = [Polls, Hurries]


@pytest.fixture
async def poller(client: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(client, PAUSING, STAGES) as worker:
        yield worker


async def timers(handle: Handle) -> int:
    """Return how many timers a run started."""
    kinds = Counter([event.event_type async for event in handle.fetch_history_events()])
    return kinds[EventType.EVENT_TYPE_TIMER_STARTED]


async def test_a_continued_run_does_not_sleep_again(client: Client, poller: Worker) -> None:
    """Each sleep happens once in all runs together, at the same place of the history."""
    run = await run_pipeline(poller, Polls.run, PipelineInput(goal=GOAL))

    read = await assert_reads_back(client, client.get_workflow_handle(run.handle.id), PAUSING)
    assert read.start.continued >= 1
    assert names(read) == ["gamma", PAUSE] * 3
    assert [entry.kind for entry in read.state.entries] == [StepKind.STAGE, StepKind.SLEEP] * 3
    waited, at = 0, read.run_id
    while at:
        waited += await timers(client.get_workflow_handle(run.handle.id, run_id=at))
        at = (await read_run(client, run.handle.id, run_id=at)).previous_run_id or ""
    assert waited == 3


async def test_a_fork_does_not_repeat_earlier_sleeps(client: Client, poller: Worker) -> None:
    """Later ones are executed."""
    run = await run_pipeline(poller, Polls.run, PipelineInput(goal=GOAL, params={"events": 10_000}))
    forked = await fork(client, run.handle.id, "5", by="ann", why="look again")
    await forked.result()

    read = await assert_reads_back(client, client.get_workflow_handle(forked.id), PAUSING)
    assert [step.status for step in read.steps] == [StepStatus.REUSED] * 4 + [StepStatus.DONE] * 2
    assert await timers(client.get_workflow_handle(forked.id)) == 1


async def test_a_sleep_is_shown_and_can_be_rolled_back_to(client: Client, poller: Worker) -> None:
    """With its end; a roll-back repeats it."""
    handle = await start(poller, Polls.run, seconds=3600)
    overview = await until(handle, lambda now: any(step.kind == "sleep" for step in now.waiting_for))
    [waiting] = overview.waiting_for
    assert (waiting.name, waiting.seq) == (PAUSE, 2)
    assert waiting.until is not None
    assert (waiting.until - waiting.since).total_seconds() == 3600
    run = await read_run(client, handle.id)
    steps = await waits(client, run)
    assert steps is not None
    [pending] = steps.pending
    assert (pending.kind, pending.name, pending.until) == (StepKind.SLEEP, PAUSE, run.steps[1].until)
    assert all(timer.is_of_a_step for timer in run.timers)

    rolled_back = await roll_back(client, handle.id, PAUSE, by="ann", why="wait anew")
    rolled = await read_run(client, handle.id, run_id=rolled_back.run_id)
    assert rolled.run_id != run.run_id
    await until(
        client.get_workflow_handle(handle.id), lambda now: any(step.kind == "sleep" for step in now.waiting_for)
    )
    assert await timers(client.get_workflow_handle(handle.id)) == 1
    await client.get_workflow_handle(handle.id).terminate()


async def test_the_pipelines_code_can_cancel_a_sleep(client: Client, poller: Worker) -> None:
    """It is recorded as canceled, and a fork cancels it as well."""
    run = await run_pipeline(poller, Hurries.run, PipelineInput(goal=GOAL))
    forked = await fork(client, run.handle.id, "gamma", by="ann", why="once more")
    await forked.result()

    read = await assert_reads_back(client, client.get_workflow_handle(forked.id), PAUSING)
    assert [outcome.canceled for outcome in read.state.outcomes] == [True, False]


async def test_a_negative_duration_is_an_error(client: Client, poller: Worker) -> None:
    """Zero is allowed."""
    await run_pipeline(poller, Polls.run, PipelineInput(goal=GOAL, params={"seconds": 0}))
    handle = await start(poller, Polls.run, seconds=-1)
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    assert "duration is -1 day, 23:59:59; expected zero or more" in str(error.value.cause)
