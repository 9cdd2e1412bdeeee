"""What a worker lacks is not a failure of the stage: it is told at once, unpaid, and another worker may have it."""

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

from pydantic import ValidationError
from temporalio import activity, worker
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from baton.core.lacks import WAIT_FOR_WORKER, Lack, Lacking
from baton.core.messages import StageInput
from baton.errors import ConfigurationError
from baton.handoff.sealed import UnverifiedHandoff
from baton.pipelines.activity_errors import leaves

_log = logging.getLogger("baton.worker")


def lack_of(error: BaseException) -> ConfigurationError | None:
    """Return what the worker lacks, if that is why something was raised."""
    for one in leaves(error) if isinstance(error, Exception) else ():
        cause: BaseException | None = one
        while cause is not None:
            if isinstance(cause, ConfigurationError):
                return cause
            if isinstance(cause, ModuleNotFoundError) and cause.name:
                return ConfigurationError(f"{cause}; install it on the workers", "module", cause.name)
            cause = cause.__cause__
    return None


class Lookout(worker.Interceptor):
    """Tells what one worker lacks, and whether it may have what another one lacked.

    Args:
        activities: The activities that it has, by name.
        passes_on: What has its workflows pass on to others what it lacks.
    """

    def __init__(self, activities: Iterable[str], passes_on: type[worker.WorkflowInboundInterceptor]) -> None:
        self._activities = frozenset(activities)
        self._passes_on = passes_on
        self._worker = uuid4().hex

    @property
    def activities(self) -> list[Callable[..., Any]]:
        """The activities of its own: one that waits, and one in place of each that the worker does not have."""

        @activity.defn(name=WAIT_FOR_WORKER)
        async def wait_for_worker(lacking: Lacking) -> None:
            if not self._may_have(lacking):
                raise _failure(lacking.text, retryable=True)

        @activity.defn(dynamic=True)
        async def missing(given: Sequence[RawValue]) -> None:
            name = activity.info().activity_type
            known = ", ".join(sorted(one for one in self._activities if not one.startswith("baton."))) or "none"
            text = f"this worker has no stage {name!r}, only {known}; start a worker that has it"
            if not any(map(_is_for_stage, given)):
                raise ApplicationError(f"activity {name!r} is not registered; {text}", type="NotFoundError")
            raise ConfigurationError(text, "stage", name)

        return [wait_for_worker, missing]

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:
        """Return the worker's next interceptor with ours before it."""
        return _Telling(next, self._worker)

    def workflow_interceptor_class(
        self, input: worker.WorkflowInterceptorClassInput
    ) -> type[worker.WorkflowInboundInterceptor]:
        """Return what has a stage that was lacking passed on to other workers."""
        return self._passes_on

    def _may_have(self, lacking: Lacking) -> bool:
        """Return whether a stage is worth sending again: the worker has what was lacking, or was not asked yet."""
        if lacking.kind == "stage":
            return lacking.stage in self._activities
        if lacking.stage not in self._activities:
            return False
        return self._worker not in lacking.workers or _has(lacking.kind, lacking.name)


class _Telling(worker.ActivityInboundInterceptor):
    def __init__(self, next: worker.ActivityInboundInterceptor, worker: str) -> None:
        super().__init__(next)
        self._worker = worker

    async def execute_activity(self, input: worker.ExecuteActivityInput) -> Any:
        try:
            return await super().execute_activity(input)
        except Exception as error:
            given = input.args[0] if input.args else None
            for_stage = isinstance(given, StageInput | UnverifiedHandoff) or isinstance(error, ConfigurationError)
            if not for_stage or (lack := lack_of(error)) is None:
                raise
            name = activity.info().activity_type
            _log.warning("stage %r waits for a worker that can do it: %s", name, lack)
            told = Lack(kind=lack.kind, name=lack.name, text=str(lack), worker=self._worker)
            bill = error.details if isinstance(error, ApplicationError) else ()
            raise _failure(str(lack), told.model_dump(mode="json"), *bill, retryable=False) from None


def _failure(text: str, *details: Any, retryable: bool) -> ApplicationError:
    """Return what tells Temporal of a lack: a line for people, and no traceback."""
    return ApplicationError(
        text,
        *details,
        type=ConfigurationError.__name__,
        non_retryable=not retryable,
        category=ApplicationErrorCategory.BENIGN,
    )


def _is_for_stage(given: RawValue) -> bool:
    """Return whether an argument is what a stage is sent: a handoff, or its plain input."""
    if given.payload.metadata.get("baton-record") == b"sealed-handoff":  # as `baton.codec` marks it
        return True
    try:
        StageInput.model_validate_json(given.payload.data)
    except ValidationError:
        return False
    return True


def _has(kind: str, name: str) -> bool:
    """Return whether this process has by now what it lacked."""
    match kind:
        case "variable":
            return bool(os.environ.get(name, "").strip())
        case "module":
            try:
                return find_spec(name) is not None
            except (ImportError, ValueError):  # the package that it is in is missing
                return False
        case "program":
            return shutil.which(name) is not None
    return False
