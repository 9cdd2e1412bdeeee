"""Child pipelines."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.worker import Worker

from baton import Baton, PatchError, PipelineResult, Spend, StepKind
from baton.client import RunFilter, StepStatus, list_runs, read_run, waits
from baton.core.messages import PipelineInput
from baton.pipelines.workflow_children import child_patch
from baton.testing import run_pipeline
from tests.pipelines.mishaps import Twins
from tests.pipelines.pipelines import Delegates, Parent
from tests.support import GOAL, LIMIT, approve, assert_reads_back, failure, names, start, until, until_waiting


class TestChild:
    async def test_it_starts_with_the_parents_baton_and_its_own_goal(self, client: Client, worker: Worker) -> None:
        """Both belong to the same task."""
        run = await run_pipeline(worker, Parent.run, PipelineInput(goal=GOAL))

        [(child_id, child_run, _)] = run.record.children
        child = await assert_reads_back(client, client.get_workflow_handle(child_id, run_id=child_run))
        assert child.state.initial.goal == "Do the first half"
        assert child.state.initial.decision_log == ["Chose JWT over sessions"]
        assert child.start.task_id == run.result.task_id
        assert child_id.startswith(f"{run.handle.id}.half.step2.")

    async def test_its_run_method_stands_for_its_workflow_type(self, client: Client, worker: Worker) -> None:
        """`@workflow.defn(name=…)` names the type and the step; inputs are results of other steps."""
        run = await run_pipeline(worker, Delegates.run, PipelineInput(goal=GOAL))

        assert names(run.record) == ["first-half"]
        [(child_id, *_)] = run.record.children
        assert child_id.startswith(f"{run.handle.id}.first-half.step1.")
        assert (await read_run(client, child_id)).state.initial.decision_log == []

    async def test_its_decisions_artifacts_and_scope_come_back(self, client: Client, worker: Worker) -> None:
        """They are added to the parent's, a repeated decision too; the parent's goal and state stay."""
        run = await run_pipeline(worker, Parent.run, PipelineInput(goal=GOAL))

        await assert_reads_back(client, run.handle)
        after = run.record.baton_after(run.record.step("half"))
        assert after.goal == GOAL
        assert after.current_state == run.record.baton_before(run.record.step("half")).current_state
        chosen = ["Chose JWT over sessions"] * 2
        assert after.decision_log == [*chosen, "Kept the old form", "Approved the change"]
        assert [ref.id for ref in after.artifacts] == ["code-1"]
        assert after.work_scope == ["src/*"]

    async def test_it_is_one_step_with_its_spend(self, worker: Worker) -> None:
        """The parent is charged what the child cost (S1-design-h)."""
        run = await run_pipeline(worker, Parent.run, PipelineInput(goal=GOAL))

        entry = run.record.state.entries[1]
        assert (entry.kind, entry.stage_id, entry.seq) == (StepKind.CHILD, "half", 2)
        assert entry.spend == run.result.spend == Spend(micro_usd=1_500, prompt_tokens=900)
        assert run.result.output == 3

    async def test_a_person_can_be_asked_inside_it(self, client: Client, worker: Worker) -> None:
        """The parent waits for its child, and its overview shows that."""
        handle = await start(worker, Parent.run, child="Gated")
        await until_waiting(handle, "half")
        [(child_id, *_)] = (await read_run(client, handle.id)).children
        waiting_runs = RunFilter(status="WAITING", id_prefix=handle.id)
        async with asyncio.timeout(LIMIT.total_seconds()):
            while not (listed := [run async for run in list_runs(client, waiting_runs, limit=10)]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        now = await waits(client, await read_run(client, handle.id))

        assert [(run.workflow_id, run.status) for run in listed] == [(child_id, "WAITING")]
        assert now is not None
        assert [(item.name, item.run, item.child_status) for item in now.pending] == [("half", child_id, "WAITING")]
        await approve(client, client.get_workflow_handle(child_id))

        await handle.result()
        run = await assert_reads_back(client, handle)
        assert names(run) == ["plan", "half", "conclude"]

    async def test_one_that_continues_as_new_is_still_one_step(self, client: Client, worker: Worker) -> None:
        """The parent gets the result of the last run."""
        run = await run_pipeline(worker, Parent.run, PipelineInput(goal=GOAL, params={"child": "FallsBack"}))

        await assert_reads_back(client, run.handle)
        [(child_id, *_)] = run.record.children
        assert (await read_run(client, child_id)).start.continued == 1
        assert run.baton.decision_log == ["Chose JWT over sessions", "Round 1", "Done"]

    async def test_its_failure_fails_the_step_with_its_reason(self, client: Client, worker: Worker) -> None:
        """The parent's error has the child's reason."""
        handle = await start(worker, Parent.run, child="Raises", params={"how": "unheard of"})

        assert await failure(handle) == "child 'half' failed: UnheardOf: nobody knows me"
        run = await assert_reads_back(client, handle)
        assert [step.status for step in run.steps] == [StepStatus.DONE, StepStatus.FAILED]
        assert run.baton.decision_log == ["Chose JWT over sessions"]

    async def test_its_patch_obeys_the_parents_rules(self, client: Client, worker: Worker) -> None:
        """A patch of the pipeline's own making is rejected like any other (C-3)."""
        patch: Any = {"decision_log": None}
        handle = await start(worker, Parent.run, taken=patch)

        assert (await failure(handle)).startswith("the patch from child 'half' is rejected: decision_log: only")
        run = await assert_reads_back(client, handle)
        assert run.baton.decision_log == ["Chose JWT over sessions"]

    async def test_two_with_one_artifact_id_for_different_bytes_are_an_error(
        self, client: Client, worker: Worker
    ) -> None:
        """The second step fails and names the id (C-11)."""
        handle = await start(worker, Twins.run)

        assert "is rejected: artifacts: 'code-1' already names other bytes" in await failure(handle)
        run = await assert_reads_back(client, handle)
        assert [ref.id for ref in run.baton.artifacts] == ["code-1"]

    async def test_a_canceled_parent_cancels_it(self, client: Client, worker: Worker) -> None:
        """The child is canceled, not failed."""
        handle = await start(worker, Parent.run, child="Gated")
        await until_waiting(handle, "half")
        [(child_id, *_)] = (await read_run(client, handle.id)).children
        child = client.get_workflow_handle(child_id)
        await until(child, lambda now: True)
        await handle.cancel()

        assert "cancelled" in (await failure(handle)).lower()
        assert (await handle.describe()).status is WorkflowExecutionStatus.CANCELED
        assert (await child.describe()).status is WorkflowExecutionStatus.CANCELED


class TestChildPatch:
    @pytest.mark.parametrize("baton", [{}, {"goal": "g", "artifacts": [1]}, {"goal": "g", "decision_log": "done"}])
    def test_a_result_without_a_baton_is_rejected(self, baton: dict[str, Any]) -> None:
        """A pipeline without Baton may return anything; the step's error says what is wrong."""
        with pytest.raises(PatchError, match="its baton is not valid: "):
            child_patch(Baton(goal=GOAL), PipelineResult(task_id="t", baton=baton, steps=1))

    def test_a_decision_that_the_child_made_again_is_new(self) -> None:
        """The child's log begins with the parent's."""
        parent = Baton(goal=GOAL, decision_log=["Plan", "Failed"])
        child = {"goal": "g", "decision_log": ["Plan", "Failed", "Failed", "Passed"]}
        patch = child_patch(parent, PipelineResult(task_id="t", baton={**child}, steps=1))

        assert patch == {"decision_log": ["Failed", "Passed"]}
