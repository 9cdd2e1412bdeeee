"""Describes and lists runs, paused runs included.

The SDK does not know the status of a paused run: `describe` and `list_workflows` raise `ValueError`, which loses the
whole list. So this module reads the server's responses itself.
"""

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TypeVar

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    ListWorkflowExecutionsRequest,
)
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.common import TypedSearchAttributes
from temporalio.converter import decode_typed_search_attributes

from baton.errors import PipelineError
from baton.wire.json_values import JsonFields

PAUSED = "PAUSED"
_STATUS = "WORKFLOW_EXECUTION_STATUS_"
_MAX_CONCURRENT = 8

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Pause(JsonFields):
    """Who paused a run."""

    by: str
    why: str
    since: datetime


@dataclass(frozen=True)
class Execution:
    """A run as the server describes it."""

    info: WorkflowExecutionInfo
    details: DescribeWorkflowExecutionResponse = field(default_factory=DescribeWorkflowExecutionResponse)

    @property
    def id(self) -> str:
        """The workflow's id."""
        return self.info.execution.workflow_id

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.info.execution.run_id

    @property
    def workflow_type(self) -> str:
        """The name of the workflow's type."""
        return self.info.type.name

    @property
    def task_queue(self) -> str:
        """The task queue of the run's workers."""
        return self.info.task_queue

    @property
    def status(self) -> str:
        """Temporal's status: `RUNNING`, `PAUSED`, `COMPLETED` and so on."""
        return WorkflowExecutionStatus.Name(self.info.status).removeprefix(_STATUS)

    @property
    def start_time(self) -> datetime:
        """When it started."""
        return _to_datetime(self.info.start_time)

    @property
    def close_time(self) -> datetime | None:
        """When it ended; None while it is open."""
        return _to_datetime(self.info.close_time) if self.info.HasField("close_time") else None

    @cached_property
    def search_attributes(self) -> TypedSearchAttributes:
        """Its search attributes."""
        return decode_typed_search_attributes(self.info.search_attributes)

    @property
    def pause(self) -> Pause | None:
        """Who paused it and why; None if it is not paused, or comes from a list."""
        extended = self.details.workflow_extended_info
        if self.status != PAUSED or not extended.HasField("pause_info"):
            return None
        pause_info = extended.pause_info
        return Pause(pause_info.identity, pause_info.reason, _to_datetime(pause_info.paused_time))


async def describe(client: Client, workflow_id: str, run_id: str | None = None) -> Execution:
    """Return the server's description of a run."""
    request = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id or "")
    )
    response = await client.workflow_service.describe_workflow_execution(request, retry=True)
    return Execution(response.workflow_execution_info, response)


def refusal_of(error: WorkflowUpdateFailedError) -> PipelineError:
    """Return why a run refused an update, in its own words."""
    return PipelineError(str(getattr(error.cause, "message", error.cause)))


async def history(client: Client, workflow_id: str, run_id: str | None = None) -> tuple[str, list[HistoryEvent]]:
    """Return the id of a run, and all its events so far, in order."""
    # The first event of a rolled-back run has the id of the original run, so ask the server.
    run_id = run_id or (await describe(client, workflow_id)).run_id
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    return run_id, [event async for event in handle.fetch_history_events(page_size=1000)]


async def list_executions(
    client: Client, query: str, *, most: int = sys.maxsize, page: int = 1_000
) -> AsyncIterator[Execution]:
    """Yield the runs that match a query, in the server's order."""
    token, remaining = b"", most
    while remaining > 0:
        found, token = await list_some(client, query, min(remaining, page), token)
        for execution in found[:remaining]:
            yield execution
        remaining -= len(found)
        if not token:
            return


async def list_some(client: Client, query: str, most: int, token: bytes = b"") -> tuple[list[Execution], bytes]:
    """Return runs that match a query from a place of the server's list, and the place after them; empty at its end."""
    request = ListWorkflowExecutionsRequest(
        namespace=client.namespace, query=query, page_size=most, next_page_token=token
    )
    answer = await client.workflow_service.list_workflow_executions(request, retry=True)
    return [Execution(info) for info in answer.executions], answer.next_page_token


async def first(items: AsyncIterator[ItemT], limit: int | None) -> AsyncIterator[ItemT]:
    """Yield the first items, all without a limit, and read no further."""
    left = sys.maxsize if limit is None else limit
    if left <= 0:
        return
    async for item in items:
        yield item
        left -= 1
        if not left:
            return


def unpause(workflow_id: str) -> str:
    """Return the command that unpauses a run."""
    return f"baton unpause {shlex.quote(workflow_id)} --why '…'"


def _to_datetime(time: Timestamp) -> datetime:
    return time.ToDatetime(tzinfo=UTC)


async def map_concurrently(function: Callable[[ItemT], Awaitable[ResultT]], items: Iterable[ItemT]) -> list[ResultT]:
    """Return a function's results for items, in their order, with a few calls to the server at a time.

    Raises:
        Exception: The first error of a call; the other calls are not cancelled.
    """
    turn = asyncio.Semaphore(_MAX_CONCURRENT)

    async def call(item: ItemT) -> ResultT:
        async with turn:
            return await function(item)

    return await asyncio.gather(*map(call, items))
