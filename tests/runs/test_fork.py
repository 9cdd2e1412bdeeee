"""Forks: new runs that take over the outcomes before a step and execute the rest."""

import re
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from baton import Budget, PipelineResult, StepKind
from baton.client import fork, read_run
from baton.client.faces import refused_patch
from baton.core.messages import PipelineInput
from baton.errors import HistoryError, PatchError, PipelineError
from baton.runs.client_fork import forked_input
from baton.runs.client_record import StepStatus
from baton.testing import pipeline_worker, run_pipeline
from tests.pipelines.mishaps import Answers, FallsBack
from tests.pipelines.pipelines import (
    PIPELINES,
    Audited,
    Discusses,
    FansOut,
    Gated,
    Linear,
    Long,
    Parent,
    ThreeLines,
    Together,
)
from tests.pipelines.stages import EXECUTED, GATES, STAGES
from tests.support import (
    GOAL,
    LIMIT,
    Handle,
    approve,
    assert_reads_back,
    event,
    failure,
    names,
    start,
    undated,
    until_waiting,
)


async def fork_at(client: Client, handle: Handle, at: str, **options: Any) -> Handle:
    return await fork(client, handle.id, at, by="bob", why="try another way", **options)


def count_executions(handle: Handle) -> dict[str, int]:
    """Return how often each stage was executed by a workflow."""
    return {stage: times for (workflow_id, stage), times in EXECUTED.items() if workflow_id == handle.id}


class TestFork:
    @pytest.mark.parametrize(
        ("at", "executed"),
        [
            pytest.param("plan", ["plan", "implement", "review"], id="the first step"),
            pytest.param("implement", ["implement", "review"], id="a step by its name"),
            pytest.param("3", ["review"], id="the last step by its number"),
        ],
    )
    async def test_a_closed_run_is_taken_over_up_to_the_step(
        self, client: Client, worker: Worker, at: str, executed: list[str]
    ) -> None:
        """What came before is not executed again, and the end is the same (S1-design-i)."""
        original = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        handle = await fork_at(client, original.handle, at)
        await handle.result()

        run = await assert_reads_back(client, handle)
        assert count_executions(handle) == dict.fromkeys(executed, 1)
        assert undated(run) == undated(original.record)
        assert [entry.timestamp for entry in run.state.entries[: 3 - len(executed)]] == [
            entry.timestamp for entry in original.record.state.entries[: 3 - len(executed)]
        ]
        assert [step.status is StepStatus.REUSED for step in run.steps] == [
            step.name not in executed for step in run.steps
        ]

    async def test_the_old_run_is_left_as_it_is(self, client: Client, worker: Worker) -> None:
        """An open run stays open."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        fork_handle = await fork_at(client, handle, "release manager")
        await approve(client, fork_handle)
        await fork_handle.result()

        await until_waiting(handle, "release manager")
        assert count_executions(fork_handle) == {"conclude": 1}
        await handle.terminate()

    async def test_it_tells_where_it_comes_from(self, client: Client, worker: Worker) -> None:
        """From which run, at which step, by whom and why; the task stays the same."""
        original = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        handle = await fork_at(client, original.handle, "review", new_id=f"{original.handle.id}-fork")
        await handle.result()

        run = await read_run(client, f"{original.handle.id}-fork")
        assert run.start.origin is not None
        assert run.start.origin.model_dump() == {
            "workflow_id": original.handle.id,
            "run_id": original.record.run_id,
            "at": "review",
            "by": "bob",
            "why": "try another way",
        }
        assert run.start.task_id == original.result.task_id

    async def test_a_fork_can_be_forked(self, client: Client, worker: Worker) -> None:
        """It takes over what the first fork took over."""
        original = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        first = await fork_at(client, original.handle, "implement", patch={"constraints": ["No cost"]})
        await first.result()
        second = await fork_at(client, first, "review")
        await second.result()

        run = await assert_reads_back(client, second)
        assert count_executions(second) == {"review": 1}
        assert names(run) == ["plan", "implement", "review"]
        assert run.baton.constraints == ["No cost"]
        assert undated(run) == undated(await read_run(client, first.id))

    async def test_a_failed_run_is_forked_at_the_step_that_failed(self, client: Client, worker: Worker) -> None:
        """The step may succeed in the fork."""
        handle = await start(worker, Gated.run)
        await approve(client, handle, yes=False)
        await failure(handle)

        fork_handle = await fork_at(client, handle, "release manager")
        await approve(client, fork_handle)
        await fork_handle.result()
        assert count_executions(fork_handle) == {"conclude": 1}
        await assert_reads_back(client, fork_handle)


class TestHandedOn:
    @pytest.mark.parametrize("events", [pytest.param(3_200, id="one run"), pytest.param(8, id="continued")])
    @pytest.mark.parametrize("at", ["1", "3", "4", "5"])
    async def test_the_fork_has_the_conversation_before_the_step_and_no_later_turn(
        self, client: Client, worker: Worker, at: str, events: int
    ) -> None:
        """The stages that run again get the conversation of the original run."""
        start = PipelineInput(goal=GOAL, params={"events": events}, budget=Budget(initial_micro_usd=10_000))
        original = await run_pipeline(worker, Discusses.run, start)
        assert original.result.output == ["point 0", "point 1", "point 2"]
        assert (original.record.start.continued > 0) == (events == 8)

        handle = await fork_at(client, original.handle, at)
        rerun = PipelineResult.model_validate(await handle.result())
        assert rerun.output == original.result.output
        assert rerun.spend == original.result.spend
        assert rerun.billed is None  # what was taken over is charged once
        await assert_reads_back(client, handle)

    async def test_a_fork_of_a_fork_has_the_conversation_before_both(self, client: Client, worker: Worker) -> None:
        """Also if it goes further back than the first fork."""
        original = await run_pipeline(worker, Discusses.run, PipelineInput(goal=GOAL, params={"events": 3_200}))
        first = await fork_at(client, original.handle, "5")
        await first.result()
        second = PipelineResult.model_validate(await (await fork_at(client, first, "3")).result())
        assert second.output == original.result.output


class TestEdit:
    async def test_the_edit_takes_effect_right_before_the_step(self, client: Client, worker: Worker) -> None:
        """It is a separate entry, with who and why, and obeys the rules of every patch (S1-design-b)."""
        original = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        edit: Any = {"current_state": ["Do it otherwise"], "decision_log": ["Use sessions after all"]}
        handle = await fork_at(client, original.handle, "implement", patch=edit)
        await handle.result()

        run = await assert_reads_back(client, handle)
        entry = run.state.entries[1]
        assert (entry.kind, entry.by, entry.why, entry.patch) == (StepKind.EDIT, "bob", "try another way", edit)
        assert run.baton_before(run.step("implement")).current_state == ["Do it otherwise"]
        assert run.baton.decision_log == [
            "Chose JWT over sessions",
            "Use sessions after all",
            "Kept the old form",
            "Approved the change",
        ]
        assert count_executions(handle) == {"implement": 1, "review": 1}

    async def test_an_edit_that_breaks_a_rule_starts_nothing(self, client: Client, worker: Worker) -> None:
        """The error names the mistake (C-3)."""
        original = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        with pytest.raises(PatchError, match="decision_log: only grows"):
            await fork_at(client, original.handle, "review", patch={"decision_log": None}, new_id="never-started")
        with pytest.raises(RPCError):
            await client.get_workflow_handle("never-started").describe()

    @pytest.mark.parametrize(
        ("patch", "refused"),
        [
            pytest.param({"constraints": ["Cheap"]}, "constraints: is protected", id="a protected field"),
            pytest.param({"goal": "Another"}, "goal: is protected", id="a frozen goal"),
        ],
    )
    async def test_an_edit_that_breaks_a_rule_of_the_pipeline_starts_nothing(
        self, client: Client, worker: Worker, patch: Any, refused: str
    ) -> None:
        """The run's history has the rules that its code published."""
        rules: Any = {"protected": ["constraints", "goal"], "answers": [{}]}
        start_input = PipelineInput(goal=GOAL, baton={"constraints": ["No new service"]}, params=rules)
        original = await run_pipeline(worker, Answers.run, start_input)

        with pytest.raises(PatchError, match=refused):
            await fork_at(client, original.handle, "answer", patch=patch, new_id="never-started")
        with pytest.raises(RPCError):
            await client.get_workflow_handle("never-started").describe()
        [finding] = refused_patch(original.record, patch, original.record.step("answer"))
        assert re.match(refused, finding)
        fits = {"constraints": ["No new service", "Cheap"]}
        assert refused_patch(original.record, fits) == []
        assert "only grows" in refused_patch(original.record, {"decision_log": None})[0]
        handle = await fork_at(client, original.handle, "answer", patch=fits)
        assert (await handle.result())["baton"]["constraints"] == ["No new service", "Cheap"]

    async def test_what_the_pipelines_own_fields_demand_is_refused_by_the_new_run(
        self, client: Client, worker: Worker
    ) -> None:
        """Only its code knows their types; the fork says why the run failed before its first stage."""
        original = await run_pipeline(worker, Audited.run, PipelineInput(goal=GOAL))
        patch: Any = {"risks": {"delay": "grave"}}

        assert refused_patch(original.record, patch) == []
        for at in ("plan", "3"):
            with pytest.raises(PipelineError, match=r"failed at once: .*risks"):
                await fork_at(client, original.handle, at, patch=patch, new_id=f"refused-at-{at}")
            assert (await read_run(client, f"refused-at-{at}")).accepted == []

    async def test_a_rule_of_the_pipeline_holds_while_no_worker_is_there(self, client: Client) -> None:
        """Nothing is asked of a worker."""
        rules: Any = {"protected": ["constraints"], "answers": [{}]}
        start_input = PipelineInput(goal=GOAL, baton={"constraints": ["No new service"]}, params=rules)
        async with pipeline_worker(client, PIPELINES, STAGES) as other_worker:
            original = await run_pipeline(other_worker, Answers.run, start_input)

        with pytest.raises(PatchError, match="constraints: is protected"):
            await fork_at(client, original.handle, "answer", patch={"constraints": ["Cheap"]})


class TestSteps:
    async def test_an_approval_is_not_asked_for_again(self, client: Client, worker: Worker) -> None:
        """The decision is a recorded outcome; the code gets the same answer."""
        handle = await start(worker, Gated.run)
        decision = await approve(client, handle)
        await handle.result()
        fork_handle = await fork_at(client, handle, "conclude")

        result = await fork_handle.result()
        assert result["output"] == decision.model_dump(mode="json")
        await assert_reads_back(client, fork_handle)

    async def test_a_fan_out_is_taken_over_as_a_whole(self, client: Client, worker: Worker) -> None:
        """With the outputs of all branches."""
        original = await run_pipeline(worker, FansOut.run, PipelineInput(goal=GOAL))
        fork_handle = await fork_at(client, original.handle, "conclude")

        result = await fork_handle.result()
        assert result["output"] == {"passed": 12}
        assert count_executions(fork_handle) == {"conclude": 1}
        run = await assert_reads_back(client, fork_handle)
        assert undated(run) == undated(original.record)

    async def test_a_child_is_not_run_again(self, client: Client, worker: Worker) -> None:
        """Its result is recorded."""
        original = await run_pipeline(worker, Parent.run, PipelineInput(goal=GOAL))
        fork_handle = await fork_at(client, original.handle, "conclude")

        result = await fork_handle.result()
        assert result["output"] == 3
        run = await assert_reads_back(client, fork_handle)
        assert run.children == []
        assert undated(run) == undated(original.record)

    async def test_a_step_whose_failure_was_handled_fails_again_without_being_executed(
        self, client: Client, worker: Worker
    ) -> None:
        """The code takes the same path as before."""
        original = await run_pipeline(worker, FallsBack.run, PipelineInput(goal=GOAL))
        fork_handle = await fork_at(client, original.handle, "count")

        result = await fork_handle.result()
        assert result["output"] == original.result.output
        assert count_executions(fork_handle) == {"count": 1}
        await assert_reads_back(client, fork_handle)

    async def test_a_continued_run_is_forked_at_a_step_of_its_first_part(self, client: Client, worker: Worker) -> None:
        """The last run of the chain has all its outcomes."""
        handle = await start(worker, Long.run)
        await approve(client, handle)
        await handle.result()
        fork_handle = await fork_at(client, handle, "tidy")

        await fork_handle.result()
        run = await assert_reads_back(client, client.get_workflow_handle(fork_handle.id))
        assert count_executions(fork_handle) == {"tidy": 1, "rest": 1, "count": 3}
        assert run.baton.decision_log[-3:] == ["Round 5", "Round 6", "Round 7"]


class TestConcurrentSteps:
    @pytest.mark.parametrize("order", ["abc", "cba"])
    async def test_they_change_the_baton_in_the_order_in_which_they_ended(
        self, client: Client, worker: Worker, order: str
    ) -> None:
        """That order is recorded, not the order in which the code started them."""
        patches: Any = {gate: {"decision_log": [gate], "current_state": [gate]} for gate in "abc"}
        handle = await start(worker, Together.run, patches=patches)
        for remaining in range(3, 0, -1):
            await until_waiting(handle, *["hold"] * remaining)
            GATES[handle.id, order[3 - remaining]].set()
        await handle.result()
        original = await assert_reads_back(client, handle)
        assert original.baton.decision_log[1:4] == list(order)

        fork_handle = await fork_at(client, handle, "conclude")
        await fork_handle.result()
        run = await assert_reads_back(client, fork_handle)
        assert count_executions(fork_handle) == {"conclude": 1}
        assert undated(run) == undated(original)

    @pytest.mark.parametrize("at", [2, 3, 4, 5, 6])
    async def test_parallel_lines_keep_their_step_numbers(self, client: Client, worker: Worker, at: int) -> None:
        """Each line starts its next step after the others have started theirs, as in the original."""
        original = await run_pipeline(worker, ThreeLines.run, PipelineInput(goal=GOAL))
        fork_handle = await fork_at(client, original.handle, str(at))
        await fork_handle.result()

        run = await assert_reads_back(client, fork_handle)
        assert names(run)[: at - 1] == names(original.record)[: at - 1]
        assert sorted(names(run)) == sorted(names(original.record))
        assert sum(count_executions(fork_handle).values()) == 7 - at

    @pytest.mark.parametrize("at", [2, 4, 6])
    async def test_an_edit_waits_for_the_other_lines(self, client: Client, worker: Worker, at: int) -> None:
        """It takes effect after all taken-over steps, also of lines that reach theirs later."""
        original = await run_pipeline(worker, ThreeLines.run, PipelineInput(goal=GOAL))
        fork_handle = await fork_at(client, original.handle, str(at), patch={"constraints": ["Otherwise"]})
        await fork_handle.result()

        run = await assert_reads_back(client, fork_handle)
        entries = run.state.entries
        assert [entry.kind for entry in entries].index(StepKind.EDIT) == at - 1
        assert entries[at - 1].patch == {"constraints": ["Otherwise"]}
        assert run.baton.constraints == ["Otherwise"]
        assert sum(count_executions(fork_handle).values()) == 7 - at


class TestRefused:
    async def test_all_earlier_steps_must_have_ended(self, client: Client, worker: Worker) -> None:
        """A running stage has no outcome."""
        handle = await start(worker, Together.run, patches={"a": {}, "b": {}})
        await until_waiting(handle, "hold", "hold")

        with pytest.raises(HistoryError, match=r"cannot fork at step 3 \('hold'\): before it, 2 hold \(running\)"):
            await fork_at(client, handle, "3")
        await handle.terminate()

    async def test_code_that_asks_for_another_step_than_the_recorded_one_is_suspended(
        self, client: Client, worker: Worker
    ) -> None:
        """The pipeline's code has changed: the reason names the step and the remedy."""
        original = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        fork_input = forked_input(original.record, original.record.step("review"), patch=None, by="bob", why="?")
        handle = await client.start_workflow(
            FansOut.run,
            fork_input,
            id=f"{original.handle.id}-other",
            task_queue=worker.task_queue,
            execution_timeout=LIMIT,
        )

        await event(handle, EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED)
        assert (await read_run(client, handle.id)).suspended == (
            "NondeterminismError: step 2 was recorded as stage 'implement', but the code asks for merge "
            "'check+document+review'; the code before this step has changed. The run continues once workers have code "
            "that fits; or fork at an earlier step"
        )
        await handle.terminate()
