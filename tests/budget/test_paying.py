"""A run's charges equal what its stages paid, however they and the run ended."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import Budget, OnExhaustion, PipelineInput, PipelineStatus, Summariser, WorkerParts
from baton.client import (
    Answer,
    HandoffAction,
    RunRecord,
    Settled,
    decide,
    fork,
    inbox,
    read_run,
    roll_back,
)
from baton.devserver import DevServer
from baton.errors import PipelineError
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from baton.wire.money import Price
from baton.wire.names import ANSWER
from tests.budget.paying import BUDGET, ended, paid, taken, told
from tests.budget.paying_pipelines import PIPELINES, Alongside, Takes
from tests.budget.paying_stages import BILLS, STAGES, summarise
from tests.support import LIMIT, approve, event, overview, sealing_worker, until, until_waiting

RAISES = [{"charge": [500], "end": "raise"}]
LOST = [{"charge": [500], "end": "lost"}]
REFUSED = [{"spend": 400, "end": "refused"}, {"spend": 7}]


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    """Return a running worker with safeguards and a summarising model."""
    price = Price(input=Decimal("0.001"), output=Decimal("0.001"))
    parts = WorkerParts(summariser=Summariser(summarise, price))
    client = await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards=safeguards)])
    async with pipeline_worker(client, PIPELINES, STAGES) as it:
        yield it


@pytest.mark.parametrize("budget", [pytest.param(BUDGET, id="with a budget"), pytest.param(None, id="without")])
@pytest.mark.parametrize(
    ("steps", "does", "bills"),
    [
        pytest.param(["first", "second"], {"first": RAISES}, 2_500, id="raised to the end"),
        pytest.param(["first"], {"first": [{"charge": [500], "end": "raise for good"}]}, 500, id="raised for good"),
        pytest.param(["first"], {"first": [{"charge": [500], "end": "exit"}]}, 1_500, id="asked its worker to end"),
        pytest.param(["first", "brief"], {"brief": LOST}, 1_500, id="lost for good"),
        pytest.param(["brief"], {"brief": LOST}, 500, id="the first stage lost for good"),
        pytest.param([{"child": ["brief"]}], {"brief": LOST}, 500, id="a child's first stage lost for good"),
        pytest.param(["first", ["brief", "second"]], {"brief": LOST}, 2_500, id="a branch that is lost for good"),
        pytest.param(["first"], {"first": [{"thread": [500, 7], "end": "raise"}]}, 1_521, id="raised after a thread"),
        pytest.param(["brief"], {"brief": [{"thread": [500, 7], "end": "lost"}]}, 507, id="lost after a thread"),
        pytest.param(["first"], {"first": REFUSED}, 407, id="refused"),
        pytest.param(["first"], {"first": [{"spend": 400, "end": "unreadable"}, {"spend": 7}]}, 407, id="unreadable"),
        pytest.param([["first", "second"]], {"first": RAISES}, 2_500, id="a branch that raised"),
        pytest.param([{"child": ["first"]}, "second"], {"first": REFUSED}, 1_407, id="a child"),
        pytest.param([{"child": ["first", "fail"]}, "second"], {"first": REFUSED}, 1_407, id="a child that failed"),
        pytest.param(["first", "picky"], {"first": [{"spend": 9}, *RAISES]}, 1_518, id="a sender that did not mend it"),
        pytest.param(["brief", "picky"], {"brief": [{"spend": 9}, *LOST]}, 518, id="a sender that was lost mending it"),
        pytest.param(["talk", "listen"], {}, 2_030, id="a summary"),
        pytest.param([["talk", "first"], "scoped"], {}, 2_030, id="a summary for a handoff that is refused"),
        pytest.param(["talk", ["listen", "second"]], {}, 3_030, id="a summary for a branch"),
    ],
)
async def test_what_was_paid_is_charged(
    worker: Worker,
    safeguards: Safeguards,
    budget: Budget | None,
    steps: list[Any],
    does: dict[str, Any],
    bills: int,
) -> None:
    """In the pipeline's count, its history and the ledger; rejections and failures included (S3-9-b, S3-11-e)."""
    run = await taken(worker, steps, does, budget)

    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        on_record = (await ledger.task_cost(run.task_id or "")).micro_usd
    assert (paid(run), told(run), run.billed.micro_usd, on_record) == (bills,) * 4


async def test_a_failed_child_releases_its_rest(worker: Worker) -> None:
    """The parent continues with it; no reservation stays open (S3-9-c)."""
    stop = Budget(initial_micro_usd=3_000, then=OnExhaustion.STOP)

    run = await taken(worker, [{"child": ["first", "fail"]}, "first", "second"], budget=stop)

    assert (told(run), paid(run)) == (3_000, 3_000)


async def test_a_childs_budget_respects_its_limit(worker: Worker) -> None:
    """A child's name may have a limit, like a stage's."""
    run = await taken(worker, [{"child": ["first"]}], budget=Budget(initial_micro_usd=9_000, limits={"part": 2_000}))

    [(child, *_)] = run.children
    child_budget = (await read_run(worker.client, child)).start.budget
    assert child_budget is not None
    assert (child_budget.initial_micro_usd, told(run)) == (2_000, 1_000)


async def test_a_budget_above_the_limit_of_handoffs_is_rejected(worker: Worker) -> None:
    """For example one that is meant as unlimited."""
    run = await taken(worker, ["first"], budget=Budget(initial_micro_usd=2**53 - 1))

    assert run.failure is not None
    assert "the budget is 9007199254.740991 USD, and handoffs carry 1000000000 USD at most" in run.failure


async def test_a_worker_without_keys_asks_for_money(server: DevServer, worker: Worker, safeguards: Safeguards) -> None:
    """No receiver would reject the handoff; the run replays with keys and without."""
    params: dict[str, Any] = {"steps": ["first", "sleep", "second"], "events": 10_000, "patient": True}
    async with sealing_worker(server, safeguards, PIPELINES, STAGES) as sealing:
        handle = await sealing.client.start_workflow(
            Takes.run,
            PipelineInput(goal="Pay", budget=Budget(initial_micro_usd=1_000), params=params),
            id=f"unsealed-{uuid4()}",
            task_queue=sealing.task_queue,
            execution_timeout=LIMIT,
            task_timeout=timedelta(seconds=2),
        )
        await event(handle, EventType.EVENT_TYPE_TIMER_STARTED)
    plain = await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])
    async with pipeline_worker(plain, PIPELINES, STAGES, task_queue=sealing.task_queue):
        await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
    assert BILLS[handle.id] == 1_000
    async with pipeline_worker(worker.client, PIPELINES, STAGES, task_queue=sealing.task_queue):
        # The other worker may have told of a task that it had no time to complete: then it comes to that once more.
        await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
        [waiting] = [entry async for entry in inbox(worker.client, handle.id)]
        assert waiting.handoff is not None
        data = {"micro_usd": 5_000}
        top_up = Answer(question=waiting.handoff.handoff_id, choice="top_up", who="ann", data=data)
        await decide(worker.client, handle.id, top_up)
        assert told(await ended(worker, handle)) == 2_000
    await assert_replays(handle, PIPELINES)


@pytest.mark.parametrize("end", [pytest.param([], id="that completes"), pytest.param(["fail"], id="that fails")])
async def test_a_childs_top_up_is_credited_to_its_parent(worker: Worker, end: list[str]) -> None:
    """The first of several counts, once, and the parent continues with the rest (S3-9-c)."""
    steps: list[Any] = [{"child": ["first"] * 4 + end}, "second"]
    handle = await worker.client.start_workflow(
        Takes.run,
        PipelineInput(goal="Pay", budget=Budget(initial_micro_usd=2_500), params={"steps": steps, "patient": True}),
        id=f"takes-{uuid4()}",
        task_queue=worker.task_queue,
        execution_timeout=LIMIT,
    )
    await event(handle, EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED)
    [(id, *_)] = (await read_run(worker.client, handle.id)).children
    child = worker.client.get_workflow_handle(id)
    await until(child, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
    [waiting] = [entry async for entry in inbox(worker.client, id)]
    assert waiting.handoff is not None

    top_ups = [
        Answer(question=waiting.handoff.handoff_id, choice=HandoffAction.TOP_UP, who=who, data={"micro_usd": micro_usd})
        for who, micro_usd in (("ann", 5_000), ("bob", 6_000), ("eve", 7_000))
    ]
    answers = await asyncio.gather(*(decide(worker.client, id, top_up) for top_up in top_ups), return_exceptions=True)
    [counts] = [reply for reply in answers if isinstance(reply, Settled)]
    run = await ended(worker, handle)

    assert [isinstance(reply, PipelineError) for reply in answers if reply is not counts] == [True, True]
    assert run.result is not None
    assert run.result.output == ["child 'part' failed: ValueError: it was told to" for _ in end]
    assert (told(run), paid(run)) == (5_000, 5_000)
    assert (await overview(handle)).remaining_micro_usd == 2_500 + counts.micro_usd - 5_000


@pytest.mark.parametrize("budget", [pytest.param(BUDGET, id="with a budget"), pytest.param(None, id="without")])
async def test_a_continued_run_keeps_its_bills(worker: Worker, budget: Budget | None) -> None:
    """Rejected attempts of the previous run included."""
    run = await taken(worker, ["first", "sleep", "second", "sleep", "second"], {"first": REFUSED}, budget, events=8)

    assert run.start.continued > 0
    assert (told(run), run.billed.micro_usd) == (paid(run), 2_407)


@pytest.mark.parametrize("budget", [pytest.param(BUDGET, id="with a budget"), pytest.param(None, id="without")])
@pytest.mark.parametrize("events", [pytest.param(None, id="in one part"), pytest.param(8, id="that continued")])
@pytest.mark.parametrize(("at", "before"), [(1, 0), (2, 407), (4, 1_907), (6, 3_314)])
async def test_a_fork_inherits_the_bills_before_the_step(
    worker: Worker, budget: Budget | None, events: int | None, at: int, before: int
) -> None:
    """All of them, and none after the step."""
    does = {"first": REFUSED, "second": RAISES}
    steps = ["first", "second", "sleep", {"child": ["first", "watched"]}, "sleep", "watched"]
    run = await taken(worker, steps, does, budget, events=events)

    handle = await fork(worker.client, run.workflow_id, str(at), by="ann", why="try again")
    forked = await ended(worker, handle)

    assert (told(forked), forked.billed.micro_usd) == (before + paid(forked),) * 2


@pytest.mark.parametrize(
    ("at", "bills"), [pytest.param("2", 2_500, id="later"), pytest.param("3", 1_500, id="in its first step")]
)
async def test_costs_that_a_fork_does_not_inherit_stay_in_the_ledger(
    worker: Worker, safeguards: Safeguards, at: str, bills: int
) -> None:
    """The old run spent more after the step than the fork reports at its next handoff."""
    run = await taken(worker, ["first", "second", "brief", "second"], {"brief": LOST})

    forked = await ended(worker, await fork(worker.client, run.workflow_id, at, by="ann", why="try again"))

    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        cost = await ledger.task_cost(run.task_id or "")
    assert (paid(run), paid(forked)) == (3_500, bills)
    assert (cost.micro_usd, cost.complete, cost.by_agent["brief"]) == (3_500 + bills, True, Decimal("0.001"))


async def test_a_summary_in_a_fork_is_recorded(worker: Worker, safeguards: Safeguards) -> None:
    """The fork's next handoff reports less than the old run had spent."""
    run = await taken(worker, ["first", "talk", "listen"])

    forked = await ended(worker, await fork(worker.client, run.workflow_id, "2", by="ann", why="try again"))

    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        cost = await ledger.task_cost(run.task_id or "")
    assert (paid(run), paid(forked)) == (3_030, 2_030)
    assert (cost.micro_usd, cost.complete, cost.by_agent["talk"]) == (5_060, True, Decimal("0.00206"))


@pytest.mark.parametrize("end", ["canceled", "terminated", "rolled back"])
async def test_charges_of_an_abandoned_stage_are_recorded(worker: Worker, safeguards: Safeguards, end: str) -> None:
    """No run reports them; the worker does, even if another run continues meanwhile."""
    params: Any = {"steps": ["first", "second"], "does": {"second": [*LOST, {"spend": 7}]}}
    handle = await worker.client.start_workflow(
        Takes.run,
        PipelineInput(goal="Pay", params=params),
        id=f"takes-{uuid4()}",
        task_queue=worker.task_queue,
        execution_timeout=LIMIT,
    )
    while BILLS[handle.id] < 1_500:  # noqa: ASYNC110 - another task of this process pays
        await asyncio.sleep(0.05)

    if end == "canceled":
        await handle.cancel()
    elif end == "terminated":
        await handle.terminate()
    else:
        await roll_back(worker.client, handle.id, "second", by="ann", why="it takes too long")
    run = await ended(worker, worker.client.get_workflow_handle(handle.id))

    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger, asyncio.timeout(30):
        while (cost := await ledger.task_cost(run.task_id or "")).micro_usd < paid(run):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
    assert (cost.micro_usd, cost.complete) == (1_507 if end == "rolled back" else 1_500, True)
    assert cost.by_agent["second"] == Decimal(cost.micro_usd - 1_000) / 1_000_000


async def test_a_fork_knows_what_branches_have_spent_of_their_limits(worker: Worker) -> None:
    """A stage's limit covers all its attempts, also in a fork."""
    limited = Budget(initial_micro_usd=90_000, limits={"first": 1_500}, then=OnExhaustion.STOP)
    run = await taken(worker, [["first", "second"], "sleep", "first"], {"first": [{"spend": 1_500}]}, limited)

    handle = await fork(worker.client, run.workflow_id, "2", by="ann", why="try again")
    forked = await ended(worker, handle)

    assert run.failure == forked.failure
    assert "'first' may spend 0.0015 USD" in str(run.failure)


@pytest.mark.parametrize("to", [1, 2, 3, 4])
async def test_the_cost_of_an_abandoned_part_stays_charged(worker: Worker, to: int) -> None:
    """The budget is for the whole chain, and spent money stays spent (S3-9-c)."""
    run = await taken(worker, ["first", ["first", "second"], {"child": ["first"]}, "second"], {"first": REFUSED})
    before = paid(run)

    for _ in range(2):
        await roll_back(worker.client, run.workflow_id, str(to), by="ann", why="try again")
        run = await ended(worker, worker.client.get_workflow_handle(run.workflow_id))

    assert paid(run) > before
    assert (told(run), run.billed.micro_usd) == (paid(run),) * 2


async def test_an_early_continued_run_knows_the_abandoned_cost(worker: Worker) -> None:
    """It is rolled back twice, to a point before it continued."""
    params: Any = {"steps": ["first", "sleep", "second", "sleep", "ask"], "events": 8}
    handle = await worker.client.start_workflow(
        Takes.run,
        PipelineInput(goal="Pay", budget=BUDGET, params=params),
        id=f"takes-{uuid4()}",
        task_queue=worker.task_queue,
        execution_timeout=LIMIT,
    )
    newest = worker.client.get_workflow_handle(handle.id)
    await approve(worker.client, newest)
    await newest.result()

    for paid_by_now, to in ((4_000, "1"), (5_000, "3"), (7_000, "1")):
        await roll_back(worker.client, handle.id, to, by="ann", why="try again")
        await approve(worker.client, newest)
        run = await ended(worker, newest)
        assert run.start.continued > 0
        assert (told(run), run.billed.micro_usd) == (paid_by_now,) * 2


@pytest.mark.parametrize("back_by", ["a roll-back of an older run", "Temporal's own reset"])
async def test_the_cost_before_any_reset_is_charged(worker: Worker, back_by: str) -> None:
    """The run reads it from the history of the abandoned part."""
    run = await taken(worker, ["first", "second"], {}, BUDGET)
    if back_by == "Temporal's own reset":
        request = ResetWorkflowExecutionRequest(
            namespace=worker.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run.workflow_id, run_id=run.run_id),
            reason="by hand",
            workflow_task_finish_event_id=run.step("2").reset_event or 0,
            request_id=str(uuid4()),
        )
        await worker.client.workflow_service.reset_workflow_execution(request)
    else:
        await roll_back(worker.client, run.workflow_id, "2", by="ann", why="again", run_id=run.run_id)
    handle = worker.client.get_workflow_handle(run.workflow_id)
    run = await ended(worker, handle)

    assert (told(run), run.billed.micro_usd) == (3_000, 3_000)
    now = await overview(handle)
    assert now.notes == ["reset: by hand" if "own" in back_by else "rolled back to before 'second' by ann: again"]


class TestRelay:
    """A handoff passes the chain's money to another pipeline and brings the rest back."""

    async def relayed(
        self, worker: Worker, theirs: list[str], then: list[str], budget: Budget | None, **params: Any
    ) -> list[RunRecord]:
        """Return a run that pays, hands on and continues, and the run of its receiver."""
        id = f"receiver-{uuid4()}"
        steps = ["first", {"to": id, "steps": ["receive", *theirs]}, *then]
        sender = await taken(worker, steps, params.pop("does", None), budget, agent="sender", **params)
        return [sender, await ended(worker, worker.client.get_workflow_handle(id))]

    async def left(self, worker: Worker, run: RunRecord) -> int | None:
        return (await overview(worker.client.get_workflow_handle(run.workflow_id))).remaining_micro_usd

    @pytest.mark.parametrize("events", [pytest.param(None, id="in one part"), pytest.param(12, id="that continue")])
    async def test_money_that_others_spent_is_not_available(
        self, worker: Worker, safeguards: Safeguards, events: int | None
    ) -> None:
        """One limit for the chain; each run reports its own bills, the ledger all (S3-9-a, S3-9-c)."""
        theirs, then = ["first", "sleep", "second", "sleep", "back"], ["receive", "second"]
        sender, receiver = await self.relayed(worker, theirs, then, BUDGET, does={"first": REFUSED}, events=events)

        assert (paid(sender), paid(receiver)) == (1_407, 1_407)
        for run in (sender, receiver):
            assert (told(run), run.billed.micro_usd) == (1_407, 1_407)
        assert (await self.left(worker, receiver), await self.left(worker, sender)) == (998_186, 997_186)
        async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
            cost = await ledger.task_cost(sender.task_id or "")
        assert (cost.micro_usd, cost.findings) == (2_814, ())

    async def test_the_receiver_stops_when_the_chain_has_spent_all(self, worker: Worker) -> None:
        """It has no budget of its own; a fork of it stops as well (S3-9-c)."""
        budget = Budget(initial_micro_usd=2_500)
        _, receiver = await self.relayed(worker, ["first", "second", "second"], [], budget)
        handle = await fork(worker.client, receiver.workflow_id, "3", by="ann", why="try again")
        forked = await ended(worker, handle)

        assert [paid(run) for run in (receiver, forked)] == [2_000, 1_000]
        for run in (receiver, forked):
            failed: Any = run.result.output if run.result else []
            assert ["'second'" in failure for failure in failed] == [True]

    async def test_without_a_budget_nothing_is_refused(self, worker: Worker, safeguards: Safeguards) -> None:
        """Spend is still reported, and the number that stands for no limit is not taken for money on record."""
        sender, receiver = await self.relayed(worker, ["first", "back"], ["receive", "second"], None)

        assert [await self.left(worker, run) for run in (sender, receiver)] == [None, None]
        assert (told(sender), told(receiver)) == (2_000, 1_000)
        async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
            trace = await ledger.trace(sender.task_id or "")
        assert {record.fields.cost.remaining_micro_usd for record in trace.records if record.fields.cost} == {None}


async def test_roll_backs_do_not_overrun_the_budget(worker: Worker) -> None:
    """A run knows the cost of the abandoned part before it begins a stage, however often it is rolled back."""
    does = {"dear": [{"charge": [640_000], "end": "raise for good"}]}
    budget = Budget(initial_micro_usd=500_000)
    runs = [await taken(worker, ["first", "dear"], does, budget, patient=True) for _ in range(4)]

    for to in ("dear", "1"):  # after its first task, and right there
        for run in runs:
            await roll_back(worker.client, run.workflow_id, to, by="ann", why="try again")
        for run in runs:
            handle: Any = worker.client.get_workflow_handle(run.workflow_id)
            now = await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
            assert (paid(run), now.billed and now.billed.micro_usd) == (641_000, 641_000)
            [asked] = [item.handoff async for item in inbox(worker.client, run.workflow_id)]
            assert asked is not None
            assert asked.reason == "BUDGET_EXHAUSTED"
    for run in runs:
        await worker.client.get_workflow_handle(run.workflow_id).terminate()


@pytest.mark.parametrize("by_signal", [False, True])
async def test_a_top_up_counts_once_if_the_roll_back_is_to_its_own_task(worker: Worker, by_signal: bool) -> None:
    """The answer is in the part that stays, and what it adds is not abandoned with what follows."""
    client = worker.client
    handle = await client.start_workflow(
        Alongside.run,
        PipelineInput(goal="Pay", budget=Budget(initial_micro_usd=10_000)),
        id=f"alongside-{uuid4()}",
        task_queue=worker.task_queue,
        execution_timeout=LIMIT,
    )
    await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
    [asked] = (await read_run(client, handle.id)).questions
    top_up = asked.answer("top_up", who="ann", data={"micro_usd": 200_000})
    await (handle.signal(ANSWER, top_up) if by_signal else handle.execute_update(ANSWER, top_up))
    await until_waiting(handle, "release manager")
    run = await read_run(client, handle.id)
    assert run.topped_up_by(run.step("second").reset_event or 0) == 200_000
    if by_signal:  # `dear` began in that task as well
        await handle.terminate()
        return

    await roll_back(client, handle.id, "second", by="bob", why="try again")
    newest: Any = client.get_workflow_handle(handle.id)
    await approve(client, newest)
    run = await ended(worker, newest)
    assert run.result is not None
    assert (run.result.topped_up_micro_usd, run.ceiling_micro_usd) == (200_000, 210_000)


async def test_what_people_added_stays_added(worker: Worker) -> None:
    """A run that is rolled back or forked has its top-ups as it has its charges, once each."""
    client, budget = worker.client, Budget(initial_micro_usd=1_500)
    params: Any = {"steps": ["first", "second", "first", "second"], "patient": True}
    start = PipelineInput(goal="Pay", budget=budget, params=params)
    handle = await client.start_workflow(
        Takes.run, start, id=f"topped-{uuid4()}", task_queue=worker.task_queue, execution_timeout=LIMIT
    )
    await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
    [asked] = [item.handoff async for item in inbox(client, handle.id)]
    assert asked is not None
    data = {"micro_usd": 20_000}
    top_up = Answer(question=asked.handoff_id, choice="top_up", who="ann", why="worth it", data=data)
    await decide(client, handle.id, top_up)
    await handle.result()

    for to, paid_by_now in (("1", 8_000), ("2", 11_000), ("4", 12_000)):
        await roll_back(client, handle.id, to, by="ann", why="try again")
        run = await ended(worker, client.get_workflow_handle(handle.id))
        assert (told(run), run.ceiling_micro_usd) == (paid_by_now, 21_500)
        assert run.result is not None
        assert run.result.topped_up_micro_usd == 20_000
    forked = await ended(worker, await fork(client, handle.id, "4", by="ann", why="try another"))
    assert (forked.ceiling_micro_usd, forked.failure) == (21_500, None)


async def test_the_cost_between_two_roll_backs_is_known(worker: Worker) -> None:
    """Both reset the same run, and the server does not mention the first to the second."""
    client, id = worker.client, f"between-{uuid4()}"
    params: Any = {"steps": ["dear"], "does": {"dear": [{"charge": [100], "end": "raise for good"}]}}
    start = PipelineInput(goal="Pay", budget=BUDGET, params=params)
    await client.start_workflow(Takes.run, start, id=id, task_queue=worker.task_queue, execution_timeout=LIMIT)
    await client.get_workflow_handle(id).result()
    first = (await read_run(client, id)).run_id
    for _ in range(2):
        await roll_back(client, id, "1", by="ann", why="again", run_id=first)
        await client.get_workflow_handle(id).result()
    assert (await read_run(client, id)).billed.micro_usd == BILLS[id] == 300

    await asyncio.gather(*(roll_back(client, id, "1", by=who, why="at once") for who in ("ann", "bob", "eve")))
    await client.get_workflow_handle(id).result()
    assert (await read_run(client, id)).billed.micro_usd >= 400  # nothing that was known before is lost
