"""Telling a run what a person decided, by an update that is refused or counts."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError

from baton.errors import PipelineError

AnswerT = TypeVar("AnswerT")

_MOST_TRIES = 5


async def decided_by_update(
    handle: WorkflowHandle[Any, Any],
    update: str,
    decision: Any,
    answer: type[AnswerT],
    waits: Callable[[], Awaitable[bool]],
) -> AnswerT:
    """Send a decision as an update, and return what counts.

    A query may tell of a wait that begins in a workflow task which is not on record yet. An update that comes with
    this task is judged before the wait has begun, and is refused; so one that is refused although the run waits for
    just this decision is sent again.

    Args:
        handle: The run.
        update: The update's name.
        decision: What was decided.
        answer: The type of what the run answers.
        waits: Whether the run waits for just this decision.

    Raises:
        PipelineError: The decision is refused, with the run's reason.
        temporalio.service.RPCError: There is no such run, or no worker answers.
    """
    tries = 1
    while True:
        try:
            counts: AnswerT = await handle.execute_update(update, decision, result_type=answer)
        except WorkflowUpdateFailedError as error:
            if tries == _MOST_TRIES or not await waits():
                raise PipelineError(str(getattr(error.cause, "message", error.cause))) from error
        else:
            return counts
        tries += 1
