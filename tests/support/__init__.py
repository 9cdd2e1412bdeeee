"""What the tests on a real server share: starting, waiting, reading a run both ways."""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from baton import HistoryEntry, Overview, Settled
from baton.client import Answer, RunRecord, RunStatus, decide, read_run
from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from baton.wire.names import QUERY_BATON, QUERY_HISTORY, QUERY_STATUS
from tests.pipelines.pipelines import PIPELINES

Handle = WorkflowHandle[Any, Any]

GOAL = "Add OAuth2 login"
LIMIT = timedelta(minutes=3)
"""After this the server ends a run, so that a wedged one fails its test."""


@asynccontextmanager
async def sealing_worker(
    server: DevServer, safeguards: Safeguards, pipelines: Sequence[type], stages: Sequence[Callable[..., Any]]
) -> AsyncIterator[Worker]:
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    async with pipeline_worker(client, pipelines, stages) as worker:
        yield worker


async def start(
    worker: Worker,
    pipeline: Callable[..., Any],
    *,
    id: str | None = None,
    task_timeout: timedelta | None = None,
    limit: timedelta = LIMIT,
    **params: Any,
) -> Handle:
    """Start a pipeline on the worker's queue; where workers end in mid-task, with a short timeout for tasks."""
    return await worker.client.start_workflow(
        pipeline,
        PipelineInput(goal=GOAL, params=params),
        id=id or f"{pipeline.__qualname__}-{uuid.uuid4()}",
        task_queue=worker.task_queue,
        execution_timeout=limit,
        task_timeout=task_timeout,
    )


async def approve(client: Client, handle: Handle, approval: str = "release manager", *, yes: bool = True) -> Settled:
    """Decide as Ann, once the approval is open."""
    return await decide(client, handle.id, await answer_to(handle, approval, yes=yes))


async def answer_to(handle: Handle, approval: str = "release manager", *, yes: bool = True) -> Answer:
    """Return Ann's answer to what an approval asks now, once it is open; for those who send it themselves."""
    now = await until(handle, lambda now: approval in [asked.title for asked in now.questions])
    [asked] = [asked for asked in now.questions if asked.title == approval]
    return asked.answer("approve" if yes else "deny", who="ann", why="it is tested")


async def failure(handle: Handle) -> str:
    """Return the message with which a run failed."""
    with pytest.raises(WorkflowFailureError) as raised:
        await handle.result()
    return str(getattr(raised.value.cause, "message", raised.value.cause))


async def overview(handle: Handle) -> Overview:
    """Return what the pipeline says of itself, as soon as it can be asked."""
    return await until(handle, lambda now: True)


async def until(handle: Handle, true: Callable[[Overview], bool]) -> Overview:
    """Return what the pipeline says of itself, once that is so; its execution timeout bounds the wait."""
    while True:
        try:
            now: Overview = await handle.query(QUERY_STATUS, result_type=Overview)
        except RPCError as error:
            # No task has been completed yet; the worker that was asked has ended before it answered, or was too busy.
            early = error.status in (RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.CANCELLED)
            if not early and "TMPRL1101" not in error.message:
                raise
        else:
            if true(now):
                return now
        await asyncio.sleep(0.01)


async def until_waiting(handle: Handle, *names: str) -> Overview:
    """Wait until the pipeline waits for exactly these steps, and return its overview then."""
    return await until(handle, lambda now: sorted(wait.name for wait in now.waiting_for) == sorted(names))


async def events(handle: Handle) -> AsyncIterator[HistoryEvent]:
    """Yield a run's events as they come, also where the server loses the place in its history."""
    last = 0
    while True:
        try:
            async for event in handle.fetch_history_events(wait_new_event=True):
                if event.event_id > last:
                    last = event.event_id
                    yield event
            return
        except RPCError as error:
            if not last or error.status is not RPCStatusCode.INVALID_ARGUMENT:
                raise


async def event(handle: Handle, kind: "EventType.ValueType", nth: int = 1) -> HistoryEvent:
    """Wait until the ``nth`` event of a kind is in the history, and return it."""
    seen = 0
    async for event in events(handle):
        seen += event.event_type == kind
        if seen == nth:
            return event
    raise AssertionError(f"{handle.id} closed with {seen} events of kind {EventType.Name(kind)}, not {nth}")


async def assert_reads_back(client: Client, handle: Handle, pipelines: Sequence[type[Any]] = PIPELINES) -> RunRecord:
    """Assert that the history alone tells exactly what the pipeline's own queries tell, times included.

    A worker of the pipeline must be running, and the run be closed or waiting. Returns what was read.
    """
    newest = client.get_workflow_handle(handle.id, run_id=handle.run_id)
    run = await read_run(client, newest.id, newest.run_id)
    overview = await newest.query(QUERY_STATUS, result_type=Overview)
    assert dated(run.state.entries) == await newest.query(QUERY_HISTORY)
    assert run.baton.to_json_object() == await newest.query(QUERY_BATON)
    assert run.state.spend == overview.spend
    assert run.baton.digest == overview.digest
    if run.status is not RunStatus.CONTINUED_AS_NEW:  # it asked for one more step, which the next run took
        assert max((step.seq for step in run.steps), default=0) == overview.seq
    if run.result is not None:
        assert run.result.baton == run.baton.to_json_object()
        assert run.result.spend == overview.spend
    await assert_replays(newest, [pipeline for pipeline in pipelines if pipeline.__name__ == run.pipeline])
    return run


def dated(entries: Sequence[HistoryEntry]) -> list[dict[str, Any]]:
    """Return entries as the query `history` answers them."""
    return [entry.model_dump(mode="json") for entry in entries]


def undated(run: RunRecord) -> list[dict[str, Any]]:
    """Return the entries of a run without their times, which differ from run to run."""
    return [{**entry, "timestamp": None} for entry in dated(run.state.entries)]


def names(run: RunRecord) -> list[str]:
    """Return the names of a run's steps, in order."""
    return [step.name for step in run.steps]


async def most_activities(handle: Handle) -> int:
    """Return how many activities of a run were open at once, at most."""
    scheduled, completed = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
    kinds = [event.event_type async for event in handle.fetch_history_events()]
    return max(itertools.accumulate((kind == scheduled) - (kind == completed) for kind in kinds))
