"""What a worker tells of a running stage: signs of life, what it raised, and what the worker lacks for it."""

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

from baton.core.messages import Missing, StageInput
from baton.errors import ConfigurationError
from baton.handoff.sealed import UnverifiedHandoff
from baton.keys.store_keys import Deciders, KeyringError
from baton.pipelines.activity_context import current_parts
from baton.pipelines.approvals import CHECK_DECISION, DecisionCheck
from baton.wire.json_values import has_lone_surrogate
from baton.wire.names import WAIT_FOR_WORKER

T = TypeVar("T")
_MOST_TOLD = 5
_log = logging.getLogger("baton.worker")


async def unwrap_group(answering: Awaitable[T]) -> T:
    """Return what is awaited; of a group that holds a single exception, raise that one."""
    try:
        return await answering
    except SystemExit as error:
        raise RuntimeError(f"it asked its worker to end: SystemExit({error.code!r}); raise another error") from error
    except ExceptionGroup as group:
        alone, *others = leaf_errors(group)
        if others:
            raise
        raise alone from None


def leaf_errors(error: Exception) -> Iterator[Exception]:
    """Yield the exceptions that a group holds, however deep; another exception as it is."""
    if not isinstance(error, ExceptionGroup):
        yield error
        return
    for one in error.exceptions:
        yield from leaf_errors(one)


def error_text(error: Exception) -> str:
    """Return what happened, for the history: of a group what its exceptions say, in characters that can be stored."""
    text = str(error)
    if isinstance(error, ExceptionGroup):
        said = [f"{type(one).__name__}: {one}" for one in leaf_errors(error)]
        more = f"; (+{len(said) - _MOST_TOLD} more)" if len(said) > _MOST_TOLD else ""
        text = f"{text}: {'; '.join(said[:_MOST_TOLD])}{more}"
    return text.encode("utf-8", "backslashreplace").decode()


def as_failure(error: Exception, bill: Sequence[Any], *, never: bool) -> Exception:
    """Return what a stage's run ends with that raised: it takes along the bill, after any details of its own."""
    if isinstance(error, ApplicationError):
        if not bill:
            return error
        same = ApplicationError(
            error.message,
            *error.details,
            *bill,
            type=error.type,
            non_retryable=error.non_retryable,
            next_retry_delay=error.next_retry_delay,
            category=error.category,
        )
        same.__cause__ = error.__cause__
        return same
    message = error_text(error)
    if not (never or bill or message != str(error)):
        return error
    failure = ApplicationError(message, *bill, type=type(error).__name__, non_retryable=never)
    failure.__cause__ = error if is_storable(error) else None
    return failure


def is_storable(error: Exception) -> bool:
    """Return whether the texts of an exception, and of those that a group holds, are characters that can be stored."""
    return not any(has_lone_surrogate(str(one)) for one in leaf_errors(error))


def resend_heartbeat() -> None:
    """Send a heartbeat that keeps what an earlier run said in its last one; for an activity that has said nothing."""
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
    """Return what the worker lacks and what to do, if that is why something was raised."""
    for one in leaf_errors(error) if isinstance(error, Exception) else ():
        cause: BaseException | None = one
        while cause is not None:
            if isinstance(cause, ConfigurationError):
                return str(cause)
            if isinstance(cause, ModuleNotFoundError) and _is_of_another_package(cause.name):
                return f"{cause}; install it on the workers"
            cause = cause.__cause__
    return None


def _is_of_another_package(module: str | None) -> bool:
    """Return whether a module is of a package that the worker lacks, and not a part that a package it has lacks."""
    if not module:  # raised by hand
        return False
    parent = sys.modules.get(module.rpartition(".")[0])
    return getattr(parent, "__file__", None) is None  # nor has a namespace, which several packages share, a file


class MissingParts(worker.Interceptor):
    """Reports what one worker lacks, and has its runs ask other workers.

    What a worker once lacked for a stage it lacks until it is started again: settings and packages come by a start.

    Args:
        activities: The names of the activities that it has, and None for one that stands for all others.
    """

    def __init__(self, activities: Iterable[str | None]) -> None:
        self._activities = frozenset(activities)
        self._lacked: dict[str, str] = {}

    def of(self, stage: str) -> str | None:
        """Return what the worker lacks for a stage, as far as it knows."""
        if self._activities.isdisjoint((stage, None)):
            known = ", ".join(sorted(one for one in self._activities if one and not one.startswith("baton."))) or "none"
            return f"this worker has no stage {stage!r}, only {known}; start a worker that has it"
        return self._lacked.get(stage)

    @property
    def activities(self) -> list[Callable[..., Any]]:
        """The activities of its own: one by which runs wait, and one in place of each that the worker lacks."""

        @activity.defn(name=WAIT_FOR_WORKER)
        async def wait_for_worker(missing: Missing) -> None:
            if text := self.of(missing.stage):
                raise _failure(text, non_retryable=False)

        @activity.defn(dynamic=True)
        async def unknown(given: Sequence[RawValue]) -> None:
            name = activity.info().activity_type
            text = self.of(name) or ""
            if not any(map(_is_for_stage, given)):
                raise ApplicationError(f"activity {name!r} is not registered; {text}", type="NotFoundError")
            raise ConfigurationError(text)

        return [wait_for_worker, unknown]

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:
        """Return the worker's next interceptor with ours before it."""
        return _Reporting(next, self._lacked)

    def workflow_interceptor_class(
        self, input: worker.WorkflowInterceptorClassInput
    ) -> type[worker.WorkflowInboundInterceptor]:
        """Return what keeps Temporal from starting a stage here, eagerly, that the worker cannot do."""
        lacks = self.of

        class Outbound(worker.WorkflowOutboundInterceptor):
            def start_activity(self, input: worker.StartActivityInput) -> Any:
                input.disable_eager_execution = input.disable_eager_execution or lacks(input.activity) is not None
                return super().start_activity(input)

        class Inbound(worker.WorkflowInboundInterceptor):
            def init(self, outbound: worker.WorkflowOutboundInterceptor) -> None:
                super().init(Outbound(outbound))

        return Inbound


class _Reporting(worker.ActivityInboundInterceptor):
    def __init__(self, next: worker.ActivityInboundInterceptor, lacked: dict[str, str]) -> None:
        super().__init__(next)
        self._lacked = lacked

    async def execute_activity(self, input: worker.ExecuteActivityInput) -> Any:
        try:
            return await super().execute_activity(input)
        except Exception as error:
            given = input.args[0] if input.args else None
            for_stage = isinstance(given, StageInput | UnverifiedHandoff) or isinstance(error, ConfigurationError)
            if not for_stage or (text := missing_part(error)) is None:
                raise
            info = activity.info()
            self._lacked[info.activity_type] = text
            _log.warning("stage %r waits for a worker that can do it: %s", info.activity_type, text)
            bill = error.details if isinstance(error, ApplicationError) else ()
            raise _failure(text, info.attempt - 1, *bill, non_retryable=True) from None


def _failure(text: str, *details: Any, non_retryable: bool) -> ApplicationError:
    """Return what tells Temporal of something missing: a line for people, and no traceback."""
    kind, benign = ConfigurationError.__name__, ApplicationErrorCategory.BENIGN
    return ApplicationError(text, *details, type=kind, non_retryable=non_retryable, category=benign)


def _is_for_stage(given: RawValue) -> bool:
    """Return whether an argument is what a stage is sent: a handoff, or its plain input."""
    if given.payload.metadata.get("baton-record") == b"sealed-handoff":  # as `baton.codec` marks it
        return True
    try:
        StageInput.model_validate_json(given.payload.data)
    except ValidationError:
        return False
    return True


@activity.defn(name=CHECK_DECISION)
async def check_decision(check: DecisionCheck) -> str:
    """Return why a person may not decide; "" if they may. The file is read each time, so that changes count at once."""
    path = current_parts().deciders
    if path is None:
        return (
            f"approval {check.decision.approval!r} needs the workers' file of deciders, and this worker has none: set "
            "BATON_DECIDERS, or WorkerParts(deciders=…)"
        )
    try:
        deciders = await asyncio.to_thread(Deciders.from_file, path)
    except KeyringError as error:
        return str(error)
    return deciders.refusal(check.decision, check.who, proof=check.proof) or ""
