"""A pipeline from start to end: the order of stages, its state and its queries."""

from temporalio.client import Client
from temporalio.worker import Worker

from baton import Overview, PipelineStatus, Spend
from baton.client import RunStatus, read_run
from baton.core.messages import PipelineInput
from baton.testing import pipeline_worker, run_pipeline
from baton.wire.names import QUERY_BATON, QUERY_HISTORY, QUERY_QUESTIONS, QUERY_STATUS, QUERY_WAITING
from tests.pipelines.pipelines import PIPELINES, Gated, Linear, Together
from tests.pipelines.stages import EXECUTED, STAGES
from tests.support import GOAL, assert_reads_back, names, start, undated, until_waiting


class TestRun:
    async def test_each_stage_gets_the_previous_baton(self, worker: Worker) -> None:
        """The workflow holds the state; every stage reads and patches it (S1-concept-a, -b, -c, S1-loop-a)."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        [code] = run.baton.artifacts
        assert code.id == "code-1"
        assert run.baton.to_json_object() == {
            "goal": GOAL,
            "current_state": ["Reviewed after 2 decisions"],
            "decision_log": ["Chose JWT over sessions", "Kept the old form", "Approved the change"],
            "constraints": ["All existing tests pass"],
            "work_scope": ["src/*"],
            "artifacts": [code.model_dump(mode="json")],
            "open_questions": [],
            "acceptance": [],
        }

    async def test_it_starts_from_the_goal_alone(self, worker: Worker) -> None:
        """The rest of the first baton has defaults (S1-init-a, S1-init-c, S2-how-1)."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        assert run.record.state.initial.current_state == ["Workflow starting"]
        assert run.record.state.initial.goal == GOAL

    async def test_every_change_is_recorded_with_stage_time_and_patch(self, client: Client, worker: Worker) -> None:
        """In the order of the stages (S1-design-h, S1-patch-f, S2-design-d)."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        await assert_reads_back(client, run.handle)
        entries = run.record.state.entries
        assert [entry.stage_id for entry in entries] == ["plan", "implement", "review"]
        assert [entry.timestamp for entry in entries] == sorted(entry.timestamp for entry in entries)
        assert entries[2].patch == {
            "current_state": ["Reviewed after 2 decisions"],
            "decision_log": ["Approved the change"],
            "open_questions": [],
        }

    async def test_the_result_has_steps_spend_and_output(self, worker: Worker) -> None:
        """The spend of all stages is added up exactly."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        assert run.result.steps == 3
        assert run.result.spend == Spend(micro_usd=1_500, prompt_tokens=900)
        assert run.result.baton == run.baton.to_json_object()

    async def test_a_worker_without_a_cache_gives_the_same_result(self, client: Client, worker: Worker) -> None:
        """The code is deterministic, so any worker can continue any run."""
        once = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        async with pipeline_worker(client, PIPELINES, STAGES, replay_every_task=True) as forgetful:
            second_run = await run_pipeline(forgetful, Linear.run, PipelineInput(goal=GOAL))
            await assert_reads_back(client, second_run.handle)

        assert undated(second_run.record) == undated(once.record)
        assert EXECUTED[second_run.handle.id, "implement"] == 1

    async def test_a_given_task_id_is_kept(self, worker: Worker) -> None:
        """A service may choose it."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL, task_id="ticket-17"))

        assert run.result.task_id == "ticket-17"


class TestQueries:
    async def test_the_four_queries_answer_while_it_waits(self, client: Client, worker: Worker) -> None:
        """Baton, history, status and what is waited for, at any time (S2-when-d)."""
        handle = await start(worker, Gated.run)
        overview = await until_waiting(handle, "release manager")

        baton = await handle.query(QUERY_BATON)
        assert baton["decision_log"] == ["Chose JWT over sessions"]
        assert [entry["stage_id"] for entry in await handle.query(QUERY_HISTORY)] == ["plan"]
        assert await handle.query(QUERY_HISTORY, 1) == []
        assert (overview.status, overview.seq) == (PipelineStatus.WAITING, 2)
        [waiting] = await handle.query(QUERY_WAITING)
        [question] = await handle.query(QUERY_QUESTIONS)
        assert (waiting["kind"], waiting["name"], question["asks"]) == ("approval", "release manager", "Ship it?")
        await assert_reads_back(client, handle)

    async def test_running_stages_are_shown(self, worker: Worker) -> None:
        """Also several at once."""
        handle = await start(worker, Together.run, patches={"a": {}, "b": {}})
        overview = await until_waiting(handle, "hold", "hold")

        assert [(step.kind, step.seq) for step in overview.waiting_for] == [("stage", 2), ("stage", 3)]
        await handle.terminate()

    async def test_a_closed_run_answers_queries(self, worker: Worker) -> None:
        """While a worker of the pipeline runs."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        overview = await run.handle.query(QUERY_STATUS, result_type=Overview)

        assert (overview.status, overview.seq, overview.waiting_for) == (PipelineStatus.COMPLETED, 3, [])


class TestReadRun:
    async def test_a_run_is_read_without_workers(self, client: Client) -> None:
        """An open and a closed run, completely, from the server alone (S1-design-i)."""
        async with pipeline_worker(client, PIPELINES, STAGES) as worker:
            closed = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
            handle = await start(worker, Gated.run)
            await until_waiting(handle, "release manager")

        read = await read_run(client, closed.handle.id)
        waiting = await read_run(client, handle.id)

        assert (read.status, names(read)) == (RunStatus.COMPLETED, ["plan", "implement", "review"])
        assert read.result == closed.result
        assert (waiting.status, names(waiting)) == (RunStatus.RUNNING, ["plan", "release manager"])
        assert waiting.baton.decision_log == ["Chose JWT over sessions"]
        await handle.terminate()
