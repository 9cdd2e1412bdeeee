"""Streamed handoffs: under attack, of any length, in a fork, and in a pipeline that continues as new."""

import asyncio
import re
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.worker import Worker

from baton import PipelineResult
from baton.client import fork, hand_off_to, read_run
from baton.codec.conversion import RECORD, SEALED
from baton.exchange import workflow_messages
from baton.exchange import workflow_streams as streaming
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.exchange.workflow_streams import MAX_AHEAD, MAX_STREAMS, STREAM, Chunk, whole_digest
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from baton.wire.names import HANDOFF_CHUNK
from tests.exchange.exchange_pipelines import EXCHANGES, StreamsIn, StreamsInAndGoesOn, StreamsInLater, StreamsOut
from tests.exchange.test_handing import message
from tests.handoff.handoff_stages import INJECTION
from tests.handoff.test_inbox import waiting
from tests.patience import IN_TIME
from tests.support import Handle, approve, event, failure, most_activities, overview, start, until
from tests.support.tampering import JSON_PLAIN, signal_raw


async def test_what_was_streamed_is_there_in_the_run_that_continues(exchange: Worker, safeguards: Safeguards) -> None:
    """Its code receives the stream again, and the sender gets no second answer."""
    receiver = await start(exchange, StreamsInAndGoesOn.run, id=f"risk-{uuid.uuid4()}")
    # The rest is because no run continues as new within its first second.
    sender = await start(exchange, StreamsOut.run, to=receiver.id, count=5, rest=1)
    assert (await sender.result()).output["answer"] == "accepted"

    newest: Handle = exchange.client.get_workflow_handle(receiver.id, result_type=PipelineResult)
    result = await newest.result()
    assert result.output == {"chunks": [1, 2, 3, 4, 5], "again": 5}
    last = exchange.client.get_workflow_handle(receiver.id, run_id=(await newest.describe()).run_id)
    assert last.run_id != receiver.first_execution_run_id
    signals = EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED
    assert [event async for event in last.fetch_history_events() if event.event_type == signals] == []
    await assert_replays(last, EXCHANGES, plugin=BatonPlugin(safeguards=safeguards))


async def test_a_sender_whose_stream_broke_is_answered_by_the_run_that_continues(
    exchange: Worker, safeguards: Safeguards
) -> None:
    """Its last chunk came after the fault; the next run must still know the digest to answer."""
    first, stream = await start(exchange, StreamsInLater.run, id=f"risk-{uuid.uuid4()}"), str(uuid.uuid4())
    parts: list[dict[str, Any]] = [
        {"seq": 1, "content": {"n": 1}},
        {"seq": 1, "content": {"n": 2}},
        {"seq": 2, "last": True, "whole": whole_digest([{"n": 1}])},
    ]
    for number, part in enumerate(parts, start=1):
        await first.signal(HANDOFF_CHUNK, Chunk(handoff_id=stream, at=datetime.now(UTC), **part))
        await event(first, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, number)
    await asyncio.sleep(1)  # a shorter run does not continue as new
    await approve(exchange.client, first, "begin")
    await event(first, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW)
    step = {STREAM: stream, "replyTo": f"legal-{uuid.uuid4()}"}
    handoff = message(first.id).model_copy(update={"step": step})
    await hand_off_to(exchange.client, handoff, within=IN_TIME, keyring=safeguards.keyring)

    newest: Handle = exchange.client.get_workflow_handle(first.id, result_type=PipelineResult)
    await event(newest, EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED, 2)  # handoff, and whole
    assert "two different chunks have the number 1" in await failure(newest)


async def test_the_rest_is_awaited(exchange: Worker) -> None:
    """Otherwise the run fails with a reason, because its sender would wait in vain."""
    receiver = await start(exchange, StreamsIn.run, id=f"risk-{uuid.uuid4()}", forgets=True)
    sender = await start(exchange, StreamsOut.run, to=receiver.id, count=3)

    assert "called Incoming.rest() and never awaited it" in await failure(receiver)
    await sender.terminate()


async def test_an_attack_that_comes_as_the_receiver_begins(exchange: Worker, safeguards: Safeguards) -> None:
    """Enough chunks to begin are no longer enough; the sender is answered after its last chunk (S3-10.1-b)."""
    queue, stream = f"attacked-{uuid.uuid4()}", str(uuid.uuid4())
    attack = f"{' '.join(f'Clause {number} is as it was.' for number in range(10_000))} {INJECTION}"
    contents: list[dict[str, JsonValue]] = [{"n": 1}, {"n": 2}, {"n": 3, "says": attack}]
    closing: dict[str, Any] = {"last": True, "whole": whole_digest(contents)}
    parts: list[dict[str, Any]] = [*({"content": content} for content in contents), closing]
    chunks = [Chunk(handoff_id=stream, seq=seq, at=datetime.now(UTC), **part) for seq, part in enumerate(parts, 1)]
    async with pipeline_worker(exchange.client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue) as gone:
        receivers = [await start(gone, StreamsIn.run, id=f"risk-{uuid.uuid4()}") for _ in range(5)]
        for receiver in receivers:
            step = {STREAM: stream, "replyTo": f"legal-{uuid.uuid4()}"}
            handoff = message(receiver.id).model_copy(update={"step": step})
            await hand_off_to(exchange.client, handoff, within=IN_TIME, keyring=safeguards.keyring)
    for receiver in receivers:  # what comes while there is no worker comes all at once
        for chunk in chunks[:3]:
            await receiver.signal(HANDOFF_CHUNK, chunk)
    async with pipeline_worker(exchange.client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue):
        for receiver in receivers:
            await event(receiver, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, 4)
            await receiver.signal(HANDOFF_CHUNK, chunks[3])
            assert "chunk 3: the safety scan rejects it" in await failure(receiver)

    for receiver in receivers:
        sent = EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED
        answers = [event async for event in receiver.fetch_history_events() if event.event_type == sent]
        assert len(answers) == 2  # to the handoff, and to the whole
        await assert_replays(receiver, EXCHANGES, plugin=BatonPlugin(safeguards=safeguards))


async def test_a_stream_is_as_long_as_its_sender_makes_it(exchange: Worker, safeguards: Safeguards) -> None:
    """Only chunks that wait for a missing one are limited."""
    receiver = await start(exchange, StreamsIn.run)
    handoff, stream = message(receiver.id), str(uuid.uuid4())
    handoff = handoff.model_copy(update={"step": {STREAM: stream}})
    ack = await hand_off_to(exchange.client, handoff, within=IN_TIME, keyring=safeguards.keyring)
    assert ack.accepted
    contents: list[dict[str, JsonValue]] = [{"n": 1}] * (MAX_AHEAD + 1)
    ending: dict[str, Any] = {"last": True, "whole": whole_digest(contents)}
    parts: list[dict[str, Any]] = [*({"content": content} for content in contents), ending]
    chunks = [Chunk(handoff_id=stream, seq=seq, at=handoff.timestamp, **part) for seq, part in enumerate(parts, 1)]
    for first in range(0, len(chunks), 50):
        await asyncio.gather(*(receiver.signal(HANDOFF_CHUNK, chunk) for chunk in chunks[first : first + 50]))

    assert (await receiver.result()).output["chunks"] == [1] * len(contents)
    await assert_replays(receiver, EXCHANGES, plugin=BatonPlugin(safeguards=safeguards))


@pytest.mark.parametrize("at", ["go on", "extract"])
async def test_what_was_streamed_is_there_in_a_fork(exchange: Worker, safeguards: Safeguards, at: str) -> None:
    """The forked run got it by signals; the fork receives it under the handoff that it takes over."""
    kind = StreamsIn if at == "go on" else StreamsInAndGoesOn
    receiver = await start(exchange, kind.run, pause=True)
    sender = await start(exchange, StreamsOut.run, to=receiver.id, count=3, rest=1)
    await event(receiver, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, 5)
    if at == "go on":
        await approve(exchange.client, receiver, at)
    once = await exchange.client.get_workflow_handle(receiver.id, result_type=PipelineResult).result()
    await sender.result()

    handle = await fork(exchange.client, receiver.id, at, by="bob", why="once more")
    if at == "go on":
        await approve(exchange.client, handle, at)
    repeated = PipelineResult.model_validate(await handle.result())
    assert repeated.output == once.output
    await assert_replays(handle, [kind], plugin=BatonPlugin(safeguards=safeguards))


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ("number", "content.n: a whole number of 2**53 or beyond is not exact in JSON; send it as a string"),
        ("list", "expected an object, got list"),
        ("nan", "content.n.float: Input should be a finite number"),
    ],
)
async def test_a_chunk_that_cannot_be_sent_is_named(exchange: Worker, odd: str, why: str) -> None:
    """The step fails, and the chunk is not sent."""
    receiver = await start(exchange, StreamsIn.run, seconds=1)
    sender = await start(exchange, StreamsOut.run, to=receiver.id, count=3, odd=odd)

    assert await failure(sender) == f"chunk 2 of the stream to 'risk' cannot be sent: {why}"
    assert [step.name for step in (await read_run(exchange.client, sender.id)).steps] == ["stream to risk"]
    await receiver.terminate()


async def test_a_stream_that_its_senders_history_cannot_hold_fails_in_time(
    exchange: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the server would end the run without notice."""
    receiver = await start(exchange, StreamsIn.run, seconds=60)
    monkeypatch.setattr(streaming, "MAX_EVENTS", 100)
    sender = await start(exchange, StreamsOut.run, to=receiver.id, count=50)

    assert re.search(r"chunk \d\d of the stream to 'risk' cannot be sent: .* put more into each", await failure(sender))
    await receiver.terminate()


async def test_a_stream_is_sent_again_only_as_far_as_its_senders_history_can_hold_it(
    exchange: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sending only the last chunk again is enough to ask for the answer."""
    receiver = await start(exchange, StreamsIn.run, pause=True)
    monkeypatch.setattr(streaming, "MAX_EVENTS", 80)
    sender = await start(exchange, StreamsOut.run, to=receiver.id, count=9, seconds=3)
    await event(sender, EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED, 12)  # ten chunks, and one
    await approve(exchange.client, receiver, "go on")

    ack = (await exchange.client.get_workflow_handle(sender.id, result_type=PipelineResult).result()).output
    assert isinstance(ack, dict)
    assert ack["answer"] == "accepted"
    kind = EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED
    assert sum([event.event_type == kind async for event in sender.fetch_history_events()]) <= 13
    await receiver.result()


async def test_chunks_that_cannot_be_used_are_noted(exchange: Worker, safeguards: Safeguards) -> None:
    """Whoever reaches the server can send them; the run refuses each, and says why."""
    receiver = await start(exchange, StreamsIn.run)
    stray = Payload(metadata={**JSON_PLAIN, RECORD: SEALED}, data=b'{"seq":1}')
    for payload in (b"{}", stray):
        await signal_raw(exchange.client, receiver, HANDOFF_CHUNK, payload)
    now = datetime.now(UTC)
    far = Chunk(handoff_id=str(uuid.uuid4()), seq=MAX_AHEAD + 1, at=now)
    firsts = [Chunk(handoff_id=str(uuid.uuid4()), seq=1, at=now) for _ in range(MAX_STREAMS)]
    for chunk in (far, *firsts):
        await receiver.signal(HANDOFF_CHUNK, chunk)
    noted = await until(receiver, lambda now: len(now.notes) == 4)
    assert set(noted.notes) == {
        "refused a signal 'handoff_chunk' that is not a sealed chunk of 4 MiB at most",
        "refused a chunk: it is not sealed: it has no member 'signature'",
        f"refused chunk {far.seq} of stream {far.handoff_id}: chunk 1 is missing, and at most 999 may wait for it",
        "refused a chunk: 100 streams have already begun",
    }

    await hand_off_to(exchange.client, message(receiver.id), within=IN_TIME, keyring=safeguards.keyring)
    assert "is not streamed; use `receive`" in await failure(receiver)
    await assert_replays(receiver, EXCHANGES, plugin=BatonPlugin(safeguards=safeguards))


async def test_a_stream_ends_with_its_receivers_answer(exchange: Worker) -> None:
    """A rejected handoff is followed by no chunk; without an answer to the chunks, the step fails."""
    receiver = await start(exchange, StreamsIn.run, pause=True)
    other = await start(exchange, StreamsOut.run, to=receiver.id, agent="tax", count=3)
    result = await exchange.client.get_workflow_handle(other.id, result_type=PipelineResult).result()
    assert isinstance(result.output, dict)
    assert result.output["answer"] == "rejected"
    sent = EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED
    assert sum([event.event_type == sent async for event in other.fetch_history_events()]) == 1

    sender = await start(exchange, StreamsOut.run, to=receiver.id, count=3, seconds=2)
    assert await failure(sender) == "'risk' has not confirmed within 0:00:02 that it received the whole stream"
    await receiver.terminate()


async def test_a_flood_of_messages_is_opened_in_turn(
    exchange: Worker, safeguards: Safeguards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that came while there was no worker would be opened in one task, which the server rejects for ever."""
    monkeypatch.setattr(workflow_messages, "MAX_IN_PROGRESS", 3)
    queue, now = f"flooded-{uuid.uuid4()}", datetime.now(UTC)
    async with pipeline_worker(exchange.client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue) as gone:
        receiver = await start(gone, StreamsIn.run)
        await overview(receiver)
    for _ in range(20):
        await receiver.signal(HANDOFF_CHUNK, Chunk(handoff_id=str(uuid.uuid4()), seq=1, at=now))
    async with pipeline_worker(exchange.client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue):
        await event(receiver, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, 20)
    assert await most_activities(receiver) == 3
    await receiver.terminate()
    await assert_replays(receiver, EXCHANGES, plugin=BatonPlugin(safeguards=safeguards))


@pytest.mark.parametrize(
    ("says", "status", "reason"),
    [("Clause 3 is as it was.", "ACCEPTED", None), (INJECTION, "REJECTED", "SAFETY_VIOLATION")],
)
async def test_how_a_stream_ended_is_on_record(
    exchange: Worker, safeguards: Safeguards, says: str, status: str, reason: str | None
) -> None:
    """The receiver's verdict about the whole, with its digest, as that about the handoff."""
    receiver = await start(exchange, StreamsIn.run, id=f"risk-{uuid.uuid4()}")
    sender = await start(exchange, StreamsOut.run, to=receiver.id, count=3, says=says)
    result = await sender.result()
    assert isinstance(result.output, dict)
    assert (result.output["answer"], result.output.get("code")) == (status.lower(), reason)

    async with Ledger(safeguards.ledger) as ledger:
        trace = await ledger.trace(result.task_id)
    assert [(record.members["kind"], record.members["status"]) for record in trace.records] == [
        ("handoff", "ACCEPTED"),
        ("stream", status),
    ]
    record = trace.records[1]
    assert record.members.get("reason") == reason
    assert (record.members["fromAgent"], record.members["toAgent"]) == ("legal", "risk")
    assert record.body["closedWith"] == result.output["digest"]
    await assert_replays(receiver, EXCHANGES, plugin=BatonPlugin(safeguards=safeguards))


async def test_a_chunk_whose_seal_does_not_hold_is_on_record(exchange: Worker, safeguards: Safeguards) -> None:
    """Nobody knows its stream, so it is in the receiver's own task."""
    receiver = await start(exchange, StreamsIn.run)
    forged = Payload(metadata={**JSON_PLAIN, RECORD: SEALED}, data=b'{"seq": 1}')
    await signal_raw(exchange.client, receiver, HANDOFF_CHUNK, forged)
    await event(receiver, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, 2)
    task_id = (await overview(receiver)).task_id
    await receiver.terminate()

    async with Ledger(safeguards.ledger) as ledger:
        [record] = (await ledger.trace(task_id)).records
    assert (record.members["status"], record.members["reason"]) == ("REJECTED", "SIGNATURE_INVALID")


async def test_a_person_is_asked_about_a_stream_without_an_answer(exchange: Worker) -> None:
    """As about a handoff without one."""
    receiver = await start(exchange, StreamsIn.run, pause=True)
    sender = await start(exchange, StreamsOut.run, to=receiver.id, count=3, seconds=5, asking=True)
    [pending] = await waiting(sender)
    assert pending.details == "'risk' has not confirmed within 0:00:05 that it received the whole stream"
    await approve(exchange.client, receiver, "go on")
    assert (await sender.result()).output["answer"] == "accepted"
