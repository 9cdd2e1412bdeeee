"""Following a run while it happens, across lost connections, roll-backs and continue-as-new."""

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
from baton.runs.client_reader import first_began, rebuild
from baton.runs.client_record import Heard, RunRecord, RunStatus, live

_POLL = timedelta(seconds=60)  # the server answers after 20 s at the latest, with nothing if there is nothing
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 3.0
_PASSES = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.UNKNOWN,
    RPCStatusCode.ABORTED,
)
_LOOK_EVERY_SECONDS = 0.25  # heartbeats are sent as often
_FIRST_ANSWER = 4  # the event: a run is started, its first task scheduled and begun, and then done, or not
_ANSWERED_WITHIN = 2  # seconds


@dataclass(frozen=True)
class Cursor:
    """A place in what a follower was told: after one piece of news, so that it resumes with the next one.

    Attributes:
        run_id: The run whose news it was.
        event: The last event that was read of it.
        told: How many pieces of news of that reading were told.
        base: Run and event of the reading before, against which they are news; None for the first.
        continues: Whether another run continued in place of the run by then.
        heard: Up to where each activity that streams was heard by that reading: its id, its run, the place.
    """

    run_id: str
    event: int
    told: int
    base: tuple[str, int] | None = None
    continues: bool = False
    heard: tuple[tuple[str, int, int], ...] = ()

    def __str__(self) -> str:
        base_run, base_event = self.base or ("", 0)
        heard = ",".join(f"{activity}.{attempt}.{place}" for activity, attempt, place in self.heard)
        return f"{self.run_id}:{self.event}:{self.told}:{base_run}:{base_event}:{self.continues:d}:{heard}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Return the cursor that ``text`` is."""
        run_id, event, told, base_run, base_event, continues, streams = text.split(":")
        base = (base_run, int(base_event)) if base_run else None
        heard = (one.split(".") for one in streams.split(",") if one)
        places = tuple((activity, int(attempt), int(place)) for activity, attempt, place in heard)
        return cls(run_id, int(event), int(told), base, continues == "1", places)


@dataclass(frozen=True)
class Followed:
    """A run at one moment, and what is new.

    Attributes:
        run: The run; None if the server has not been reached yet.
        news: What happened since the update before.
        lost: Why the server is out of reach; None while it is not.
        is_last: Whether the run has ended and no other follows it.
        cursors: The place after each piece of the news.
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

    It waits for a server that restarts, and follows the newer run after a roll-back or a continue-as-new. Of stages
    that stream it tells each piece of text and each call of a tool as it comes.

    Args:
        client: A connected client.
        workflow_id: The run.
        run_id: Which of its runs to begin with; the newest by default.
        cursor: Where to resume: after the news that had this cursor, as it is or as a text. What came since follows,
            and nothing twice.

    Raises:
        HistoryError: The workflow is not a pipeline, or the run has no such place.
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
    told: RunRecord | None = None
    if cursor is not None:
        base = await _reading(client, workflow_id, *cursor.base) if cursor.base else None
        told = await _reading(client, workflow_id, cursor.run_id, cursor.event)
        heard = {activity: (attempt, place) for activity, attempt, place in cursor.heard}
        news = with_streams(news_of(base, told, told.read_at, goes_on=cursor.continues), base, told, heard)
        left = news[cursor.told :]
        yield Followed(told, left, cursors=_places(cursor, len(left)))
        heard = _of_open(told, heard)
        streaming.set() if _streams_now(told) else streaming.clear()
    run_id = cursor.run_id if cursor else run_id or (await describe(client, workflow_id)).run_id
    while True:
        successor: str | None = None
        async for batch in _with_looks(_batches(client, workflow_id, run_id), streaming):
            if batch is None:
                if told is not None and (update := await _looked(client, told, heard)):
                    yield update
                continue
            if isinstance(batch, RPCError):
                yield Followed(told, [], lost=batch.message)
                continue
            run = await _fold(client, workflow_id, run_id, batch)
            known = told is not None and told.run_id == run_id and told.last_event >= run.last_event
            has_ended = run.status is not RunStatus.RUNNING
            if known and not has_ended:
                continue
            run.first_began = told.first_began if told else await first_began(client, run)
            successor = await _successor(client, run) if has_ended else None
            continues = successor is not None
            same = told is not None and told.run_id == run_id
            heard = heard if same else {}
            news = news_of(told, run, time_of(batch[-1]), goes_on=continues)
            news = [] if known else with_streams(news, told, run, heard)
            read = (told.run_id, told.last_event) if told else None
            start = Cursor(run_id, run.last_event, 0, read, continues, _as_heard(heard))
            told, heard = run, _of_open(run, heard)
            streaming.set() if _streams_now(run) else streaming.clear()
            yield Followed(run, news, is_last=has_ended and not continues, cursors=_places(start, len(news)))
        if successor is not None:
            run_id = successor
        elif told is None or told.status is not RunStatus.RUNNING:
            return
        else:  # the server refuses to wait for a paused run
            await _until_unpaused(client, workflow_id, run_id)


def _places(start: Cursor, pieces: int) -> list[Cursor]:
    """Return the place after each of so many pieces of news."""
    return [replace(start, told=start.told + piece + 1) for piece in range(pieces)]


def _as_heard(heard: Heard) -> tuple[tuple[str, int, int], ...]:
    return tuple((activity, *place) for activity, place in heard.items())


def _of_open(run: RunRecord, heard: Heard) -> dict[str, tuple[int, int]]:
    """Return up to where the streams that are still open were heard."""
    return {one.activity: heard[one.activity] for one in run.streams if one.event is None and one.activity in heard}


def _streams_now(run: RunRecord) -> bool:
    return any(one.event is None for one in run.streams)


async def _looked(client: Client, run: RunRecord, heard: dict[str, tuple[int, int]]) -> Followed | None:
    """Return what stages that stream have said since; ``heard`` becomes up to where."""
    try:
        streams = await live(client, run.workflow_id, run.run_id, run.streams)
    except RPCError as error:
        if _passes(error):  # the next reading of the history tells that it is out of reach
            return None
        raise
    news, places = list[News](), list[Cursor]()
    here = Cursor(run.run_id, run.last_event, 0, (run.run_id, run.last_event))
    for stream in streams:
        for piece, place in streamed_news(run, stream, {**heard}):
            heard[stream.activity] = place
            news.append(piece)
            places.append(replace(here, heard=_as_heard(heard)))
    return Followed(run, news, cursors=places) if news else None


BatchT = TypeVar("BatchT")


async def _with_looks(batches: AsyncGenerator[BatchT, None], looks: asyncio.Event) -> AsyncIterator[BatchT | None]:
    """Yield the batches as they come, and None every now and then while a look is worth it."""
    coming = asyncio.ensure_future(anext(batches))
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=_LOOK_EVERY_SECONDS if looks.is_set() else None)
            if not done:
                yield None
                continue
            try:
                batch = coming.result()
            except StopAsyncIteration:
                return
            yield batch
            coming = asyncio.ensure_future(anext(batches))
    finally:
        coming.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration, RPCError):
            await coming
        await batches.aclose()


async def _reading(client: Client, workflow_id: str, run_id: str, event: int) -> RunRecord:
    _, events = await history(client, workflow_id, run_id)
    known = [one for one in events if one.event_id <= event]
    if not known:
        raise HistoryError(f"run {run_id!r} of {workflow_id!r} has no event {event}")
    run = await _fold(client, workflow_id, run_id, known)
    run.first_began = await first_began(client, run)
    return run


async def answered_at_first(client: Client, workflow_id: str, run_id: str | None = None) -> RunRecord | None:
    """Return a new run as it is once the first worker that received it has answered; None if none does at once."""
    with suppress(TimeoutError, BatonError, RPCError):  # it is only a hint: the run was started
        async with asyncio.timeout(_ANSWERED_WITHIN):
            async for update in follow(client, workflow_id, run_id):
                if update.run is not None and update.run.last_event >= _FIRST_ANSWER:
                    return update.run
    return None


async def _fold(client: Client, workflow_id: str, run_id: str, events: Sequence[HistoryEvent]) -> RunRecord:
    """Return the run as its workflow has it: a result it has not taken note of yet is none."""
    noted = max((one.event_id for one in events if _takes_note(one)), default=0)
    known = [one for one in events if one.event_id <= noted or not _is_result(one)]
    run = await rebuild(workflow_id, run_id, known, client.data_converter)
    run.last_event, run.read_at = events[-1].event_id, time_of(events[-1])
    return run


def _is_result(event: HistoryEvent) -> bool:
    """Return whether an event is a stage's answer, which the workflow notes in its next task."""
    return event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED or is_refusal(event)


def _takes_note(event: HistoryEvent) -> bool:
    """Return whether the workflow has taken note of all results before this event; where it was reset, it had."""
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
            answer = await client.workflow_service.get_workflow_execution_history(request, timeout=_POLL)
        except RPCError as error:
            is_lost = bool(token) and error.status is RPCStatusCode.INVALID_ARGUMENT  # its branch has changed
            if not (is_lost or _passes(error)) or (not events and _is_starting(error)):
                raise
            yield error
            # The place in the history may be lost with the server: begin again, and skip what is known.
            token = b""
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            continue
        pause = _FIRST_PAUSE
        last = events[-1].event_id if events else 0
        new = [event for event in answer.history.events if event.event_id > last]
        events += new
        if new:
            yield list(events)
        token = answer.next_page_token
        if not token:
            return


async def _until_unpaused(client: Client, workflow_id: str, run_id: str) -> None:
    """Return once a run is not paused any more."""
    status = PAUSED
    while status == PAUSED:
        await asyncio.sleep(_LONGEST_PAUSE)
        try:
            status = (await describe(client, workflow_id, run_id)).status
        except RPCError as error:
            if not _passes(error):
                raise


async def _successor(client: Client, run: RunRecord) -> str | None:
    """Return the run that succeeds one that ended, if there is one."""
    if run.next_run_id:
        return run.next_run_id
    while True:
        try:
            ended = await describe(client, run.workflow_id, run.run_id)
            newest = await describe(client, run.workflow_id)
            same = newest.info.first_run_id == ended.info.first_run_id
            if not same or newest.run_id == run.run_id:
                return None
            return await _first_of_branch(client, run, newest.run_id)
        except RPCError as error:
            if not _passes(error):
                raise
            await asyncio.sleep(_LONGEST_PAUSE)
            continue


async def _first_of_branch(client: Client, ended: RunRecord, newest: str) -> str:
    """Return the run that a reset made after a run had ended; it may have continued as new since then."""
    known: set[str | None] = {None}
    one: str | None = ended.run_id
    while one is not None:
        known.add(one)
        one = await _continued(client, ended.workflow_id, one)
    first = newest
    while (before := await _continued(client, ended.workflow_id, first)) not in known:
        assert before is not None  # noqa: S101 - that is known
        first = before
    return first


async def _continued(client: Client, workflow_id: str, run_id: str) -> str | None:
    """Return the run that a run continues as new, if it does and the server still has it."""
    request = GetWorkflowExecutionHistoryRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
        maximum_page_size=1,
    )
    try:
        answer = await client.workflow_service.get_workflow_execution_history(request, retry=True)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND and not _is_starting(error):
            return None
        raise
    [first] = answer.history.events[:1]
    return first.workflow_execution_started_event_attributes.continued_execution_run_id or None


def _passes(error: RPCError) -> bool:
    """Return whether the server may answer the same call later."""
    return error.status in _PASSES or _is_starting(error)


def _is_starting(error: RPCError) -> bool:
    """Return whether a server has not read its namespaces yet; of one that has never answered, it is unknown."""
    return error.status is RPCStatusCode.NOT_FOUND and error.message.startswith("Namespace")
