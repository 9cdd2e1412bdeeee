"""Back to right before a step: live and closed runs, and what becomes of the future that is left."""

from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.worker import Worker

from baton.client import RolledBackRun, RunStatus, decide, follow, fork, read_run, roll_back
from baton.core.messages import Decision, PipelineInput
from baton.errors import HistoryError, PipelineError
from baton.runs.client_fork import forked_input
from baton.runs.client_record import RunRecord
from baton.testing import run_pipeline
from baton.wire.names import DECIDE
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


async def back(client: Client, handle: Handle, to: str) -> tuple[RolledBackRun, Handle]:
    """Roll back as Bob; return what was done and a handle of the new run."""
    done = await roll_back(client, handle.id, to, by="bob", why="wrong plan")
    return done, client.get_workflow_handle(handle.id, run_id=done.run_id)


async def finished(client: Client, handle: Handle) -> RunRecord:
    """Wait for the end of a run, and read it both ways."""
    await handle.result()
    return await assert_reads_back(client, handle)


class TestForgedSignals:
    """Anybody who may write to the namespace can send the signals that tell of decisions and roll-backs."""

    async def test_what_a_run_did_not_accept_is_not_read_as_fact(self, client: Client, worker: Worker) -> None:
        """A refused decision is not shown as made; a roll-back without a reset costs nothing and is not told."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        forged = {"to": "plan", "by": "ceo", "why": "x", "from_run_id": "x", "left": {"micro_usd": 123_456_789_012}}
        for decision in (
            {"approval": "release manager", "approved": True, "who": "ceo", "digest": "sha256:other"},
            {"approval": "nobody asks this", "approved": True, "who": "ceo"},
        ):
            await handle.signal(DECIDE, decision)
        await handle.signal("rolled_back", forged)
        await handle.signal("nobody", "x")
        run = await read_run(client, handle.id)

        assert (run.notes, run.billed.micro_usd) == ([], 0)
        done, again = await back(client, handle, "plan")
        await until_waiting(again, "release manager")
        await again.signal("rolled_back", forged)
        run = await read_run(client, again.id)
        assert (len(run.notes), run.billed.micro_usd, "ceo" in run.notes[0].text) == (1, 0, False)
        now = await overview(again)
        assert (now.notes, now.billed) == (["rolled back to before 'plan' by bob: wrong plan"], None)
        assert run.notes[0].text.endswith("by bob: wrong plan")
        await approve(client, again)
        assert done.run_id == run.run_id
        await again.terminate()


class TestClosedRuns:
    @pytest.mark.parametrize(
        ("to", "executions"),
        [
            pytest.param("plan", {"plan": 2, "implement": 2, "review": 2}, id="the first step"),
            pytest.param("2", {"plan": 1, "implement": 2, "review": 2}, id="a step by its number"),
            pytest.param("review:1", {"plan": 1, "implement": 1, "review": 2}, id="a step by its name and count"),
        ],
    )
    async def test_what_came_before_the_step_is_not_executed_again(
        self, client: Client, worker: Worker, to: str, executions: dict[str, int]
    ) -> None:
        """The run goes on from there, and ends like an undisturbed one (S1-design-i)."""
        once = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        done, handle = await back(client, once.handle, to)
        again = await finished(client, handle)

        assert undated(again) == undated(once.record)
        assert {stage: EXECUTED[handle.id, stage] for stage in executions} == executions
        assert (done.from_run_id, done.run_id) == (once.handle.first_execution_run_id, handle.run_id)

    async def test_a_failed_run_goes_on(self, client: Client, worker: Worker) -> None:
        """After a denial, for example, the person may be asked again."""
        handle = await start(worker, Gated.run)
        await approve(client, handle, yes=False)
        await failure(handle)

        _, again = await back(client, handle, "release manager")
        await approve(client, again)
        run = await finished(client, again)

        assert [entry.by for entry in run.state.entries] == [None, "ann", None]
        assert EXECUTED[handle.id, "plan"] == 1

    async def test_the_new_run_tells_who_and_why(self, client: Client, worker: Worker) -> None:
        """In its history, for good."""
        once = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        _, handle = await back(client, once.handle, "review")
        await handle.result()

        run = await read_run(client, handle.id)
        assert run.notes[0].text.startswith(f"reset from run {once.handle.first_execution_run_id}: ")
        assert "rolled back to before 'review' by bob: wrong plan" in run.notes[0].text
        assert once.record.reset is None
        assert None not in (times := [once.record.ended, run.reset, run.ended])
        assert times == sorted(filter(None, times))

    async def test_who_reads_later_is_told_of_it_where_it_happened(self, client: Client, worker: Worker) -> None:
        """After what the run kept, before what was done again, with its own time."""
        once = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        _, handle = await back(client, once.handle, "review")
        await handle.result()

        news = [one for update in [each async for each in follow(client, handle.id)] for one in update.news]
        assert [one.step.name if one.step else one.kind.value for one in news] == [
            *("run_started", "plan", "implement", "note", "review", "run_ended")
        ]
        assert news[3].at == (await read_run(client, handle.id)).reset

    async def test_a_fan_out_is_gone_back_to_as_a_whole(self, client: Client, worker: Worker) -> None:
        """All its branches run again."""
        once = await run_pipeline(worker, FansOut.run, PipelineInput(goal=GOAL))
        _, handle = await back(client, once.handle, "check+document+review")
        again = await finished(client, handle)

        assert undated(again) == undated(once.record)
        assert [EXECUTED[handle.id, stage] for stage in ("plan", "check", "document", "review")] == [1, 2, 2, 2]


class TestLiveRuns:
    async def test_an_approval_of_the_future_that_is_left_does_not_count(self, client: Client, worker: Worker) -> None:
        """The gate asks again: by default the server would apply the old decision anew."""
        for decision_by in ("update", "signal"):
            handle = await start(worker, Gated.run, id=f"left-future-{decision_by}")
            await until_waiting(handle, "release manager")
            if decision_by == "update":
                await approve(client, handle)
            else:
                await handle.signal(DECIDE, await answer_to(handle))
            await handle.result()

            _, again = await back(client, handle, "plan")
            now = await until_waiting(again, "release manager")
            assert now.notes[0].startswith("rolled back to before 'plan' by bob")
            await approve(client, again)
            run = await finished(client, again)
            assert [entry.stage_id for entry in run.state.entries] == ["plan", "release manager", "conclude"]

    async def test_the_run_that_continues_it_tells_who_and_why(self, client: Client, worker: Worker) -> None:
        """Operators read the newest run; what is forked from it was not rolled back."""
        handle = await start(worker, Long.run)
        await until_waiting(handle, "release manager")
        await back(client, handle, "plan")
        newest = client.get_workflow_handle(handle.id)
        await until_waiting(newest, "release manager")
        await approve(client, newest)
        run = await finished(client, newest)

        told = "rolled back to before 'plan' by bob: wrong plan"
        assert run.start.continued == 1
        assert ([one.text for one in run.notes], (await overview(newest)).notes) == ([told], [told])
        assert "operators" not in forked_input(run, run.steps[-1], patch=None, by="bob", why="more").carried

    async def test_a_run_in_a_stage_is_ended_and_begun_anew(self, client: Client, worker: Worker) -> None:
        """What the abandoned stage returns later goes nowhere."""
        params: Any = {"patches": {"a": {"decision_log": ["a"]}, "b": {"decision_log": ["b"]}}}
        handle = await start(worker, Together.run, **params)
        await until_waiting(handle, "hold", "hold")
        _, again = await back(client, handle, "2")
        left = client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
        assert (await left.describe()).status is WorkflowExecutionStatus.TERMINATED

        GATES[handle.id, "a"].set()
        GATES[handle.id, "b"].set()
        run = await finished(client, again)
        assert sorted(run.baton.decision_log[1:3]) == ["a", "b"]
        assert EXECUTED[handle.id, "plan"] == 1

    async def test_twice_is_as_good_as_once(self, client: Client, worker: Worker) -> None:
        """A rolled-back run can be rolled back."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        for times in (2, 3):
            _, handle = await back(client, handle, "plan")
            await until_waiting(handle, "release manager")
            assert EXECUTED[handle.id, "plan"] == times
        await approve(client, handle)
        run = await finished(client, handle)
        assert names(run) == ["plan", "release manager", "conclude"]


class TestChildren:
    async def test_one_in_progress_is_stopped_and_started_anew(self, client: Client, worker: Worker) -> None:
        """The new child has an id of its own; the old one no longer works for nobody."""
        handle = await start(worker, Parent.run, child="Gated")
        await until_waiting(handle, "half")
        await event(handle, EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED)
        old = (await read_run(client, handle.id)).children[0][0]
        await until_waiting(client.get_workflow_handle(old), "release manager")

        done, again = await back(client, handle, "half")
        assert done.stopped_children == [old]
        assert (await client.get_workflow_handle(old).describe()).status is WorkflowExecutionStatus.TERMINATED
        await event(again, EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED)
        new = (await read_run(client, handle.id)).children[-1][0]
        assert new != old
        await approve(client, client.get_workflow_handle(new))
        run = await finished(client, again)
        assert names(run) == ["plan", "half", "conclude"]

    async def test_one_that_has_ended_before_the_step_is_kept(self, client: Client, worker: Worker) -> None:
        """Its outcome stays, and it is not run again."""
        once = await run_pipeline(worker, Parent.run, PipelineInput(goal=GOAL))
        done, handle = await back(client, once.handle, "conclude")
        again = await finished(client, handle)

        assert done.stopped_children == []
        assert undated(again) == undated(once.record)
        assert [child for child, *_ in again.children] == [child for child, *_ in once.record.children]

    @pytest.mark.parametrize(
        ("pipeline", "step", "to"), [(Parent, "half", "conclude"), (FansOut, "check+document+review", "conclude")]
    )
    async def test_what_has_ended_before_the_step_has_ended_when_it_did(
        self, client: Client, worker: Worker, pipeline: Any, step: str, to: str
    ) -> None:
        """The run takes it over once more, later; that is not when it ended."""
        once = await run_pipeline(worker, pipeline.run, PipelineInput(goal=GOAL))
        _, handle = await back(client, once.handle, to)
        again = await finished(client, handle)

        assert again.step(step).ended == once.record.step(step).ended


class TestContinuedRuns:
    @pytest.mark.parametrize("to", ["count:2", "review"])
    async def test_a_step_of_any_part_can_be_gone_back_to(self, client: Client, worker: Worker, to: str) -> None:
        """Also one that happened before it continued: then it goes on from that part."""
        handle = await start(worker, Long.run)
        await approve(client, handle)
        await handle.result()
        newest = client.get_workflow_handle(handle.id)
        once = await assert_reads_back(client, newest)
        assert once.start.continued == 1

        done, again = await back(client, newest, to)
        await again.result()
        run = await assert_reads_back(client, client.get_workflow_handle(handle.id))
        assert [entry["stage_id"] for entry in undated(run)[-3:]] == ["count"] * 3
        assert run.baton.decision_log[-3:] == once.baton.decision_log[-3:]
        assert EXECUTED[handle.id, "plan"] == 1
        assert EXECUTED[handle.id, "review"] == (1 if to == "count:2" else 2)
        assert done.from_run_id == once.run_id


class TestRefused:
    async def test_a_name_that_cannot_be_shown_rolls_nothing_back(self, client: Client, worker: Worker) -> None:
        """Nor does it fork: the name is in the history, and others read it."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        for does in (roll_back, fork):
            with pytest.raises(PipelineError, match="give it in one line, without control characters; found 'ann"):
                await does(client, run.handle.id, "plan", by="ann\x1b[2K", why="again")
        newest = await client.get_workflow_handle(run.handle.id).describe()
        assert newest.run_id == run.handle.result_run_id

    async def test_an_unknown_step_is_answered_with_those_there_are(self, client: Client, worker: Worker) -> None:
        """Nothing happens to the run."""
        once = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        with pytest.raises(HistoryError, match="has no step 'deploy'; its steps are: 1 plan, 2 implement, 3 review"):
            await roll_back(client, once.handle.id, "deploy", by="bob", why="?")
        assert (await read_run(client, once.handle.id)).status is RunStatus.COMPLETED

    @pytest.mark.parametrize("to", ["²", "plan:²", "0", "plan:0"])
    async def test_a_number_that_no_step_has_is_unknown(self, client: Client, worker: Worker, to: str) -> None:
        """Whatever counts as a digit somewhere."""
        once = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        with pytest.raises(HistoryError, match=f"has no step '{to}'"):
            await roll_back(client, once.handle.id, to, by="bob", why="?")

    async def test_decide_after_a_roll_back_is_bound_to_the_new_baton(self, client: Client, worker: Worker) -> None:
        """A decision made on the left run's baton is refused if the baton has become another."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        wrong = Decision(approval="release manager", approved=True, who="ann", digest="sha256:" + "0" * 64)

        _, again = await back(client, handle, "plan")
        await until_waiting(again, "release manager")
        with pytest.raises(Exception, match="look at it again"):
            await decide(client, handle.id, wrong)
        await again.terminate()
