"""Queries that wait for a worker, and bring events to their run ahead of its workflow task."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType, QueryResultType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollWorkflowTaskQueueRequest,
    RespondQueryTaskCompletedRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.client import Client, WorkflowQueryFailedError

from baton.devserver import DevServer
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.patience import IN_TIME
from tests.pipelines.stages import sort
from tests.pipelines.working_pipelines import TellsWhen
from tests.support import Handle, event, start

RUNS = 8
"""So many that a query of at least one of them comes before its task, which no test can arrange."""

POLL = timedelta(seconds=3)
"""A poll returns nothing before then, also where a task waits: in another partition of the queue."""


@pytest.fixture
async def plain(server: DevServer) -> Client:
    """Return a client without Baton, like that of the Temporal UI."""
    return await Client.connect(server.address)


async def start_waiting_runs(client: Client, queue: str, count: int = RUNS) -> list[Handle]:
    """Return runs that wait for a note, and whose worker is gone."""
    async with pipeline_worker(client, [TellsWhen], [sort], task_queue=queue) as worker:
        runs = [await start(worker, TellsWhen.run) for _ in range(count)]
        assert [await run.query(TellsWhen.noted) for run in runs] == [0] * count
    return runs


async def query_without_worker(asker: Client, runs: Sequence[Handle]) -> list[asyncio.Task[Any]]:
    """Query all runs while there is no worker; return the pending queries."""
    queries = [
        asyncio.create_task(asker.get_workflow_handle(run.id).query(TellsWhen.noted, rpc_timeout=IN_TIME))
        for run in runs
    ]
    await asyncio.sleep(0.5)
    return queries


async def first_answer(queries: Sequence[asyncio.Task[Any]]) -> Any:
    """Return the answer to a query that this worker got."""
    for query in asyncio.as_completed(queries):
        with suppress(WorkflowQueryFailedError):
            return await query
    raise AssertionError("no question is answered")


async def test_no_event_is_applied_ahead_of_its_task(client: Client, plain: Client) -> None:
    """The SDK applied later events at the time of the run's last task, which would not fit a replay."""
    queue = f"early-{uuid4()}"
    runs = await start_waiting_runs(client, queue)
    queries = await query_without_worker(plain, runs)
    for run in runs:
        await run.signal(TellsWhen.note)
    async with pipeline_worker(client, [TellsWhen], [sort], task_queue=queue):
        results = [await run.result() for run in runs]
        assert await asyncio.gather(*queries) == [1] * RUNS

    for run, result in zip(runs, results, strict=True):
        note = await event(run, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
        assert datetime.fromisoformat(result.output).timestamp() > note.event_time.ToNanoseconds() / 1e9
        await assert_replays(run, [TellsWhen], plugin=BatonPlugin())


async def test_a_task_at_another_worker_applies_no_event(client: Client, plain: Client) -> None:
    """A query brought its start; if that worker failed, earlier events were applied apart from later ones."""
    for _ in range(40):  # which of them a poll gets, no test can arrange
        queue = f"early-{uuid4()}"
        [run] = await start_waiting_runs(client, queue, 1)
        queries = await query_without_worker(plain, [run] * RUNS)
        await run.signal(TellsWhen.note)
        request = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue))
        remaining = RUNS
        while (task := await plain.workflow_service.poll_workflow_task_queue(request, timeout=POLL)).HasField("query"):
            remaining -= 1
            await plain.workflow_service.respond_query_task_completed(  # one without an answer blocks the queue
                RespondQueryTaskCompletedRequest(
                    namespace=client.namespace,
                    task_token=task.task_token,
                    completed_type=QueryResultType.QUERY_RESULT_TYPE_FAILED,
                    error_message="not here",
                )
            )
        if task.task_token and remaining:
            break
        for query in queries:
            query.cancel()
    else:
        raise AssertionError("the other worker never got the task before the queries")
    async with pipeline_worker(client, [TellsWhen], [sort], task_queue=queue):
        assert await first_answer(queries) == 1
        response = RespondWorkflowTaskFailedRequest(namespace=client.namespace, task_token=task.task_token)
        await plain.workflow_service.respond_workflow_task_failed(response)
        result = await run.result()
    for query in queries:
        query.cancel()

    failed = await event(run, EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED)
    assert datetime.fromisoformat(result.output).timestamp() > failed.event_time.ToNanoseconds() / 1e9
    await assert_replays(run, [TellsWhen], plugin=BatonPlugin())


async def test_a_run_closed_with_unprocessed_events_can_be_queried(client: Client, plain: Client) -> None:
    """No task will ever process them."""
    queue = f"early-{uuid4()}"
    [run] = await start_waiting_runs(client, queue, 1)
    await run.signal(TellsWhen.note)
    await run.terminate()
    async with pipeline_worker(client, [TellsWhen], [sort], task_queue=queue):
        assert await plain.get_workflow_handle(run.id).query(TellsWhen.noted) == 1
    await assert_replays(run, [TellsWhen], plugin=BatonPlugin())
