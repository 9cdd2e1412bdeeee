"""Concurrent stages on the same baton, with one merged change."""

from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from baton import StepKind
from baton.client import StepStatus
from baton.core.messages import PipelineInput
from baton.testing import run_pipeline
from tests.pipelines.mishaps import FallsBack
from tests.pipelines.pipelines import Disagrees, FansOut
from tests.pipelines.stages import EXECUTED, GATES
from tests.support import GOAL, assert_reads_back, failure, names, start, until_waiting


class TestFanOut:
    async def test_patches_merge_in_the_order_of_the_stages(self, client: Client, worker: Worker) -> None:
        """Lists are united, and the decisions of all branches appended."""
        run = await run_pipeline(worker, FansOut.run, PipelineInput(goal=GOAL))

        await assert_reads_back(client, run.handle)
        assert names(run.record) == ["plan", "check+document+review", "conclude"]
        merged = run.record.baton_after(run.record.steps[1])
        assert merged.current_state == ["12 tests pass", "README written", "Reviewed after 1 decisions"]
        assert merged.decision_log == ["Chose JWT over sessions", "Tested on 3.11 only", "Approved the change"]
        assert run.result.output == {"passed": 12}

    async def test_every_branch_and_the_merge_are_entries(self, worker: Worker) -> None:
        """The history has what each branch wrote, conflicts included (S1-design-h)."""
        run = await run_pipeline(worker, FansOut.run, PipelineInput(goal=GOAL))

        entries = [entry for entry in run.record.state.entries if entry.seq == 2]
        assert [(entry.kind, entry.stage_id) for entry in entries] == [
            (StepKind.BRANCH, "check"),
            (StepKind.BRANCH, "document"),
            (StepKind.BRANCH, "review"),
            (StepKind.MERGE, "check+document+review"),
        ]
        [conflict] = entries[-1].conflicts
        assert conflict.field == "current_state"
        assert conflict.values == {
            "check": ["12 tests pass"],
            "document": ["README written"],
            "review": ["Reviewed after 1 decisions"],
        }

    async def test_the_branch_that_ends_last_does_not_win(self, client: Client, worker: Worker) -> None:
        """The merge follows the call order, whatever takes how long."""
        params: Any = {"gate": "slow", "patch": {"decision_log": ["held"]}, "answers": [{"decision_log": ["quick"]}]}
        handle = await start(worker, Disagrees.run, **params)
        await until_waiting(handle, "hold+answer")
        GATES[handle.id, "slow"].set()
        await handle.result()

        run = await assert_reads_back(client, handle)
        assert run.baton.decision_log == ["held", "quick"]

    async def test_a_failed_branch_fails_the_fan_out(self, client: Client, worker: Worker) -> None:
        """It waits for the others and applies nothing."""
        run = await run_pipeline(worker, FallsBack.run, PipelineInput(goal=GOAL))

        step = run.record.steps[1]
        assert (step.name, step.status) == ("check+fail", StepStatus.FAILED)
        assert EXECUTED[run.handle.id, "check"] == 1
        assert "Tested on 3.11 only" not in run.baton.decision_log

    async def test_values_that_do_not_merge_fail_it_with_both_names(self, client: Client, worker: Worker) -> None:
        """The pipeline does not choose between two goals."""
        params: Any = {"gate": "g", "patch": {"goal": "Add SAML"}, "answers": [{"goal": "Add passkeys"}]}
        handle = await start(worker, Disagrees.run, **params)
        GATES[handle.id, "g"].set()

        message = await failure(handle)
        assert message.startswith("the branches of 'hold+answer' cannot be merged: goal: hold, answer wrote different")
        run = await assert_reads_back(client, handle)
        assert run.baton == run.state.initial

    async def test_a_rejected_branch_is_repeated_alone(self, client: Client, worker: Worker) -> None:
        """It gets the findings; the other branch has run once (C-3)."""
        params: Any = {"gate": "g", "patch": {"acceptance": ["pytest"]}, "answers": [{"goal": None}, {}]}
        handle = await start(worker, Disagrees.run, **params)
        GATES[handle.id, "g"].set()
        await handle.result()

        run = await assert_reads_back(client, handle)
        assert run.baton.decision_log == ["was told: goal: may not be cleared; leave it out to keep it"]
        assert (EXECUTED[handle.id, "hold"], EXECUTED[handle.id, "answer"]) == (1, 2)

    async def test_the_same_stage_twice_is_an_error(self, worker: Worker) -> None:
        """Branches are identified by name."""
        handle = await start(worker, Disagrees.run, twice=True)

        assert await failure(handle) == "fan_out needs at least one stage, each once; got ['hold', 'hold']"
