"""The public test kit, used as the tests of other people's pipelines use it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.worker import Worker

from baton.client import Question, RunStatus, read_run
from baton.core.messages import PipelineInput
from baton.devserver import DevServerOptions
from baton.testing import Reply, assert_replays, connected, local_server, pipeline_worker, run_pipeline
from tests.kit.replied_pipelines import Headline, asked
from tests.pipelines.mishaps import Raises
from tests.pipelines.pipelines import Gated, Linear, Together
from tests.pipelines.stages import STAGES, plan
from tests.support import GOAL, failure, start


class TestLocalServer:
    async def test_pipelines_run_on_it(self, tmp_path: Path) -> None:
        """With the given options, here a file."""
        file = tmp_path / "runs.db"
        async with local_server(DevServerOptions(database=file, ui_port=None)) as server:
            client = await connected(server.address)
            async with pipeline_worker(client, [Raises], [plan]) as worker:
                run = await run_pipeline(worker, "Raises", PipelineInput(goal=GOAL, params={"how": "well"}))

        assert run.baton.decision_log == ["Chose JWT over sessions"]
        assert file.exists()


class TestRunPipeline:
    async def test_decisions_are_sent_for_open_approvals(self, worker: Worker) -> None:
        """A denial fails the run as in production."""
        start = PipelineInput(goal=GOAL)
        run = await run_pipeline(worker, Gated.run, start, decisions={"release manager": True, "other": False})
        assert run.record.state.entries[1].by == "tester"
        with pytest.raises(WorkflowFailureError) as raised:
            await run_pipeline(worker, Gated.run, start, decisions={"release manager": False})
        assert "'release manager' was denied by tester: a test" in str(raised.value.cause)

    async def test_it_returns_result_and_record(self, worker: Worker) -> None:
        """The pipeline's output, and its steps."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL), id="named-by-its-test")

        assert run.handle.id == run.record.workflow_id == "named-by-its-test"
        assert run.record.result == run.result
        assert run.baton.to_json_object() == run.result.baton

    async def test_a_pipeline_that_fails_raises(self, worker: Worker) -> None:
        """With a note that lists the steps."""
        with pytest.raises(WorkflowFailureError) as raised:
            await run_pipeline(worker, Raises.run, PipelineInput(goal=GOAL, params={"how": "unheard of"}), id="failing")

        assert raised.value.__notes__ == ["'failing' FAILED: UnheardOf: nobody knows me\n- step 1 'plan' (stage): done"]

    async def test_a_pipeline_that_does_not_end_times_out(self, client: Client, worker: Worker) -> None:
        """The test does not hang."""
        start = PipelineInput(goal=GOAL, params={"patches": {"never": {}}})
        with pytest.raises(WorkflowFailureError) as raised:
            await run_pipeline(worker, Together.run, start, id="endless", within=timedelta(seconds=1))

        assert raised.value.__notes__[0].startswith("'endless' TIMED_OUT: ")
        assert (await read_run(client, "endless")).status is RunStatus.TIMED_OUT

    async def test_an_undecided_approval_names_the_parameter(self, worker: Worker) -> None:
        """Such as one whose title the test misspelled."""
        with pytest.raises(WorkflowFailureError) as raised:
            await run_pipeline(
                worker, Gated.run, PipelineInput(goal=GOAL), decisions={"manager": True}, within=timedelta(seconds=2)
            )

        [last] = raised.value.__notes__[0].splitlines()[-1:]
        assert "'release manager' (approval): failed; nobody decided: pass decisions=" in last


def _form_is_shown(approval: Question) -> Reply | None:
    """Reply to the second vote only, from what is shown."""
    return Reply(True, Headline(headline=approval.shows[0].text), who=f"reader {len(approval.votes)}")


def _ann_gives_in(approval: Question) -> Reply | None:
    """Reply for ann, for bob who disagrees, for ann who takes his answer, and for cem who joins them."""
    given = {vote.who: vote.data for vote in approval.votes}
    who = "ann" if not given else "bob" if len(given) == 1 else "ann" if given["ann"] != given["bob"] else "cem"
    return Reply(True, Headline(headline="B" if given else "A"), who=who)


class TestReplies:
    """What people decide about `asked`, which asks twice for a form, two votes, or certain people."""

    @pytest.mark.parametrize(
        ("how", "replies", "told"),
        [
            ("open", True, ["tester", "tester"]),
            ("two", True, ["tester, tester 2", "tester, tester 2"]),
            ("named", True, ["ann, bob", "ann, bob"]),
            ("two", [Reply(True, who="x"), Reply(True, who="y"), True, True], ["x, y", "tester, tester 2"]),
            ("form", Reply(True, {"headline": "Faster"}, who="ann"), ["ann: Faster", "ann: Faster"]),
            ("form", [Reply(True, Headline(headline="A")), Reply(True, {"headline": "B"})], ["tester: A", "tester: B"]),
            ("forms", _form_is_shown, ["reader 0, reader 1: a draft"] * 2),
            ("three", _ann_gives_in, ["bob, ann, cem: B"] * 2),
            ("open", [False, Reply(True, why="better now")], ["denied", "tester"]),
            ("open", None, ["denied", "denied"]),
        ],
    )
    async def test_they_decide(self, client: Client, how: str, replies: Any, told: list[str]) -> None:
        """Each form of reply, for each form of approval."""
        async with pipeline_worker(client, [asked], []) as worker:
            start = PipelineInput(goal=GOAL, params={"how": how})
            run = await run_pipeline(worker, asked, start, decisions={"ed": replies}, within=timedelta(days=5))

        assert run.result.output == told

    @pytest.mark.parametrize(
        ("how", "replies", "why"),
        [
            ("form", True, "the answer does not fit: .*headline"),
            ("named", Reply(True, who="eve"), "'eve' may not decide"),
            ("two", Reply(True, who="ann"), "1 more must approve after ann, and ann counts once"),
            ("open", [True], "nobody has decided, and all replies of its list were given"),
        ],
    )
    async def test_what_does_not_decide_fails_at_once(self, client: Client, how: str, replies: Any, why: str) -> None:
        """With the run's reason; the run is terminated."""
        async with pipeline_worker(client, [asked], []) as worker:
            start = PipelineInput(goal=GOAL, params={"how": how})
            with pytest.raises(AssertionError, match=f"approval 'ed' .*{why}"):
                await run_pipeline(worker, asked, start, id=f"{how}-{id(replies)}", decisions={"ed": replies})

        assert (await read_run(client, f"{how}-{id(replies)}")).status is RunStatus.TERMINATED

    async def test_a_decision_that_comes_too_late_is_reported(self, baton_time: Any) -> None:
        """A run that skips time is at its deadline before anybody can decide; what nobody should decide is left out."""
        start = PipelineInput(goal=GOAL, params={"how": "open"})
        async with pipeline_worker(baton_time.client, [asked], []) as worker:
            with pytest.raises(AssertionError, match="approval 'ed' reached its deadline before True was sent"):
                await run_pipeline(worker, asked, start, within=timedelta(days=9), decisions={"ed": True})
            silent = await run_pipeline(worker, asked, start, within=timedelta(days=9))

        assert (silent.result.output, silent.step_names) == (["denied", "denied"], ["ed", "ed"])

    async def test_a_stage_that_the_worker_lacks_fails_at_once(self, client: Client) -> None:
        """The error names it."""
        async with pipeline_worker(client, [Linear], [plan]) as worker:
            with pytest.raises(AssertionError, match=r"lacks: .*this worker has no stage 'implement', only plan"):
                await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))


class TestPipelineWorker:
    async def test_each_worker_has_its_own_queue(self, client: Client) -> None:
        """Tests do not take each other's work."""
        async with pipeline_worker(client, [Linear], STAGES) as one, pipeline_worker(client, [Linear], STAGES) as two:
            assert one.task_queue != two.task_queue


class TestAssertReplays:
    async def test_a_handle_and_a_recorded_history_are_accepted(self, worker: Worker) -> None:
        """Also for an open run."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        recorded = WorkflowHistory.from_json("recorded", (await run.handle.fetch_history()).to_json())

        await assert_replays(run.handle, [Linear])
        await assert_replays(recorded, [Linear, Gated])

    async def test_a_failed_run_replays_as_well(self, worker: Worker) -> None:
        """The failure is part of the history."""
        handle = await start(worker, Raises.run, how="unheard of")
        await failure(handle)

        await assert_replays(handle, [Raises])

    async def test_another_pipelines_history_does_not(self, worker: Worker) -> None:
        """The message says what is missing."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        with pytest.raises(AssertionError, match="Linear"):
            await assert_replays(run.handle, [Gated])
