"""Attacks on exchanging pipelines by somebody who reaches the server and has no key."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineResult
from baton.codec.conversion import RECORD, SEALED
from baton.exchange import workflow_messages as arrivals
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from baton.wire.json_values import loads_strict
from baton.wire.names import HANDOFF
from tests.exchange.exchange_pipelines import EXCHANGES, HandsOff, Receives, ReceivesLater
from tests.exchange.test_exchange_of_runs import fresh, output, sealed_signal, signal_again
from tests.support import Handle, approve, event, overview, start, until
from tests.support.tampering import JSON_PLAIN, signal_raw


async def test_a_forwarded_copy_does_not_end_a_handoff(sealing: Client, exchange: Worker) -> None:
    """Its receiver rejects it on record without an answer, so the sender keeps waiting for the right one."""
    queue = fresh("queue")
    async with pipeline_worker(sealing, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue) as gone:
        receiver = await start(gone, Receives.run, id=fresh("risk"))
        await overview(receiver)
    sender = await start(exchange, HandsOff.run, to=receiver.id)
    copy = await sealed_signal(receiver)
    other = await start(exchange, Receives.run, id=fresh("risk"))
    await signal_again(exchange.client, other, copy, "r1")
    await until(other, lambda now: any("rejected: handoff" in note for note in now.notes))
    await start(exchange, HandsOff.run, to=other.id)  # once it has accepted this one, it has answered the copy
    await output(other)

    async with pipeline_worker(sealing, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue):
        [ack] = await output(sender)
        [received] = await output(receiver)
    assert (ack["answer"], ack["handoffId"]) == ("accepted", received["handoff_id"])


async def failed_by_worker(handle: Handle) -> list[str]:
    """Return why tasks of a run failed, except those that the server ended."""
    return [
        item.workflow_task_failed_event_attributes.failure.message
        async for item in handle.fetch_history_events()
        if item.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
        and item.workflow_task_failed_event_attributes.cause
        == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE
    ]


@pytest.mark.parametrize(
    ("body", "count", "note"),
    [
        pytest.param(b"[" + b'{"a": "12345678"},' * 90_000 + b"1]", 20, "refused a message whose seal", id="large"),
        pytest.param(b"[" + b" " * 4_000_000 + b"]", 20, "64,000,032 bytes are already waiting", id="many"),
        pytest.param(b"[" + b" " * 20_000_000 + b"]", 3, "is not a sealed handoff of 4 MiB at most", id="too large"),
    ],
)
async def test_messages_slow_to_parse_do_not_stop_a_receiver(
    sealing: Client, exchange: Worker, safeguards: Safeguards, body: bytes, count: int, note: str
) -> None:
    """The queue is parsed only in part and bounded in memory; the valid handoff is accepted.

    A signal of a few KiB decompresses to MiBs of blanks.
    """
    queue = fresh("queue")
    codec = sealing.data_converter.payload_codec
    assert codec is not None
    marked = Payload(metadata={**JSON_PLAIN, RECORD: SEALED}, data=body)
    [stored] = await codec.encode([marked]) if b" " * 100 in body else [marked]
    async with pipeline_worker(sealing, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue) as gone:
        receiver = await start(gone, Receives.run, id=fresh("risk"))
        await event(receiver, EventType.EVENT_TYPE_TIMER_STARTED)
    for _ in range(count):
        await signal_raw(exchange.client, receiver, HANDOFF, stored)
    sender = await start(exchange, HandsOff.run, to=receiver.id, seconds=100)
    async with pipeline_worker(sealing, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue):
        [ack] = await output(sender)
        await output(receiver)
        now = await overview(receiver)

    assert ack["answer"] == "accepted"
    assert any(note in text for text in now.notes)
    assert await failed_by_worker(receiver) == []
    await assert_replays(receiver, [Receives], plugin=BatonPlugin(safeguards=safeguards))


@pytest.mark.parametrize(
    ("body", "count"),
    [
        pytest.param(lambda: b"[" + b" " * 4_000_000 + b"]", 15, id="more than anybody reads"),
        pytest.param(lambda: os.urandom(1_400_000), 3, id="more than the server takes"),
    ],
)
async def test_a_full_queue_does_not_prevent_continue_as_new(
    sealing: Client, exchange: Worker, safeguards: Safeguards, body: Callable[[], bytes], count: int
) -> None:
    """The next run takes over the smallest messages that fit, and a note reports the rest."""
    codec = sealing.data_converter.payload_codec
    assert codec is not None
    first = await start(exchange, ReceivesLater.run, id=fresh("risk"))
    await overview(first)
    for _ in range(count):
        [stored] = await codec.encode([Payload(metadata={**JSON_PLAIN, RECORD: SEALED}, data=body())])
        await signal_raw(sealing, first, HANDOFF, stored)
    sender = await start(exchange, HandsOff.run, to=first.id, seconds=50)
    await event(first, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, count + 1)
    await asyncio.sleep(1)  # a shorter run does not continue as new
    await approve(sealing, first, "begin")

    receiver = sealing.get_workflow_handle(first.id, result_type=PipelineResult)
    [ack] = await output(sender)
    assert await output(receiver) == ack["handoffId"]
    assert (await receiver.describe()).run_id != first.first_execution_run_id
    now = await overview(receiver)
    assert any("could not carry over" in note for note in now.notes)
    await assert_replays(receiver, [ReceivesLater], plugin=BatonPlugin(safeguards=safeguards))


def test_a_queued_message_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing a thousand small messages again for each one kept a worker busy for half a minute."""
    read: list[bytes] = []

    def counted(raw: bytes) -> Any:
        read.append(raw)
        return loads_strict(raw)

    monkeypatch.setattr(arrivals, "loads_strict", counted)
    queued = arrivals._Queued(b'{"n": 1}')

    assert queued.key == queued.key
    assert read == [queued.raw]


async def test_a_valid_handoff_is_accepted_behind_many_invalid_ones(sealing: Client, exchange: Worker) -> None:
    """The invalid ones are rejected, and the last one is not lost."""
    queue = fresh("queue")
    async with pipeline_worker(sealing, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue) as gone:
        receiver = await start(gone, Receives.run, id=fresh("risk"))
        await event(receiver, EventType.EVENT_TYPE_TIMER_STARTED)
    for first in range(0, 900, 50):
        marked = [
            Payload(metadata={**JSON_PLAIN, RECORD: SEALED}, data=f'{{"n": {first + nth}}}'.encode())
            for nth in range(50)
        ]
        await asyncio.gather(*(signal_raw(sealing, receiver, HANDOFF, payload) for payload in marked))
    sender = await start(exchange, HandsOff.run, to=receiver.id, seconds=100)
    await event(receiver, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, 901)
    async with pipeline_worker(sealing, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue):
        [ack] = await output(sender)
    assert ack["answer"] == "accepted"
