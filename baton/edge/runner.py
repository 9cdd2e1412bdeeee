"""The workflow sandbox, without a detour that Baton's payloads never need.

For every payload that enters or leaves a workflow, the SDK asks the sandboxed instance for a serialization
context, and each question enters the sandbox: a fifth of a worker's time in short pipelines. The answer only
matters to converters and codecs that take a context (`WithSerializationContext`). Where none does, this runner
answers "none" at once. The sandbox itself, its restrictions and its determinism, is Temporal's, unchanged.
"""

from dataclasses import dataclass
from typing import Any

from temporalio.converter import (
    DataConverter,
    SerializationContext,
    StorageDriverStoreContext,
    WorkflowSerializationContext,
)
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner


@dataclass(frozen=True)
class ContextFreeRunner(SandboxedWorkflowRunner):
    """Temporal's sandbox for data converters that take no serialization context.

    Example:
        >>> from baton.edge.conversion import data_converter
        >>> takes_context(data_converter())
        False
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a sandboxed instance that is not asked for contexts."""
        return _ContextFreeInstance(super().create_instance(det))


def takes_context(converter: DataConverter) -> bool:
    """Return whether any part of the converter wants to know what a payload belongs to."""
    probe = WorkflowSerializationContext(namespace="namespace", workflow_id="workflow")
    return converter.with_context(probe) is not converter


class _ContextFreeInstance(WorkflowInstance):
    """An instance that forwards everything but the questions for a context."""

    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner = inner

    def activate(self, act: Any) -> Any:
        return self._inner.activate(act)

    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        return None

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        return StorageDriverStoreContext(target=None)

    def get_info(self) -> Any:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()
