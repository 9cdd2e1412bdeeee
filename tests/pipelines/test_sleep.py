"""`Pipeline.sleep`: a wait that is a step, so that no run waits again for what an earlier one waited for."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from baton.client import fork, read_run, roll_back
from baton.core.history import StepKind
from baton.core.messages import PipelineInput
from baton.runs.client_record import StepStatus
from baton.runs.client_waiting import waits
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
    """Return how many timers a run has started."""
    kinds = Counter([event.event_type async for event in handle.fetch_history_events()])
    return kinds[EventType.EVENT_TYPE_TIMER_STARTED]


async def test_a_run_that_continues_as_new_does_not_wait_again(client: Client, poller: Worker) -> None:
    """Each pause is waited for once in all the runs together, and its place in the history is the same."""
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


async def test_a_fork_takes_the_waits_before_it_over(client: Client, poller: Worker) -> None:
    """What was waited for is not waited for again; what comes after is."""
    run = await run_pipeline(poller, Polls.run, PipelineInput(goal=GOAL, params={"events": 10_000}))
    forked = await fork(client, run.handle.id, "5", by="ann", why="look again")
    await forked.result()

    read = await assert_reads_back(client, client.get_workflow_handle(forked.id), PAUSING)
    assert [step.status for step in read.steps] == [StepStatus.TAKEN_OVER] * 4 + [StepStatus.DONE] * 2
    assert await timers(client.get_workflow_handle(forked.id)) == 1


async def test_it_is_told_while_it_lasts_and_can_be_rolled_back_to(client: Client, poller: Worker) -> None:
    """What is waited for, until when; a rollback to the pause begins it anew."""
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


async def test_the_pipelines_code_can_give_it_up(client: Client, poller: Worker) -> None:
    """It is on record as canceled, and a fork gives it up as well."""
    run = await run_pipeline(poller, Hurries.run, PipelineInput(goal=GOAL))
    forked = await fork(client, run.handle.id, "gamma", by="ann", why="once more")
    await forked.result()

    read = await assert_reads_back(client, client.get_workflow_handle(forked.id), PAUSING)
    assert [outcome.canceled for outcome in read.state.outcomes] == [True, False]


async def test_it_cannot_last_less_than_no_time(client: Client, poller: Worker) -> None:
    """A negative duration is a mistake of the code; no time is none."""
    await run_pipeline(poller, Polls.run, PipelineInput(goal=GOAL, params={"seconds": 0}))
    handle = await start(poller, Polls.run, seconds=-1)
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    assert "duration is -1 day, 23:59:59; expected zero or more" in str(error.value.cause)
