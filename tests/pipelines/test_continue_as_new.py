"""Long pipelines continue in a new run, in the middle of their code."""

import asyncio
import gc
import uuid

from temporalio.client import Client
from temporalio.worker import Worker

from baton import HistoryEntry, Outcome
from baton.client import RunFilter, RunStatus, StepStatus, list_runs, read_run
from baton.client.faces import with_details
from baton.core.messages import PipelineInput
from baton.core.pages import PAGE, write_pages
from baton.testing import pipeline_worker, run_pipeline
from tests.core.material import AT
from tests.pipelines.pipelines import Circles, Counts, Long
from tests.pipelines.stages import EXECUTED, STAGES
from tests.support import GOAL, approve, assert_reads_back, names, start, undated


class TestContinuing:
    async def test_nothing_is_executed_twice_and_nothing_is_lost(self, client: Client, worker: Worker) -> None:
        """Stages, a fan-out, an approval and a gather are restored; the code continues."""
        handle = await start(worker, Long.run)
        await approve(client, handle)
        result = await handle.result()

        newest = client.get_workflow_handle(handle.id)
        run = await assert_reads_back(client, newest)
        taken_over = [step.status for step in run.steps].index(StepStatus.DONE)  # 7, where nothing slows the server
        assert run.start.continued >= 1
        assert result.steps == 10
        assert taken_over > 0
        assert [step.status for step in run.steps[taken_over:]] == [StepStatus.DONE] * (10 - taken_over)
        assert {stage: times for (workflow, stage), times in EXECUTED.items() if workflow == handle.id} == {
            **dict.fromkeys(["plan", "check", "document", "review", "implement", "tidy", "rest"], 1),
            "count": 3,
        }

    async def test_both_runs_have_the_same_history_of_the_first(self, client: Client, worker: Worker) -> None:
        """Restored steps read like executed ones, times included (S1-design-e, -i)."""
        handle = await start(worker, Long.run)
        await approve(client, handle)
        await handle.result()

        run = await read_run(client, handle.id)
        assert run.previous_run_id is not None
        first = await assert_reads_back(client, client.get_workflow_handle(handle.id, run_id=run.previous_run_id))
        assert (first.status, first.next_run_id) == (RunStatus.CONTINUED_AS_NEW, run.run_id)
        assert first.began is not None
        assert run.first_began is not None
        assert run.began is not None
        assert run.first_began <= first.began < run.began
        run_filter = RunFilter(id_prefix=handle.id)
        while not (  # noqa: ASYNC110
            listed := await with_details(client, [run async for run in list_runs(client, run_filter, limit=10)])
        ):
            await asyncio.sleep(0.05)
        assert [(each.run_id, each.began) for each in listed] == [(run.run_id, run.first_began)]
        assert run.state.entries[: len(first.state.entries)] == first.state.entries
        assert run.state.outcomes[: len(first.state.outcomes)] == first.state.outcomes

    async def test_it_ends_like_one_that_did_not_continue(self, client: Client, worker: Worker) -> None:
        """The caller sees one pipeline with one result."""
        short = await run_pipeline(worker, Circles.run, PipelineInput(goal=GOAL, params={"events": 10_000}))
        long = await run_pipeline(worker, Circles.run, PipelineInput(goal=GOAL, params={"events": 4}))

        run = await assert_reads_back(client, client.get_workflow_handle(long.handle.id))
        assert short.record.start.continued == 0
        assert run.start.continued == 2
        assert undated(run) == undated(short.record)
        assert long.result.baton == short.result.baton
        assert long.result.task_id == run.start.task_id
        assert EXECUTED[long.handle.id, "tidy"] == 2

    async def test_concurrent_steps_are_finished_before_it_continues(self, client: Client, worker: Worker) -> None:
        """It continues only while no step is in progress."""
        run = await run_pipeline(worker, Circles.run, PipelineInput(goal=GOAL, params={"events": 4}))

        read = await assert_reads_back(client, client.get_workflow_handle(run.handle.id))
        assert sorted(names(read)) == ["count", "count", "rest", "rest", "tidy", "tidy"]
        assert EXECUTED[run.handle.id, "rest"] == 2
        assert EXECUTED[run.handle.id, "count"] == 2


def recorded_rounds(count: int) -> list[Outcome]:
    """Return the outcomes of the first stages of `Counts`."""
    entry = HistoryEntry(seq=1, stage_id="count", timestamp=AT, patch={"decision_log": ["Round"]})
    return [
        Outcome(seq=seq, order=seq - 1, name="count", entries=[entry.model_copy(update={"seq": seq})])
        for seq in range(1, count + 1)
    ]


class TestLongRuns:
    async def test_a_workflow_task_restores_a_bounded_number_of_steps(self, client: Client, worker: Worker) -> None:
        """An old run is restored slice by slice, continues, and reads back complete."""
        recorded = recorded_rounds(2 * PAGE + 100)
        params = {"rounds": len(recorded) + 1}
        given = PipelineInput(goal=GOAL, params=params, continued=1, **write_pages(recorded))
        run = await run_pipeline(worker, Counts.run, given)

        record = await assert_reads_back(client, client.get_workflow_handle(run.handle.id))
        events = [event async for event in client.get_workflow_handle(run.handle.id).fetch_history_events()]
        first_stage = next(
            n for n, event in enumerate(events) if event.HasField("activity_task_scheduled_event_attributes")
        )
        fired = [event for event in events[:first_stage] if event.HasField("timer_fired_event_attributes")]
        assert run.result.steps == len(recorded) + 3
        assert record.start.continued >= 2
        assert record.start.outcomes[: len(recorded)] == recorded
        assert len(fired) == 2

    async def test_a_dropped_run_leaves_no_steps_to_the_garbage_collector(self, client: Client) -> None:
        """Else a full collection, with the steps of several long runs, is part of some workflow task."""
        pages = write_pages(recorded_rounds(2 * PAGE))["pages"]
        given = PipelineInput(goal=GOAL, params={"rounds": 2 * PAGE + 1}, continued=1, pages=pages)
        gc.collect()
        gc.disable()
        try:
            async with pipeline_worker(client, [Counts], STAGES) as worker:
                handle = await client.start_workflow(
                    Counts.run, given, id=f"dropped-{uuid.uuid4()}", task_queue=worker.task_queue
                )
                await handle.result()
            assert sum(isinstance(item, Outcome) for item in gc.get_objects()) < PAGE
        finally:
            gc.enable()
