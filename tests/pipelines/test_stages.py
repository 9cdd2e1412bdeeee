"""Running a stage: retries, rejected patches and failures."""

import uuid
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from baton.client import StepStatus, fork, read_run, rebuild
from baton.core.messages import PipelineInput
from baton.testing import pipeline_worker, run_pipeline
from tests.pipelines.line_pipelines import Waits
from tests.pipelines.mishaps import Answers, FallsBack, Impatient, Stumbles
from tests.pipelines.pipelines import Gated
from tests.pipelines.stages import EXECUTED, STAGES
from tests.support import GOAL, assert_reads_back, failure, start, undated

HASH_A, HASH_B = "a" * 64, "b" * 64

BAD_PATCHES = [
    pytest.param({"desicion_log": ["x"]}, {}, "did you mean 'decision_log'?", id="an unknown member"),
    pytest.param({"current_state": "done"}, {}, "the patch has a str", id="a string for a list"),
    pytest.param({"constraints": [1]}, {}, "constraints.0: ", id="a number in a list"),
    pytest.param({"goal": None}, {}, "goal: may not be cleared", id="a cleared goal"),
    pytest.param({"goal": "  "}, {}, "goal: may not be cleared", id="a blank goal"),
    pytest.param({"decision_log": None}, {}, "decision_log: only grows", id="a cleared log"),
    pytest.param({"decision_log": "x"}, {}, "decision_log: must be a list", id="a string for the log"),
    pytest.param({"acceptance": ["pytest"]}, {"stage": "careful"}, "did not declare", id="an undeclared field"),
    pytest.param({"goal": "Another"}, {"protected": ["goal"]}, "goal: is protected", id="a frozen goal"),
    pytest.param(
        {"constraints": ["Cheap"]},
        {"protected": ["constraints"]},
        "constraints: is protected",
        id="a protected constraint removed",
    ),
    pytest.param(
        {"artifacts": [{"id": "art-1", "type": "plan", "hash": HASH_B}]},
        {},
        "artifacts: 'art-1' already names other bytes",
        id="an artifact id used for other bytes",
    ),
    pytest.param({"artifacts": [{"id": "art-2"}]}, {}, "artifacts.", id="an artifact without type and hash"),
]

SEED: dict[str, Any] = {
    "constraints": ["No new service"],
    "artifacts": [{"id": "art-1", "type": "plan", "hash": HASH_A}],
}


@pytest.mark.parametrize(("returned", "found"), [(None, "null"), (b"done", "bytes")])
async def test_a_foreign_activity_with_another_result_is_an_error(client: Client, returned: Any, found: str) -> None:
    """The SDK passes null and bytes for any type; the error says what is expected."""

    @activity.defn(name="first")
    async def foreign_stage(message: Any) -> Any:
        return returned

    async with pipeline_worker(client, [Waits], [foreign_stage]) as worker:
        handle = await start(worker, Waits.run)
        message = await failure(handle)

    assert f"stage 'first' returned {found}; see `baton schema stage-return`" in message


class TestRejectedPatches:
    """A patch that breaks a rule gets findings, is not applied, and is not lost silently."""

    @pytest.mark.parametrize(("patch", "options", "finding"), BAD_PATCHES)
    async def test_the_next_attempt_gets_the_findings(
        self, client: Client, worker: Worker, patch: dict[str, Any], options: dict[str, Any], finding: str
    ) -> None:
        """For each kind of bad patch (C-2, C-3, C-5, C-6, C-11)."""
        params: Any = {**options, "answers": [patch, {"current_state": ["Mended"]}]}
        run = await run_pipeline(worker, Answers.run, PipelineInput(goal=GOAL, baton=SEED, params=params))

        assert any(entry.startswith("was told: ") and finding in entry for entry in run.baton.decision_log)
        assert run.baton.current_state == ["Mended"]
        assert run.baton.constraints == ["No new service"]
        assert (run.record.steps[0].attempts, run.record.state.entries[0].attempt) == (2, 2)
        [[reason]] = run.record.refused.values()
        assert finding in reason
        await assert_reads_back(client, run.handle)

    @pytest.mark.parametrize(("patch", "options", "finding"), BAD_PATCHES)
    async def test_a_reader_sees_the_findings_during_the_next_attempt(
        self, client: Client, worker: Worker, patch: dict[str, Any], options: dict[str, Any], finding: str
    ) -> None:
        """From the history alone, whether the worker or the pipeline found the fault."""
        params: Any = {**options, "answers": [patch, {"current_state": ["Mended"]}]}
        run = await run_pipeline(worker, Answers.run, PipelineInput(goal=GOAL, baton=SEED, params=params))
        events = list((await run.handle.fetch_history()).events)
        retry = [n for n, event in enumerate(events, 1) if event.HasField("activity_task_scheduled_event_attributes")][
            1
        ]

        [step] = (await rebuild(run.handle.id, "", events[:retry], client.data_converter)).steps
        assert (step.status, step.attempts) == (StepStatus.RUNNING, 2)
        assert finding in (step.failure or "")

    @pytest.mark.parametrize(("patch", "options", "finding"), BAD_PATCHES)
    async def test_a_stage_without_attempts_left_fails_unapplied(
        self, client: Client, worker: Worker, patch: dict[str, Any], options: dict[str, Any], finding: str
    ) -> None:
        """The run fails with the findings, and the baton is unchanged (C-3, S1-design-b)."""
        answers: Any = [{**patch, "current_state": ["Never"]} if "current_state" not in patch else patch] * 3
        handle = await worker.client.start_workflow(
            Answers.run,
            PipelineInput(goal=GOAL, baton=SEED, params={**options, "answers": answers}),
            id=f"refused-{uuid.uuid4()}",
            task_queue=worker.task_queue,
        )

        message = await failure(handle)
        assert "was refused 3 times and is rolled back" in message
        assert finding in message
        run = await assert_reads_back(client, handle)
        assert run.baton == run.state.initial
        assert run.state.entries == []
        assert [(step.status, step.attempts) for step in run.steps] == [(StepStatus.FAILED, 3)]

    async def test_all_findings_come_at_once(self, worker: Worker) -> None:
        """A stage can fix everything in one attempt."""
        bad = {"goal": None, "decision_log": None, "work_scope": "src", "nobody": 1}
        params: Any = {"answers": [bad, {}]}
        run = await run_pipeline(worker, Answers.run, PipelineInput(goal=GOAL, params=params))

        fields = [entry.removeprefix("was told: ").split(":")[0] for entry in run.baton.decision_log]
        assert sorted(fields) == ["decision_log", "goal", "nobody", "work_scope"]

    async def test_a_patch_of_200_000_entries_is_a_finding(self, client: Client, worker: Worker) -> None:
        """The stage gets it, and the run continues."""
        params: Any = {"answers": [{}, {}], "entries": 200_000}
        run = await run_pipeline(worker, Answers.run, PipelineInput(goal=GOAL, params=params))

        assert run.record.steps[0].attempts == 2
        assert [entry for entry in run.baton.decision_log if "artifacts: has 200,000 entries" in entry]
        await assert_reads_back(client, run.handle)

    async def test_an_empty_patch_is_legal_and_recorded(self, client: Client, worker: Worker) -> None:
        """It changes nothing and is an entry, so that a replay is complete (C-10)."""
        params: Any = {"answers": [{}]}
        run = await run_pipeline(worker, Answers.run, PipelineInput(goal=GOAL, params=params))

        assert [(entry.stage_id, entry.patch) for entry in run.record.state.entries] == [("answer", {})]
        assert run.baton == run.record.state.initial
        await assert_reads_back(client, run.handle)


class TestRetries:
    """Temporal retries a stage that raises; the pipeline's code does not notice."""

    async def test_retries_leave_no_trace_in_the_baton(self, client: Client, worker: Worker) -> None:
        """Nor in the entries; only the number of executions differs."""
        run = await run_pipeline(worker, Stumbles.run, PipelineInput(goal=GOAL))
        smooth = await run_pipeline(worker, Stumbles.run, PipelineInput(goal=GOAL, params={"smooth": True}))

        assert EXECUTED[run.handle.id, "stumble"] == 3
        assert EXECUTED[smooth.handle.id, "stumble"] == 1
        assert undated(run.record) == undated(smooth.record)
        await assert_reads_back(client, run.handle)

    async def test_code_may_handle_a_failed_step(self, client: Client, worker: Worker) -> None:
        """The failure is an outcome, which a continued run does not repeat."""
        run = await run_pipeline(worker, FallsBack.run, PipelineInput(goal=GOAL))
        read = await assert_reads_back(client, client.get_workflow_handle(run.handle.id))

        assert run.result.output == [
            "stage 'fail' failed: ConnectionError: the model is gone",
            "stage 'fail' failed: ConnectionError: the model is gone",
            "child 'nobody' failed: UnheardOf: nobody knows me",
            "'nobody' was denied by deadline: no decision within 0:00:00.020000",
        ]
        assert read.start.continued == 1
        assert [step.status for step in read.steps[:3]] == [StepStatus.FAILED] * 3
        assert EXECUTED[run.handle.id, "fail"] == 2
        assert run.baton.decision_log == ["Round 0"]


class TestCanceled:
    @pytest.mark.parametrize("step", ["stage", "approval", "child"])
    async def test_a_cancellation_is_an_outcome(self, client: Client, worker: Worker, step: str) -> None:
        """A fork does not execute the step again, and the approval is closed."""
        run = await run_pipeline(worker, Impatient.run, PipelineInput(goal=GOAL, params={"step": step}))

        read = await assert_reads_back(client, run.handle)
        assert run.result.output is False
        assert (read.steps[1].status, read.steps[1].failure) == (StepStatus.FAILED, "canceled by the pipeline")
        other = await fork(client, run.handle.id, "conclude", by="bob", why="try another way")
        assert (await other.result())["output"] is False
        assert (EXECUTED[other.id, "rest"], EXECUTED[other.id, "conclude"]) == (0, 1)
        assert undated(await assert_reads_back(client, other)) == undated(read)

    async def test_evicting_a_run_from_the_cache_cancels_nothing(self, client: Client) -> None:
        """The worker continues an evicted run later."""
        async with pipeline_worker(client, [Impatient, Gated], STAGES, replay_every_task=True) as forgetful:
            for step in ("stage", "approval", "child"):
                run = await run_pipeline(forgetful, Impatient.run, PipelineInput(goal=GOAL, params={"step": step}))
                await assert_reads_back(client, run.handle)
                assert [entry.stage_id for entry in run.record.state.entries] == ["plan", "conclude"]


class TestFailure:
    async def test_it_fails_the_run_with_the_innermost_reason(self, client: Client, worker: Worker) -> None:
        """Not with its wrappers; a missing parameter is named with those that are there, and is not tried again."""
        handle = await start(worker, Answers.run, replies=1)

        reason = "ParameterError: there is no parameter 'answers'; given: 'replies'"
        assert await failure(handle) == f"stage 'answer' failed: {reason}"
        run = await read_run(client, handle.id)
        assert run.failure == f"StageFailedError: stage 'answer' failed: {reason}"
        assert (run.steps[0].name, run.steps[0].failure, run.steps[0].attempts) == ("answer", reason, 1)
        await assert_reads_back(client, handle)
