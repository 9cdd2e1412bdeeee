"""A handoff to a stage on its way: each attempt's activity, what it left behind, and what it waits for.

A stage that could not begin has not failed: for want of storage it is sent again, and where its worker lacks
something, the run waits for one that has it, at no cost of history or of the stage's tries.
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
from baton.core.history import Spend, find_spend
from baton.core.messages import Missing, PipelineStatus, StageInput, StageReturn
from baton.core.stages import Retries, StageSpec
from baton.errors import ArtifactUnavailableError, ConfigurationError, PayloadTooLargeError, StageFailedError
from baton.handoff.records import Handoff
from baton.ledger.records import LedgerUnavailableError
from baton.pipelines.workflow_handlers import RunHandlers
from baton.wire.json_values import find_excess
from baton.wire.names import HANDOFF_REFUSED, WAIT_FOR_WORKER

_REASON_CHARACTERS = 2_000  # it is kept in the memo, which is not meant for more
_OUTAGES = (LedgerUnavailableError.__name__, ArtifactUnavailableError.__name__)
_MOST_OUTAGES = 60  # which is an hour; each begins with the stage's own retries
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=1)
_UNTIL_A_WORKER_HAS_IT = RetryPolicy(initial_interval=timedelta(seconds=0.25), maximum_interval=timedelta(seconds=10))
_ANSWERS_WITHIN = timedelta(seconds=30)


class StageExecutionError(StageFailedError):
    """A stage raised for good, or a child failed.

    Attributes:
        spend: What it had charged by then, in all its runs, as far as it told.
        is_outage: Whether it did not begin because the ledger could not be written.
        topped_up_micro_usd: What people had added to the budget of a child.
    """

    def __init__(self, message: str, spend: Spend, *, is_outage: bool = False, topped_up_micro_usd: int = 0) -> None:
        super().__init__(message)
        self.spend = spend
        self.is_outage = is_outage
        self.topped_up_micro_usd = topped_up_micro_usd


@dataclass
class OutgoingHandoff:
    """One handoff on its way: from the sender's checkpoint until a receiver has accepted it.

    Attributes:
        spec: The receiving stage.
        given: Its input but for the baton.
        handoff_id: Names the handoff in all its attempts.
        receivers: Of a fan-out, all its stages.
        sent: How often it was sent.
        asked: How often a person was asked about it.
        outages: How often its stage could not begin for want of the ledger.
        rejected: How often it was not accepted and its sender was to correct it.
        expired: How often its contract had expired when the receiver looked.
        corrected: What its sender answered meanwhile, to be recorded once the handoff is accepted.
        message: The message that was sent last.
        task_queue: Where the receiver's workers listen, or None for the pipeline's own queue.
    """

    spec: StageSpec
    given: StageInput
    handoff_id: str
    receivers: Sequence[str] = ()
    sent: int = 0
    asked: int = 0
    outages: int = 0
    rejected: int = 0
    expired: int = 0
    corrected: list[StageReturn] = field(default_factory=list)
    message: Handoff | None = None
    task_queue: str | None = None

    @property
    def key(self) -> str:
        """The name of its reservation in the budget."""
        return f"{self.given.seq}:{self.spec.name}"


async def execute(
    outgoing: OutgoingHandoff, message: StageInput | Handoff, account: BudgetAccount, handlers: RunHandlers
) -> StageReturn:
    """Run the stage's activity, with the retries Temporal makes of it, on a worker that has what it needs."""
    spec, seq = outgoing.spec, outgoing.given.seq
    nth = f", attempt {outgoing.sent}" if outgoing.sent > 1 else ""
    retries, told = _retry_policy(spec.retries), ""
    while True:
        try:
            returned: StageReturn | bytes | None = await workflow.execute_activity(
                spec.name,
                message,
                result_type=StageReturn,
                task_queue=outgoing.task_queue,
                start_to_close_timeout=spec.timeout,
                heartbeat_timeout=spec.heartbeat,
                retry_policy=retries,
                summary=f"step {seq}: {spec.name}{nth}"[:200],
            )
            break
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError(f"stage {spec.name!r} was cancelled") from error
            if refusal := _refusal(error):
                return refusal
            if (missing := _missing(error, spec.name, seq)) is None:
                outage = isinstance(error.cause, ApplicationError) and error.cause.type in _OUTAGES
                why = f"stage {spec.name!r} failed: {reason(error)}"
                raise StageExecutionError(why, spent(error), is_outage=outage) from error
            account.charge_unreserved(spec.name, spent(error))
        if missing.text != told:
            told = missing.text
            handlers.note(f"{spec.name!r} waits for a worker that can do it: {told}")
        if retries.maximum_attempts:
            retries.maximum_attempts -= missing.tries
        await _wait_for_worker(outgoing, missing, handlers)
    if not isinstance(returned, StageReturn):  # the SDK takes null and bytes for any type
        found = "null" if returned is None else "bytes"
        raise StageFailedError(f"stage {spec.name!r} returned {found}; see `baton schema stage-return`")
    return returned


async def _wait_for_worker(outgoing: OutgoingHandoff, missing: Missing, handlers: RunHandlers) -> None:
    """Wait until a worker that may have what was missing takes the activity that asks for it."""
    name = outgoing.spec.name
    try:
        with handlers.visibility.waiting(PipelineStatus.SUSPENDED, name):
            await workflow.execute_activity(
                WAIT_FOR_WORKER,
                missing,
                task_queue=outgoing.task_queue,
                start_to_close_timeout=_ANSWERS_WITHIN,
                retry_policy=_UNTIL_A_WORKER_HAS_IT,
                summary=f"step {missing.seq}: {name} waits for a worker"[:200],
            )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError(f"stage {name!r} was cancelled") from error
        raise
    finally:
        handlers.visibility.goes_on(name)


async def wait_for_storage(outgoing: OutgoingHandoff, handlers: RunHandlers) -> bool:
    """Wait before a handoff is sent again whose stage met an outage; return False once that is hopeless."""
    name, nth = outgoing.spec.name, outgoing.outages
    if nth > _MOST_OUTAGES:
        return False
    if nth == 1:
        handlers.note(f"{name!r} waits: the ledger or the artifact store cannot be written; see the worker's log")
    pause = min(_FIRST_PAUSE * 2 ** min(nth - 1, 10), _LONGEST_PAUSE)
    await workflow.sleep(pause, summary=f"step {outgoing.given.seq}: {name} waits for storage"[:200])
    return True


def _missing(error: ActivityError, stage: str, seq: int) -> Missing | None:
    """Return what the worker lacked that was to run a stage; None where the stage failed otherwise."""
    cause = error.cause
    if not (isinstance(cause, ApplicationError) and cause.type == ConfigurationError.__name__ and cause.details):
        return None
    tries = cause.details[0]
    return Missing(stage=stage, seq=seq, text=cause.message, tries=tries) if isinstance(tries, int) else None


def _refusal(error: ActivityError) -> StageReturn | None:
    """Return what a stage answered that did not accept its handoff; None if it failed otherwise."""
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


def spent(error: FailureError) -> Spend:
    """Return what a stage or child told that it had spent, before it failed or was lost."""
    cause = error.cause if isinstance(error, ActivityError | ChildWorkflowError) else error
    if isinstance(cause, ApplicationError):
        return find_spend(cause.details)
    return find_spend(cause.last_heartbeat_details) if isinstance(cause, ActivityTimeoutError) else Spend()


def reason(error: FailureError) -> str:
    """Return what a stage or child raised, and what that came from where its own words do not say so."""
    told: list[tuple[str, str]] = []
    cause: BaseException | None = error
    while isinstance(cause, FailureError):
        if not isinstance(cause, ActivityError | ChildWorkflowError):  # those say only that something failed
            kind = cause.type if isinstance(cause, ApplicationError) else None  # of a time-out it is a number
            told.append((kind or type(cause).__name__, cause.message))
        cause = cause.cause
    (last_kind, text), (first_kind, first_text) = (told[0], told[-1]) if told else (("Failure", str(error)),) * 2
    why = f"{last_kind}: {text}" if first_text in text else f"{last_kind}: {text} (from {first_kind}: {first_text})"
    return why[:_REASON_CHARACTERS]


def _retry_policy(retries: Retries) -> RetryPolicy:
    """Return Temporal's form of the retries."""
    return RetryPolicy(
        initial_interval=retries.first,
        backoff_coefficient=retries.factor,
        maximum_interval=max(retries.longest, retries.first, timedelta(milliseconds=1)),
        maximum_attempts=retries.attempts,
        non_retryable_error_types=[PayloadTooLargeError.__name__],  # its answer would be paid again, and be as large
    )
