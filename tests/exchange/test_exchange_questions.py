"""Queries of a run at the moment in which chunks or answers arrive, or the time is up."""

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import JsonValue
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.service import RPCError
from temporalio.worker import Worker

from baton.codec.conversion import RECORD, SEALED
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.exchange.workflow_streams import STREAM, Chunk, whole_digest
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from baton.wire.names import ANSWER, HANDOFF, HANDOFF_ANSWER, HANDOFF_CHUNK, QUERY_STATUS
from tests.exchange.exchange_pipelines import EXCHANGES, Accepts, Broadcasts, HandsOff, Receives, StreamsIn, StreamsOut
from tests.exchange.test_exchange_of_runs import output
from tests.exchange.test_handing import message
from tests.handoff.handoff_stages import extract
from tests.patience import IN_TIME
from tests.support import Handle, answer_to, event, events, overview, start
from tests.support.tampering import JSON_PLAIN, signal_raw


async def test_a_question_in_the_moment_of_the_last_chunk(exchange: Worker, safeguards: Safeguards) -> None:
    """In whichever task the query falls, any worker can continue the run from its history."""
    queue = f"asked-{uuid.uuid4()}"
    stages: list[Callable[..., Any]] = [extract, *EXCHANGE_ACTIVITIES]
    async with pipeline_worker(exchange.client, EXCHANGES, stages, task_queue=queue) as gone:
        receivers = [await start(gone, StreamsIn.run, pause=True) for _ in range(8)]
        for receiver in receivers:
            await start(exchange, StreamsOut.run, to=receiver.id, count=3, rest=3)
        decisions = await asyncio.gather(*(answer_to(receiver, "go on") for receiver in receivers))
    for receiver, decision in zip(receivers, decisions, strict=True):
        await event(receiver, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, 5)
        await receiver.signal(ANSWER, decision)
    queries = [asyncio.create_task(receiver.query(QUERY_STATUS)) for receiver in receivers]
    await asyncio.sleep(0.5)
    async with pipeline_worker(exchange.client, EXCHANGES, stages, task_queue=queue):
        results = [await receiver.result() for receiver in receivers]
        await asyncio.gather(*queries)

    assert [result.output["chunks"] for result in results] == [[1, 2, 3]] * 8
    for receiver in receivers:
        await assert_replays(receiver, EXCHANGES, plugin=BatonPlugin(safeguards=safeguards))


async def began_to_wait(receiver: Handle, within: timedelta) -> datetime:
    """Return when a timer of that length was started."""
    async for history_event in events(receiver):
        if history_event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta() == within:
            return history_event.event_time.ToDatetime(UTC)
    raise AssertionError(f"{receiver.id} has closed")


async def test_the_last_chunk_in_the_moment_in_which_the_time_is_up(exchange: Worker, safeguards: Safeguards) -> None:
    """The run may see the chunk after the timeout, and in a replay before it, with the same result."""
    queue, within = f"late-{uuid.uuid4()}", timedelta(seconds=10)
    async with pipeline_worker(exchange.client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue) as gone:
        receivers, senders = [], []
        for _ in range(8):
            receivers.append(await start(gone, StreamsIn.run, seconds=within.total_seconds()))
            senders.append(await start(exchange, StreamsOut.run, to=receivers[-1].id, count=3, held=True, seconds=90))
        for receiver in receivers:
            await event(receiver, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, 3)
        first = min([await began_to_wait(receiver, within) for receiver in receivers])
    for sender, receiver in zip(senders, receivers, strict=True):
        await sender.signal(StreamsOut.more)
        await event(receiver, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, 5)
    await asyncio.sleep((first + within - datetime.now(UTC)).total_seconds() - 1)
    queries = [asyncio.create_task(receiver.query(StreamsIn.pondered)) for receiver in receivers]
    await asyncio.sleep(0.5)
    async with pipeline_worker(exchange.client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue):
        results = [await receiver.result() for receiver in receivers]
        await asyncio.gather(*queries)

    assert [result.output["chunks"] for result in results] == [[1, 2, 3]] * 8
    for receiver in receivers:
        await assert_replays(receiver, EXCHANGES, plugin=BatonPlugin(safeguards=safeguards))


async def test_a_chunk_that_is_opened_while_another_comes(exchange: Worker, safeguards: Safeguards) -> None:
    """Whether the receiver sees both at once, because of a query, or in turn, its commands are the same."""
    queue, stream = f"both-{uuid.uuid4()}", str(uuid.uuid4())
    long = " ".join(f"Clause {number} is as it was." for number in range(10_000))
    contents: list[dict[str, JsonValue]] = [{"n": 1}, {"n": 2}, {"n": 3, "says": long}]
    closing: dict[str, Any] = {"last": True, "whole": whole_digest(contents)}
    parts: list[dict[str, Any]] = [*({"content": content} for content in contents), closing]
    chunks = [Chunk(handoff_id=stream, seq=seq, at=datetime.now(UTC), **part) for seq, part in enumerate(parts, 1)]
    began = EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED

    async def close(receiver: Handle, task: int) -> None:
        await event(receiver, began, task)
        await receiver.signal(HANDOFF_CHUNK, chunks[3])

    async with pipeline_worker(exchange.client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue) as gone:
        receivers = [await start(gone, StreamsIn.run, pause=True) for _ in range(5)]
        for receiver in receivers:
            await receiver.signal(HANDOFF, message(receiver.id).model_copy(update={"step": {STREAM: stream}}))
            for chunk in chunks[:2]:
                await receiver.signal(HANDOFF_CHUNK, chunk)
        decisions = [await answer_to(receiver, "go on") for receiver in receivers]
    tasks = [sum(event.event_type == began for event in (await it.fetch_history()).events) for it in receivers]
    for receiver, decision in zip(receivers, decisions, strict=True):
        await receiver.signal(ANSWER, decision)
        await receiver.signal(HANDOFF_CHUNK, chunks[2])
    queries = [asyncio.create_task(receiver.query(QUERY_STATUS)) for receiver in receivers]
    await asyncio.sleep(0.5)
    async with pipeline_worker(exchange.client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue):
        closed = (close(receiver, task + 1) for receiver, task in zip(receivers, tasks, strict=True))
        await asyncio.gather(*closed, *queries)
        assert [(await receiver.result()).output["chunks"] for receiver in receivers] == [[1, 2, 3]] * 5

    for receiver in receivers:
        await assert_replays(receiver, EXCHANGES, plugin=BatonPlugin(safeguards=safeguards))


async def test_questions_while_answers_come(exchange: Worker, safeguards: Safeguards) -> None:
    """Whichever answer a query delays to the next task, the run's commands are the same."""
    statuses: list[Any] = []

    async def watch(sender: Handle) -> None:
        while True:
            with suppress(RPCError):  # one of so many questions may come too late
                statuses.append(await sender.query(QUERY_STATUS))

    agents = ("risk", "tax", "style", "law")
    to = [{agent: (await start(exchange, Accepts.run, agent=agent)).id for agent in agents} for _ in range(12)]
    senders = await asyncio.gather(*(start(exchange, Broadcasts.run, to=ids) for ids in to))
    watching = [asyncio.create_task(watch(sender)) for sender in senders]
    results = await asyncio.gather(*(sender.result() for sender in senders))
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)

    assert statuses
    assert [len(result.output["answers"]) for result in results] == [4] * 12
    for sender in senders:
        await assert_replays(sender, [Broadcasts], plugin=BatonPlugin(safeguards=safeguards))


async def test_handoffs_and_answers_while_somebody_looks_on(exchange: Worker, safeguards: Safeguards) -> None:
    """A replay may open either of two messages first; each gets its own result."""
    within = IN_TIME.total_seconds()  # the handoff waits behind all the strays
    receiver = await start(exchange, Receives.run, seconds=within)
    await overview(receiver)

    async def look_on() -> None:
        while True:
            with suppress(RPCError):
                await receiver.query(QUERY_STATUS)

    looking = asyncio.create_task(look_on())
    for number in range(45):
        for burst, signal in ((1 + number % 3, HANDOFF), (1 + number // 3 % 3, HANDOFF_ANSWER)):
            for item in range(burst):
                body = b'{"stray":[%d,%d]}' % (number, item)
                stray = Payload(metadata={**JSON_PLAIN, RECORD: SEALED}, data=body)
                await signal_raw(exchange.client, receiver, signal, stray)
        await asyncio.sleep(number * 7 % 5 / 100)
    sender = await start(exchange, HandsOff.run, to=receiver.id, seconds=within)
    [received] = await output(receiver)
    looking.cancel()

    assert received["handoff_id"] == (await output(sender))[0]["handoffId"]
    await assert_replays(receiver, EXCHANGES, plugin=BatonPlugin(safeguards=safeguards))
