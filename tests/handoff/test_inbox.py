"""The inbox over all runs: what waits for a person, told by the runs or by their histories, and what people decide."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineInput, PipelineResult
from baton.budget.records import Budget
from baton.client import WaitingHandoff, inbox, read_run, resolve_handoff, roll_back, run_inbox
from baton.core.messages import PipelineStatus
from baton.core.verdict import Code
from baton.devserver import DevServer
from baton.errors import HistoryError, PipelineError
from baton.handoff.pending import HandoffAction, HandoffDecision, PendingHandoff
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.runs.client_follow import follow
from baton.runs.client_handoffs import UNKNOWN, UNKNOWN_REASON, RunHandoffs, read_handoffs
from baton.runs.client_news import News, NewsKind
from baton.testing import assert_replays, pipeline_worker
from baton.wire.names import QUERY_INBOX
from tests.handoff import handoff_pipelines, handoff_stages
from tests.handoff.handoff_pipelines import Breaks, Forgets, FourAgents, Spends
from tests.handoff.inbox_pipelines import PIPELINES, ForgetsInABranch, TaintedTwice
from tests.handoff.inbox_stages import STAGES
from tests.support import LIMIT, Handle, failure, sealing_worker, start, until

ALL_PIPELINES = [*handoff_pipelines.PIPELINES, *PIPELINES]
ALL_STAGES: list[Callable[..., Any]] = [*handoff_stages.STAGES, *STAGES]


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    async with sealing_worker(server, safeguards, ALL_PIPELINES, ALL_STAGES) as it:
        yield it


async def waiting(handle: Handle, count: int = 1) -> list[PendingHandoff]:
    """Return the handoffs that wait for a person, as soon as so many do."""
    while True:
        await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
        pending: list[PendingHandoff] = await handle.query(QUERY_INBOX, result_type=list[PendingHandoff])
        if len(pending) == count:
            return pending


async def listed(client: Client, handle: Handle) -> list[WaitingHandoff]:
    """Return what the inbox lists of a run, once the server's index has it."""
    while True:
        found = [one for one in await inbox(client) if one.workflow_id == handle.id]
        if found:
            return found
        await asyncio.sleep(0.05)  # the index lags behind, and tells nobody when it has caught up


async def abandon(client: Client, handle: Handle, *pending: PendingHandoff) -> None:
    """Give handoffs up, so that the run ends."""
    for one in pending:
        await resolve_handoff(client, handle.id, decision(one, "abandon"))
    await failure(handle)


def decision(pending: PendingHandoff, action: str, **further: Any) -> HandoffDecision:
    usual: dict[str, Any] = {"who": "ann", "why": "I looked at it"}
    return HandoffDecision(handoff_id=pending.handoff_id, action=HandoffAction(action), **{**usual, **further})


def essence(pending: PendingHandoff) -> dict[str, Any]:
    """Return a handoff without its times: the history knows them to the end of the workflow's task only."""
    return pending.model_dump(exclude={"since", "until"})


async def spending(worker: Worker) -> Handle:
    """Start a run whose budget is too small."""
    given = PipelineInput(goal="Review", budget=Budget(initial_micro_usd=200_000))
    id = f"spends-{uuid4()}"
    return await worker.client.start_workflow(
        Spends.run, given, id=id, task_queue=worker.task_queue, execution_timeout=LIMIT
    )


async def until_heard(client: Client, handle: Handle) -> News:
    """Return the first news of a handoff that waits."""
    async for update in follow(client, handle.id):
        for one in update.news:
            if one.kind is NewsKind.HANDOFF_WAITS:
                return one
    raise AssertionError(f"{handle.id} ended, and no handoff waited")


class TestFollowed:
    async def test_it_is_news_and_gone_once_it_is_decided(self, worker: Worker) -> None:
        """One that was never sent, for want of money, has no step in the history; it is told all the same."""
        handle = await spending(worker)
        [one] = await waiting(handle)

        told = await until_heard(worker.client, handle)
        assert told.step is None
        assert [held.handoff_id for held in (await read_run(worker.client, handle.id)).pending_handoffs] == [
            one.handoff_id
        ]
        await handle.terminate()
        assert (await read_run(worker.client, handle.id)).pending_handoffs == []


class TestRolledBack:
    """Back to before a step about which a person was asked before its handoff was sent."""

    async def test_the_person_is_asked_anew_about_another_handoff(self, worker: Worker) -> None:
        """One of the old id was refused as a forgery: its receiver had answered another message under it."""
        handle = await spending(worker)
        [one] = await waiting(handle)
        await resolve_handoff(worker.client, handle.id, decision(one, "top_up", micro_usd=1_000_000))
        await handle.result()

        await roll_back(worker.client, handle.id, "dear", by="ann", why="once more")
        again = worker.client.get_workflow_handle(handle.id)
        [other] = await waiting(again)
        assert (other.reason, other.handoff_id != one.handoff_id) == (Code.BUDGET_EXHAUSTED, True)
        await resolve_handoff(worker.client, handle.id, decision(other, "top_up", micro_usd=1_000_000))
        await again.result()


class TestInbox:
    async def test_it_lists_what_waits_until_it_is_decided(self, worker: Worker) -> None:
        """Run, task, agents, reason and deadline; the oldest first, and nothing once it is decided."""
        first = await start(worker, FourAgents.run, poisoned=True)
        [one] = await waiting(first)
        second = await start(worker, Forgets.run, stubborn=True)
        [other] = await waiting(second)

        [found], [later] = await listed(worker.client, first), await listed(worker.client, second)
        assert found.handoff == one
        assert (found.pipeline, found.run_id, found.answered) == ("FourAgents", first.result_run_id, True)
        assert found.task_id is not None
        assert later.handoff == other
        assert one.until is not None
        order = [one.workflow_id for one in await inbox(worker.client)]
        assert order.index(first.id) < order.index(second.id)

        await abandon(worker.client, first, one)
        assert first.id not in [one.workflow_id for one in await inbox(worker.client)]
        await abandon(worker.client, second, other)

    async def test_each_branch_of_a_fan_out_waits_for_itself(self, worker: Worker) -> None:
        """Two receivers of one step that do not accept are two decisions."""
        handle = await start(worker, TaintedTwice.run)
        pending = await waiting(handle, 2)

        assert [one.handoff for one in await run_inbox(worker.client, handle.id)] == pending
        assert {one.receiver for one in pending} == {"score", "summarise"}
        assert essences(await read_handoffs(worker.client, handle.id)) == [essence(one) for one in pending]
        for one in pending:
            await resolve_handoff(worker.client, handle.id, decision(one, "release"))
        await handle.result()

    async def test_without_a_worker_the_history_tells(self, server: DevServer, safeguards: Safeguards) -> None:
        """The same reason and findings, and that nobody answers; a worker that comes back is asked again."""
        client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
        async with pipeline_worker(client, ALL_PIPELINES, ALL_STAGES) as short:
            handle = await start(short, FourAgents.run, poisoned=True)
            [pending] = await waiting(handle)

        [found] = await listed(client, handle)
        assert found.handoff is not None
        assert essence(found.handoff) == essence(pending)
        assert abs((found.handoff.since - pending.since).total_seconds()) < 30
        assert not found.answered
        assert found.to_json_object()["actions"] == []

        async with pipeline_worker(client, ALL_PIPELINES, ALL_STAGES, task_queue=short.task_queue):
            [found] = await run_inbox(client, handle.id)
            assert (found.handoff, found.answered) == (pending, True)
            await abandon(client, handle, pending)

    async def test_what_cannot_be_read_is_listed_all_the_same(self, server: DevServer, tmp_path: Path) -> None:
        """A client without the keys, and no worker to ask: the run and its stage, and what is missing."""
        encrypted = Safeguards.development(tmp_path, encrypt=True)
        client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=encrypted)])
        async with pipeline_worker(client, ALL_PIPELINES, ALL_STAGES) as short:
            handle = await start(short, FourAgents.run, poisoned=True)
            await waiting(handle)

        keyless = await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])
        [found] = await listed(keyless, handle)
        assert (found.handoff, found.stage, found.answered) == (None, "score", False)
        assert "cannot be decoded" in (found.trouble or "")
        with pytest.raises(HistoryError, match="cannot be decoded"):
            await run_inbox(keyless, handle.id)
        assert (await listed(client, handle))[0].handoff is not None
        await handle.terminate()

    async def test_a_run_that_is_over_waits_for_nothing(self, worker: Worker) -> None:
        """Nobody can decide about it any more."""
        handle = await start(worker, FourAgents.run, poisoned=True)
        await waiting(handle)
        await handle.terminate()

        assert await run_inbox(worker.client, handle.id) == []


def essences(read: RunHandoffs) -> list[dict[str, Any]]:
    """Return the handoffs that wait, as a history tells them."""
    return [essence(one) for one in read.waiting]


class TestReadHandoffs:
    CASES = (
        pytest.param(FourAgents.run, {"poisoned": True}, id="a dead letter"),
        pytest.param(Forgets.run, {"stubborn": True}, id="an escalation"),
        pytest.param(Breaks.run, {}, id="a receiver that failed"),
    )

    @pytest.mark.parametrize(("pipeline", "params"), CASES)
    async def test_it_tells_what_the_run_tells(
        self, worker: Worker, pipeline: Callable[..., Any], params: dict[str, Any]
    ) -> None:
        """Reason, findings, agents and attempts are the same, and the message is there."""
        handle = await start(worker, pipeline, **params)
        [pending] = await waiting(handle)
        read = await read_handoffs(worker.client, handle.id)

        # Of a failure the run says in which stage it was; the history has the failure itself.
        [told] = read.waiting
        assert told.details in pending.details
        assert essence(told) == {**essence(pending), "details": told.details}
        message = read.messages[pending.handoff_id]
        assert (message["handoffId"], message["toAgent"]["agentType"]) == (pending.handoff_id, pending.receiver)
        await abandon(worker.client, handle, pending)
        assert (await read_handoffs(worker.client, handle.id)).waiting == []

    async def test_what_was_never_sent_has_no_message(self, worker: Worker) -> None:
        """Of a handoff that waits for money the history has the step and the deadline; the index has the stage."""
        handle = await spending(worker)
        [pending] = await waiting(handle)
        read = await read_handoffs(worker.client, handle.id)

        [told] = read.waiting
        assert (told.handoff_id, told.seq, told.receiver, told.details) == (
            pending.handoff_id,
            2,
            UNKNOWN,
            UNKNOWN_REASON,
        )
        assert (told.reason, told.actions) == (Code.BUDGET_EXHAUSTED, pending.actions)  # as the timer's summary says
        assert pending.handoff_id not in read.messages
        await abandon(worker.client, handle, pending)


class TestResolveHandoff:
    async def test_each_top_up_is_on_record(self, worker: Worker, safeguards: Safeguards) -> None:
        """With its own person, reason and amount, also where the first ones were too little for it to be sent."""
        handle = await spending(worker)
        for who, micro_usd in (("ann", 1_000), ("bob", 2_000), ("ann", 3_000), ("eve", 24_000)):
            [pending] = await waiting(handle)
            given = decision(pending, "top_up", micro_usd=micro_usd, who=who, why=f"{who} pays")
            await resolve_handoff(worker.client, handle.id, given)
        result = await handle.result()

        async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
            trace = await ledger.trace(result.task_id, verifier=safeguards.keyring.public())
        decided = [one for one in trace.records if one.fields.kind == "decision"]
        assert [(one.fields.actor, one.fields.details, one.body) for one in decided] == [
            ("ann", "ann pays", {"microUsd": 1_000}),
            ("bob", "bob pays", {"microUsd": 2_000}),
            ("ann", "ann pays", {"microUsd": 3_000}),
            ("eve", "eve pays", {"microUsd": 24_000}),
        ]
        assert [one.fields.status for one in trace.records if one.fields.kind == "rollback"] == ["TOP_UP"] * 4

    async def test_more_money_than_a_handoff_can_tell_of_is_refused(self, worker: Worker) -> None:
        """The run goes on waiting; it would end, for no message could be made."""
        handle = await spending(worker)
        [pending] = await waiting(handle)

        with pytest.raises(PipelineError, match="a handoff can state 1000000000 at most"):
            await resolve_handoff(worker.client, handle.id, decision(pending, "top_up", micro_usd=10**15))
        assert await waiting(handle) == [pending]
        await abandon(worker.client, handle, pending)

    async def test_an_edit_reaches_a_branch(self, worker: Worker) -> None:
        """What a branch is sent again is what follows from the edit, and the history alone tells the same baton."""
        handle = await start(worker, ForgetsInABranch.run)
        [pending] = await waiting(handle)
        await resolve_handoff(worker.client, handle.id, decision(pending, "edit", edit={"work_scope": ["annex/*"]}))

        result = PipelineResult.model_validate(await handle.result())
        assert result.baton["current_state"] == ["Worked in annex/*"]
        assert (await read_run(worker.client, handle.id)).baton.to_json_object() == result.baton
        await assert_replays(handle, ALL_PIPELINES, plugin=BatonPlugin())

    async def test_a_decision_counts_for_what_was_shown(self, worker: Worker) -> None:
        """Bob was shown what Ann decides about; what waits under the id by then, nobody has looked at (S3-11-d)."""
        handle = await start(worker, FourAgents.run, poisoned=True)
        [pending] = await waiting(handle)
        anns = decision(pending, "requeue", since=pending.since)
        await resolve_handoff(worker.client, handle.id, anns)
        again = pending
        while again.since == pending.since:
            [again] = await waiting(handle)

        bobs = decision(pending, "release", who="bob", since=pending.since)
        with pytest.raises(PipelineError, match="decided meanwhile and has been waiting again since"):
            await resolve_handoff(worker.client, handle.id, bobs)
        assert await resolve_handoff(worker.client, handle.id, anns) == anns  # she lost the answer, and asks again
        assert await waiting(handle) == [again]
        released = decision(again, "release", since=again.since)
        assert await resolve_handoff(worker.client, handle.id, released) == released
        await handle.result()
        await assert_replays(handle, ALL_PIPELINES, plugin=BatonPlugin())

    @pytest.mark.parametrize(
        ("action", "further", "said"),
        [
            pytest.param("top_up", {"micro_usd": 5}, "does not allow 'top_up'", id="money for a dead letter"),
            pytest.param("edit", {}, "needs a patch", id="an edit without a patch"),
            pytest.param("release", {"who": "Ann\nSmith"}, "in one line", id="a name that cannot be recorded"),
            pytest.param("release", {"who": "\x9b2Kann"}, "in one line", id="a name that steers a terminal"),
            pytest.param("release", {"who": "nna\u202e"}, "in one line", id="a name that turns the line"),
            pytest.param("abandon", {"why": "x" * 10_001}, "10,000 is the most", id="a reason without a reader"),
            pytest.param("edit", {"edit": {"state": []}}, "no such member", id="an edit of what a baton has not"),
            pytest.param("edit", {"edit": {"goal": 7}}, "the edit is refused: goal", id="an edit of the wrong type"),
        ],
    )
    async def test_an_invalid_decision_is_rejected(
        self, worker: Worker, action: str, further: dict[str, Any], said: str
    ) -> None:
        """With the reason, and without a trace in the run's history; the handoff waits as before."""
        handle = await start(worker, FourAgents.run, poisoned=True)
        [pending] = await waiting(handle)

        with pytest.raises(PipelineError, match=said):
            await resolve_handoff(worker.client, handle.id, decision(pending, action, **further))
        assert await waiting(handle) == [pending]
        await abandon(worker.client, handle, pending)

    async def test_a_handoff_that_does_not_wait_is_named(self, worker: Worker) -> None:
        """Perhaps somebody was quicker."""
        handle = await start(worker, FourAgents.run, poisoned=True)
        [pending] = await waiting(handle)
        stale = pending.model_copy(update={"handoff_id": "f47ac10b"})

        with pytest.raises(PipelineError, match="no handoff 'f47ac10b' waits for a person"):
            await resolve_handoff(worker.client, handle.id, decision(stale, "requeue"))
        await abandon(worker.client, handle, pending)
