"""Follows a run live, across lost connections, roll-backs and continue-as-new."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from baton.errors import BatonError, HistoryError
from baton.runs.client_events import is_refusal, time_of
from baton.runs.client_executions import PAUSED, describe, history
from baton.runs.client_news import News, news_of, streamed_news, with_streams
from baton.runs.client_reader import find_chain_start, rebuild
from baton.runs.client_record import Heard, RunRecord, RunStatus, read_open_streams

_POLL = timedelta(seconds=60)  # the server answers within 20 s, with no events if nothing is new
_FIRST_PAUSE, _MAX_PAUSE = 0.2, 3.0
_TRANSIENT = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.UNKNOWN,
    RPCStatusCode.ABORTED,
)
_STREAM_POLL_SECONDS = 0.25  # heartbeats are sent as often
_FIRST_ANSWER = 4  # event id: started, task scheduled, task started, and then completed or failed
_ANSWERED_WITHIN = 2  # seconds


@dataclass(frozen=True)
class Cursor:
    """A position in the news of a run, right after one piece; `follow` resumes with the next.

    Attributes:
        run_id: The run of the news.
        event: The last event that was read.
        told: How many pieces of news of that reading were delivered.
        base: Run and event of the reading before; None for the first reading.
        continues: Whether another run had replaced this run by then.
        heard: The position in each activity's stream by then: activity id, attempt, position.
    """

    run_id: str
    event: int
    told: int
    base: tuple[str, int] | None = None
    continues: bool = False
    heard: tuple[tuple[str, int, int], ...] = ()

    def __str__(self) -> str:
        base_run, base_event = self.base or ("", 0)
        heard = ",".join(f"{activity}.{attempt}.{position}" for activity, attempt, position in self.heard)
        return f"{self.run_id}:{self.event}:{self.told}:{base_run}:{base_event}:{self.continues:d}:{heard}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Return the cursor in ``text``, as `str` writes it."""
        run_id, event, told, base_run, base_event, continues, streams = text.split(":")
        base = (base_run, int(base_event)) if base_run else None
        entries = (part.split(".") for part in streams.split(",") if part)
        positions = tuple((activity, int(attempt), int(position)) for activity, attempt, position in entries)
        return cls(run_id, int(event), int(told), base, continues == "1", positions)


@dataclass(frozen=True)
class Followed:
    """A run at one moment, and its news.

    Attributes:
        run: The run; None if the server has not been reached yet.
        news: What happened since the previous update.
        lost: Why the server is unreachable; None while it is reachable.
        is_last: Whether the run has ended and no other run continues it.
        cursors: The cursor after each piece of news.
    """

    run: RunRecord | None
    news: list[News]
    lost: str | None = None
    is_last: bool = False
    cursors: list[Cursor] = field(default_factory=list)


async def follow(
    client: Client, workflow_id: str, run_id: str | None = None, *, cursor: Cursor | str | None = None
) -> AsyncIterator[Followed]:
    """Yield an update whenever something happens to a run, until it has ended.

    It waits for a server that restarts, and follows the newer run after a roll-back or a continue-as-new. Stages
    that stream yield each piece of text and each tool call as it arrives.

    Args:
        client: A connected client.
        workflow_id: The run.
        run_id: The run to begin with; the newest by default.
        cursor: Where to resume: right after the news with this cursor, given as is or as text. No news is repeated.

    Raises:
        HistoryError: The workflow is not a pipeline, or the run has no such event.
        ValueError: The text is not a cursor.

    Example:
        ```python
        async for update in follow(client, "notes-1.2", cursor=last_seen):
            for news, cursor in zip(update.news, update.cursors):
                await browser.send(news.to_json_object())
                last_seen = str(cursor)
        ```
    """
    cursor = Cursor.parse(cursor) if isinstance(cursor, str) else cursor
    heard: dict[str, tuple[int, int]] = {}
    streaming = asyncio.Event()
    previous: RunRecord | None = None
    if cursor is not None:
        earlier = await _read_up_to(client, workflow_id, *cursor.base) if cursor.base else None
        previous = await _read_up_to(client, workflow_id, cursor.run_id, cursor.event)
        heard = {activity: (attempt, position) for activity, attempt, position in cursor.heard}
        news = with_streams(
            news_of(earlier, previous, previous.read_at, goes_on=cursor.continues), earlier, previous, heard
        )
        news_left = news[cursor.told :]
        yield Followed(previous, news_left, cursors=_cursors_from(cursor, len(news_left)))
        heard = _heard_of_open(previous, heard)
        streaming.set() if _has_open_stream(previous) else streaming.clear()
    run_id = cursor.run_id if cursor else run_id or (await describe(client, workflow_id)).run_id
    while True:
        successor: str | None = None
        async for batch in _with_stream_polls(_batches(client, workflow_id, run_id), streaming):
            if batch is None:
                if previous is not None and (update := await _read_streams(client, previous, heard)):
                    yield update
                continue
            if isinstance(batch, RPCError):
                yield Followed(previous, [], lost=batch.message)
                continue
            run = await _rebuild(client, workflow_id, run_id, batch)
            is_known = previous is not None and previous.run_id == run_id and previous.last_event >= run.last_event
            has_ended = run.status is not RunStatus.RUNNING
            if is_known and not has_ended:
                continue
            run.first_began = previous.first_began if previous else await find_chain_start(client, run)
            successor = await _find_successor(client, run) if has_ended else None
            continues = successor is not None
            same_run = previous is not None and previous.run_id == run_id
            heard = heard if same_run else {}
            news = news_of(previous, run, time_of(batch[-1]), goes_on=continues)
            news = [] if is_known else with_streams(news, previous, run, heard)
            base = (previous.run_id, previous.last_event) if previous else None
            start = Cursor(run_id, run.last_event, 0, base, continues, _heard_items(heard))
            previous, heard = run, _heard_of_open(run, heard)
            streaming.set() if _has_open_stream(run) else streaming.clear()
            yield Followed(run, news, is_last=has_ended and not continues, cursors=_cursors_from(start, len(news)))
        if successor is not None:
            run_id = successor
        elif previous is None or previous.status is not RunStatus.RUNNING:
            return
        else:  # the server refuses to wait for a paused run
            await _until_unpaused(client, workflow_id, run_id)


def _cursors_from(start: Cursor, pieces: int) -> list[Cursor]:
    return [replace(start, told=start.told + piece + 1) for piece in range(pieces)]


def _heard_items(heard: Heard) -> tuple[tuple[str, int, int], ...]:
    return tuple((activity, *position) for activity, position in heard.items())


def _heard_of_open(run: RunRecord, heard: Heard) -> dict[str, tuple[int, int]]:
    open_ids = [stream.activity for stream in run.streams if stream.event is None]
    return {activity: position for activity, position in heard.items() if activity in open_ids}


def _has_open_stream(run: RunRecord) -> bool:
    return any(stream.event is None for stream in run.streams)


async def _read_streams(client: Client, run: RunRecord, heard: dict[str, tuple[int, int]]) -> Followed | None:
    """Return the new output of stages that stream, and update ``heard``."""
    try:
        streams = await read_open_streams(client, run.workflow_id, run.run_id, run.streams)
    except RPCError as error:
        if _is_transient(error):  # the next reading of the history reports it
            return None
        raise
    news, cursors = list[News](), list[Cursor]()
    start = Cursor(run.run_id, run.last_event, 0, (run.run_id, run.last_event))
    for stream in streams:
        for piece, position in streamed_news(run, stream, {**heard}):
            heard[stream.activity] = position
            news.append(piece)
            cursors.append(replace(start, heard=_heard_items(heard)))
    return Followed(run, news, cursors=cursors) if news else None


BatchT = TypeVar("BatchT")


async def _with_stream_polls(
    batches: AsyncGenerator[BatchT, None], streaming: asyncio.Event
) -> AsyncIterator[BatchT | None]:
    """Yield the batches as they arrive, and None at intervals while a stage streams."""
    next_batch = asyncio.ensure_future(anext(batches))
    try:
        while True:
            done, _ = await asyncio.wait({next_batch}, timeout=_STREAM_POLL_SECONDS if streaming.is_set() else None)
            if not done:
                yield None
                continue
            try:
                batch = next_batch.result()
            except StopAsyncIteration:
                return
            yield batch
            next_batch = asyncio.ensure_future(anext(batches))
    finally:
        next_batch.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration, RPCError):
            await next_batch
        await batches.aclose()


async def _read_up_to(client: Client, workflow_id: str, run_id: str, last_event: int) -> RunRecord:
    _, events = await history(client, workflow_id, run_id)
    known_events = [event for event in events if event.event_id <= last_event]
    if not known_events:
        raise HistoryError(f"run {run_id!r} of {workflow_id!r} has no event {last_event}")
    run = await _rebuild(client, workflow_id, run_id, known_events)
    run.first_began = await find_chain_start(client, run)
    return run


async def wait_for_first_answer(client: Client, workflow_id: str, run_id: str | None = None) -> RunRecord | None:
    """Return a new run once a worker has answered its first task; None if none answers in time."""
    with suppress(TimeoutError, BatonError, RPCError):  # the answer is optional: the run was started
        async with asyncio.timeout(_ANSWERED_WITHIN):
            async for update in follow(client, workflow_id, run_id):
                if update.run is not None and update.run.last_event >= _FIRST_ANSWER:
                    return update.run
    return None


async def _rebuild(client: Client, workflow_id: str, run_id: str, events: Sequence[HistoryEvent]) -> RunRecord:
    """Return the run as its workflow sees it, without results that no workflow task has processed."""
    last_noted = max((event.event_id for event in events if _has_noted_results(event)), default=0)
    known_events = [event for event in events if event.event_id <= last_noted or not _is_result(event)]
    run = await rebuild(workflow_id, run_id, known_events, client.data_converter)
    run.last_event, run.read_at = events[-1].event_id, time_of(events[-1])
    return run


def _is_result(event: HistoryEvent) -> bool:
    """Return whether an event is a stage's answer, which the workflow processes in its next task."""
    return event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED or is_refusal(event)


def _has_noted_results(event: HistoryEvent) -> bool:
    """Return whether the workflow has processed all results before this event, as it has before a reset."""
    is_reset = bool(event.workflow_task_failed_event_attributes.base_run_id)
    return is_reset or event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED


async def _batches(
    client: Client, workflow_id: str, run_id: str
) -> AsyncGenerator[list[HistoryEvent] | RPCError, None]:
    """Yield all events of a run so far whenever there are more, and every failure to reach the server."""
    events: list[HistoryEvent] = []
    token, pause = b"", _FIRST_PAUSE
    while True:
        request = GetWorkflowExecutionHistoryRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
            next_page_token=token,
            wait_new_event=True,
        )
        try:
            response = await client.workflow_service.get_workflow_execution_history(request, timeout=_POLL)
        except RPCError as error:
            is_lost = bool(token) and error.status is RPCStatusCode.INVALID_ARGUMENT  # its branch has changed
            if not (is_lost or _is_transient(error)) or (not events and _is_starting(error)):
                raise
            yield error
            # The page token may be lost with the server: start over, and skip known events.
            token = b""
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)
            continue
        pause = _FIRST_PAUSE
        last = events[-1].event_id if events else 0
        new_events = [event for event in response.history.events if event.event_id > last]
        events += new_events
        if new_events:
            yield list(events)
        token = response.next_page_token
        if not token:
            return


async def _until_unpaused(client: Client, workflow_id: str, run_id: str) -> None:
    status = PAUSED
    while status == PAUSED:
        await asyncio.sleep(_MAX_PAUSE)
        try:
            status = (await describe(client, workflow_id, run_id)).status
        except RPCError as error:
            if not _is_transient(error):
                raise


async def _find_successor(client: Client, run: RunRecord) -> str | None:
    """Return the run that replaces an ended run, if any."""
    if run.next_run_id:
        return run.next_run_id
    while True:
        try:
            execution = await describe(client, run.workflow_id, run.run_id)
            newest = await describe(client, run.workflow_id)
            same_chain = newest.info.first_run_id == execution.info.first_run_id
            if not same_chain or newest.run_id == run.run_id:
                return None
            return await _find_first_of_branch(client, run, newest.run_id)
        except RPCError as error:
            if not _is_transient(error):
                raise
            await asyncio.sleep(_MAX_PAUSE)
            continue


async def _find_first_of_branch(client: Client, ended_run: RunRecord, newest: str) -> str:
    """Return the run that a reset created after a run had ended; it may have continued as new since then."""
    chain: set[str | None] = {None}
    run_id: str | None = ended_run.run_id
    while run_id is not None:
        chain.add(run_id)
        run_id = await _find_predecessor(client, ended_run.workflow_id, run_id)
    first = newest
    while (predecessor := await _find_predecessor(client, ended_run.workflow_id, first)) not in chain:
        assert predecessor is not None  # noqa: S101 - the chain contains None
        first = predecessor
    return first


async def _find_predecessor(client: Client, workflow_id: str, run_id: str) -> str | None:
    """Return the run that a run continues as new, if the server still has it."""
    request = GetWorkflowExecutionHistoryRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
        maximum_page_size=1,
    )
    try:
        response = await client.workflow_service.get_workflow_execution_history(request, retry=True)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND and not _is_starting(error):
            return None
        raise
    [first] = response.history.events[:1]
    return first.workflow_execution_started_event_attributes.continued_execution_run_id or None


def _is_transient(error: RPCError) -> bool:
    return error.status in _TRANSIENT or _is_starting(error)


def _is_starting(error: RPCError) -> bool:
    """Return whether a server has not loaded its namespaces yet; if it never answered, the namespace may be wrong."""
    return error.status is RPCStatusCode.NOT_FOUND and error.message.startswith("Namespace")
