"""What the event history alone tells of a run: every baton, every step, for types nobody knows, and for bad starts."""

import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from baton import Pipeline, pipeline
from baton.client import RunStatus, read_run
from baton.core.history import snapshots
from baton.core.messages import PipelineInput
from baton.errors import HistoryError
from baton.testing import pipeline_worker, run_pipeline
from tests.pipelines.pipelines import Audited, Linear, Together
from tests.pipelines.stages import GATES, AuditedBaton
from tests.support import GOAL, assert_reads_back, failure, start, until_waiting


@activity.defn
async def lookalike() -> dict[str, Any]:
    """Return what a stage's answer looks like."""
    return {"stage": "plan", "seq": 7, "baton_patch": {"current_state": ["Forged"] * 3}, "spend": {"micro_usd": 9}}


@pipeline
async def asks_a_lookalike(p: Pipeline) -> object:
    """Run an activity that is not a stage."""
    return await workflow.execute_activity(lookalike, start_to_close_timeout=timedelta(minutes=1))


class TestSnapshots:
    async def test_every_change_has_the_full_baton_after_it(self, worker: Worker) -> None:
        """How the understanding evolved can be replayed exactly (S1-patch-f, S1-design-i)."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        assert [(entry.stage_id, baton.decision_log) for entry, baton in run.record.history] == [
            ("plan", ["Chose JWT over sessions"]),
            ("implement", ["Chose JWT over sessions", "Kept the old form"]),
            ("review", ["Chose JWT over sessions", "Kept the old form", "Approved the change"]),
        ]
        assert run.record.history[-1][1] == run.record.baton

    async def test_the_query_gives_the_same_snapshots(self, worker: Worker) -> None:
        """The entries that a worker answers lead to the same batons as those in the history (S2-design-d)."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        answered = [type(entry).model_validate_json(json.dumps(raw)) for entry, raw in zip(
            run.record.state.entries, await run.handle.query("history"), strict=True
        )]  # fmt: skip

        assert list(snapshots(run.record.state.initial, answered)) == run.record.history

    async def test_an_activity_that_answers_like_a_stage_changes_and_costs_nothing(self, client: Client) -> None:
        """Only what was sent as a step comes back as one."""
        async with pipeline_worker(client, [asks_a_lookalike], [lookalike]) as worker:
            run = await run_pipeline(worker, asks_a_lookalike, PipelineInput(goal=GOAL))

        assert (run.record.steps, run.record.billed.micro_usd) == ([], 0)
        assert run.record.baton.goal == GOAL

    async def test_before_and_after_a_step(self, worker: Worker) -> None:
        """What a stage was given, and what it left."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        step = run.record.step("implement")

        assert run.record.baton_before(step).current_state[0] == "Plan written"
        assert run.record.baton_after(step).current_state == ["Login works"]

    async def test_concurrent_steps_are_told_apart_by_when_they_ended(self, client: Client, worker: Worker) -> None:
        """The later one knows that it overtook the other (S1-design-h)."""
        patches = {"a": {"current_state": ["A"] * 3}, "b": {"current_state": ["B"] * 3}}
        handle = await start(worker, Together.run, patches=patches)
        await until_waiting(handle, "hold", "hold")
        GATES[handle.id, "b"].set()
        await until_waiting(handle, "hold")
        GATES[handle.id, "a"].set()
        await handle.result()

        run = await assert_reads_back(client, handle)
        first, second = run.state.entries[1:3]
        assert (first.patch["current_state"], first.warnings) == (["B"] * 3, [])
        assert second.warnings == ["current_state: a concurrent step wrote it too; this patch replaced that"]


class TestDerivedBatons:
    async def test_their_fields_are_read_whole(self, client: Client, worker: Worker) -> None:
        """Values as well as members that a patch took away again (C-4)."""
        run = await run_pipeline(worker, Audited.run, PipelineInput(goal=GOAL))

        read = await assert_reads_back(client, run.handle)
        assert read.baton.to_json_object()["cost_centre"] == "R&D"
        assert read.baton.to_json_object()["risks"] == {"scope": 2}
        assert run.result.final_baton(AuditedBaton).risks == {"scope": 2}

    async def test_so_are_fields_that_nobody_has_written_yet(self, worker: Worker) -> None:
        """Their defaults are in the type, which the reader does not have."""
        run = await run_pipeline(worker, Audited.run, PipelineInput(goal=GOAL))

        first = run.record.state.initial.to_json_object()
        assert (first["cost_centre"], first["risks"]) == ("none", {})

    async def test_a_service_may_seed_them(self, client: Client, worker: Worker) -> None:
        """Like any other member of the first baton."""
        seed = PipelineInput(goal=GOAL, baton={"risks": {"time": 1}})
        run = await run_pipeline(worker, Audited.run, seed)

        await assert_reads_back(client, run.handle)
        assert run.record.state.initial.to_json_object()["risks"] == {"time": 1}
        assert [baton.to_json_object()["risks"] for _, baton in run.record.history[1:]] == [{}, {"scope": 2, "time": 5}]


class TestRecord:
    async def test_it_is_json(self, worker: Worker) -> None:
        """For other programs: steps with their times and places to go back to."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        told = json.loads(json.dumps(run.record.to_json_object()))
        assert (told["pipeline"], told["status"], told["task_id"]) == ("Linear", "COMPLETED", run.result.task_id)
        assert [(step["seq"], step["name"], step["status"]) for step in told["steps"]] == [
            (1, "plan", "done"),
            (2, "implement", "done"),
            (3, "review", "done"),
        ]
        assert all(step["reset_event"] for step in told["steps"])

    async def test_a_run_that_could_not_start_is_read_too(self, client: Client, worker: Worker) -> None:
        """There is no baton, but there is a reason."""
        handle = await client.start_workflow(
            Linear.run,
            PipelineInput(goal=GOAL, baton={"current_state": "ready"}),
            id="unusable-seed",
            task_queue=worker.task_queue,
        )

        assert "cannot start from this input: current_state: Input should be a valid list" in await failure(handle)
        run = await read_run(client, handle.id)
        assert (run.status, run.steps) == (RunStatus.FAILED, [])
        assert run.failure is not None
        assert run.failure.startswith("PipelineError: the pipeline cannot start from this input")

    @pytest.mark.parametrize(
        ("given", "found"), [(None, "null"), (b'{"goal": "g"}', "bytes (encoding binary/plain)")], ids=["null", "bytes"]
    )
    async def test_what_is_no_json_object_is_told_as_that(
        self, client: Client, worker: Worker, given: Any, found: str
    ) -> None:
        """A service that sends no input, or made the JSON itself, reads what is expected, and no error of our code."""
        handle = await client.start_workflow("Linear", given, id=f"raw-{uuid.uuid4()}", task_queue=worker.task_queue)

        expected = f'was started with {found}; expected JSON: an object with a goal, such as {{"goal": "…"}}'
        assert expected in await failure(handle)

    async def test_a_baton_of_another_type_is_told_what_it_needs(self, client: Client, worker: Worker) -> None:
        """As when a pipeline whose baton has further fields starts a child that does not know them."""
        start = PipelineInput(goal=GOAL, baton={"severity": "high"})
        handle = await client.start_workflow(Linear.run, start, id="another-type", task_queue=worker.task_queue)

        assert "severity: Extra inputs are not permitted. Its batons are of type Baton; " in await failure(handle)

    async def test_a_workflow_that_is_no_pipeline_is_named_as_one(self, client: Client, worker: Worker) -> None:
        """Instead of a record with nothing in it."""
        handle = await client.start_workflow("Linear", "no input", id="no-pipeline", task_queue=worker.task_queue)

        await failure(handle)
        with pytest.raises(HistoryError, match="was not started with a PipelineInput; it is not a Baton pipeline"):
            await read_run(client, handle.id)
