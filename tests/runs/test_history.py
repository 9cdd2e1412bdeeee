"""Reading runs from event histories alone: batons, steps, unknown types, bad inputs."""

import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from baton import Baton, Pipeline, Retries, StageContext, StageResult, pipeline, snapshots, stage
from baton.client import NewsKind, RunStatus, follow, read_run
from baton.client.faces import describe_news
from baton.core.messages import PipelineInput
from baton.errors import HistoryError
from baton.testing import pipeline_worker, run_pipeline
from tests.pipelines.pipelines import Audited, Linear, Together
from tests.pipelines.stages import GATES, AuditedBaton
from tests.support import GOAL, assert_reads_back, failure, start, until_waiting


@activity.defn
async def lookalike() -> dict[str, Any]:
    """Return a value that looks like a stage's result."""
    return {"stage": "plan", "seq": 7, "baton_patch": {"current_state": ["Forged"] * 3}, "spend": {"micro_usd": 9}}


@pipeline
async def asks_a_lookalike(p: Pipeline) -> object:
    """Run an activity that is not a stage."""
    return await workflow.execute_activity(lookalike, start_to_close_timeout=timedelta(minutes=1))


@stage(retries=Retries(attempts=3, first=timedelta(milliseconds=1)))
async def succeeds_later(context: StageContext[Baton]) -> StageResult:
    """Raise at the first two tries."""
    if activity.info().attempt < 3:
        raise ConnectionError("the provider is away")
    return StageResult()


@pipeline
async def tries_again(p: Pipeline) -> None:
    """Run a stage that raises at first."""
    await p.stage(succeeds_later)


class TestSnapshots:
    async def test_every_change_has_the_full_baton_after_it(self, worker: Worker) -> None:
        """The evolution of the baton can be replayed exactly (S1-patch-f, S1-design-i)."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        assert [(entry.stage_id, baton.decision_log) for entry, baton in run.record.history] == [
            ("plan", ["Chose JWT over sessions"]),
            ("implement", ["Chose JWT over sessions", "Kept the old form"]),
            ("review", ["Chose JWT over sessions", "Kept the old form", "Approved the change"]),
        ]
        assert run.record.history[-1][1] == run.record.baton

    async def test_the_query_gives_the_same_snapshots(self, worker: Worker) -> None:
        """A worker's entries lead to the same batons as the history (S2-design-d)."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        queried_entries = [type(entry).model_validate_json(json.dumps(raw)) for entry, raw in zip(
            run.record.state.entries, await run.handle.query("history"), strict=True
        )]  # fmt: skip

        assert list(snapshots(run.record.state.initial, queried_entries)) == run.record.history

    async def test_an_activity_that_answers_like_a_stage_changes_and_costs_nothing(self, client: Client) -> None:
        """Only results of stages count."""
        async with pipeline_worker(client, [asks_a_lookalike], [lookalike]) as worker:
            run = await run_pipeline(worker, asks_a_lookalike, PipelineInput(goal=GOAL))

        assert (run.record.steps, run.record.billed.micro_usd) == ([], 0)
        assert run.record.baton.goal == GOAL

    async def test_a_step_that_was_begun_again_says_why(self, client: Client) -> None:
        """Who reads the history, or watches, sees why it took so long."""
        async with pipeline_worker(client, [tries_again], [succeeds_later]) as worker:
            run = await run_pipeline(worker, tries_again, PipelineInput(goal=GOAL))

        step = run.record.step("succeeds_later")
        assert (step.attempts, step.retries, step.retried) == (1, 2, "ConnectionError: the provider is away")
        news = [piece async for update in follow(client, run.handle.id) for piece in update.news]
        [done] = [piece for piece in news if piece.kind is NewsKind.STEP_DONE]
        assert describe_news(done, run.record).endswith(", retried: ConnectionError: the provider is away")

    async def test_a_step_has_a_baton_before_and_after(self, worker: Worker) -> None:
        """What the stage received, and what it left."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        step = run.record.step("implement")

        assert run.record.baton_before(step).current_state[0] == "Plan written"
        assert run.record.baton_after(step).current_state == ["Login works"]

    async def test_concurrent_steps_are_ordered_by_their_ends(self, client: Client, worker: Worker) -> None:
        """The later one has a warning that it replaced the other (S1-design-h)."""
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
        """Values, and members that a patch removed again (C-4)."""
        run = await run_pipeline(worker, Audited.run, PipelineInput(goal=GOAL))

        record = await assert_reads_back(client, run.handle)
        assert record.baton.to_json_object()["cost_centre"] == "R&D"
        assert record.baton.to_json_object()["risks"] == {"scope": 2}
        assert run.result.final_baton(AuditedBaton).risks == {"scope": 2}

    async def test_their_defaults_are_read_too(self, worker: Worker) -> None:
        """The defaults are in the type, which the reader does not have."""
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
        """For other programs: steps with their times and reset events."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        document = json.loads(json.dumps(run.record.to_json_object()))
        assert (document["pipeline"], document["status"], document["task_id"]) == (
            "Linear",
            "COMPLETED",
            run.result.task_id,
        )
        assert [(step["seq"], step["name"], step["status"]) for step in document["steps"]] == [
            (1, "plan", "done"),
            (2, "implement", "done"),
            (3, "review", "done"),
        ]
        assert all(step["reset_event"] for step in document["steps"])

    async def test_a_run_that_could_not_start_is_read_too(self, client: Client, worker: Worker) -> None:
        """It has no baton, but a reason."""
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
        ("payload", "description"),
        [(None, "null"), (b'{"goal": "g"}', "bytes (encoding binary/plain)")],
        ids=["null", "bytes"],
    )
    async def test_an_input_that_is_not_an_object_is_named(
        self, client: Client, worker: Worker, payload: Any, description: str
    ) -> None:
        """A service that sends no input, or raw JSON, gets the expected form instead of an internal error."""
        handle = await client.start_workflow("Linear", payload, id=f"raw-{uuid.uuid4()}", task_queue=worker.task_queue)

        expected = f'was started with {description}; expected JSON: an object with a goal, such as {{"goal": "…"}}'
        assert expected in await failure(handle)

    async def test_an_unknown_field_of_the_baton_is_named(self, client: Client, worker: Worker) -> None:
        """As when a pipeline with further baton fields starts a child without them."""
        start = PipelineInput(goal=GOAL, baton={"severity": "high"})
        handle = await client.start_workflow(Linear.run, start, id="another-type", task_queue=worker.task_queue)

        assert "severity: Extra inputs are not permitted. Its baton type is Baton; " in await failure(handle)

    async def test_a_workflow_that_is_not_a_pipeline_is_an_error(self, client: Client, worker: Worker) -> None:
        """Instead of an empty record."""
        handle = await client.start_workflow("Linear", "no input", id="no-pipeline", task_queue=worker.task_queue)

        await failure(handle)
        with pytest.raises(HistoryError, match="was not started with a PipelineInput; it is not a Baton pipeline"):
            await read_run(client, handle.id)
