"""Following a run while it happens, across lost connections, roll-backs and continue-as-new."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from baton.errors import BatonError
from baton.runs.client_events import time_of
from baton.runs.client_executions import PAUSED, describe
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
_RESULT = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED


@dataclass(frozen=True)
class Followed:
    """A run at one moment, and what is new.

    Attributes:
        run: The run; None if the server has not been reached yet.
        news: What happened since the update before.
        lost: Why the server is out of reach; None while it is not.
        is_last: Whether the run has ended and no other follows it.
    """

    run: RunRecord | None
    news: list[News]
    lost: str | None = None
    is_last: bool = False


async def follow(
    client: Client, workflow_id: str, run_id: str | None = None, *, after: int = 0
) -> AsyncIterator[Followed]:
    """Yield an update whenever something happens to a run, until it has ended.

    A server that goes away is waited for, and so is a paused run. A run that continues as new, is rolled back or is
    tried again goes on as the newer run of the same workflow.

    Args:
        client: A connected client.
        workflow_id: The workflow.
        run_id: Which run to begin with; the newest by default.
        after: Tell only what happened after this event of that run.

    Yields:
        Updates; the first tells everything that happened before.

    Raises:
        HistoryError: The workflow is no pipeline.
        temporalio.service.RPCError: There is no such run.
    """
    told: RunRecord | None = None
    run_id = run_id or (await describe(client, workflow_id)).run_id
    while True:
        successor: str | None = None
        async for batch in _batches(client, workflow_id, run_id):
            if isinstance(batch, RPCError):
                yield Followed(told, [], lost=batch.message)
                continue
            run = await _fold(client, workflow_id, run_id, batch)
            run.first_began = told.first_began if told else await first_began(client, run)
            has_ended = run.status is not RunStatus.RUNNING
            if after and told is None:
                if run.last_event < after and not has_ended:
                    continue
                told = await _fold(client, workflow_id, run_id, [event for event in batch if event.event_id <= after])
            successor = await _successor(client, run) if has_ended else None
            news, told = news_of(told, run, time_of(batch[-1]), goes_on=successor is not None), run
            yield Followed(run, news, is_last=has_ended and successor is None)
        if successor is not None:
            run_id = successor
        elif told is None or told.status is not RunStatus.RUNNING:
            return
        else:  # the server lets nobody wait for what a paused run does next
            await _until_unpaused(client, workflow_id, run_id)


async def refused_at_first(client: Client, workflow_id: str, run_id: str | None = None) -> str | None:
    """Return why the first worker that was given a new run could not begin it, as one that does not know the pipeline.

    Args:
        client: A connected client.
        workflow_id: The workflow.
        run_id: The run.

    Returns:
        The reason; None if the run has begun, or if nobody has answered after two seconds.
    """
    with suppress(TimeoutError, BatonError, RPCError):  # it is only a hint: the run was started
        async with asyncio.timeout(_ANSWERED_WITHIN):
            async for update in follow(client, workflow_id, run_id):
                if update.run is not None and update.run.last_event >= _FIRST_ANSWER:
                    return update.run.suspended
    return None


async def _fold(client: Client, workflow_id: str, run_id: str, events: Sequence[HistoryEvent]) -> RunRecord:
    """Return the run as its workflow has it: a result it has not taken note of yet is none."""
    noted = max((one.event_id for one in events if _takes_note(one)), default=0)
    known = [one for one in events if one.event_id <= noted or one.event_type != _RESULT]
    run = await rebuild(workflow_id, run_id, known, client.data_converter)
    run.last_event = events[-1].event_id
    return run


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
    """Return the run that goes on in place of one that ended, if there is one."""
    if run.next_run_id:
        return run.next_run_id
    while True:
        try:
            ended = await describe(client, run.workflow_id, run.run_id)
            newest = await describe(client, run.workflow_id)
        except RPCError as error:
            if not (_passes(error) or _is_starting(error)):
                raise
            await asyncio.sleep(_LONGEST_PAUSE)
            continue
        same = newest.info.first_run_id == ended.info.first_run_id
        return newest.run_id if same and newest.run_id != run.run_id else None


def _passes(error: RPCError) -> bool:
    """Return whether the server may answer the same call later."""
    return error.status in _PASSES


def _is_starting(error: RPCError) -> bool:
    """Return whether a server has not read its namespaces yet; of one that has never answered, nobody can tell."""
    return error.status is RPCStatusCode.NOT_FOUND and error.message.startswith("Namespace")
