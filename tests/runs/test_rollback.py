"""Roll-backs of open and closed runs, and what becomes of the abandoned part."""

from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.worker import Worker

from baton.client import Answer, RolledBackRun, RunStatus, decide, follow, fork, read_run, roll_back
from baton.core.messages import PipelineInput
from baton.errors import HistoryError, PipelineError
from baton.runs.client_fork import forked_input
from baton.runs.client_record import RunRecord
from baton.testing import run_pipeline
from baton.wire.names import ANSWER
from tests.pipelines.pipelines import FansOut, Gated, Linear, Long, Parent, Together
from tests.pipelines.stages import EXECUTED, GATES
from tests.support import (
    GOAL,
    Handle,
    answer_to,
    approve,
    assert_reads_back,
    event,
    failure,
    names,
    overview,
    start,
    undated,
    until_waiting,
)


async def roll_back_to(client: Client, handle: Handle, to: str) -> tuple[RolledBackRun, Handle]:
    """Roll back as Bob; return the result and a handle of the new run."""
    result = await roll_back(client, handle.id, to, by="bob", why="wrong plan")
    return result, client.get_workflow_handle(handle.id, run_id=result.run_id)


async def read_to_end(client: Client, handle: Handle) -> RunRecord:
    """Wait for the end of a run, and read it both ways."""
    await handle.result()
    return await assert_reads_back(client, handle)


class TestForgedSignals:
    """Anybody who may write to the namespace can send signals that claim decisions and roll-backs."""

    async def test_forged_signals_have_no_effect(self, client: Client, worker: Worker) -> None:
        """A refused decision is not shown as made; a roll-back without a reset costs nothing and is not noted."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        forged = {"to": "plan", "by": "ceo", "why": "x", "from_run_id": "x", "left": {"micro_usd": 123_456_789_012}}
        for decision in (
            {"approval": "release manager", "approved": True, "who": "ceo", "digest": "sha256:other"},
            {"approval": "nobody asks this", "approved": True, "who": "ceo"},
        ):
            await handle.signal(ANSWER, decision)
        await handle.signal("rolled_back", forged)
        await handle.signal("nobody", "x")
        run = await read_run(client, handle.id)

        assert (run.notes, run.billed.micro_usd) == ([], 0)
        result, rerun = await roll_back_to(client, handle, "plan")
        await until_waiting(rerun, "release manager")
        await rerun.signal("rolled_back", forged)
        run = await read_run(client, rerun.id)
        assert (len(run.notes), run.billed.micro_usd, "ceo" in run.notes[0].text) == (1, 0, False)
        status = await overview(rerun)
        assert (status.notes, status.billed) == (["rolled back to before 'plan' by bob: wrong plan"], None)
        assert run.notes[0].text.endswith("by bob: wrong plan")
        await approve(client, rerun)
        assert result.run_id == run.run_id
        await rerun.terminate()


class TestClosedRuns:
    @pytest.mark.parametrize(
        ("to", "executions"),
        [
            pytest.param("plan", {"plan": 2, "implement": 2, "review": 2}, id="the first step"),
            pytest.param("2", {"plan": 1, "implement": 2, "review": 2}, id="a step by its number"),
            pytest.param("review:1", {"plan": 1, "implement": 1, "review": 2}, id="a step by its name and count"),
        ],
    )
    async def test_earlier_steps_are_not_executed_again(
        self, client: Client, worker: Worker, to: str, executions: dict[str, int]
    ) -> None:
        """The run continues from there, and ends like an undisturbed one (S1-design-i)."""
        original = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        result, handle = await roll_back_to(client, original.handle, to)
        rerun = await read_to_end(client, handle)

        assert undated(rerun) == undated(original.record)
        assert {stage: EXECUTED[handle.id, stage] for stage in executions} == executions
        assert (result.from_run_id, result.run_id) == (original.handle.first_execution_run_id, handle.run_id)

    async def test_a_failed_run_continues(self, client: Client, worker: Worker) -> None:
        """After a denial, for example, the person may be asked again."""
        handle = await start(worker, Gated.run)
        await approve(client, handle, yes=False)
        await failure(handle)

        _, rerun = await roll_back_to(client, handle, "release manager")
        await approve(client, rerun)
        run = await read_to_end(client, rerun)

        assert [entry.by for entry in run.state.entries] == [None, "ann", None]
        assert EXECUTED[handle.id, "plan"] == 1

    async def test_the_new_run_has_a_note_of_who_and_why(self, client: Client, worker: Worker) -> None:
        """In its history, for good."""
        original = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        _, handle = await roll_back_to(client, original.handle, "review")
        await handle.result()

        run = await read_run(client, handle.id)
        assert run.notes[0].text.startswith(f"reset from run {original.handle.first_execution_run_id}: ")
        assert "rolled back to before 'review' by bob: wrong plan" in run.notes[0].text
        assert original.record.reset is None
        assert None not in (times := [original.record.ended, run.reset, run.ended])
        assert times == sorted(filter(None, times))

    async def test_a_later_follower_gets_the_note_where_it_happened(self, client: Client, worker: Worker) -> None:
        """After the kept steps, before the repeated ones, with its own time."""
        original = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        _, handle = await roll_back_to(client, original.handle, "review")
        await handle.result()

        news = [piece async for update in follow(client, handle.id) for piece in update.news]
        assert [piece.step.name if piece.step else piece.kind.value for piece in news] == [
            *("run_started", "plan", "plan", "implement", "implement", "note", "review", "review", "run_ended")
        ]
        assert news[5].at == (await read_run(client, handle.id)).reset

    async def test_a_fan_out_is_rolled_back_as_a_whole(self, client: Client, worker: Worker) -> None:
        """All its branches run again."""
        original = await run_pipeline(worker, FansOut.run, PipelineInput(goal=GOAL))
        _, handle = await roll_back_to(client, original.handle, "check+document+review")
        rerun = await read_to_end(client, handle)

        assert undated(rerun) == undated(original.record)
        assert [EXECUTED[handle.id, stage] for stage in ("plan", "check", "document", "review")] == [1, 2, 2, 2]


class TestLiveRuns:
    async def test_a_later_approval_does_not_count(self, client: Client, worker: Worker) -> None:
        """The gate asks again: by default the server would apply the old decision."""
        for decision_by in ("update", "signal"):
            handle = await start(worker, Gated.run, id=f"left-future-{decision_by}")
            await until_waiting(handle, "release manager")
            if decision_by == "update":
                await approve(client, handle)
            else:
                await handle.signal(ANSWER, await answer_to(handle))
            await handle.result()

            _, rerun = await roll_back_to(client, handle, "plan")
            status = await until_waiting(rerun, "release manager")
            assert status.notes[0].startswith("rolled back to before 'plan' by bob")
            await approve(client, rerun)
            run = await read_to_end(client, rerun)
            assert [entry.stage_id for entry in run.state.entries] == ["plan", "release manager", "conclude"]

    async def test_the_run_that_continues_as_new_has_the_note_too(self, client: Client, worker: Worker) -> None:
        """Operators read the newest run; a fork of it was not rolled back."""
        handle = await start(worker, Long.run)
        await until_waiting(handle, "release manager")
        await roll_back_to(client, handle, "plan")
        newest = client.get_workflow_handle(handle.id)
        await until_waiting(newest, "release manager")
        await approve(client, newest)
        run = await read_to_end(client, newest)

        note = "rolled back to before 'plan' by bob: wrong plan"
        assert run.start.continued >= 1  # by events, of which a busy machine has more
        assert ([entry.text for entry in run.notes], (await overview(newest)).notes) == ([note], [note])
        assert "operators" not in forked_input(run, run.steps[-1], patch=None, by="bob", why="more").carried

    async def test_a_run_in_a_stage_is_ended_and_continued(self, client: Client, worker: Worker) -> None:
        """A later result of the abandoned stage is dropped."""
        params: Any = {"patches": {"a": {"decision_log": ["a"]}, "b": {"decision_log": ["b"]}}}
        handle = await start(worker, Together.run, **params)
        await until_waiting(handle, "hold", "hold")
        _, rerun = await roll_back_to(client, handle, "2")
        abandoned = client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
        assert (await abandoned.describe()).status is WorkflowExecutionStatus.TERMINATED

        GATES[handle.id, "a"].set()
        GATES[handle.id, "b"].set()
        run = await read_to_end(client, rerun)
        assert sorted(run.baton.decision_log[1:3]) == ["a", "b"]
        assert EXECUTED[handle.id, "plan"] == 1

    async def test_a_rolled_back_run_can_be_rolled_back(self, client: Client, worker: Worker) -> None:
        """A rolled-back run can be rolled back."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        for count in (2, 3):
            _, handle = await roll_back_to(client, handle, "plan")
            await until_waiting(handle, "release manager")
            assert EXECUTED[handle.id, "plan"] == count
        await approve(client, handle)
        run = await read_to_end(client, handle)
        assert names(run) == ["plan", "release manager", "conclude"]


class TestChildren:
    async def test_a_running_child_is_stopped_and_started_again(self, client: Client, worker: Worker) -> None:
        """The new child has another id; the old one is terminated."""
        handle = await start(worker, Parent.run, child="Gated")
        await until_waiting(handle, "half")
        await event(handle, EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED)
        old = (await read_run(client, handle.id)).children[0][0]
        await until_waiting(client.get_workflow_handle(old), "release manager")

        result, rerun = await roll_back_to(client, handle, "half")
        assert result.stopped_children == [old]
        assert (await client.get_workflow_handle(old).describe()).status is WorkflowExecutionStatus.TERMINATED
        await event(rerun, EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED)
        new = (await read_run(client, handle.id)).children[-1][0]
        assert new != old
        await approve(client, client.get_workflow_handle(new))
        run = await read_to_end(client, rerun)
        assert names(run) == ["plan", "half", "conclude"]

    async def test_a_child_that_ended_before_the_step_is_kept(self, client: Client, worker: Worker) -> None:
        """Its outcome stays, and it is not run again."""
        original = await run_pipeline(worker, Parent.run, PipelineInput(goal=GOAL))
        result, handle = await roll_back_to(client, original.handle, "conclude")
        rerun = await read_to_end(client, handle)

        assert result.stopped_children == []
        assert undated(rerun) == undated(original.record)
        assert [child for child, *_ in rerun.children] == [child for child, *_ in original.record.children]

    @pytest.mark.parametrize(
        ("pipeline", "step", "to"), [(Parent, "half", "conclude"), (FansOut, "check+document+review", "conclude")]
    )
    async def test_an_earlier_step_keeps_its_end(
        self, client: Client, worker: Worker, pipeline: Any, step: str, to: str
    ) -> None:
        """The run records its outcome once more, later, which does not change its end."""
        original = await run_pipeline(worker, pipeline.run, PipelineInput(goal=GOAL))
        _, handle = await roll_back_to(client, original.handle, to)
        rerun = await read_to_end(client, handle)

        assert rerun.step(step).ended == original.record.step(step).ended


class TestContinuedRuns:
    @pytest.mark.parametrize("to", ["count:2", "review"])
    async def test_a_step_of_any_run_of_the_chain_can_be_rolled_back_to(
        self, client: Client, worker: Worker, to: str
    ) -> None:
        """Also a step of an earlier run: then that run continues."""
        handle = await start(worker, Long.run)
        await approve(client, handle)
        await handle.result()
        newest = client.get_workflow_handle(handle.id)
        original = await assert_reads_back(client, newest)
        assert original.start.continued >= 1  # by events, of which a busy machine has more

        result, rerun = await roll_back_to(client, newest, to)
        await rerun.result()
        run = await assert_reads_back(client, client.get_workflow_handle(handle.id))
        assert [entry["stage_id"] for entry in undated(run)[-3:]] == ["count"] * 3
        assert run.baton.decision_log[-3:] == original.baton.decision_log[-3:]
        assert EXECUTED[handle.id, "plan"] == 1
        assert EXECUTED[handle.id, "review"] == (1 if to == "count:2" else 2)
        assert result.from_run_id == original.run_id


class TestRefused:
    async def test_a_name_with_control_characters_is_refused(self, client: Client, worker: Worker) -> None:
        """Forks refuse it too: the name is in the history, and others read it."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        for operation in (roll_back, fork):
            with pytest.raises(PipelineError, match="give it in one line, without control characters; found 'ann"):
                await operation(client, run.handle.id, "plan", by="ann\x1b[2K", why="again")
        newest = await client.get_workflow_handle(run.handle.id).describe()
        assert newest.run_id == run.handle.result_run_id

    async def test_an_unknown_step_is_answered_with_the_list_of_steps(self, client: Client, worker: Worker) -> None:
        """Nothing happens to the run."""
        original = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        with pytest.raises(HistoryError, match="has no step 'deploy'; its steps are: 1 plan, 2 implement, 3 review"):
            await roll_back(client, original.handle.id, "deploy", by="bob", why="?")
        assert (await read_run(client, original.handle.id)).status is RunStatus.COMPLETED

    @pytest.mark.parametrize("to", ["²", "plan:²", "0", "plan:0"])
    async def test_a_number_that_no_step_has_is_unknown(self, client: Client, worker: Worker, to: str) -> None:
        """Whatever Unicode counts as a digit."""
        original = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        with pytest.raises(HistoryError, match=f"has no step '{to}'"):
            await roll_back(client, original.handle.id, to, by="bob", why="?")

    async def test_decide_after_a_roll_back_is_bound_to_the_new_baton(self, client: Client, worker: Worker) -> None:
        """A decision on the abandoned run's baton is refused if the baton has changed."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        stale = Answer(question="release manager", choice="approve", who="ann", digest="sha256:" + "0" * 64)

        _, rerun = await roll_back_to(client, handle, "plan")
        await until_waiting(rerun, "release manager")
        with pytest.raises(Exception, match="look at it again"):
            await decide(client, handle.id, stale)
        await rerun.terminate()
