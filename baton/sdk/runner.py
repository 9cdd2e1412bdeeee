"""The guarded workflow sandbox, and the exceptions of a pipeline's code that end its run.

For each payload of a workflow the SDK asks the sandboxed instance for a serialization context, and each call enters
the sandbox: a fifth of a worker's time in short pipelines. The context only matters to converters and codecs that use
one (`WithSerializationContext`).
"""

from abc import ABCMeta
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from temporalio import workflow
from temporalio.api.enums.v1 import CommandType
from temporalio.converter import (
    DataConverter,
    SerializationContext,
    StorageDriverStoreContext,
    WorkflowSerializationContext,
)
from temporalio.exceptions import FailureError
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import NondeterminismError

from baton.codec.conversion import binds_workflow
from baton.codec.failures import is_storable, text_of
from baton.core.fit import Fit
from baton.errors import BatonError
from baton.sdk.early_queries import GuardedInstance, RunCache
from baton.sdk.sandbox import PipelineFileError, load_fault
from baton.wire.names import FIRST_SEED, FIT

_WORK = frozenset(
    {
        "schedule_activity",
        "schedule_local_activity",
        "schedule_nexus_operation",
        "start_child_workflow_execution",
        "signal_external_workflow_execution",
        "request_cancel_external_workflow_execution",
    }
)


class SuspendingInstance(GuardedInstance):
    """A guarded instance; its tasks fail once its code does not fit, so that nothing of the code leaves the worker."""

    def __init__(self, inner: WorkflowInstance, cache: RunCache | None, fit: Fit) -> None:
        super().__init__(inner, cache)
        self._fit = fit

    def activate(self, act: Any) -> Any:
        """Forward; fail the task instead of answering it if the code does not fit."""
        completion = super().activate(act)
        if any(job.HasField("remove_from_cache") for job in act.jobs):  # which has to succeed
            self._fit.release()
            return completion
        is_first = any(job.HasField("initialize_workflow") for job in act.jobs)
        if is_first and self._fit.waiting and not self._begins_work(completion):
            self._fit.suspend(next(iter(self._fit.waiting.values())))
        if self._fit.misfit:
            raise NondeterminismError(self._fit.misfit)
        return completion

    def _begins_work(self, completion: Any) -> bool:
        """Return whether the code waits for more than the time limits of the waiting steps."""
        kinds = [command.WhichOneof("variant") for command in completion.successful.commands]
        return kinds.count("start_timer") > len(self._fit.waiting) or any(kind in _WORK for kind in kinds)


@dataclass(frozen=True)
class PipelineRunner(SandboxedWorkflowRunner):
    """Temporal's sandbox with the guard against early queries, for any data converter."""

    cache: RunCache | None = field(default=None, repr=False, compare=False)

    def prepare_workflow(self, defn: Any) -> None:
        """Load a workflow once.

        Raises:
            PipelineFileError: A line of the user's modules fails in the sandbox.
        """
        try:
            super().prepare_workflow(defn)
        except Exception as error:
            if (fault := load_fault(error)) is not None:
                raise PipelineFileError(fault) from None
            raise

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a guarded instance."""
        fit = Fit()
        return SuspendingInstance(super().create_instance(_with_state(det, fit)), self.cache, fit)


@dataclass(frozen=True)
class ContextFreeRunner(PipelineRunner):
    """A `PipelineRunner` for data converters that take no serialization context."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a guarded instance without contexts."""
        fit = Fit()
        instance = SandboxedWorkflowRunner.create_instance(self, _with_state(det, fit))
        return _ContextFreeInstance(instance, self.cache, fit)


@dataclass(frozen=True)
class WorkflowContextRunner(PipelineRunner):
    """A `PipelineRunner` for Baton's encryption, which only needs the workflow of a payload."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a guarded instance that enters the sandbox only for the contexts of other workflows."""
        own = WorkflowSerializationContext(namespace=det.info.namespace, workflow_id=det.info.workflow_id)
        fit = Fit()
        instance = SandboxedWorkflowRunner.create_instance(self, _with_state(det, fit))
        return _WorkflowContextInstance(instance, self.cache, fit, own)


@dataclass(frozen=True)
class GuardedRunner(WorkflowRunner):
    """Any other runner, such as one without a sandbox, with the guard against early queries."""

    inner: WorkflowRunner
    cache: RunCache | None = field(default=None, repr=False, compare=False)

    def prepare_workflow(self, defn: Any) -> None:
        """Prepare a workflow."""
        self.inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a guarded instance."""
        fit = Fit()
        return SuspendingInstance(self.inner.create_instance(_with_state(det, fit)), self.cache, fit)

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        """Set which exceptions fail a run."""
        self.inner.set_worker_level_failure_exception_types(types)


def runner_for(converter: DataConverter) -> type[PipelineRunner]:
    """Return the sandbox that fits a data converter."""
    if not takes_context(converter):
        return ContextFreeRunner
    return WorkflowContextRunner if binds_workflow(converter) else PipelineRunner


def takes_context(converter: DataConverter) -> bool:
    """Return whether any part of the converter uses the serialization context."""
    probe = WorkflowSerializationContext(namespace="namespace", workflow_id="workflow")
    return converter.with_context(probe) is not converter


def _with_state(det: WorkflowInstanceDetails, fit: Fit) -> WorkflowInstanceDetails:
    """Add whether the code fits, and the run's first seed, from which workflow code detects a reset."""
    seed = det.randomness_seed
    return replace(det, extern_functions={**det.extern_functions, FIRST_SEED: lambda: seed, FIT: lambda: fit})


class _ContextFreeInstance(SuspendingInstance):
    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        return None

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        return StorageDriverStoreContext(target=None)


class _WorkflowContextInstance(_ContextFreeInstance):
    def __init__(
        self, inner: WorkflowInstance, cache: RunCache | None, fit: Fit, own: WorkflowSerializationContext
    ) -> None:
        super().__init__(inner, cache, fit)
        self._own = own

    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        if command_info is None or command_info.command_type == CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK:
            return self._own
        return self._inner.get_serialization_context(command_info)


FAILED_THE_RUN = "the pipeline's code failed the run"


class AnyFault(Exception, metaclass=ABCMeta):  # noqa: N818 - it stands for all, and is never raised
    """Represents every exception in Temporal's list of those that fail a run instead of its task."""

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        """Return whether exceptions of a type end a run."""
        return issubclass(kind, Exception) and kind is not NondeterminismError


@contextmanager
def logging_failures(message: str) -> Iterator[None]:
    """Log exceptions raised in the block."""
    try:
        yield
    except Exception as error:
        log_failure(error, message)
        raise


def log_failure(error: BaseException, message: str) -> None:
    """Log an exception of a pipeline's code with its workflow, run and lines; nothing in a replay."""
    if isinstance(error, FailureError | BatonError):
        return
    if is_storable(error):
        workflow.logger.error(message, exc_info=error)
    else:
        workflow.logger.error("%s: %s", message, text_of(error))
