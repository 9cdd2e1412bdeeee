"""Follows a run live, across lost connections, roll-backs and continue-as-new."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from baton.errors import BatonError, HistoryError
from baton.runs.client_clock import measured_skew
from baton.runs.client_events import decode
from baton.runs.client_executions import PAUSED, describe, history
from baton.runs.client_news import News, streamed_news, with_streams
from baton.runs.client_reader import RunReader, TaskNews, find_chain_start
from baton.runs.client_record import RunRecord, RunStatus, StreamPositions, read_open_streams
from baton.wire.json_values import as_json

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
        event: The last event of the workflow task of the news.
        index: How many pieces of news of that task were delivered; None for all.
        base: The run that this run replaced, and its last event; None if it was followed from the beginning.
        continues: Whether another run had replaced this run by then.
        stream_positions: The position in each activity's stream by then: activity id, attempt, position.
    """

    run_id: str
    event: int
    index: int | None
    base: tuple[str, int] | None = None
    continues: bool = False
    stream_positions: tuple[tuple[str, int, int], ...] = ()

    def __str__(self) -> str:
        base_run, base_event = self.base or ("", 0)
        stream_positions = ",".join(
            f"{activity}.{attempt}.{position}" for activity, attempt, position in self.stream_positions
        )
        index = "" if self.index is None else self.index
        return f"{self.run_id}:{self.event}:{index}:{base_run}:{base_event}:{self.continues:d}:{stream_positions}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Return the cursor in ``text``, as `str` writes it."""
        run_id, event, index, base_run, base_event, continues, streams = text.split(":")
        base = (base_run, int(base_event)) if base_run else None
        entries = (part.split(".") for part in streams.split(",") if part)
        positions = tuple((activity, int(attempt), int(position)) for activity, attempt, position in entries)
        return cls(run_id, int(event), int(index) if index else None, base, continues == "1", positions)


@dataclass(frozen=True)
class Followed:
    """A run at one moment, and its news.

    Attributes:
        run: The run as its last workflow task left it; None if the server has not been reached yet.
        news: What happened since the previous update; the same for each follower, whenever it begins.
        lost: Why the server is unreachable; None while it is reachable.
        is_last: Whether the run has ended and no other run continues it.
        cursors: The cursor after each piece of news.
    """

    run: RunRecord | None
    news: list[News]
    lost: str | None = None
    is_last: bool = False
    cursors: list[Cursor] = field(default_factory=list)

    def to_json_object(self) -> dict[str, Any]:
        """Return it as JSON; cursors as texts."""
        return {
            "run": as_json(self.run),
            "news": as_json(self.news),
            "lost": self.lost,
            "is_last": self.is_last,
            "cursors": [str(cursor) for cursor in self.cursors],
        }


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
    follower = _Follower(client, workflow_id)
    if cursor is not None and cursor.base is not None:
        follower.previous = (await _read_up_to(client, workflow_id, *cursor.base)).committed
        follower.previous.first_began = await find_chain_start(client, follower.previous)
    next_run: str | None = cursor.run_id if cursor else run_id or (await describe(client, workflow_id)).run_id
    while next_run is not None:
        follower.begin(next_run)
        if cursor is not None:
            yield await follower.resume(cursor)
            cursor = None
        while follower.is_open:
            async for batch in _with_stream_polls(_batches(client, workflow_id, next_run), follower.streaming):
                if batch is None:
                    update = await follower.read_streams()
                elif isinstance(batch, RPCError):
                    update = Followed(follower.run, [], lost=batch.message)
                else:
                    update = await follower.take(batch)
                if update is not None:
                    yield update
            if follower.is_open:  # the server refuses to wait for a paused run
                await _until_unpaused(client, workflow_id, next_run)
        next_run = follower.successor


class _Follower:
    """Feeds the events of a run, and of the runs that continue it, to their readers."""

    def __init__(self, client: Client, workflow_id: str) -> None:
        self._client = client
        self._workflow_id = workflow_id
        self._positions: dict[str, tuple[int, int]] = {}
        self.previous: RunRecord | None = None
        self.run: RunRecord | None = None
        self.successor: str | None = None
        self.streaming = asyncio.Event()

    def begin(self, run_id: str) -> None:
        """Begin with a run, the next one if there was one before."""
        self.previous = self.run or self.previous
        self.successor, self._positions, self._run_id = None, {}, run_id
        self._reader = RunReader(self._workflow_id, run_id, self.previous)
        self.is_open = True

    async def take(self, events: Sequence[HistoryEvent]) -> Followed | None:
        """Return the update after the next events; None if no workflow task has ended."""
        new_events = [event for event in events if event.event_id > self._reader.last_event]
        tasks = self._reader.feed(await decode(new_events, self._client.data_converter))
        if not tasks:
            return None
        await self._read()
        pairs = [pair for task in tasks for pair in self._news(task, self._start(task))]
        return self._update(pairs)

    async def resume(self, cursor: Cursor) -> Followed:
        """Return the update with the news after a cursor, up to the end of its workflow task."""
        self._reader = await _read_up_to(self._client, self._workflow_id, cursor.run_id, cursor.event, self.previous)
        await self._read()
        self._positions = {activity: (attempt, position) for activity, attempt, position in cursor.stream_positions}
        index, start = cursor.index, replace(cursor, index=0)
        pairs = list(self._news(self._reader.last_task, start))
        return self._update([] if index is None else pairs[index:])

    async def read_streams(self) -> Followed | None:
        """Return the new output of stages that stream, if any."""
        run = self.run
        if run is None or run.run_id != self._run_id:
            return None
        try:
            streams = await read_open_streams(self._client, run.workflow_id, run.run_id, run.streams)
        except RPCError as error:
            if _is_transient(error):  # the next reading of the history reports it
                return None
            raise
        pairs: list[tuple[News, Cursor]] = []
        start = replace(self._start(self._reader.last_task), index=None)
        for stream in streams:
            for piece, position in streamed_news(run, stream, {**self._positions}):
                self._positions[stream.activity] = position
                pairs.append((piece, replace(start, stream_positions=_position_items(self._positions))))
        return self._update(pairs) if pairs else None

    async def _read(self) -> None:
        """Set the run, and what continues it."""
        run = self._reader.committed
        known = self.run or self.previous
        run.first_began = known.first_began if known else await find_chain_start(self._client, run)
        self.run, self.is_open = run, run.status is RunStatus.RUNNING
        run.skew = await measured_skew(self._client) if self.is_open else timedelta(0)
        self.successor = None if self.is_open else await _find_successor(self._client, run)

    def _start(self, task: TaskNews) -> Cursor:
        """Return the cursor before the news of a task."""
        base = (self.previous.run_id, self.previous.last_event) if self.previous else None
        return Cursor(self._run_id, task.event, 0, base, self.successor is not None, _position_items(self._positions))

    def _news(self, task: TaskNews, start: Cursor) -> list[tuple[News, Cursor]]:
        """Return the news of a task, each with the cursor after it."""
        assert self.run is not None  # noqa: S101 - it was read
        news = task.news if start.continues else [*task.news, *task.closing]
        news = with_streams(news, self.run, task.streams, self._positions)
        for stream in task.streams:
            self._positions.pop(stream.activity, None)
        return [(piece, replace(start, index=index)) for index, piece in enumerate(news, 1)]

    def _update(self, pairs: Sequence[tuple[News, Cursor]]) -> Followed:
        assert self.run is not None  # noqa: S101 - it was read
        is_streaming = any(stream.event is None for stream in self.run.streams)
        self.streaming.set() if is_streaming else self.streaming.clear()
        is_last = not self.is_open and self.successor is None
        return Followed(
            self.run, [piece for piece, _ in pairs], is_last=is_last, cursors=[cursor for _, cursor in pairs]
        )


def _position_items(stream_positions: StreamPositions) -> tuple[tuple[str, int, int], ...]:
    return tuple((activity, *position) for activity, position in stream_positions.items())


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


async def _read_up_to(
    client: Client, workflow_id: str, run_id: str, last_event: int, previous: RunRecord | None = None
) -> RunReader:
    """Return the reader of a run after the workflow task that ended with an event."""
    _, events = await history(client, workflow_id, run_id)
    reader = RunReader(workflow_id, run_id, previous)
    reader.feed(await decode([event for event in events if event.event_id <= last_event], client.data_converter))
    if reader.last_event != last_event or not last_event:
        raise HistoryError(f"run {run_id!r} of {workflow_id!r} has no event {last_event} that ends a workflow task")
    return reader


async def wait_for_first_answer(client: Client, workflow_id: str, run_id: str | None = None) -> RunRecord | None:
    """Return a new run once a worker has answered its first task; None if none answers in time."""
    with suppress(TimeoutError, BatonError, RPCError):  # the answer is optional: the run was started
        async with asyncio.timeout(_ANSWERED_WITHIN):
            async for update in follow(client, workflow_id, run_id):
                if update.run is not None and update.run.last_event >= _FIRST_ANSWER:
                    return update.run
    return None


async def _batches(
    client: Client, workflow_id: str, run_id: str
) -> AsyncGenerator[list[HistoryEvent] | RPCError, None]:
    """Yield the events of a run so far, then others as they arrive, and every failure to reach the server.

    After a failure it yields all events again.
    """
    has_answered, token, pause = False, b"", _FIRST_PAUSE
    events, known = list[HistoryEvent](), 0
    while True:
        request = GetWorkflowExecutionHistoryRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
            next_page_token=token,
            wait_new_event=True,
        )
        try:
            known = known or (await describe(client, workflow_id, run_id)).info.history_length
            response = await client.workflow_service.get_workflow_execution_history(request, timeout=_POLL)
        except RPCError as error:
            is_lost = bool(token) and error.status is RPCStatusCode.INVALID_ARGUMENT  # its branch has changed
            if not (is_lost or _is_transient(error)) or (not has_answered and _is_starting(error)):
                raise
            yield error
            # The page token may be lost with the server: start over.
            events, known, token = [], 0, b""
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)
            continue
        has_answered, pause, token = True, _FIRST_PAUSE, response.next_page_token
        events += response.history.events
        # In the middle of its history a run is not yet as it is: the pages up to now are one batch.
        if token and response.history.events and events[-1].event_id < known:
            continue
        yield events
        events = []
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
