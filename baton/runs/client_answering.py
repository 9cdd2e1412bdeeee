"""Asking a run something that only its worker can answer, and not waiting for ever for it."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from temporalio.client import Client, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from baton.errors import PipelineError
from baton.runs.client_executions import describe, unpause
from baton.runs.client_waiting import Build, has_pollers, pinned_build

AnswerT = TypeVar("AnswerT")

ANSWER_SECONDS = 10.0
_NO_ANSWER = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.FAILED_PRECONDITION)


class NoAnswerError(PipelineError):
    """No worker answers; the same may be asked again later."""


async def answer_of(
    client: Client, workflow_id: str, asking: Awaitable[AnswerT], *, within: float = ANSWER_SECONDS
) -> AnswerT:
    """Return what a worker answers.

    Raises:
        NoAnswerError: No worker answers within so many seconds.
    """
    try:
        async with asyncio.timeout(within):
            return await asking
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
        pass
    except RPCError as error:
        if error.status not in _NO_ANSWER:
            raise
    description = await describe(client, workflow_id)
    raise nobody(description.task_queue, pinned_build(description))


async def must_be_answerable(client: Client, workflow_id: str, run_id: str | None = None) -> str:
    """Check that a run is its workflow's newest, is open, and has a worker; return the worker's task queue.

    Raises:
        PipelineError: It is not, so no decision is possible; says why.
    """
    description = await describe(client, workflow_id)
    if run_id not in (None, description.run_id):
        raise PipelineError(f"run {run_id} is over; {workflow_id!r} continues as {description.run_id}")
    if description.close_time is not None:
        raise PipelineError(f"{workflow_id!r} no longer waits for a decision: it is {description.status}")
    if paused := description.pause:
        raise PipelineError(
            f"{workflow_id!r} was paused by {paused.by}{f': {paused.why}' if paused.why else ''}; nothing was "
            f"decided. Unpause it ({unpause(workflow_id)}) and decide again"
        )
    if not await has_pollers(client, description.task_queue, build := pinned_build(description)):
        raise nobody(description.task_queue, build)
    return description.task_queue


def nobody(task_queue: str, build: Build | None = None) -> NoAnswerError:
    """Return the error for a run whose worker does not answer, and is of a build if the run is pinned to one."""
    of_build = "" if build is None else f" of build {build.id!r}, to which the run is pinned,"
    return NoAnswerError(
        f"no worker{of_build} of task queue {task_queue!r} answers; nothing was decided. Start one and decide again"
    )
