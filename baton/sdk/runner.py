"""Between a worker and the SDK: the workflow sandbox, guarded, and which exceptions of a pipeline's code end its run.

For each payload of a workflow the SDK asks the sandboxed instance for a serialization context, and each question
enters the sandbox: a fifth of a worker's time in short pipelines. The answer only matters to converters and codecs
that take one (`WithSerializationContext`).
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

from baton.codec.conversion import binds_to_workflow
from baton.errors import BatonError
from baton.sdk.early_queries import GuardedInstance, RunCache
from baton.wire.names import FIRST_SEED


@dataclass(frozen=True)
class PipelineRunner(SandboxedWorkflowRunner):
    """Temporal's sandbox with the guard against early queries, for any data converter."""

    kept_in: RunCache | None = field(default=None, repr=False, compare=False)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a guarded instance."""
        return GuardedInstance(super().create_instance(_with_seed(det)), self.kept_in)


@dataclass(frozen=True)
class ContextFreeRunner(PipelineRunner):
    """The same for data converters that take no serialization context."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a guarded instance that is not asked for contexts."""
        return _ContextFreeInstance(SandboxedWorkflowRunner.create_instance(self, _with_seed(det)), self.kept_in)


@dataclass(frozen=True)
class WorkflowContextRunner(PipelineRunner):
    """The same for Baton's encryption, which asks which workflow a payload belongs to and nothing else."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a guarded instance that is asked for the contexts of other workflows only."""
        own = WorkflowSerializationContext(namespace=det.info.namespace, workflow_id=det.info.workflow_id)
        instance = SandboxedWorkflowRunner.create_instance(self, _with_seed(det))
        return _WorkflowContextInstance(instance, self.kept_in, own)


@dataclass(frozen=True)
class GuardedRunner(WorkflowRunner):
    """Any other runner, such as one without a sandbox, with the guard against early queries."""

    given: WorkflowRunner
    kept_in: RunCache | None = field(default=None, repr=False, compare=False)

    def prepare_workflow(self, defn: Any) -> None:
        """Prepare a workflow."""
        self.given.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a guarded instance."""
        return GuardedInstance(self.given.create_instance(_with_seed(det)), self.kept_in)

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        """Set which exceptions fail a run."""
        self.given.set_worker_level_failure_exception_types(types)


def runner_for(converter: DataConverter) -> type[PipelineRunner]:
    """Return the sandbox that fits a data converter."""
    if not takes_context(converter):
        return ContextFreeRunner
    return WorkflowContextRunner if binds_to_workflow(converter) else PipelineRunner


def takes_context(converter: DataConverter) -> bool:
    """Return whether any part of the converter needs to know what a payload belongs to."""
    probe = WorkflowSerializationContext(namespace="namespace", workflow_id="workflow")
    return converter.with_context(probe) is not converter


def _with_seed(det: WorkflowInstanceDetails) -> WorkflowInstanceDetails:
    """Return the details with the seed that the run began with, by which workflow code knows that it was reset."""
    seed = det.randomness_seed
    return replace(det, extern_functions={**det.extern_functions, FIRST_SEED: lambda: seed})


class _ContextFreeInstance(GuardedInstance):
    """An instance that is not asked for a context."""

    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        return None

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        return StorageDriverStoreContext(target=None)


class _WorkflowContextInstance(_ContextFreeInstance):
    """An instance that is asked for a context only where another workflow may be meant."""

    def __init__(self, inner: WorkflowInstance, kept_in: RunCache | None, own: WorkflowSerializationContext) -> None:
        super().__init__(inner, kept_in)
        self._own = own

    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        if command_info is None or command_info.command_type == CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK:
            return self._own
        return self._inner.get_serialization_context(command_info)


FAILED_THE_RUN = "the pipeline's code failed the run"


class AnyFault(Exception, metaclass=ABCMeta):  # noqa: N818 - it stands for all, and is never raised
    """Stands for every exception in Temporal's list of those that fail a run instead of its task."""

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        """Return whether exceptions of a kind end a run."""
        return issubclass(kind, Exception) and kind is not NondeterminismError


@contextmanager
def logging_failures(message: str) -> Iterator[None]:
    """Log what is raised in the block, and raise it on."""
    try:
        yield
    except Exception as error:
        log_failure(error, message)
        raise


def log_failure(error: BaseException, message: str) -> None:
    """Log an exception of a pipeline's code with its workflow, run and lines; nothing in a replay."""
    if not isinstance(error, FailureError | BatonError):
        workflow.logger.error(message, exc_info=error)
