"""The worker's side of a running stage: heartbeats, failures, and parts that the worker lacks."""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import ValidationError
from temporalio import activity, worker
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from baton.codec.failures import (
    as_exception,
    causes,
    error_text,
    is_storable,
    leaf_errors,
    storable_cause,
    storable_type,
    text_of,
    with_details,
)
from baton.core.artifacts import find_lost
from baton.core.history import find_spend
from baton.core.messages import MissingPart, StageInput
from baton.core.questions import ASKED, Question
from baton.errors import ArtifactCorruptError, ArtifactError, ArtifactNotFoundError, ConfigurationError
from baton.handoff.sealed import UnverifiedHandoff
from baton.keys.store_keys import Deciders, KeyringError
from baton.pipelines.activity_parts import current_parts
from baton.runtime.questions import CHECK_ANSWER, AnswerCheck
from baton.wire.names import ARTIFACT_LOST, WAIT_FOR_WORKER

T = TypeVar("T")
_log = logging.getLogger("baton.worker")


async def unwrap_group(awaitable: Awaitable[T]) -> T:
    """Await and return the result; raise the exception in a group of one by itself."""
    try:
        return await awaitable
    except (SystemExit, KeyboardInterrupt) as error:
        raise as_exception(error) from error
    except ExceptionGroup as group:
        first, *others = leaf_errors(group)
        if others:
            raise
        raise first from None


def as_failure(error: Exception, cost_details: Sequence[Any], *, never: bool) -> Exception:
    """Return the error for Temporal, with the cost after its own details; ``never`` forbids a retry."""
    storable = is_storable(error)  # otherwise the SDK could not log it either
    if isinstance(error, ApplicationError):
        if storable and not cost_details:
            return error
        failure = with_details(error, *cost_details)
        failure.__cause__ = error.__cause__ if storable else storable_cause(error)
        return failure if storable else failure.with_traceback(error.__traceback__)
    message = error_text(error)
    if storable and not (never or cost_details or message != text_of(error)):
        return error
    failure = ApplicationError(message, *cost_details, type=storable_type(error), non_retryable=never)
    failure.__cause__ = error if storable else storable_cause(error)
    return failure if storable else failure.with_traceback(error.__traceback__)


def resend_heartbeat() -> None:
    """Send the last heartbeat of an earlier run again, from an activity that has sent none."""
    activity.heartbeat(*activity.info().heartbeat_details)


@contextlib.contextmanager
def heartbeats(timeout: timedelta | None, send: Callable[[], None] = resend_heartbeat) -> Iterator[None]:
    """Send a heartbeat four times within the timeout while the block runs."""
    if timeout is None or not activity.in_activity():
        yield
        return
    loop = asyncio.get_running_loop()
    pause = timeout.total_seconds() / 4

    timer: asyncio.TimerHandle | None = None

    def beat() -> None:
        nonlocal timer
        send()
        timer = loop.call_later(pause, beat)

    # A timer and not a task: most stages end before the first heartbeat, and a task costs as much as they do.
    timer = loop.call_later(pause, beat)
    try:
        yield
    finally:
        timer.cancel()


def missing_part(error: BaseException) -> str | None:
    """Return what the worker lacks and what to do, if that caused the error."""
    for cause in (cause for inner in leaf_errors(error) for cause in causes(inner)):
        if isinstance(cause, ConfigurationError):
            return text_of(cause)
        if isinstance(cause, ModuleNotFoundError) and _is_missing_package(cause.name):
            return f"{cause}; install it on the workers"
    return None


def _is_missing_package(module: str | None) -> bool:
    """Return whether a module belongs to a package that is not installed, rather than to an installed one."""
    if not module:  # raised by hand
        return False
    parent = sys.modules.get(module.rpartition(".")[0])
    return getattr(parent, "__file__", None) is None  # a namespace package has no file either


async def lost_artifact(error: BaseException) -> str | None:
    """Return the text about an artifact that this worker's own store has lost, if that caused the error."""
    for cause in (cause for inner in leaf_errors(error) for cause in causes(inner)):
        kind = cause.type if isinstance(cause, ApplicationError) else type(cause).__name__
        lost = find_lost(kind, text := text_of(cause))
        if lost is not None and isinstance(await _artifact_error(lost), ArtifactNotFoundError | ArtifactCorruptError):
            return text
    return None


async def began(error: BaseException) -> bool:
    """Return whether a stage that raised an error counts as begun: it lacked nothing, or has spent something."""
    lacks = missing_part(error) is not None or await lost_artifact(error) is not None
    return not lacks or bool(find_spend(getattr(error, "details", ())))


class MissingParts(worker.Interceptor):
    """Reports what a worker lacks, so that its runs wait for other workers, or for an artifact to be put back.

    A part once missing stays missing until the worker restarts, because settings and packages are loaded at the start.

    Args:
        activities: The names of the worker's activities, and None for a dynamic one.
    """

    def __init__(self, activities: Iterable[str | None]) -> None:
        self._activities = frozenset(activities)
        self._missing: dict[str, str] = {}

    def for_stage(self, stage: str) -> str | None:
        """Return what the worker is known to lack for a stage, or None."""
        if self._activities.isdisjoint((stage, None)):
            names = sorted(name for name in self._activities if name and not name.startswith("baton."))
            known = ", ".join(names) or "none"
            return f"this worker has no stage {stage!r}, only {known}; start a worker that has it"
        return self._missing.get(stage)

    @property
    def activities(self) -> list[Callable[..., Any]]:
        """Two activities: one that waits for a worker, and a dynamic one in place of missing stages."""

        @activity.defn(name=WAIT_FOR_WORKER)
        async def wait_for_worker(missing: MissingPart) -> None:
            if missing.artifact is not None:
                error = await _artifact_error(missing.artifact)
                text = None if error is None else str(error)
            else:
                text = self.for_stage(missing.stage)
            if text:
                raise _failure(text, non_retryable=False)

        @activity.defn(dynamic=True)
        async def unknown(args: Sequence[RawValue]) -> None:
            name = activity.info().activity_type
            text = self.for_stage(name) or ""
            if not any(map(_is_stage_input, args)):
                raise ApplicationError(f"activity {name!r} is not registered; {text}", type="NotFoundError")
            raise ConfigurationError(text)

        return [wait_for_worker, unknown]

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:
        """Report missing parts of the activities that ``next`` runs."""
        return _ReportMissingParts(next, self._missing)

    def workflow_interceptor_class(
        self, input: worker.WorkflowInterceptorClassInput
    ) -> type[worker.WorkflowInboundInterceptor]:
        """Prevent the eager start of stages for which this worker lacks a part."""
        missing = self.for_stage

        class Outbound(worker.WorkflowOutboundInterceptor):
            def start_activity(self, input: worker.StartActivityInput) -> Any:
                input.disable_eager_execution = input.disable_eager_execution or missing(input.activity) is not None
                return super().start_activity(input)

        class Inbound(worker.WorkflowInboundInterceptor):
            def init(self, outbound: worker.WorkflowOutboundInterceptor) -> None:
                super().init(Outbound(outbound))

        return Inbound


class _ReportMissingParts(worker.ActivityInboundInterceptor):
    def __init__(self, next: worker.ActivityInboundInterceptor, missing: dict[str, str]) -> None:
        super().__init__(next)
        self._missing = missing

    async def execute_activity(self, input: worker.ExecuteActivityInput) -> Any:
        try:
            return await super().execute_activity(input)
        except Exception as error:
            message = input.args[0] if input.args else None
            for_stage = isinstance(message, StageInput | UnverifiedHandoff) or isinstance(error, ConfigurationError)
            if not for_stage:
                raise
            info, kind = activity.info(), ConfigurationError.__name__
            if text := missing_part(error):
                self._missing[info.activity_type] = text
                _log.warning("stage %r waits for a worker that can run it: %s", info.activity_type, text)
            elif text := await lost_artifact(error):
                kind = ARTIFACT_LOST
                _log.warning("stage %r waits for an artifact: %s", info.activity_type, text)
            else:
                raise
            details = error.details if isinstance(error, ApplicationError) else ()
            raise _failure(text, info.attempt - 1, *details, kind=kind, non_retryable=True) from None


async def _artifact_error(sha256: str) -> ArtifactError | None:
    """Return why this worker cannot read an artifact, or None."""
    store = current_parts().artifacts
    if store is None:
        return ArtifactError("this worker has no artifact store; set BATON_ARTIFACTS")
    try:
        await store.get(sha256)
    except ArtifactError as error:
        return error
    return None


def _failure(
    text: str, *details: Any, non_retryable: bool, kind: str = ConfigurationError.__name__
) -> ApplicationError:
    """Return the error for a missing part, which Temporal logs without a traceback."""
    benign = ApplicationErrorCategory.BENIGN
    return ApplicationError(text, *details, type=kind, non_retryable=non_retryable, category=benign)


def _is_stage_input(arg: RawValue) -> bool:
    """Return whether an argument is a handoff or a plain stage input."""
    if arg.payload.metadata.get("baton-record") == b"sealed-handoff":  # set by `baton.codec`
        return True
    try:
        StageInput.model_validate_json(arg.payload.data)
    except ValidationError:
        return False
    return True


@activity.defn(name=ASKED)
async def record_question(question: Question) -> None:
    """Do nothing: the question is in the history as the input."""


@activity.defn(name=CHECK_ANSWER)
async def check_answer(check: AnswerCheck) -> str:
    """Return why a person may not decide, or "". The file is read each time, so changes apply at once."""
    path = current_parts().deciders
    if path is None:
        return (
            f"{check.title!r} needs the workers' file of deciders, and this worker has none: set "
            "BATON_DECIDERS or WorkerParts(deciders=…)"
        )
    try:
        deciders = await asyncio.to_thread(Deciders.from_file, path)
    except KeyringError as error:
        return str(error)
    return deciders.refusal(check.answer, check.title, check.who, proof=check.proof) or ""
