"""Following a run while it happens, across lost connections, roll-backs and continue-as-new."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from baton.errors import BatonError, HistoryError
from baton.runs.client_events import is_refusal, time_of
from baton.runs.client_executions import PAUSED, describe, history
from baton.runs.client_news import News, news_of
from baton.runs.client_reader import first_began, rebuild
from baton.runs.client_record import RunRecord, RunStatus

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
    """

    run_id: str
    event: int
    told: int
    base: tuple[str, int] | None = None
    continues: bool = False

    def __str__(self) -> str:
        base_run, base_event = self.base or ("", 0)
        return f"{self.run_id}:{self.event}:{self.told}:{base_run}:{base_event}:{self.continues:d}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Return the cursor that ``text`` is."""
        run_id, event, told, base_run, base_event, continues = text.split(":")
        base = (base_run, int(base_event)) if base_run else None
        return cls(run_id, int(event), int(told), base, continues == "1")


@dataclass(frozen=True)
class Followed:
    """A run at one moment, and what is new.

    Attributes:
        run: The run; None if the server has not been reached yet.
        news: What happened since the update before.
        lost: Why the server is out of reach; None while it is not.
        is_last: Whether the run has ended and no other follows it.
        start: Where in what was told the news begin.
    """

    run: RunRecord | None
    news: list[News]
    lost: str | None = None
    is_last: bool = False
    start: Cursor | None = None

    def cursors(self) -> list[Cursor]:
        """Return the place after each piece of the news."""
        start = self.start
        return [replace(start, told=start.told + place + 1) for place in range(len(self.news))] if start else []


async def follow(
    client: Client, workflow_id: str, run_id: str | None = None, *, cursor: Cursor | None = None
) -> AsyncIterator[Followed]:
    """Yield an update whenever something happens to a run, until it has ended."""
    told: RunRecord | None = None
    if cursor is not None:
        base = await _reading(client, workflow_id, *cursor.base) if cursor.base else None
        told = await _reading(client, workflow_id, cursor.run_id, cursor.event)
        news = news_of(base, told, told.read_at, goes_on=cursor.continues)
        yield Followed(told, news[cursor.told :], start=cursor)
    run_id = cursor.run_id if cursor else run_id or (await describe(client, workflow_id)).run_id
    while True:
        successor: str | None = None
        async for batch in _batches(client, workflow_id, run_id):
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
            news = [] if known else news_of(told, run, time_of(batch[-1]), goes_on=continues)
            start = Cursor(run_id, run.last_event, 0, (told.run_id, told.last_event) if told else None, continues)
            told = run
            yield Followed(run, news, is_last=has_ended and not continues, start=start)
        if successor is not None:
            run_id = successor
        elif told is None or told.status is not RunStatus.RUNNING:
            return
        else:  # the server refuses to wait for a paused run
            await _until_unpaused(client, workflow_id, run_id)


async def _reading(client: Client, workflow_id: str, run_id: str, event: int) -> RunRecord:
    """Return a run as it was read up to an event."""
    _, events = await history(client, workflow_id, run_id)
    known = [one for one in events if one.event_id <= event]
    if not known:
        raise HistoryError(f"run {run_id!r} of {workflow_id!r} has no event {event}")
    run = await _fold(client, workflow_id, run_id, known)
    run.first_began = await first_began(client, run)
    return run


async def refused_at_first(client: Client, workflow_id: str, run_id: str | None = None) -> str | None:
    """Return why the first worker that received a new run could not begin it, or None."""
    with suppress(TimeoutError, BatonError, RPCError):  # it is only a hint: the run was started
        async with asyncio.timeout(_ANSWERED_WITHIN):
            async for update in follow(client, workflow_id, run_id):
                if update.run is not None and update.run.last_event >= _FIRST_ANSWER:
                    return update.run.suspended
    return None


async def _fold(client: Client, workflow_id: str, run_id: str, events: Sequence[HistoryEvent]) -> RunRecord:
    """Return the run as its workflow has it: a result it has not taken note of yet is none."""
    noted = max((one.event_id for one in events if _takes_note(one)), default=0)
    known = [one for one in events if one.event_id <= noted or not _is_result(one)]
    run = await rebuild(workflow_id, run_id, known, client.data_converter)
    run.last_event, run.read_at = events[-1].event_id, time_of(events[-1])
    return run


def _is_result(event: HistoryEvent) -> bool:
    """Return whether an event is what a stage answered, of which the workflow takes note in its next task."""
    return event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED or is_refusal(event)


def _takes_note(event: HistoryEvent) -> bool:
    """Return whether the workflow has taken note of all results before this event; where it was reset, it had."""
    is_reset = bool(event.workflow_task_failed_event_attributes.base_run_id)
    return is_reset or event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED


async def _batches(client: Client, workflow_id: str, run_id: str) -> AsyncIterator[list[HistoryEvent] | RPCError]:
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
            if not (_passes(error) or (events and _is_starting(error))):
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
            if not (_passes(error) or _is_starting(error)):
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
            if not (_passes(error) or _is_starting(error)):
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
    return error.status in _PASSES


def _is_starting(error: RPCError) -> bool:
    """Return whether a server has not read its namespaces yet; of one that has never answered, nobody can tell."""
    return error.status is RPCStatusCode.NOT_FOUND and error.message.startswith("Namespace")
