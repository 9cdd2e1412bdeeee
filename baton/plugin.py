"""One Temporal plugin that makes a client and its workers speak Baton.

Give it to `Client.connect(plugins=[BatonPlugin()])`; workers made from that client inherit it. It sets the
data converter (pydantic, compression, large payloads outside the history), passes `baton` through the
workflow sandbox, turns any exception of a pipeline's code into a failed run, labels new runs for search, and
gives stages their artifact store and token counter.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Interceptor as ClientInterceptor,
)
from temporalio.client import (
    OutboundInterceptor,
    StartWorkflowInput,
    WorkflowHandle,
)
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.plugin import SimplePlugin
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowRunner,
)
from temporalio.worker import (
    Interceptor as WorkerInterceptor,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from baton.activity import WorkerParts, worker_parts
from baton.protocol.messages import PipelineInput, PipelineStatus
from baton.protocol.names import ATTRIBUTE_PIPELINE, ATTRIBUTE_STATUS, ATTRIBUTE_TASK


class BatonPlugin(SimplePlugin):
    """The plugin for clients and workers; see the module.

    Example:
        ```python
        client = await Client.connect("localhost:7233", plugins=[BatonPlugin()])
        worker = Worker(client, task_queue="baton", workflows=[Delivery], activities=[plan, implement])
        ```
    """

    def __init__(self, parts: WorkerParts | None = None, *, searchable: bool = True) -> None:
        """Set up the plugin.

        Args:
            parts: What stages are provided with.
            searchable: Label new runs with Baton's search attributes; the namespace must have them
                (`baton doctor` says whether it does).
        """
        super().__init__(
            "baton",
            data_converter=_data_converter,
            interceptors=[_Labels() if searchable else _Plain(), _Worker(parts or WorkerParts())],
            workflow_runner=_passed_through,
        )


def _data_converter(given: DataConverter | None) -> DataConverter:
    return dataclasses.replace(given or DataConverter.default, payload_converter_class=PydanticPayloadConverter)


def _passed_through(runner: WorkflowRunner | None) -> WorkflowRunner:
    """Return the runner with `baton` passed through the sandbox: it is pure, and importing it costs 6 ms."""
    if isinstance(runner, SandboxedWorkflowRunner):
        return dataclasses.replace(runner, restrictions=runner.restrictions.with_passthrough_modules("baton"))
    if runner is None:
        raise ValueError("no workflow runner")
    return runner


class _Plain(ClientInterceptor):
    pass


class _Labels(ClientInterceptor):
    """Gives new pipelines their task id and search attributes."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _LabelsOutbound(next)


class _LabelsOutbound(OutboundInterceptor):
    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        start = input.args[0] if len(input.args) == 1 else None
        if isinstance(start, PipelineInput):
            task_id = start.task_id or str(uuid4())
            input.args = [start.model_copy(update={"task_id": task_id})]
            given = input.search_attributes
            pairs: list[SearchAttributePair[Any]] = list(given) if isinstance(given, TypedSearchAttributes) else []
            labels = {
                ATTRIBUTE_PIPELINE: input.workflow,
                ATTRIBUTE_STATUS: PipelineStatus.RUNNING.value,
                ATTRIBUTE_TASK: task_id,
            }
            pairs += [SearchAttributePair(SearchAttributeKey.for_keyword(k), v) for k, v in labels.items()]
            input.search_attributes = TypedSearchAttributes(pairs)
            input.static_summary = input.static_summary or start.goal[:200]
        return await super().start_workflow(input)


class _Worker(WorkerInterceptor):
    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Activity(next, self._parts)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return FailingWorkflow


class _Activity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, parts: WorkerParts) -> None:
        super().__init__(next)
        self._parts = parts

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        with worker_parts(self._parts):
            return await super().execute_activity(input)


class FailingWorkflow(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        try:
            return await super().execute_workflow(input)
        except FailureError:
            raise
        except Exception as error:
            raise ApplicationError(f"{error}", type=type(error).__name__, non_retryable=True) from error
