"""The attempts of stages, the branches of steps, and the times of steps between pipelines."""

import pytest
from temporalio.client import WorkflowHistory

from baton.client import RunRecord, Step, StepStatus, rebuild
from baton.client.faces import Branch, find_branches
from baton.codec.conversion import data_converter
from tests.replay.record import HISTORIES


async def recorded(name: str) -> RunRecord:
    """Return a recorded run."""
    history = WorkflowHistory.from_json(name, (HISTORIES / f"{name}.json").read_text(encoding="utf-8"))
    return await rebuild(name, history.run_id, history.events, data_converter())


def branches_of(run: RunRecord, step: Step) -> list[Branch]:
    """Return the branches of a step."""
    return find_branches(run).get(step.seq, [])


class TestBranches:
    """Each branch of a fan-out and each item of a map is read by itself."""

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            pytest.param("fan-out", {"check": "done", "document": "done", "review": "done"}, id="a fan-out"),
            pytest.param("mapped", {"digest 1": "done", "digest 2": "failed", "digest 3": "done"}, id="a map"),
        ],
    )
    async def test_each_has_its_status_and_its_times_within_the_step(self, name: str, expected: dict[str, str]) -> None:
        """In the order in which they were sent; an item that failed says why."""
        run = await recorded(name)
        [step] = [step for step in run.steps if step.kind.value == "merge"]
        branches = branches_of(run, step)

        assert {branch.title: branch.status.value for branch in branches} == expected
        assert step.began is not None
        assert step.ended is not None
        assert step.began == min(branch.began for branch in branches)
        assert step.ended >= max(branch.ended for branch in branches if branch.ended)
        assert [bool(branch.failure) for branch in branches] == [status == "failed" for status in expected.values()]
        for attempt in (attempt for branch in branches for attempt in branch.attempts):
            assert attempt.began is not None
            assert attempt.ended is not None
            assert attempt.scheduled <= attempt.began <= attempt.ended

    async def test_a_stage_is_the_branch_of_its_step_and_refused_attempts_are_its_own(self) -> None:
        """The attempt that a receiver refused, and the one that followed."""
        run = await recorded("handoffs-corrected")
        [branch] = [branch for branch in branches_of(run, run.step("scoped")) if branch.title == "scoped"]
        refused, accepted = branch.attempts

        assert branch.status is StepStatus.DONE
        assert refused.findings
        assert not accepted.findings
        assert branch.spend == refused.spend + accepted.spend

    async def test_the_branches_cost_what_the_run_was_billed(self) -> None:
        """Failed attempts included."""
        for name in ("fan-out", "mapped", "handoffs-requeued", "handoffs-topped-up"):
            run = await recorded(name)
            spent = sum(branch.spend.micro_usd for own in find_branches(run).values() for branch in own)
            assert (name, spent) == (name, run.billed.micro_usd)


class TestBetweenPipelines:
    """A step that waits for another pipeline takes the time of its wait."""

    @pytest.mark.parametrize(
        "name", ["handed-off", "asked", "broadcast", "outside", "received", "streamed", "streamed-to"]
    )
    async def test_it_began_when_the_wait_began(self, name: str) -> None:
        """A handoff, a broadcast, an agent outside, a stream, and the step that receives one."""
        run = await recorded(name)
        [step] = [step for step in run.steps if step.name.startswith(("hand off to ", "stream to ", "receive as "))]

        assert step.began is not None
        assert step.ended is not None
        assert run.began is not None
        assert run.began < step.began < step.ended
