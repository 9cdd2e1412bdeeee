"""Simultaneous, repeated and late decisions on handoffs: each counts once and completely."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from baton import Budget
from baton.client import (
    Answer,
    PendingHandoff,
    Question,
    Settled,
    WaitingQuestion,
    decide,
    inbox,
    read_run,
    roll_back,
)
from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.errors import PipelineError
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.records import RECORD
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from baton.wire.money import MAX_USD, MICRO_PER_USD
from baton.wire.names import ANSWER, QUERY_BATON
from tests.handoff.test_inbox import abandon, asked, decision, waiting
from tests.pipelines.deciding_pipelines import (
    PIPELINES,
    AsksItself,
    EndsDuringAnAnswer,
    GoesOnDecided,
    SpendsBeside,
    SpendsInBranches,
    TaintedBranches,
)
from tests.pipelines.deciding_stages import STAGES
from tests.support import GOAL, LIMIT, Handle, answer_to, approve, failure, start, until


@pytest.fixture(scope="module")
async def client(server: DevServer, safeguards: Safeguards) -> Client:
    return await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])


@pytest.fixture(scope="module")
async def worker(client: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(client, PIPELINES, STAGES) as it:
        yield it


def served(client: Client, queue: str) -> Any:
    """Return a worker of these tests' pipelines for a while."""
    return pipeline_worker(client, PIPELINES, STAGES, task_queue=queue)


async def together(client: Client, queue: str, handle: Handle, *decisions: Answer) -> list[Any]:
    """Send decisions while there is no worker, then start one; return the replies."""
    tasks = [asyncio.create_task(decide(client, handle.id, decision)) for decision in decisions]
    await asyncio.sleep(1)  # for all of them to be at the server; nobody tells when they are
    async with served(client, queue):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def inboxed(client: Client, handle: Handle) -> WaitingQuestion:
    """Return the handoff that a run's own code asks about."""
    while True:
        async for pending in inbox(client, handle.id):
            return pending
        await asyncio.sleep(0.02)


def about(question: Question) -> PendingHandoff:
    assert question.handoff is not None
    return question.handoff


async def in_branches(client: Client, queue: str, budget: int, pipeline: Any = SpendsInBranches) -> Handle:
    """Start a run some of whose stages wait for money."""
    start = PipelineInput(goal=GOAL, budget=Budget(initial_micro_usd=budget))
    return await client.start_workflow(
        pipeline.run, start, id=f"branches-{uuid4()}", task_queue=queue, execution_timeout=LIMIT
    )


async def others_done(client: Client, handle: Handle) -> None:
    """Wait for the two stages beside the one that waits: a decision counts only for the baton that it was made on."""
    while len((await read_run(client, handle.id)).state.outcomes) < 2:  # noqa: ASYNC110 - the question hides the steps
        await asyncio.sleep(0.05)


async def test_what_waits_is_sent_again_after_a_roll_back(client: Client, worker: Worker) -> None:
    """The abandoned part had sent another message about the same handoff, which is answered once."""
    handle = await in_branches(client, worker.task_queue, 100_000, SpendsBeside)
    await others_done(client, handle)
    [pending] = await waiting(handle)
    await decide(client, handle.id, decision(pending, "top_up", micro_usd=500_000))
    await handle.result()

    rolled_back = await roll_back(client, handle.id, "score", by="bob", why="again")
    rerun: Handle = client.get_workflow_handle(handle.id, run_id=rolled_back.run_id)
    await others_done(client, handle)
    [pending] = await waiting(rerun)
    await decide(client, handle.id, decision(pending, "requeue"))
    await client.get_workflow_handle(handle.id).result()
    await assert_replays(rerun, PIPELINES, plugin=BatonPlugin())
    assert [settled.choice for settled in (await read_run(client, handle.id)).handoff_decisions] == ["requeue"]


async def test_two_equal_simultaneous_decisions_count_once(client: Client) -> None:
    """Both senders get the same reply."""
    queue = f"deciding-{uuid4()}"
    async with served(client, queue) as short:
        handle = await start(short, TaintedBranches.run)
        first, second = await asked(handle, 2)
    release = decision(first, "release")
    one, other = await together(client, queue, handle, release, release)
    assert one == other
    assert (one.question, one.choice) == (first.id, "release")

    async with served(client, queue):
        await decide(client, handle.id, decision(about(second), "release"))
        await handle.result()
    await assert_replays(handle, PIPELINES, plugin=BatonPlugin())


@pytest.mark.parametrize("fails", [False, True], ids=["returns", "fails"])
@pytest.mark.parametrize("by", ["update", "signal"])
async def test_a_run_does_not_end_before_an_answer_is_judged(
    client: Client, worker: Worker, by: str, fails: bool
) -> None:
    """Not even where it comes in the workflow task in which the run's code ends; its sender gets the reply."""
    handle = await start(worker, EndsDuringAnAnswer.run, fails=fails)
    answer = await answer_to(handle)
    first: Settled = await handle.execute_update(ANSWER, answer, result_type=Settled)
    while not await handle.query(EndsDuringAnAnswer.is_decided):
        pass
    if by == "update":
        assert await handle.execute_update(ANSWER, answer, result_type=Settled) == first
    else:
        await handle.signal(ANSWER, answer)
    if fails:
        assert await failure(handle) == "it failed"
    else:
        await handle.result()
    await assert_replays(handle, PIPELINES, plugin=BatonPlugin())


async def test_the_slower_of_two_people_learns_the_decision(client: Client) -> None:
    """Both decide at once, or the second one after the end."""
    queue = f"deciding-{uuid4()}"
    async with served(client, queue) as short:
        handle = await start(short, TaintedBranches.run)
        first, second = await asked(handle, 2)
    both = [decision(first, action, who=who) for who, action in (("ann", "release"), ("bob", "abandon"))]
    replies = await together(client, queue, handle, *both)

    [counts] = [reply for reply in replies if isinstance(reply, Settled)]
    [refused] = [reply for reply in replies if isinstance(reply, PipelineError)]
    message = f"question {first.id} was answered: {counts.title!r} was {counts.verb} by {counts.who}"
    assert str(refused).startswith(message)
    async with served(client, queue):
        with pytest.raises(PipelineError, match=message):
            await decide(client, handle.id, decision(first, "requeue", who="eve"))
        if counts.who == "ann":
            await abandon(client, handle, about(second))
        else:
            await handle.terminate()
    await assert_replays(handle, PIPELINES, plugin=BatonPlugin())


async def test_pending_top_ups_count_towards_the_limit(client: Client, safeguards: Safeguards) -> None:
    """Two people who top up two branches may not exceed what a handoff can represent."""
    queue = f"deciding-{uuid4()}"
    async with served(client, queue):
        handle = await in_branches(client, queue, 100_000)
        pending = await waiting(handle, 2)
    much = MAX_USD * MICRO_PER_USD * 2 // 3
    both = [decision(one, "top_up", micro_usd=much, who=who) for one, who in zip(pending, ("ann", "bob"), strict=True)]
    replies = await together(client, queue, handle, *both)

    [counts] = [reply for reply in replies if isinstance(reply, Settled)]
    [refused] = [reply for reply in replies if isinstance(reply, PipelineError)]
    assert "a handoff can state 1000000000 at most" in str(refused)
    async with served(client, queue):
        [other] = await waiting(handle, 1)
        await decide(client, handle.id, decision(other, "requeue"))
        result = await handle.result()
    assert (result.topped_up_micro_usd, result.spend.micro_usd) == (counts.micro_usd, 380_000)
    await assert_replays(handle, PIPELINES, plugin=BatonPlugin())


async def test_an_edit_is_checked_against_a_pending_edit(client: Client) -> None:
    """Otherwise the second person's edit would fail the run."""
    queue = f"deciding-{uuid4()}"
    async with served(client, queue) as short:
        handle = await start(short, TaintedBranches.run)
        pending = await waiting(handle, 2)
    both = [
        decision(handoff, "edit", edit={"constraints": [who]}, who=who)
        for handoff, who in zip(pending, ("ann", "bob"), strict=True)
    ]
    replies = await together(client, queue, handle, *both)

    [counts] = [reply for reply in replies if isinstance(reply, Settled)]
    [refused] = [reply for reply in replies if isinstance(reply, PipelineError)]
    assert "look at it again" in str(refused), "also if the first edit is in effect: then the baton is another"
    async with served(client, queue):
        await waiting(handle, 2)
        assert (await handle.query(QUERY_BATON))["constraints"] == [counts.who]
        await handle.terminate()
    await assert_replays(handle, PIPELINES, plugin=BatonPlugin())


async def test_a_continued_run_refuses_answers_to_earlier_questions(client: Client, worker: Worker) -> None:
    """Their handoffs are finished, so nothing is carried over; the answer counts for no other question."""
    handle = await start(worker, GoesOnDecided.run)
    [question] = await asked(handle)
    release = decision(question, "release")
    first = await decide(client, handle.id, release)
    assert (first.who, first.choice) == ("ann", "release")
    newest = client.get_workflow_handle(handle.id)
    await until(newest, lambda now: any(step.kind == "approval" for step in now.waiting_for))
    assert (await newest.describe()).run_id != handle.result_run_id

    for late in (release, decision(question, "abandon", who="bob")):
        with pytest.raises(PipelineError, match=f"question '{question.id}' is not open"):
            await decide(client, handle.id, late)
    await approve(client, newest)
    await newest.result()


async def test_several_people_may_top_up(client: Client, worker: Worker, safeguards: Safeguards) -> None:
    """All top-ups are recorded; repeated and late ones add nothing."""
    handle = await in_branches(client, worker.task_queue, 100_000)
    pending = await asked(handle, 2)
    tops = [
        decision(question, "top_up", micro_usd=amount, who=who)
        for question, who, amount in zip(pending, ("ann", "bob"), (200_000, 150_000), strict=True)
    ]
    await asyncio.gather(*(decide(client, handle.id, top_up) for top_up in [*tops, *tops]))
    result = await handle.result()

    assert (result.topped_up_micro_usd, result.spend.micro_usd) == (350_000, 380_000)
    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        trace = await ledger.trace(result.task_id, verifier=safeguards.keyring.public())
        cost = await ledger.task_cost(result.task_id)
    decided = [(record.fields.actor, record.body) for record in trace.records if record.fields.kind == "decision"]
    assert sorted((who, body["data"]["micro_usd"]) for who, body in decided) == [("ann", 200_000), ("bob", 150_000)]
    assert cost.micro_usd == result.spend.micro_usd
    for one in tops:
        with pytest.raises(RPCError, match="workflow execution already completed"):
            await decide(client, handle.id, one)
    await assert_replays(handle, PIPELINES, plugin=BatonPlugin())


async def test_questions_of_the_code_are_not_repeated_in_a_continued_run(
    client: Client, worker: Worker, safeguards: Safeguards
) -> None:
    """The code runs again and gets the same decision; each is recorded once."""
    handle = await start(worker, AsksItself.run)
    newest = client.get_workflow_handle(handle.id)
    for who, steps in (("ann", 2), ("bob", 5)):
        await until(newest, lambda now, steps=steps: now.seq == steps)  # type: ignore[misc]
        handoff = (await inboxed(client, handle)).handoff
        assert handoff is not None
        await decide(client, handle.id, decision(handoff, "requeue", who=who))
    result = await newest.result()

    assert result["output"] == ["ann: requeue", "bob: requeue"]
    assert (await newest.describe()).run_id != handle.result_run_id
    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        trace = await ledger.trace(result["task_id"], verifier=safeguards.keyring.public())
    assert [record.fields.actor for record in trace.records if record.fields.kind == "decision"] == ["ann", "bob"]
    await assert_replays(newest, PIPELINES, plugin=BatonPlugin())


async def test_a_decision_is_in_the_history_before_the_ledger(client: Client, worker: Worker) -> None:
    """Otherwise the ledger might have a decision that the run never got."""
    handle = await in_branches(client, worker.task_queue, 260_000)
    [pending] = await waiting(handle)
    await decide(client, handle.id, decision(pending, "top_up", micro_usd=120_000))
    await handle.result()

    events = [event async for event in handle.fetch_history_events()]
    happened = [event.event_type for event in events]
    accepted = happened.index(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED)
    writes = [event.activity_task_scheduled_event_attributes.activity_type.name == RECORD for event in events]
    assert writes.count(True) == 2, "that it waits, and the decision"
    assert [write > accepted for write, is_write in enumerate(writes) if is_write] == [False, True]
    await assert_replays(handle, PIPELINES, plugin=BatonPlugin())


async def test_a_run_that_is_queried_during_decisions_replays(
    client: Client, worker: Worker, safeguards: Safeguards
) -> None:
    """In a replay a wait may begin at another time; the decisions still count."""
    done = asyncio.Event()

    async def keeps_the_ledger_busy() -> None:  # so that some question comes while a record is written
        with contextlib.closing(sqlite3.connect(str(safeguards.ledger), isolation_level=None)) as other:
            while not done.is_set():
                with contextlib.suppress(sqlite3.OperationalError):
                    other.execute("BEGIN IMMEDIATE")
                    await asyncio.sleep(0.03)
                    other.execute("COMMIT")
                await asyncio.sleep(0.01)

    async def asks(handle: Handle, over: asyncio.Event) -> None:
        while not over.is_set():
            with contextlib.suppress(RPCError):  # one of so many may come too late
                await handle.query(QUERY_BATON)

    async def pays(handle: Handle) -> None:
        over = asyncio.Event()
        asking = [asyncio.create_task(asks(handle, over)) for _ in range(3)]
        for _ in range(8):
            [question] = await asked(handle)
            await decide(client, handle.id, decision(question, "top_up", micro_usd=15_000))
        await handle.result()
        over.set()
        await asyncio.gather(*asking)

    handles = [await in_branches(client, worker.task_queue, 260_000) for _ in range(6)]
    busy = asyncio.create_task(keeps_the_ledger_busy())
    await asyncio.gather(*(pays(handle) for handle in handles))
    done.set()
    await busy
    for one in handles:
        await assert_replays(one, PIPELINES, plugin=BatonPlugin())
