"""An unanswered handoff to another pipeline, which waits in the sender's inbox for a person."""

import asyncio
import json
import sqlite3
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.worker import Worker

from baton import PipelineInput, PipelineResult, PipelineStatus
from baton.client import HandoffAction, PendingHandoff, Question, decide, read_run
from baton.errors import PipelineError
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.exchange.records import Acknowledgement, Reply, message_digest
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger, LedgerOptions
from baton.outside.client_external import HandoffRef, OutsideAgents
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from baton.wire.names import HANDOFF_ANSWER
from tests.exchange.exchange_pipelines import (
    EXCHANGES,
    AsksTheInbox,
    Broadcasts,
    GoesOn,
    HandsOff,
    HandsTwoOn,
    Receives,
    StreamsIn,
    StreamsOut,
)
from tests.handoff.test_inbox import asked, decision, waiting
from tests.support import LIMIT, Handle, event, failure, start, until


async def unanswered(exchange: Worker, to: str) -> tuple[Handle, Question]:
    """Start a run whose handoff nobody answers, and return it once a person is asked."""
    handle = await start(exchange, AsksTheInbox.run, to=to, seconds=2)
    [question] = await asked(handle)
    return handle, question


def about(question: Question) -> PendingHandoff:
    assert question.handoff is not None
    return question.handoff


async def decisions(safeguards: Safeguards, task_id: str) -> list[tuple[str, str, str | None, str | None]]:
    """Return the recorded roll-backs and decisions: kind, status, who and why."""
    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        trace = await ledger.trace(task_id, verifier=safeguards.keyring.public())
    fields = [record.fields for record in trace.records]
    return [
        (field.kind, field.status, field.actor, field.details if field.actor else None)
        for field in fields
        if field.kind in ("rollback", "decision")
    ]


class TestUnanswered:
    async def test_a_requeue_sends_the_same_message(self, exchange: Worker, safeguards: Safeguards) -> None:
        """Each requeue is recorded with who and why; the run replays with and without keys."""
        to = f"risk-{uuid.uuid4()}"
        handle, question = await unanswered(exchange, to)
        pending = about(question)
        await decide(exchange.client, handle.id, decision(pending, "requeue"))
        repeated = question
        while repeated.id == question.id:
            [repeated] = await asked(handle)
        receiver = await start(exchange, Receives.run, id=to)
        bob = repeated.answer("requeue", who="bob", why="it is started now")
        await decide(exchange.client, handle.id, bob)

        result = PipelineResult.model_validate(await handle.result())
        assert (await receiver.result()).output[0]["handoff_id"] == pending.handoff_id
        assert await decisions(safeguards, result.task_id) == [
            ("rollback", "ESCALATE", None, None),
            ("decision", "REQUEUE", "ann", "I looked at it"),
            ("rollback", "ESCALATE", None, None),
            ("decision", "REQUEUE", "bob", "it is started now"),
        ]
        for plugin in (BatonPlugin(safeguards=safeguards), BatonPlugin()):
            await assert_replays(handle, EXCHANGES, plugin=plugin)

    async def test_a_streamed_one_is_accepted_however_late(self, exchange: Worker, safeguards: Safeguards) -> None:
        """The first deadline has passed when a person requeues it."""
        to = f"risk-{uuid.uuid4()}"
        handle = await start(exchange, StreamsOut.run, to=to, count=3, seconds=2, asking=True)
        [pending] = await waiting(handle)
        receiver = await start(exchange, StreamsIn.run, id=to)
        await decide(exchange.client, handle.id, decision(pending, "requeue"))

        assert (await handle.result()).output["answer"] == "accepted"
        assert (await receiver.result()).output["chunks"] == [1, 2, 3]
        await assert_replays(handle, EXCHANGES, plugin=BatonPlugin(safeguards=safeguards))

    async def test_an_edit_is_refused(self, exchange: Worker) -> None:
        """The receiver may already have the message, and would reject another one under its id."""
        handle, question = await unanswered(exchange, f"risk-{uuid.uuid4()}")
        pending = about(question)
        assert pending.actions == (HandoffAction.REQUEUE, HandoffAction.ABANDON)
        with pytest.raises(PipelineError, match="does not allow 'edit'; use requeue, abandon"):
            await decide(exchange.client, handle.id, decision(pending, "edit", edit={"current_state": ["Other"]}))
        await decide(exchange.client, handle.id, decision(pending, "abandon"))
        assert "ann gave it up: I looked at it" in await failure(handle)

    async def test_a_late_answer_ends_the_question(self, exchange: Worker, safeguards: Safeguards) -> None:
        """The receiver's worker was down; its acceptance ends the question, and nobody can give the handoff up."""
        to, queue = f"risk-{uuid.uuid4()}", f"down-{uuid.uuid4()}"
        start_input = PipelineInput(goal="Score", params={"seconds": 60})
        await exchange.client.start_workflow(
            Receives.run, start_input, id=to, task_queue=queue, execution_timeout=LIMIT
        )
        handle = await start(exchange, AsksTheInbox.run, to=to, seconds=10)
        [pending] = await waiting(handle)

        async with pipeline_worker(exchange.client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue):
            result = PipelineResult.model_validate(await handle.result())
        assert isinstance(result.output, dict)
        assert (result.output["answer"], result.output["handoffId"]) == ("accepted", pending.handoff_id)
        now = await until(handle, lambda now: True)
        assert any("answered" in note and "after all" in note for note in now.notes)
        await assert_replays(handle, EXCHANGES, plugin=BatonPlugin(safeguards=safeguards))

    async def test_a_decision_stands_while_it_is_recorded(self, exchange: Worker, safeguards: Safeguards) -> None:
        """An answer that arrives meanwhile changes nothing, because the person already knows the decision."""
        handle = await start(
            exchange, AsksTheInbox.run, task_timeout=timedelta(seconds=2), to=f"risk-{uuid.uuid4()}", seconds=2
        )
        [pending] = await waiting(handle)
        async for item in handle.fetch_history_events():
            if item.HasField("signal_external_workflow_execution_initiated_event_attributes"):
                sent = item.signal_external_workflow_execution_initiated_event_attributes.input.payloads
        codec = exchange.client.data_converter.payload_codec
        assert codec is not None
        [message] = await codec.decode(sent)
        ack = Acknowledgement(
            handoff_id=pending.handoff_id,
            digest=message_digest(json.loads(message.data)),
            answer=Reply.ACCEPTED,
            by="risk",
            at=datetime.now(UTC),
        )
        with sqlite3.connect(str(safeguards.ledger), isolation_level=None) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            deciding = asyncio.create_task(
                decide(exchange.client, handle.id, decision(pending, "abandon")),
            )
            await event(handle, EventType.EVENT_TYPE_TIMER_CANCELED)
            await handle.signal(HANDOFF_ANSWER, ack)
            await event(handle, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
            await asyncio.sleep(1)  # it is opened in the task that follows, which lasts until the record is written
            lock.execute("ROLLBACK")
        lock.close()

        assert (await deciding).who == "ann"
        assert (await failure(handle)).endswith("ann gave it up: I looked at it (since then 'risk' answered accepted)")
        run = await read_run(exchange.client, handle.id)
        assert [(step.name, step.status.value) for step in run.steps][1:] == [("hand off to risk", "failed")]
        assert ("decision", "ABANDON", "ann", "I looked at it") in await decisions(safeguards, run.task_id or "")
        await assert_replays(handle, EXCHANGES, plugin=BatonPlugin(safeguards=safeguards))

    async def test_a_pipeline_that_continues_without_an_answer_is_not_pending(self, exchange: Worker) -> None:
        """Nobody is asked and the inbox is empty, so an alert on pending handoffs must end."""
        handle = await start(exchange, GoesOn.run, to=f"risk-{uuid.uuid4()}")
        now = await until(handle, lambda now: any(wait.kind == "sleep" for wait in now.waiting_for))

        assert now.status is PipelineStatus.RUNNING
        assert now.notes[-1].startswith("escalated")
        described = await handle.describe()
        assert "BatonStatus" not in {pair.key.name for pair in described.typed_search_attributes}
        await handle.terminate()


async def test_an_outside_agent_finds_its_handoff_while_a_person_is_asked(
    exchange: Worker, safeguards: Safeguards
) -> None:
    """Both wait in one run, whose status shows the graver one first, then the other."""
    handle = await start(exchange, HandsTwoOn.run)
    [pending] = await waiting(handle)
    async with safeguards.shared().open() as guarded:
        agents = OutsideAgents(exchange.client, guarded.gate)

        async def find_work() -> HandoffRef | None:
            return await anext(
                (ref async for ref in agents.list_open("reviewer") if ref.workflow_id == handle.id), None
            )

        while (work := await find_work()) is None:
            assert (await handle.describe()).close_time is None
            await asyncio.sleep(0.05)  # the index lags behind, and tells nobody when it has caught up
        await decide(exchange.client, handle.id, decision(pending, "abandon"))
        now = await until(handle, lambda now: len(now.waiting_for) == 1)
        assert now.status is PipelineStatus.WAITING

        work = await agents.claim(work, "reviewer")
        assert (await agents.accept(work, "reviewer")).verdict
        await agents.return_report(work, "reviewer", {"pages": 3})
    assert (await handle.result()).output["report"] == {"pages": 3}
    await assert_replays(handle, EXCHANGES, plugin=BatonPlugin(safeguards=safeguards))


async def test_a_failed_broadcast_names_who_rejected_and_why(exchange: Worker) -> None:
    """A receiver whose answer was still possible is not called silent."""
    refuses = await start(exchange, Receives.run, needs=["clauses"])
    busy = await start(exchange, GoesOn.run, to=f"nobody-{uuid.uuid4()}")
    sender = await start(exchange, Broadcasts.run, to={"risk": refuses.id, "style": busy.id})

    assert (await failure(sender)).endswith(
        "0 of 2 accepted: 'risk' answered needs_input (currentState lacks 'clauses', which 'risk' requires; send it); "
        "'style' had not answered"
    )
    await busy.terminate()
    await refuses.terminate()


async def test_a_state_that_no_message_can_carry_fails_its_step(exchange: Worker) -> None:
    """Like any other fault of a message; the pipeline's code can catch it."""
    sender = await start(exchange, HandsOff.run, to="nobody", nan=True)
    assert (await failure(sender)).startswith("the handoff to 'risk' cannot be made: nan is not")
    assert [step.name for step in (await read_run(exchange.client, sender.id)).steps] == ["hand off to risk"]
