"""Queries that wait for a worker, and bring their run what came meanwhile ahead of its workflow task."""

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
    """Return a client without Baton, as the Temporal UI is one."""
    return await Client.connect(server.address)


async def begun(client: Client, queue: str, count: int = RUNS) -> list[Handle]:
    """Return runs that wait for a note, and whose worker is gone."""
    async with pipeline_worker(client, [TellsWhen], [sort], task_queue=queue) as gone:
        runs = [await start(gone, TellsWhen.run) for _ in range(count)]
        assert [await run.query(TellsWhen.noted) for run in runs] == [0] * count
    return runs


async def asked(asker: Client, runs: Sequence[Handle]) -> list[asyncio.Task[Any]]:
    """Have all runs asked while there is no worker; return the questions."""
    asking = [
        asyncio.create_task(asker.get_workflow_handle(run.id).query(TellsWhen.noted, rpc_timeout=IN_TIME))
        for run in runs
    ]
    await asyncio.sleep(0.5)
    return asking


async def first_answer(asking: Sequence[asyncio.Task[Any]]) -> Any:
    """Return what a question was answered that this worker got."""
    for answering in asyncio.as_completed(asking):
        with suppress(WorkflowQueryFailedError):
            return await answering
    raise AssertionError("no question is answered")


async def test_nothing_is_told_ahead_of_its_task(client: Client, plain: Client) -> None:
    """The SDK told a run what came after its last task at the time of that task; it would not have fitted a replay."""
    queue = f"early-{uuid4()}"
    runs = await begun(client, queue)
    asking = await asked(plain, runs)
    for run in runs:
        await run.signal(TellsWhen.note)
    async with pipeline_worker(client, [TellsWhen], [sort], task_queue=queue):
        results = [await run.result() for run in runs]
        assert await asyncio.gather(*asking) == [1] * RUNS

    for run, result in zip(runs, results, strict=True):
        note = await event(run, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
        assert datetime.fromisoformat(result.output).timestamp() > note.event_time.ToNanoseconds() / 1e9
        await assert_replays(run, [TellsWhen], plugin=BatonPlugin())


async def test_a_task_that_another_worker_is_at_tells_nothing(client: Client, plain: Client) -> None:
    """A query brought its start; if that worker failed, what came meanwhile was told apart from what came later."""
    for _ in range(40):  # which of them a poll gets, no test can arrange
        queue = f"early-{uuid4()}"
        [run] = await begun(client, queue, 1)
        asking = await asked(plain, [run] * RUNS)
        await run.signal(TellsWhen.note)
        polling = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue))
        left = RUNS
        while (held := await plain.workflow_service.poll_workflow_task_queue(polling, timeout=POLL)).HasField("query"):
            left -= 1
            await plain.workflow_service.respond_query_task_completed(  # one without an answer blocks the queue
                RespondQueryTaskCompletedRequest(
                    namespace=client.namespace,
                    task_token=held.task_token,
                    completed_type=QueryResultType.QUERY_RESULT_TYPE_FAILED,
                    error_message="not here",
                )
            )
        if held.task_token and left:
            break
        for one in asking:
            one.cancel()
    else:
        raise AssertionError("the other worker never got the task before the queries")
    async with pipeline_worker(client, [TellsWhen], [sort], task_queue=queue):
        assert await first_answer(asking) == 1
        failing = RespondWorkflowTaskFailedRequest(namespace=client.namespace, task_token=held.task_token)
        await plain.workflow_service.respond_workflow_task_failed(failing)
        result = await run.result()
    for one in asking:
        one.cancel()

    failed = await event(run, EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED)
    assert datetime.fromisoformat(result.output).timestamp() > failed.event_time.ToNanoseconds() / 1e9
    await assert_replays(run, [TellsWhen], plugin=BatonPlugin())


async def test_a_run_that_was_closed_with_news_can_be_asked(client: Client, plain: Client) -> None:
    """No task will ever tell it of them."""
    queue = f"early-{uuid4()}"
    [run] = await begun(client, queue, 1)
    await run.signal(TellsWhen.note)
    await run.terminate()
    async with pipeline_worker(client, [TellsWhen], [sort], task_queue=queue):
        assert await plain.get_workflow_handle(run.id).query(TellsWhen.noted) == 1
    await assert_replays(run, [TellsWhen], plugin=BatonPlugin())
