"""A person decides: by update or signal, on the baton shown, in time, and once."""

import asyncio
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from baton import Settled, StepKind
from baton.client import Answer, decide, read_run, roll_back
from baton.core.messages import PipelineInput
from baton.core.people import MAX_REASON_LENGTH
from baton.errors import PipelineError
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from baton.wire.names import ANSWER
from tests.pipelines.mishaps import AsksTwice, Rounds, Titled
from tests.pipelines.pipelines import PIPELINES, AsksWhileWorking, Gated
from tests.pipelines.stages import EXECUTED, GATES, STAGES
from tests.support import (
    GOAL,
    LIMIT,
    answer_to,
    approve,
    assert_reads_back,
    event,
    failure,
    start,
    until,
    until_waiting,
)

YES = Answer(question="release manager", choice="approve", who="ann", why="it is tested")


class TestDecide:
    async def test_a_yes_continues_the_pipeline(self, client: Client, worker: Worker) -> None:
        """Who, when, why and on which baton is in the history and the result."""
        handle = await start(worker, Gated.run)
        waiting = await until_waiting(handle, "release manager")
        decided = await approve(client, handle)
        result = await handle.result()

        run = await assert_reads_back(client, handle)
        entry = run.state.entries[1]
        assert (entry.kind, entry.by, entry.why, entry.patch) == (StepKind.APPROVAL, "ann", "it is tested", {})
        assert entry.timestamp == decided.at
        assert decided.digest == waiting.questions[0].digest
        assert result.output == decided.model_dump(mode="json")

    async def test_a_no_fails_the_run_with_who_and_why(self, client: Client, worker: Worker) -> None:
        """The next stage is never executed."""
        handle = await start(worker, Gated.run)
        await approve(client, handle, yes=False)

        assert await failure(handle) == "'release manager' was denied by ann: it is tested"
        assert EXECUTED[handle.id, "conclude"] == 0
        run = await assert_reads_back(client, handle)
        assert run.step("release manager").approved is False

    async def test_a_signal_decides_as_well(self, client: Client, worker: Worker) -> None:
        """For senders that cannot wait for a reply."""
        handle = await start(worker, Gated.run)
        await handle.signal(ANSWER, await answer_to(handle))
        result = await handle.result()

        assert result.output["via"] == "signal"
        await assert_reads_back(client, handle)

    async def test_a_repeated_decision_gets_the_first_reply(self, client: Client, worker: Worker) -> None:
        """A client that lost the reply may ask again, also after the pipeline has continued."""
        handle = await start(worker, AsksWhileWorking.run, gate="g", patch={})
        await until_waiting(handle, "hold", "security", "legal")
        yes = await answer_to(handle, "security")
        first, second = [await decide(client, handle.id, yes) for _ in range(2)]
        assert second == first

        for other in (yes.model_copy(update={"choice": "deny"}), yes.model_copy(update={"who": "bob"})):
            with pytest.raises(PipelineError, match=f"question {yes.question} was answered: 'security' was approved"):
                await decide(client, handle.id, other)
        by_title = Answer(question="security", choice="approve", who="ann")
        assert await decide(client, handle.id, by_title) == first
        with pytest.raises(PipelineError, match="'security' was approved by ann at "):
            await decide(client, handle.id, by_title.model_copy(update={"choice": "deny"}))
        await handle.terminate()

    async def test_a_decision_counts_for_its_own_question(self, client: Client, worker: Worker) -> None:
        """Sent again it approves no later question under the same title, also where the baton is the same.

        Neither by signal nor by update, with the same update id or another one, in a run that continued as new or was
        rolled back; who sends it again is given the answer to the question that it was about.
        """
        handle = await start(worker, Rounds.run, rounds=4, events=12)
        newest = client.get_workflow_handle(handle.id)
        earlier: list[Answer] = []
        for number in range(4):
            now = await answer_to(newest, "go on")
            assert now.question not in {answer.question for answer in earlier}
            for place, decision in enumerate(earlier):
                first = await newest.execute_update(ANSWER, decision, id=f"round {place}", result_type=Settled)
                assert first.question == decision.question
                await newest.signal(ANSWER, decision)
                denied = decision.model_copy(update={"choice": "deny"})
                with pytest.raises(WorkflowUpdateFailedError):
                    await newest.execute_update(ANSWER, denied)
                await newest.signal(ANSWER, denied)
            assert (await answer_to(newest, "go on")).question == now.question
            if number == 2:
                await roll_back(client, handle.id, "5", by="bob", why="wrong plan")
                newest = client.get_workflow_handle(handle.id)
                with pytest.raises(PipelineError, match=f"question '{now.question}' is not open"):
                    await decide(client, handle.id, now)
                now = await answer_to(newest, "go on")
            await newest.execute_update(ANSWER, now, id=f"round {number}", result_type=Settled)
            earlier.append(now)
        assert (await newest.result())["output"] == [answer.question for answer in earlier]
        assert (await newest.describe()).run_id != handle.first_execution_run_id

    async def test_a_repeated_signal_counts_once(self, client: Client, worker: Worker) -> None:
        """The second one changes neither the history nor the result."""
        handle = await start(worker, AsksWhileWorking.run, gate="g", patch={})
        await until_waiting(handle, "hold", "security", "legal")
        yes = await answer_to(handle, "security")
        for _ in range(2):
            await handle.signal(ANSWER, yes)
        await until_waiting(handle, "hold", "legal")
        await approve(client, handle, "legal")
        GATES[handle.id, "g"].set()
        await handle.result()

        run = await assert_reads_back(client, handle)
        assert sorted(entry.stage_id for entry in run.state.entries) == ["hold", "legal", "security"]

    async def test_a_decision_on_a_changed_baton_is_rejected(self, client: Client, worker: Worker) -> None:
        """It is bound to what was shown; for a signal, the rejection becomes a note."""
        handle = await start(worker, AsksWhileWorking.run, gate="g", patch={"constraints": ["No cost"]})
        await until_waiting(handle, "hold", "security", "legal")
        late = await answer_to(handle, "security")
        GATES[handle.id, "g"].set()
        await until_waiting(handle, "security", "legal")

        with pytest.raises(PipelineError, match=f"made on {(late.digest or '')[:19]}…, but sha256:"):
            await decide(client, handle.id, late)
        await handle.signal(ANSWER, late)
        notes = (await until(handle, lambda now: bool(now.notes))).notes
        assert notes[0].startswith("refused a decision of ann: the decision was made on sha256:")
        await approve(client, handle, "security")
        await approve(client, handle, "legal")
        await handle.result()
        await assert_reads_back(client, handle)

    async def test_a_decision_on_an_unknown_title_lists_the_open_ones(self, client: Client, worker: Worker) -> None:
        """A mistyped title is not lost."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")

        with pytest.raises(PipelineError, match=r"question 'manager' is not open; open now: 'release manager' \("):
            await decide(client, handle.id, Answer(question="manager", choice="approve", who="ann"))
        await handle.terminate()

    async def test_two_open_approvals_need_two_titles(self, worker: Worker) -> None:
        """Otherwise a decision would be ambiguous."""
        handle = await start(worker, AsksTwice.run)

        assert (await failure(handle)).startswith("an approval 'release manager' is already open")

    @pytest.mark.parametrize("title", ['May "it" go?', "C:\\release", "two\nlines", "Freigabe für März", "x" * 160])
    async def test_a_title_is_read_verbatim(self, client: Client, worker: Worker, title: str) -> None:
        """Also while it is open and the history has it only in a timer's summary."""
        handle = await start(worker, Titled.run, title=title)
        await until_waiting(handle, title)
        await event(handle, EventType.EVENT_TYPE_TIMER_STARTED)
        assert [step.name for step in (await read_run(client, handle.id)).steps] == [title]

        await approve(client, handle, title)
        await handle.result()
        await assert_reads_back(client, handle)

    @pytest.mark.parametrize("title", ["", "x" * 201, "x" * 3_000])
    async def test_a_title_that_no_decision_could_name_fails_the_run(self, worker: Worker, title: str) -> None:
        """At once, and not at the deadline."""
        handle = await start(worker, Titled.run, title=title)

        assert "approval needs a name of 1 to 200 characters" in await failure(handle)


class TestWhen:
    async def test_a_signal_with_the_start_is_too_early(self, client: Client, worker: Worker) -> None:
        """Nobody can have seen the baton yet; it becomes a note."""
        handle = await client.start_workflow(
            Gated.run,
            PipelineInput(goal=GOAL),
            id="decided-with-start",
            task_queue=worker.task_queue,
            execution_timeout=LIMIT,
            start_signal=ANSWER,
            start_signal_args=[YES],
        )
        noted = await until(handle, lambda now: bool(now.notes))

        assert noted.notes[0].startswith("refused a decision of ann: ")
        await approve(client, handle)
        await handle.result()
        await assert_reads_back(client, handle)

    async def test_a_decision_after_the_end_is_rejected_by_the_server(self, client: Client, worker: Worker) -> None:
        """A closed run cannot change."""
        handle = await start(worker, Gated.run)
        await approve(client, handle)
        await handle.result()

        for sending in (handle.signal(ANSWER, YES), decide(client, handle.id, YES)):
            with pytest.raises(RPCError) as refused:
                await sending
            assert refused.value.status is RPCStatusCode.NOT_FOUND

    async def test_the_deadline_denies(self, client: Client, worker: Worker) -> None:
        """Unless the pipeline declares another default."""
        handle = await start(worker, Gated.run, seconds=0.05)

        message = await failure(handle)
        assert message == "'release manager' was denied by deadline: no decision within 0:00:00.050000"
        run = await assert_reads_back(client, handle)
        assert run.state.entries[-1].by == "deadline"

    async def test_the_deadline_may_approve(self, client: Client, worker: Worker) -> None:
        """If the pipeline declares it."""
        handle = await start(worker, Gated.run, seconds=0.05, default=True)

        result = await handle.result()
        assert (result.output["choice"], result.output["via"]) == ("approve", "deadline")
        await assert_reads_back(client, handle)

    async def test_the_wait_needs_no_worker(self, client: Client) -> None:
        """It is a timer of the server; any worker continues the run."""
        async with pipeline_worker(client, PIPELINES, STAGES) as first:
            handle = await start(first, Gated.run)
            yes = await answer_to(handle)
        await handle.signal(ANSWER, yes)
        async with pipeline_worker(client, PIPELINES, STAGES, task_queue=first.task_queue):
            await handle.result()
            await assert_reads_back(client, handle)

    async def test_a_deadline_that_passes_without_a_worker_counts(self, client: Client) -> None:
        """Time passes on the server."""
        async with pipeline_worker(client, PIPELINES, STAGES) as first:
            handle = await start(first, Gated.run, seconds=2)
            await until_waiting(handle, "release manager")
        await event(handle, EventType.EVENT_TYPE_TIMER_FIRED)
        async with pipeline_worker(client, PIPELINES, STAGES, task_queue=first.task_queue):
            assert "denied by deadline" in await failure(handle)
            await assert_reads_back(client, handle)

    async def test_a_signal_and_an_update_are_judged_in_a_replayable_order(self, client: Client) -> None:
        """Two tasks without a command precede one that an update began, and a replay merges them."""
        async with pipeline_worker(client, PIPELINES, STAGES) as first:
            handle = await start(first, AsksWhileWorking.run, gate="g", patch={"constraints": ["No cost"]})
            await until_waiting(handle, "hold", "security", "legal")
            await handle.signal(ANSWER, "not a decision")
            await until(handle, lambda now: bool(now.notes))
            GATES[handle.id, "g"].set()
            await until_waiting(handle, "security", "legal")
            security, legal = [await answer_to(handle, title) for title in ("security", "legal")]
        update = asyncio.create_task(decide(client, handle.id, legal))
        await asyncio.sleep(1)  # the server has the update; nothing tells of it
        await handle.signal(ANSWER, security)
        async with pipeline_worker(client, PIPELINES, STAGES, task_queue=first.task_queue):
            await update
            await handle.result()
        await assert_replays(handle, PIPELINES)


class TestReasons:
    """Reasons that are too long: a run that fails with one would repeat it for ever."""

    @pytest.mark.parametrize("by_signal", [False, True])
    async def test_a_reason_that_is_too_long_is_rejected(self, client: Client, worker: Worker, by_signal: bool) -> None:
        """The sender of an update gets the error, for a signal it becomes a note; the approval stays open."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        no = Answer(question="release manager", choice="deny", who="ann", why="x" * (MAX_REASON_LENGTH + 1))

        if by_signal:
            await handle.signal(ANSWER, no)
            await until(handle, lambda now: any("10,000 is the most" in note for note in now.notes))
        else:
            with pytest.raises(PipelineError, match="10,000 is the most"):
                await decide(client, handle.id, no)
        await approve(client, handle)
        await handle.result()
        await assert_reads_back(client, handle)


class TestNames:
    """Names that would control a terminal or imitate another name or line."""

    @pytest.mark.parametrize(
        "who", ["ann\x1b[2K\rbob", "ann\napproved by bob", "\x9b2Kbob", "nna\u202e", " "], ids=ascii
    )
    @pytest.mark.parametrize("by_signal", [False, True])
    async def test_such_names_are_rejected(self, client: Client, worker: Worker, who: str, by_signal: bool) -> None:
        """With an escaped name, as an error for an update and a note for a signal; the approval stays open."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        no = Answer(question="release manager", choice="deny", who=who, why="no")

        reason = "a person's name is recorded: give"
        if by_signal:
            await handle.signal(ANSWER, no)
            now = await until(handle, lambda now: any(reason in note for note in now.notes))
            assert [note.endswith(f"; found {who!a}") for note in now.notes] == [True]
        else:
            with pytest.raises(PipelineError, match=reason):
                await decide(client, handle.id, no)
        await approve(client, handle)
        assert (await handle.result()).output["who"] == "ann"
        await assert_reads_back(client, handle)
        await assert_replays(handle, [Gated], plugin=BatonPlugin())

    @pytest.mark.parametrize("who", ["Zo\u0308e O'Neil", "\u0633\u200c\u0645", "\U0001f469\u200d\U0001f52c"], ids=ascii)
    async def test_names_of_every_script_are_accepted(self, client: Client, worker: Worker, who: str) -> None:
        """With joiners, which words and emojis need."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        yes = Answer(question="release manager", choice="approve", who=who, why="it is tested")

        assert (await decide(client, handle.id, yes)).who == who
        await handle.result()


GARBAGE: list[Any] = ["yes", 17, None, [], {}, {"choice": "approve"}, {**YES.model_dump(), "sure": True}]


class TestGarbage:
    async def test_null_is_rejected_with_a_reason(self, worker: Worker) -> None:
        """The SDK accepts null for any type."""
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")

        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(ANSWER, None)
        assert str(refused.value.cause).startswith("AnswerRefused: this update takes one answer")
        await handle.terminate()
