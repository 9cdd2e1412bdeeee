"""Operations: what a person was shown is done, or nothing is, and the refusal names what has changed."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError
from temporalio.worker import Worker

from baton import (
    Baton,
    BatonError,
    Budget,
    ContinueAfter,
    OnExhaustion,
    OutdatedError,
    Pipeline,
    PipelineError,
    PipelineInput,
    PipelineStatus,
    pipeline,
    stage,
)
from baton.client import (
    Answer,
    Cancel,
    Decide,
    Fork,
    HandoffAction,
    RollBack,
    RunStatus,
    Start,
    decide,
    read_run,
)
from baton.devserver import DevServer
from baton.testing import pipeline_worker
from tests.acceptance.operating import Operator
from tests.handoff.question_pipelines import asks_about_a_handoff
from tests.support import GOAL, Handle, approve, names, start, until_waiting
from tests.support import until as overview_until

DAY = timedelta(days=1)


@stage
async def plan(given: Baton) -> dict[str, Any]:
    """Plan."""
    return {"current_state": ["planned"]}


@stage
async def pay(given: Baton) -> dict[str, Any]:
    """Pay."""
    return {"current_state": ["paid"]}


@pipeline
async def part(p: Pipeline) -> object:
    """Wait for somebody."""
    await p.approve("part", within=DAY)
    return None


@pipeline
async def order(p: Pipeline) -> object:
    """Plan, ask, pay, ask again; with `again`, plan again before; with `child`, the second question is a child's."""
    await p.stage(plan)
    await p.approve("manager", within=DAY)
    await p.stage(pay)
    if p.params.get("again"):
        await p.stage(plan)
    if p.params.get("child"):
        await p.child(part, "A part", name="part")
    elif not p.params.get("short"):
        await p.approve("clerk", within=DAY)
    return None


@stage(reserve_micro_usd=2)
async def dear(given: Baton) -> dict[str, Any]:
    """Work that the budget does not pay."""
    return {"current_state": ["worked"]}


@pipeline(continue_after=ContinueAfter(events=5))
async def goes_on(p: Pipeline) -> object:
    """Work, continue as new, ask."""
    await p.stage(dear)
    await p.sleep(timedelta(seconds=1.5))
    await p.stage(plan)
    await p.approve("clerk", within=DAY)
    return None


@pytest.fixture
async def worker(client: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(client, [order, part, asks_about_a_handoff], [plan, pay]) as running:
        yield running


async def ordered(worker: Worker, **params: Any) -> Handle:
    """Start an order, and return it once it asks its manager."""
    handle: Handle = await worker.client.start_workflow(
        order, PipelineInput(goal=GOAL, params=params), id=f"order-{uuid4()}", task_queue=worker.task_queue
    )
    await until_waiting(handle, "manager")
    return handle


async def holding(worker: Worker) -> Handle:
    """Start a run, and return it once a handoff waits."""
    handle = await start(worker, asks_about_a_handoff)
    await overview_until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
    return handle


async def newest_run(handle: Handle, client: Client) -> str | None:
    return (await client.get_workflow_handle(handle.id).describe()).run_id


class TestStart:
    async def test_does_what_was_shown(self, client: Client, worker: Worker) -> None:
        """Once: the id is then taken, also when the run has ended, unless that is allowed."""
        operation = Start(client, "order", PipelineInput(goal=GOAL), f"order-{uuid4()}", worker.task_queue)
        shown = await operation.preview()

        handle = await operation.commit(shown.mark, by="bob", why="a customer asked")

        await until_waiting(handle, "manager")
        with pytest.raises(WorkflowAlreadyStartedError):
            await operation.commit(shown.mark, by="bob")
        await handle.terminate()
        with pytest.raises(WorkflowAlreadyStartedError):
            await operation.commit(by="bob")
        assert await newest_run(handle, client) == handle.first_execution_run_id
        allowed = replace(operation, again=True)
        assert (await allowed.preview()).has_worker
        again = await allowed.commit(by="bob")
        assert await newest_run(handle, client) == again.first_execution_run_id != handle.first_execution_run_id
        await again.terminate()

    async def test_does_nothing_if_a_run_had_the_id_meanwhile(self, client: Client, worker: Worker) -> None:
        """A colleague started it, and it has ended: it is not started twice."""
        operation = Start(client, "order", PipelineInput(goal=GOAL), f"order-{uuid4()}", "nobody's", again=True)
        shown = await operation.preview()
        handle = await operation.commit(by="carol")
        await handle.terminate()

        with pytest.raises(OutdatedError, match="nothing was started: a run with this id has started"):
            await operation.commit(shown.mark, by="bob")

        assert "No worker polls" in shown.facts[-1].text
        assert await newest_run(handle, client) == handle.first_execution_run_id

    async def test_says_who_started_it(self, client: Client) -> None:
        """In the server's words about the run, as its UI shows them."""
        handle = await Start(client, "order", PipelineInput(goal=GOAL), f"order-{uuid4()}", "nobody's").commit(by="bob")
        assert await (await handle.describe()).static_summary() == "started by bob"
        await handle.terminate()


class TestRollBack:
    async def test_does_what_was_shown(self, client: Client, worker: Worker) -> None:
        """The preview names what is undone; its mark holds while nothing changes."""
        handle = await ordered(worker)
        await approve(client, handle, "manager")
        await until_waiting(handle, "clerk")
        operation = RollBack(client, handle.id, "plan")
        shown = await operation.preview()

        result = await operation.commit(shown.mark, by="bob", why="wrong plan")

        assert [fact.text for fact in shown.facts if fact.is_loss] == [
            "Approval 'manager' (approved) is undone, and asked for again."
        ]
        assert await newest_run(handle, client) == result.run_id != result.from_run_id
        await client.get_workflow_handle(handle.id).terminate()

    @pytest.mark.parametrize(
        ("params", "change"),
        [
            ({"short": True}, "the run is COMPLETED now; also 3 pay would run again; decided meanwhile: 2 manager"),
            ({}, "also 3 pay, 4 clerk would run again; decided meanwhile: 2 manager"),
            ({"child": True}, "also 3 pay, 4 part would run again; decided meanwhile: 2 manager; also the child "),
        ],
    )
    async def test_does_nothing_if_the_run_has_moved_on(
        self, client: Client, worker: Worker, params: dict[str, bool], change: str
    ) -> None:
        """A colleague approves while the other reads; what was paid meanwhile is not paid again."""
        handle = await ordered(worker, **params)
        operation = RollBack(client, handle.id, "plan")
        shown = await operation.preview()
        await approve(client, handle, "manager")
        if params.get("short"):
            await handle.result()
        else:
            await until(handle, client, 4, child=bool(params))

        with pytest.raises(OutdatedError) as refused:
            await operation.commit(shown.mark, by="bob", why="wrong plan")

        assert f"so nothing was rolled back: {change}" in str(refused.value)
        assert await newest_run(handle, client) == handle.first_execution_run_id
        now: Any = refused.value.preview
        again = await operation.commit(now.mark, by="bob", why="wrong plan")
        assert again.from_run_id == handle.first_execution_run_id
        await client.get_workflow_handle(handle.id).terminate()

    async def test_two_people_roll_back_once(self, client: Client, worker: Worker) -> None:
        """The second learns who was first."""
        handle = await ordered(worker)
        operation = RollBack(client, handle.id, "plan")
        shown = await operation.preview()
        first = await operation.commit(shown.mark, by="carol", why="quicker")
        await until_waiting(client.get_workflow_handle(handle.id), "manager")

        with pytest.raises(OutdatedError, match=r"the run continues as another run .*by carol: quicker"):
            await operation.commit(shown.mark, by="bob", why="wrong plan")

        assert await newest_run(handle, client) == first.run_id
        await client.get_workflow_handle(handle.id).terminate()

    async def test_workers_do_not_matter(self, client: Client) -> None:
        """A mark is about the history: it holds when the worker has left, and for its successor."""
        queue = f"restarted-{uuid4()}"
        async with pipeline_worker(client, [order, part], [plan, pay], task_queue=queue) as worker:
            handle = await ordered(worker)
            operation = RollBack(client, handle.id, "plan")
            shown = await operation.preview()
        assert (await operation.preview()).mark == shown.mark
        first = await operation.commit(shown.mark, by="bob", why="wrong plan")
        with pytest.raises(OutdatedError, match=r"nothing was rolled back: .* has no step 'plan'"):
            await operation.commit(shown.mark, by="bob", why="wrong plan")
        async with pipeline_worker(client, [order, part], [plan, pay], task_queue=queue):
            await until_waiting(client.get_workflow_handle(handle.id), "manager")
        assert await newest_run(handle, client) == first.run_id
        await client.get_workflow_handle(handle.id).terminate()

    @pytest.mark.parametrize("mark", ["", "old", "[]", "{}", '{"steps": "x"}', "[" * 100_000])
    async def test_a_mark_of_something_else_does_nothing(self, client: Client, worker: Worker, mark: str) -> None:
        """However it is made."""
        handle = await ordered(worker)
        with pytest.raises(OutdatedError, match="nothing was rolled back: what was shown is unknown"):
            await RollBack(client, handle.id, "plan").commit(mark, by="bob", why="wrong plan")
        assert await newest_run(handle, client) == handle.first_execution_run_id
        await handle.terminate()


class TestFork:
    async def test_does_what_was_shown(self, client: Client, worker: Worker) -> None:
        """What goes on after the step does not matter: the old run stays, and so does what is reused."""
        handle = await ordered(worker)
        operation = Fork(client, handle.id, "manager")
        shown = await operation.preview()
        await approve(client, handle, "manager")
        await until_waiting(handle, "clerk")

        forked = await operation.commit(shown.mark, by="bob", why="another manager")

        assert "1 step before it is reused, not executed again: plan." in [fact.text for fact in shown.facts]
        await until_waiting(forked, "manager")
        await forked.terminate()
        await handle.terminate()

    async def test_does_nothing_if_the_run_was_rolled_back(self, client: Client, worker: Worker) -> None:
        """What was taken over before may be another now."""
        handle = await ordered(worker)
        operation = Fork(client, handle.id, "manager", new_id=f"{handle.id}-other")
        shown = await operation.preview()
        await RollBack(client, handle.id, "plan").commit(by="carol", why="wrong plan")
        await until_waiting(client.get_workflow_handle(handle.id), "manager")

        with pytest.raises(OutdatedError, match=r"nothing was forked: the run continues as another run .*by carol"):
            await operation.commit(shown.mark, by="bob", why="another manager")

        with pytest.raises(RPCError, match="not found"):
            await client.get_workflow_handle(f"{handle.id}-other").describe()
        await client.get_workflow_handle(handle.id).terminate()

    async def test_does_nothing_if_the_name_means_another_step(self, client: Client, worker: Worker) -> None:
        """A stage may run again while the person reads."""
        handle = await ordered(worker, again=True)
        operation = Fork(client, handle.id, "plan")
        shown = await operation.preview()
        await approve(client, handle, "manager")
        await until_waiting(handle, "clerk")

        with pytest.raises(OutdatedError, match="nothing was forked: 'plan' is step 4 now"):
            await operation.commit(shown.mark, by="bob", why="another plan")
        await handle.terminate()


class TestCancel:
    async def test_asks_the_run_that_was_shown(self, client: Client, worker: Worker) -> None:
        """However far it has come meanwhile."""
        handle = await ordered(worker)
        operation = Cancel(client, handle.id)
        shown = await operation.preview()
        await approve(client, handle, "manager")
        await until_waiting(handle, "clerk")

        run_id = await operation.commit(shown.mark, by="bob", why="not needed")

        assert run_id == handle.first_execution_run_id
        with pytest.raises(WorkflowFailureError, match="Workflow execution failed"):
            await handle.result()
        with pytest.raises(PipelineError, match="cannot be canceled: it is CANCELED"):
            await operation.commit(shown.mark, by="bob", why="not needed")

    async def test_spares_the_run_that_a_colleague_repaired(self, client: Client, worker: Worker) -> None:
        """Nobody was shown the new run."""
        handle = await ordered(worker)
        operation = Cancel(client, handle.id)
        shown = await operation.preview()
        await RollBack(client, handle.id, "plan").commit(by="carol", why="wrong plan")

        with pytest.raises(OutdatedError, match=r"nothing was canceled: the run continues as another run .*by carol"):
            await operation.commit(shown.mark, by="bob", why="not needed")

        newest = client.get_workflow_handle(handle.id)
        await until_waiting(newest, "manager")
        await newest.terminate()


class TestDecide:
    async def test_does_what_was_shown_once(self, client: Client, worker: Worker) -> None:
        """Sent again, after the run has gone on, it gets the first answer."""
        handle = await ordered(worker)
        operation = Decide(client, handle.id, "approve")
        shown = await operation.preview()
        operation = operation.pinned_to(shown)

        first = await operation.commit(shown.mark, by="ann", why="cheap")

        assert (first and (first.title, first.choice, first.who, first.missing)) == ("manager", "approve", "ann", 0)
        await until_waiting(handle, "clerk")
        assert await operation.commit(shown.mark, by="Ann", why="cheap") == first
        await handle.terminate()

    @pytest.mark.parametrize("choice", ["approve", "deny"])
    @pytest.mark.parametrize("ended", [True, False])
    async def test_the_second_learns_whose_decision_counts(
        self, client: Client, worker: Worker, *, choice: str, ended: bool
    ) -> None:
        """Also if both say yes, and however far the run has come."""
        handle = await ordered(worker, short=ended)
        shown = await Decide(client, handle.id, choice, "manager").preview()
        await approve(client, handle, "manager")
        if ended:
            await handle.result()

        for operation in (
            Decide(client, handle.id, choice).pinned_to(shown),
            *([] if ended else [Decide(client, handle.id, choice, "manager")]),
        ):
            with pytest.raises(PipelineError, match="'manager' was approved by ann at"):
                await operation.commit(shown.mark, by="bob", why="cheap")

        if not ended:
            await handle.terminate()

    async def test_does_nothing_if_it_asks_something_else(self, client: Client, worker: Worker) -> None:
        """The run was rolled back, and asks under the same title."""
        handle = await ordered(worker)
        operation = Decide(client, handle.id, "approve", "manager")
        shown = await operation.preview()
        await RollBack(client, handle.id, "plan").commit(by="carol", why="wrong plan")
        newest = client.get_workflow_handle(handle.id)
        await until_waiting(newest, "manager")

        with pytest.raises(OutdatedError, match="so nothing was decided: it asks something else now"):
            await operation.commit(shown.mark, by="bob", why="cheap")
        with pytest.raises(PipelineError, match=r"was withdrawn: .* open: 'manager'"):
            await operation.pinned_to(shown).commit(shown.mark, by="bob", why="cheap")
        await newest.terminate()

    async def test_a_worker_that_is_busy_takes_it_up_later(self, client: Client) -> None:
        """It became so while the person read; of two people whose decisions it finds, the first one's counts."""
        queue = f"busy-{uuid4()}"
        async with pipeline_worker(client, [order, part], [plan, pay], task_queue=queue) as worker:
            handle = await ordered(worker, short=True)
            anns, bobs = Decide(client, handle.id, "approve", within=0.5), Decide(client, handle.id, "deny", within=0.5)
            shown = [await operation.preview() for operation in (anns, bobs)]

        assert await anns.commit(shown[0].mark, by="ann", why="cheap") is None
        assert await bobs.commit(shown[1].mark, by="bob", why="dear") is None
        assert (await anns.preview()).mark == shown[0].mark, "nothing is decided yet"
        async with pipeline_worker(client, [order, part], [plan, pay], task_queue=queue):
            await handle.result()
        run = await read_run(client, handle.id)
        assert [step.approved for step in run.steps] == [None, True, None]

    @pytest.mark.parametrize(("by", "why"), [("", "cheap"), ("a\nb", "cheap"), ("ann", "x" * 10_001)])
    async def test_what_cannot_be_recorded_is_refused_without_a_worker(self, client: Client, by: str, why: str) -> None:
        """Before anything is asked or sent."""
        with pytest.raises(PipelineError, match=r"a person's name is recorded|shorten it"):
            await Decide(client, "nobody", "approve").commit(by=by, why=why)

    async def test_sent_again_without_a_digest_it_gets_the_first_answer(self, client: Client, worker: Worker) -> None:
        """If it names its question: one that names none may be about a later question."""
        handle = await ordered(worker)
        answer = Answer(question="manager", choice="approve", who="ann", why="cheap")
        first = await decide(client, handle.id, answer)
        await until_waiting(handle, "clerk")

        assert await decide(client, handle.id, answer) == first
        with pytest.raises(PipelineError, match="'manager' was approved by ann"):
            await decide(client, handle.id, answer.model_copy(update={"who": "bob"}))
        await handle.terminate()

    async def test_a_continued_run_says_that_it_may_have_been_answered_before(self, client: Client) -> None:
        """The history of the earlier run has the answer, that of the newest one has not."""
        async with pipeline_worker(client, [goes_on], [plan, dear]) as worker:
            budget = Budget(initial_micro_usd=1, then=OnExhaustion.PAUSE)
            handle: Handle = await client.start_workflow(
                goes_on, PipelineInput(goal=GOAL, budget=budget), id=f"on-{uuid4()}", task_queue=worker.task_queue
            )
            await overview_until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
            [asked] = (await read_run(client, handle.id)).questions
            await decide(client, handle.id, asked.answer("top_up", who="ann", data={"micro_usd": 5}))
            newest = client.get_workflow_handle(handle.id)
            await until_waiting(newest, "clerk")
            assert (await read_run(client, handle.id)).start.continued

            with pytest.raises(PipelineError, match=r"or it was answered in an earlier run; open: 'clerk'"):
                await Decide(client, handle.id, "top_up", asked.id, {"micro_usd": 5}).preview()
            await newest.terminate()


class TestSettle:
    async def test_does_what_was_shown_once(self, client: Client, worker: Worker) -> None:
        """Sent again after the end, it gets the first answer; another person's is refused, and told whose counts."""
        handle = await holding(worker)
        operation = Decide(client, handle.id, HandoffAction.ABANDON)
        shown = await operation.preview()
        operation = operation.pinned_to(shown)

        first = await operation.commit(shown.mark, by="ann", why="late")

        await handle.result()
        assert [(fact.text, fact.is_loss) for fact in shown.facts] == [(f"{HandoffAction.ABANDON.meaning}.", True)]
        assert first is not None
        assert (first.who, first.question) == ("ann", shown.open and shown.open.id)
        assert await operation.commit(shown.mark, by="ann", why="late") == first
        for action in (HandoffAction.ABANDON, HandoffAction.REQUEUE):
            late = Decide(client, handle.id, action).pinned_to(shown)
            with pytest.raises(PipelineError, match=r"was abandoned by ann at .*; a later decision changes nothing"):
                await late.commit(shown.mark, by="bob", why="late")

    async def test_a_worker_that_became_busy_takes_it_up_later(self, client: Client) -> None:
        """The decision is left with the server, as one about an approval is."""
        async with pipeline_worker(client, [asks_about_a_handoff], []) as worker:
            handle = await holding(worker)
            operation = Decide(client, handle.id, HandoffAction.ABANDON, within=0.5)
            shown = await operation.preview()

        assert await operation.commit(shown.mark, by="ann", why="late") is None
        async with pipeline_worker(client, [asks_about_a_handoff], [], task_queue=worker.task_queue):
            await handle.result()
        [settled] = (await read_run(client, handle.id)).handoff_decisions
        assert (settled.who, settled.why, settled.via) == ("ann", "late", "signal")

    async def test_what_is_not_possible_is_not_even_shown(self, client: Client, worker: Worker) -> None:
        """Nothing was decided."""
        handle = await holding(worker)
        for operation, refusal in (
            (
                Decide(client, handle.id, HandoffAction.TOP_UP, data={"micro_usd": 1}),
                "does not allow 'top_up'; use requeue,",
            ),
            (Decide(client, handle.id, HandoffAction.EDIT), "does not allow 'edit'; use requeue,"),
            (Decide(client, handle.id, HandoffAction.REQUEUE, "f47ac10b"), "no handoff 'f47ac10b'"),
        ):
            with pytest.raises(BatonError, match=refusal):
                await operation.preview()
        with pytest.raises(OutdatedError, match="nothing was decided: what was shown is unknown"):
            await Decide(client, handle.id, HandoffAction.ABANDON).commit("old", by="ann", why="late")
        assert (await read_run(client, handle.id)).answers == []
        await handle.terminate()


async def until(handle: Handle, client: Client, steps: int, *, child: bool) -> None:
    """Wait until a run has begun so many steps, and its child."""
    async with asyncio.timeout(60):
        while True:
            run = await read_run(client, handle.id)
            if len(run.steps) == steps and bool(run.children) is child:
                return
            await asyncio.sleep(0.05)


class TestCommand:
    """`baton rollback`, as a person uses it."""

    async def test_refuses_at_the_terminal_what_it_has_not_shown(
        self, client: Client, worker: Worker, server: DevServer, tmp_path: Path
    ) -> None:
        """One run, and all that have the stage: a colleague approves while the question stands."""
        operator = Operator(tmp_path, {"TEMPORAL_ADDRESS": server.address, "NO_COLOR": "1"})
        for words in ((), ("--all", "--status", "WAITING", "--pipeline", "order")):
            handle = await ordered(worker, short=True)
            target = words or (handle.id,)
            async with operator.at_a_terminal("rollback", *target, "--to", "plan", "--why", "wrong plan") as screen:
                await screen.until("back?")
                await approve(client, handle, "manager")
                await handle.result()
                screen.type("y\n")
                assert await screen.code() == 1
            assert "nothing was rolled back" in " ".join(screen.written.split())
            run = await read_run(client, handle.id)
            assert (run.status, names(run)) == (RunStatus.COMPLETED, ["plan", "manager", "pay"])
            assert run.run_id == handle.first_execution_run_id
