"""Waiting for what a stage lacks, storage that can be written or a worker that has it: that is no failure of its."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

from baton.errors import ArtifactUnavailableError
from baton.ledger.records import LedgerUnavailableError
from baton.pipelines.workflow_handlers import RunHandlers

_FIRST, _LONGEST = timedelta(seconds=5), timedelta(minutes=1)
_LONGEST_WITHOUT_WORKER = timedelta(minutes=2)
_UNKNOWN = ("NotFoundError", "is not registered on this worker")  # by which the SDK says it; retries do not help
_OUTAGES = (LedgerUnavailableError.__name__, ArtifactUnavailableError.__name__)
_MOST = 60  # times, which is an hour; each begins with the stage's own retries


def is_outage(error: FailureError) -> bool:
    """Return whether a stage could not write its acceptance to the ledger, or its work to the artifact store."""
    cause = error.cause if isinstance(error, ActivityError) else error
    return isinstance(cause, ApplicationError) and cause.type in _OUTAGES


def is_unknown(error: FailureError) -> bool:
    """Return whether the worker that was given a stage does not have it, as after a release that removed it."""
    cause = error.cause if isinstance(error, ActivityError) else error
    kind, words = _UNKNOWN
    return isinstance(cause, ApplicationError) and cause.type == kind and words in cause.message


async def wait_for_worker(handlers: RunHandlers, stage: str, seq: int, nth: int) -> None:
    """Wait a while before a stage is sent again that its worker did not have; until one has it, nothing is lost."""
    if nth == 1:
        handlers.note(f"{stage!r} waits: the workers do not have this stage; start one whose code has it")
    pause = min(_FIRST * 2 ** min(nth - 1, 10), _LONGEST_WITHOUT_WORKER)
    await workflow.sleep(pause, summary=f"step {seq}: {stage} waits for a worker that has it"[:200])


async def wait_for_ledger(handlers: RunHandlers, stage: str, seq: int, nth: int) -> bool:
    """Wait a while before a stage is sent again that met an outage."""
    if nth > _MOST:
        return False
    if nth == 1:
        handlers.note(f"{stage!r} waits: the ledger or the artifact store cannot be written; see the worker's log")
    pause = min(_FIRST * 2 ** min(nth - 1, 10), _LONGEST)
    await workflow.sleep(pause, summary=f"step {seq}: {stage} waits for storage"[:200])
    return True
