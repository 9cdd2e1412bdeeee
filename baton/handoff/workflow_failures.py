"""What the failure of a stage or a child says: why, at what cost, and whether the stage has begun at all."""

from pydantic import ValidationError
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError, FailureError
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

from baton.core.artifacts import find_confirmed_loss
from baton.core.history import Spend, find_spend
from baton.core.messages import MissingPart, StageReturn
from baton.errors import ArtifactUnavailableError, ConfigurationError, StageFailedError
from baton.ledger.records import LedgerUnavailableError
from baton.wire.json_values import find_excess
from baton.wire.names import HANDOFF_REFUSED

_MAX_REASON_LENGTH = 2_000  # it goes into the memo, which should stay small
_OUTAGE_TYPES = (LedgerUnavailableError.__name__, ArtifactUnavailableError.__name__)


class StageExecutionError(StageFailedError):
    """A stage failed for good, or a child failed.

    Repair it, and roll back to the step.

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


def missing_of(error: ActivityError, stage: str, seq: int) -> MissingPart | None:
    """Return what the worker or the store lacked for a stage; None if the stage failed otherwise."""
    cause, tries = error.cause, tries_before(error)
    if isinstance(cause, ApplicationError) and cause.type == ConfigurationError.__name__ and cause.details:
        return MissingPart(stage=stage, seq=seq, text=cause.message, tries=tries)
    if isinstance(cause, FailureError) and (lost := find_confirmed_loss(chain := _causes(cause))):
        text = next(message for _, message in chain if lost in message)[:_MAX_REASON_LENGTH]
        return MissingPart(stage=stage, seq=seq, text=text, tries=tries, artifact=lost)
    return None


def _causes(error: BaseException | None) -> list[tuple[str | None, str]]:
    """Return the types and texts of a failure and its causes."""
    chain: list[tuple[str | None, str]] = []
    while isinstance(error, FailureError):
        chain.append((error.type if isinstance(error, ApplicationError) else None, error.message))
        error = error.cause
    return chain


def tries_before(error: ActivityError) -> int:
    """Return how often a stage ran before the try that could not begin."""
    details = error.cause.details if isinstance(error.cause, ApplicationError) else ()
    return details[0] if details and isinstance(details[0], int) else 0


def refusal_of(error: ActivityError) -> StageReturn | None:
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


def is_outage(error: ActivityError) -> bool:
    """Return whether a stage could not begin because storage was down."""
    return isinstance(error.cause, ApplicationError) and error.cause.type in _OUTAGE_TYPES


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
