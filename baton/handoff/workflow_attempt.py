"""An outgoing handoff: the activity of each attempt, its failures, and its waits.

A stage that could not begin has not failed. After a storage outage it is sent again; if its worker lacks something,
the run waits for a worker that has it, without using up history or the stage's attempts. An artifact that one worker's
store has and another's lacks is waited for once; then each try that lacks it counts.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    FailureError,
    is_cancelled_exception,
)
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

from baton.budget.workflow import BudgetAccount
from baton.core.artifacts import find_confirmed_loss
from baton.core.history import Spend, find_spend
from baton.core.messages import Missing, PipelineStatus, StageInput, StageReturn
from baton.core.stages import Retries, StageSpec
from baton.errors import ArtifactUnavailableError, ConfigurationError, PayloadTooLargeError, StageFailedError
from baton.handoff.records import Handoff
from baton.ledger.records import LedgerUnavailableError
from baton.runtime.workflow_handlers import RunHandlers
from baton.wire.json_values import find_excess
from baton.wire.names import HANDOFF_REFUSED, WAIT_FOR_WORKER

_MAX_REASON_LENGTH = 2_000  # it goes into the memo, which should stay small
_OUTAGE_TYPES = (LedgerUnavailableError.__name__, ArtifactUnavailableError.__name__)
_MAX_OUTAGES = 60  # about an hour, besides the stage's own retries
_MAX_SKEWS = 6  # about three minutes; a worker whose clock is off stops within one
_FIRST_PAUSE, _MAX_PAUSE = timedelta(seconds=5), timedelta(minutes=1)
_WORKER_RETRIES = RetryPolicy(initial_interval=timedelta(seconds=0.25), maximum_interval=timedelta(seconds=10))
_WORKER_TIMEOUT = timedelta(seconds=30)


class StageExecutionError(StageFailedError):
    """A stage failed for good, or a child failed.

    Attributes:
        spend: What it reported to have spent, in all its runs.
        is_outage: Whether it could not begin because storage was down.
        topped_up_micro_usd: What people had added to a child's budget.
    """

    def __init__(self, message: str, spend: Spend, *, is_outage: bool = False, topped_up_micro_usd: int = 0) -> None:
        super().__init__(message)
        self.spend = spend
        self.is_outage = is_outage
        self.topped_up_micro_usd = topped_up_micro_usd


@dataclass
class OutgoingHandoff:
    """One handoff, from the sender's checkpoint until a receiver accepts it.

    Attributes:
        spec: The receiving stage.
        stage_input: Its input without the baton.
        handoff_id: The handoff, the same in all attempts.
        receivers: All stages of a fan-out.
        sent: How often it was sent.
        outages: How often its stage could not begin because storage was down.
        tries: How often its stage ran and raised before it had to wait for storage or a worker.
        rejections: How often it was rejected in a way that its sender can correct.
        skews: How often a worker rejected it only because of a difference between two clocks.
        expiries: How often it, or its contract, had expired when it was received.
        corrections: Its sender's corrections, recorded once the handoff is accepted.
        message: The message sent last.
        task_queue: The receiver's task queue; None for the pipeline's own.
        found: The lost artifacts that it has waited for, and that a worker's store then had.
    """

    spec: StageSpec
    stage_input: StageInput
    handoff_id: str
    receivers: Sequence[str] = ()
    sent: int = 0
    outages: int = 0
    tries: int = 0
    rejections: int = 0
    skews: int = 0
    expiries: int = 0
    corrections: list[StageReturn] = field(default_factory=list)
    message: Handoff | None = None
    task_queue: str | None = None
    found: set[str] = field(default_factory=set)

    @property
    def key(self) -> str:
        """The key of its reservation in the budget."""
        return f"{self.stage_input.seq}:{self.spec.name}"


async def execute_stage(
    outgoing: OutgoingHandoff, message: StageInput | Handoff, account: BudgetAccount, handlers: RunHandlers
) -> StageReturn:
    """Run the stage's activity with its retries, on a worker that has what it needs."""
    spec, seq = outgoing.spec, outgoing.stage_input.seq
    suffix = f", attempt {outgoing.sent}" if outgoing.sent > 1 else ""
    noted = ""
    while True:
        retries = _retry_policy(spec.retries)
        if retries.maximum_attempts:
            retries.maximum_attempts -= outgoing.tries
        try:
            returned: StageReturn | bytes | None = await workflow.execute_activity(
                spec.name,
                message,
                result_type=StageReturn,
                task_queue=outgoing.task_queue,
                start_to_close_timeout=spec.timeout,
                heartbeat_timeout=spec.heartbeat,
                retry_policy=retries,
                summary=f"step {seq}: {spec.name}{suffix}"[:200],
            )
            break
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError(f"stage {spec.name!r} was cancelled") from error
            if refusal := _refusal_of(error):
                outgoing.tries = 0
                return refusal
            missing = _missing_of(error, spec.name, seq)
            again = missing is not None and missing.artifact in outgoing.found
            if missing is not None:
                outgoing.tries += missing.tries + again
            if missing is None or (again and 0 < spec.retries.attempts <= outgoing.tries):
                outage = isinstance(error.cause, ApplicationError) and error.cause.type in _OUTAGE_TYPES
                outgoing.tries = outgoing.tries + _tries_before(error) if outage else 0
                text = f"stage {spec.name!r} failed: {reason_of(error)}"
                raise StageExecutionError(text, spend_of(error), is_outage=outage) from error
            account.charge_unreserved(spec.name, spend_of(error))
        what = "an artifact" if missing.artifact else "a worker that can do it"
        if again:
            what = "an artifact that only another worker's store has"
        if (text := f"{spec.name!r} waits for {what}: {missing.text}") != noted:
            noted = text
            handlers.note(noted)
        if again:
            await _pause(outgoing, outgoing.tries, "another worker")
        await _wait_for_worker(outgoing, missing, handlers)
        if missing.artifact:
            outgoing.found.add(missing.artifact)
    outgoing.tries = 0
    if not isinstance(returned, StageReturn):  # the SDK accepts null and bytes for any type
        found = "null" if returned is None else "bytes"
        raise StageFailedError(f"stage {spec.name!r} returned {found}; see `baton schema stage-return`")
    return returned


async def _wait_for_worker(outgoing: OutgoingHandoff, missing: Missing, handlers: RunHandlers) -> None:
    name, what = outgoing.spec.name, "an artifact" if missing.artifact else "a worker"
    try:
        with handlers.visibility.show_waiting(PipelineStatus.SUSPENDED, name):
            await workflow.execute_activity(
                WAIT_FOR_WORKER,
                missing,
                task_queue=outgoing.task_queue,
                start_to_close_timeout=_WORKER_TIMEOUT,
                retry_policy=_WORKER_RETRIES,
                summary=f"step {missing.seq}: {name} waits for {what}"[:200],
            )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError(f"stage {name!r} was cancelled") from error
        raise
    finally:
        handlers.visibility.resume(name)


async def wait_for_storage(outgoing: OutgoingHandoff, handlers: RunHandlers) -> bool:
    """Wait before sending a handoff again after an outage; return False after too many."""
    name, nth = outgoing.spec.name, outgoing.outages
    if nth > _MAX_OUTAGES:
        return False
    if nth == 1:
        handlers.note(f"{name!r} waits: the ledger or the artifact store cannot be written; see the worker's log")
    await _pause(outgoing, nth, "storage")
    return True


async def wait_for_other_clock(outgoing: OutgoingHandoff, handlers: RunHandlers) -> bool:
    """Wait before sending a handoff again that only a clock refused: another worker may take it; False after many."""
    name = outgoing.spec.name
    outgoing.skews += 1
    if outgoing.skews > _MAX_SKEWS:
        return False
    handlers.note(f"a worker's clock is off, and it rejected the handoff to {name!r}; it is tried elsewhere")
    await _pause(outgoing, outgoing.skews, "another worker")
    return True


async def _pause(outgoing: OutgoingHandoff, nth: int, what: str) -> None:
    """Wait before sending a handoff again for the ``nth`` time."""
    pause = min(_FIRST_PAUSE * 2 ** min(nth - 1, 10), _MAX_PAUSE)
    summary = f"step {outgoing.stage_input.seq}: {outgoing.spec.name} waits for {what}"
    await workflow.sleep(pause, summary=summary[:200])


def _missing_of(error: ActivityError, stage: str, seq: int) -> Missing | None:
    """Return what the worker or the store lacked for a stage; None if the stage failed otherwise."""
    cause, tries = error.cause, _tries_before(error)
    if isinstance(cause, ApplicationError) and cause.type == ConfigurationError.__name__ and cause.details:
        return Missing(stage=stage, seq=seq, text=cause.message, tries=tries)
    if isinstance(cause, FailureError) and (lost := find_confirmed_loss(chain := _chain(cause))):
        text = next(message for _, message in chain if lost in message)[:_MAX_REASON_LENGTH]
        return Missing(stage=stage, seq=seq, text=text, tries=tries, artifact=lost)
    return None


def _chain(error: BaseException | None) -> list[tuple[str | None, str]]:
    """Return the types and texts of a failure and its causes."""
    chain: list[tuple[str | None, str]] = []
    while isinstance(error, FailureError):
        chain.append((error.type if isinstance(error, ApplicationError) else None, error.message))
        error = error.cause
    return chain


def _tries_before(error: ActivityError) -> int:
    """Return how often a stage ran before the try that could not begin."""
    details = error.cause.details if isinstance(error.cause, ApplicationError) else ()
    return details[0] if details and isinstance(details[0], int) else 0


def _refusal_of(error: ActivityError) -> StageReturn | None:
    """Return the answer of a stage that rejected its handoff; None if it failed otherwise."""
    if not (isinstance(error.cause, ApplicationError) and error.cause.type == HANDOFF_REFUSED and error.cause.details):
        return None
    answer = error.cause.details[0]
    if find_excess(answer) is not None:
        return None
    try:
        returned = StageReturn.model_validate(answer, strict=False)
    except ValidationError:
        return None
    return returned if returned.verdict is not None and not returned.verdict.valid else None


def spend_of(error: FailureError) -> Spend:
    """Return what a stage or child reported to have spent before it failed."""
    cause = error.cause if isinstance(error, ActivityError | ChildWorkflowError) else error
    if isinstance(cause, ApplicationError):
        return find_spend(cause.details)
    return find_spend(cause.last_heartbeat_details) if isinstance(cause, ActivityTimeoutError) else Spend()


def reason_of(error: FailureError) -> str:
    """Return the error of a stage or child, with its root cause unless the text has it."""
    causes: list[tuple[str, str]] = []
    cause: BaseException | None = error
    while isinstance(cause, FailureError):
        if not isinstance(cause, ActivityError | ChildWorkflowError):  # these say only that something failed
            kind = cause.type if isinstance(cause, ApplicationError) else None  # a timeout's type is a number
            causes.append((kind or type(cause).__name__, cause.message))
        cause = cause.cause
    (last_kind, text), (first_kind, first_text) = (causes[0], causes[-1]) if causes else (("Failure", str(error)),) * 2
    why = f"{last_kind}: {text}" if first_text in text else f"{last_kind}: {text} (from {first_kind}: {first_text})"
    return why[:_MAX_REASON_LENGTH]


def _retry_policy(retries: Retries) -> RetryPolicy:
    return RetryPolicy(
        initial_interval=retries.first,
        backoff_coefficient=retries.factor,
        maximum_interval=max(retries.longest, retries.first, timedelta(milliseconds=1)),
        maximum_attempts=retries.attempts,
        non_retryable_error_types=[PayloadTooLargeError.__name__],  # a retry would cost as much and be as large
    )
