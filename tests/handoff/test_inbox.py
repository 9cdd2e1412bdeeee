"""The inbox over all runs: pending handoffs, read from runs or their histories, and people's decisions."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import Budget, PipelineInput, PipelineResult, PipelineStatus
from baton.client import (
    Answer,
    News,
    NewsKind,
    PendingHandoff,
    Question,
    WaitingQuestion,
    decide,
    follow,
    inbox,
    read_handoffs,
    read_run,
    roll_back,
)
from baton.core.verdict import Code
from baton.devserver import DevServer
from baton.errors import HistoryError, PipelineError
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.runs import client_waiting
from baton.testing import assert_replays, pipeline_worker
from baton.wire.names import QUERY_QUESTIONS
from tests.handoff import handoff_pipelines, handoff_stages
from tests.handoff.handoff_pipelines import Breaks, Forgets, FourAgents, Spends
from tests.handoff.inbox_pipelines import PIPELINES, ForgetsInABranch, TaintedTwice
from tests.handoff.inbox_stages import STAGES
from tests.support import LIMIT, Handle, failure, sealing_worker, start, until

ALL_PIPELINES = [*handoff_pipelines.PIPELINES, *PIPELINES]
ALL_STAGES: list[Callable[..., Any]] = [*handoff_stages.STAGES, *STAGES]


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    async with sealing_worker(server, safeguards, ALL_PIPELINES, ALL_STAGES) as worker:
        yield worker


async def waiting(handle: Handle, count: int = 1) -> list[PendingHandoff]:
    """Return the pending handoffs, once there are that many."""
    return [question.handoff for question in await asked(handle, count) if question.handoff]


async def asked(handle: Handle, count: int = 1) -> list[Question]:
    """Return the questions about handoffs, once there are that many."""
    while True:
        await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
        questions: list[Question] = await handle.query(QUERY_QUESTIONS, result_type=list[Question])
        if len(about := [question for question in questions if question.handoff]) == count:
            return about


async def listed(client: Client, handle: Handle) -> list[WaitingQuestion]:
    """Return a run's entries in the inbox, once the server's index has it."""
    while True:
        entries = [entry async for entry in inbox(client) if entry.workflow_id == handle.id]
        if entries:
            return entries
        await asyncio.sleep(0.05)  # the index lags behind, and tells nobody when it has caught up


async def abandon(client: Client, handle: Handle, *pending: PendingHandoff) -> None:
    """Abandon handoffs, so that the run ends."""
    for handoff in pending:
        await decide(client, handle.id, decision(handoff, "abandon"))
    await failure(handle)


def decision(about: PendingHandoff | Question, action: str, **members: Any) -> Answer:
    """Return Ann's decision about a handoff, whatever is asked of it, or about exactly what was asked."""
    usual: dict[str, Any] = {"who": "ann", "why": "I looked at it"}
    forms = {"micro_usd": "micro_usd", "edit": "patch"}
    data = {forms[name]: members.pop(name) for name in [*members] if name in forms}
    members = {**usual, **members, "choice": action, "data": data or None}
    if isinstance(about, Question):
        return Answer(question=about.id, digest=about.digest, **members)
    return Answer(question=about.handoff_id, **members)


async def spending(worker: Worker) -> Handle:
    """Start a run whose budget is too small."""
    start_input = PipelineInput(goal="Review", budget=Budget(initial_micro_usd=200_000))
    id = f"spends-{uuid4()}"
    return await worker.client.start_workflow(
        Spends.run, start_input, id=id, task_queue=worker.task_queue, execution_timeout=LIMIT
    )


async def until_heard(client: Client, handle: Handle) -> News:
    """Return the first news of a pending handoff."""
    async for update in follow(client, handle.id):
        for news in update.news:
            if news.kind is NewsKind.HANDOFF_WAITS:
                return news
    raise AssertionError(f"{handle.id} ended, and no handoff waited")


class TestFollowed:
    async def test_it_is_news_and_gone_once_it_is_decided(self, worker: Worker) -> None:
        """A handoff that was never sent, because of its budget, has no step in the history, and is news as well."""
        handle = await spending(worker)
        [pending] = await waiting(handle)

        update = await until_heard(worker.client, handle)
        assert update.step is None
        assert [
            waiting_handoff.handoff_id
            for waiting_handoff in (await read_run(worker.client, handle.id)).pending_handoffs
        ] == [pending.handoff_id]
        await handle.terminate()
        assert (await read_run(worker.client, handle.id)).pending_handoffs == []


class TestRolledBack:
    """Back to before a step about which a person was asked before its handoff was sent."""

    async def test_the_person_is_asked_again_about_another_handoff(self, worker: Worker) -> None:
        """Under the old id it would be rejected as a forgery, because its receiver had answered another message."""
        handle = await spending(worker)
        [pending] = await waiting(handle)
        await decide(worker.client, handle.id, decision(pending, "top_up", micro_usd=30_000))
        await handle.result()

        await roll_back(worker.client, handle.id, "dear", by="ann", why="once more")
        new_run = worker.client.get_workflow_handle(handle.id)
        [other] = await waiting(new_run)
        assert (other.reason, other.handoff_id != pending.handoff_id) == (Code.BUDGET_EXHAUSTED, True)
        await decide(worker.client, handle.id, decision(other, "top_up", micro_usd=1_000_000))
        await new_run.result()


class TestInbox:
    async def test_it_lists_handoffs_until_they_are_decided(self, worker: Worker) -> None:
        """With run, task, agents, reason and deadline, the nearest deadline first."""
        first = await start(worker, FourAgents.run, poisoned=True)
        [pending] = await waiting(first)
        second = await start(worker, Forgets.run, stubborn=True)
        [other] = await waiting(second)

        [found], [later] = await listed(worker.client, first), await listed(worker.client, second)
        assert found.handoff == pending
        assert (found.pipeline, found.run_id, found.has_worker) == ("FourAgents", first.result_run_id, True)
        assert found.task_id is not None
        assert later.handoff == other
        order = [entry.workflow_id async for entry in inbox(worker.client)]
        assert order.index(first.id) < order.index(second.id)

        await abandon(worker.client, first, pending)
        assert first.id not in [entry.workflow_id async for entry in inbox(worker.client)]
        await abandon(worker.client, second, other)

    async def test_each_branch_of_a_fan_out_waits_separately(self, worker: Worker) -> None:
        """Two receivers of one step that reject it need two decisions."""
        handle = await start(worker, TaintedTwice.run)
        pending = await waiting(handle, 2)

        assert [entry.handoff async for entry in inbox(worker.client, handle.id)] == pending
        assert {handoff.receiver for handoff in pending} == {"score", "summarise"}
        for handoff in pending:
            await decide(worker.client, handle.id, decision(handoff, "release"))
        await handle.result()

    async def test_without_a_worker_it_is_the_same(
        self, server: DevServer, safeguards: Safeguards, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Reason, findings and possible decisions are in the history, and nothing asks the run."""
        client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
        async with pipeline_worker(client, ALL_PIPELINES, ALL_STAGES) as short:
            handle = await start(short, FourAgents.run, poisoned=True)
            [question] = await asked(handle)
            pending = question.handoff
            assert pending is not None

        with monkeypatch.context() as patched:
            patched.setattr(client_waiting, "WORKER_SILENCE", timedelta(0))  # its worker was never there
            [entry] = await listed(client, handle)
            [whole] = [entry async for entry in inbox(client, handle.id)]
        assert (whole.handoff, whole.has_worker, entry.has_worker) == (pending, False, False)
        assert (entry.handoff and entry.handoff.details, entry.deadline) == (pending.details, question.until)
        assert entry.to_json_object()["choices"] == [action.value for action in pending.actions]

        async with pipeline_worker(client, ALL_PIPELINES, ALL_STAGES, task_queue=short.task_queue):
            [entry] = [entry async for entry in inbox(client, handle.id)]
            assert (entry.handoff, entry.has_worker) == (pending, True)
            await abandon(client, handle, pending)

    async def test_an_unreadable_handoff_is_listed(self, server: DevServer, tmp_path: Path) -> None:
        """For a client without keys or worker it has the run, the stage, and the trouble."""
        encrypted = Safeguards.development(tmp_path, encrypt=True)
        client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=encrypted)])
        async with pipeline_worker(client, ALL_PIPELINES, ALL_STAGES) as short:
            handle = await start(short, FourAgents.run, poisoned=True)
            await waiting(handle)

        keyless = await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])
        [entry] = await listed(keyless, handle)
        assert (entry.handoff, entry.stage) == (None, "score")
        assert "cannot be decoded" in (entry.trouble or "")
        with pytest.raises(HistoryError, match="cannot be decoded"):
            [entry async for entry in inbox(keyless, handle.id)]
        assert (await listed(client, handle))[0].handoff is not None
        await handle.terminate()

    async def test_an_ended_run_has_no_pending_handoffs(self, worker: Worker) -> None:
        """They can no longer be decided."""
        handle = await start(worker, FourAgents.run, poisoned=True)
        await waiting(handle)
        await handle.terminate()

        assert [entry async for entry in inbox(worker.client, handle.id)] == []


class TestReadHandoffs:
    CASES = (
        pytest.param(FourAgents.run, {"poisoned": True}, id="a dead letter"),
        pytest.param(Forgets.run, {"stubborn": True}, id="an escalation"),
        pytest.param(Breaks.run, {}, id="a receiver that failed"),
    )

    @pytest.mark.parametrize(("pipeline", "params"), CASES)
    async def test_it_agrees_with_the_run(
        self, worker: Worker, pipeline: Callable[..., Any], params: dict[str, Any]
    ) -> None:
        """Reason, findings, agents and attempts are the same, and it has the message."""
        handle = await start(worker, pipeline, **params)
        [pending] = await waiting(handle)
        read = await read_handoffs(worker.client, handle.id)

        assert [question.handoff for question in read.run.questions] == [pending]
        message = read.messages[pending.handoff_id]
        assert (message["handoffId"], message["toAgent"]["agentType"]) == (pending.handoff_id, pending.receiver)
        await abandon(worker.client, handle, pending)
        assert (await read_run(worker.client, handle.id)).questions == []

    async def test_a_handoff_never_sent_has_no_message(self, worker: Worker) -> None:
        """The history has all else of a handoff that waits for a top-up."""
        handle = await spending(worker)
        [pending] = await waiting(handle)
        read = await read_handoffs(worker.client, handle.id)

        assert [question.handoff for question in read.run.questions] == [pending]
        assert pending.reason is Code.BUDGET_EXHAUSTED
        assert pending.handoff_id not in read.messages
        await abandon(worker.client, handle, pending)


class TestResolveHandoff:
    async def test_each_top_up_is_on_record(self, worker: Worker, safeguards: Safeguards) -> None:
        """With its person, reason and amount, also if the first ones were not enough."""
        handle = await spending(worker)
        for who, micro_usd in (("ann", 1_000), ("bob", 2_000), ("ann", 3_000), ("eve", 24_000)):
            [pending] = await waiting(handle)
            top_up = decision(pending, "top_up", micro_usd=micro_usd, who=who, why=f"{who} pays")
            await decide(worker.client, handle.id, top_up)
        result = await handle.result()

        async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
            trace = await ledger.trace(result.task_id, verifier=safeguards.keyring.public())
        decided = [record for record in trace.records if record.fields.kind == "decision"]
        assert [(record.fields.actor, record.fields.details, record.body["data"]) for record in decided] == [
            ("ann", "ann pays", {"micro_usd": 1_000}),
            ("bob", "bob pays", {"micro_usd": 2_000}),
            ("ann", "ann pays", {"micro_usd": 3_000}),
            ("eve", "eve pays", {"micro_usd": 24_000}),
        ]
        assert [record.fields.status for record in trace.records if record.fields.kind == "rollback"] == ["TOP_UP"] * 4

    async def test_a_top_up_beyond_the_maximum_is_refused(self, worker: Worker) -> None:
        """The run keeps waiting; otherwise it would end, because no message could be made."""
        handle = await spending(worker)
        [pending] = await waiting(handle)

        with pytest.raises(PipelineError, match="a handoff can state 1000000000 at most"):
            await decide(worker.client, handle.id, decision(pending, "top_up", micro_usd=10**15))
        assert await waiting(handle) == [pending]
        await abandon(worker.client, handle, pending)

    async def test_an_edit_reaches_a_branch(self, worker: Worker) -> None:
        """The branch gets the edited baton, and the history alone yields the same baton."""
        handle = await start(worker, ForgetsInABranch.run)
        [pending] = await waiting(handle)
        await decide(worker.client, handle.id, decision(pending, "edit", edit={"work_scope": ["annex/*"]}))

        result = PipelineResult.model_validate(await handle.result())
        assert result.baton["current_state"] == ["Worked in annex/*"]
        assert (await read_run(worker.client, handle.id)).baton.to_json_object() == result.baton
        await assert_replays(handle, ALL_PIPELINES, plugin=BatonPlugin())

    async def test_a_decision_counts_only_for_the_wait_that_was_shown(self, worker: Worker) -> None:
        """Ann decides what Bob saw; nobody has seen the handoff that now waits under the id (S3-11-d)."""
        handle = await start(worker, FourAgents.run, poisoned=True)
        [question] = await asked(handle)
        anns = decision(question, "requeue")
        first = await decide(worker.client, handle.id, anns)
        again = question
        while again.id == question.id:
            [again] = await asked(handle)

        with pytest.raises(PipelineError, match=f"question {question.id} was answered: .* was requeued by ann"):
            await decide(worker.client, handle.id, decision(question, "release", who="bob"))
        assert await decide(worker.client, handle.id, anns) == first  # she lost the answer, and asks again
        assert await asked(handle) == [again]
        assert (await decide(worker.client, handle.id, decision(again, "release"))).choice == "release"
        await handle.result()
        await assert_replays(handle, ALL_PIPELINES, plugin=BatonPlugin())

    @pytest.mark.parametrize(
        ("action", "members", "message"),
        [
            pytest.param("top_up", {"micro_usd": 5}, "does not allow 'top_up'", id="money for a dead letter"),
            pytest.param("edit", {}, "does not fit: patch: Field required", id="an edit without a patch"),
            pytest.param("edit", {"edit": {"state": []}}, "no such member", id="an edit of what a baton has not"),
            pytest.param("edit", {"edit": {"goal": 7}}, "the edit is refused: goal", id="an edit of the wrong type"),
        ],
    )
    async def test_an_invalid_decision_is_rejected(
        self, worker: Worker, action: str, members: dict[str, Any], message: str
    ) -> None:
        """With a reason, and without a trace in the run's history; the handoff keeps waiting."""
        handle = await start(worker, FourAgents.run, poisoned=True)
        [pending] = await waiting(handle)

        with pytest.raises(PipelineError, match=message):
            await decide(worker.client, handle.id, decision(pending, action, **members))
        assert await waiting(handle) == [pending]
        await abandon(worker.client, handle, pending)

    async def test_a_handoff_that_does_not_wait_is_named(self, worker: Worker) -> None:
        """Somebody may have been quicker."""
        handle = await start(worker, FourAgents.run, poisoned=True)
        [pending] = await waiting(handle)
        stale = pending.model_copy(update={"handoff_id": "f47ac10b"})

        with pytest.raises(PipelineError, match="question 'f47ac10b' is not open"):
            await decide(worker.client, handle.id, decision(stale, "requeue"))
        await abandon(worker.client, handle, pending)
