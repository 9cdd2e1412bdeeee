"""One Temporal plugin that makes a client and its workers speak Baton.

Give it to `Client.connect(plugins=[BatonPlugin()])`; workers made from that client inherit it, and a
`Replayer` takes it too. It sets the data converter, passes `baton` through the workflow sandbox, turns any
exception of a pipeline's code into a failed run, labels new runs for search, and gives stages their
artifact store and token counter.
"""

from functools import partial
from typing import Any
from uuid import uuid4

from temporalio import client, worker, workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception
from temporalio.plugin import SimplePlugin
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from baton.activity import WorkerParts, worker_parts
from baton.edge.conversion import data_converter
from baton.edge.runner import ContextFreeRunner, takes_context
from baton.protocol.messages import PipelineInput, PipelineStatus
from baton.protocol.names import ATTRIBUTE_PIPELINE, ATTRIBUTE_STATUS, ATTRIBUTE_TASK
from baton.workflow.faults import AnyFault
from baton.workflow.visibility import show_failed

_SUMMARY_CHARACTERS = 200  # the server takes 400 bytes


class BatonPlugin(SimplePlugin):
    """What makes a Temporal client and its workers speak Baton; see the module.

    Example:
        ```python
        client = await Client.connect("localhost:7233", plugins=[BatonPlugin()])
        worker = Worker(client, task_queue="baton", workflows=[Delivery], activities=[plan, implement])
        ```
    """

    def __init__(self, parts: WorkerParts | None = None, *, compress: bool = True, searchable: bool = True) -> None:
        """Set up the plugin.

        Args:
            parts: What stages are provided with. Its artifact store also takes payloads over 256 KiB, so
                clients that read such runs need the same one.
            compress: Compress what goes into the history.
            searchable: Label new runs with Baton's search attributes. The namespace must have them:
                `baton dev` and docker-compose.yml create them, `baton doctor` tells whether they are there.
        """
        parts = parts or WorkerParts()
        interceptors: list[client.Interceptor | worker.Interceptor] = [_WorkerInterceptor(parts)]
        if searchable:
            interceptors.append(_Labels())
        converter = data_converter(parts.artifacts, compress=compress)
        super().__init__(
            "baton",
            data_converter=converter,
            interceptors=interceptors,
            workflow_runner=partial(_runner, context_free=not takes_context(converter)),
            workflow_failure_exception_types=[AnyFault],
        )


def _runner(given: worker.WorkflowRunner | None, *, context_free: bool) -> worker.WorkflowRunner:
    """Return the sandbox with `baton` passed through: its modules are pure, and loading them again costs."""
    sandbox = given or SandboxedWorkflowRunner()
    if not isinstance(sandbox, SandboxedWorkflowRunner):
        return sandbox
    kind = ContextFreeRunner if context_free else SandboxedWorkflowRunner
    restrictions = sandbox.restrictions.with_passthrough_modules("baton")
    return kind(restrictions=restrictions, runner_class=sandbox.runner_class)


class _Labels(client.Interceptor):
    """Gives every pipeline that is started a task id and search attributes."""

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:
        return _LabellingClient(next)


class _LabellingClient(client.OutboundInterceptor):
    async def start_workflow(self, input: client.StartWorkflowInput) -> client.WorkflowHandle[Any, Any]:
        start = input.args[0] if len(input.args) == 1 else None
        if isinstance(start, PipelineInput):
            start = start.model_copy(update={"task_id": start.task_id or str(uuid4())})
            input.args = [start]
            input.search_attributes = _labelled(input, start)
            input.static_summary = input.static_summary or start.goal[:_SUMMARY_CHARACTERS]
        return await super().start_workflow(input)


def _labelled(input: client.StartWorkflowInput, start: PipelineInput) -> TypedSearchAttributes:
    """Return the caller's search attributes with Baton's added.

    Raises:
        TypeError: The caller used the untyped, deprecated form.
    """
    given = input.search_attributes
    if given is not None and not isinstance(given, TypedSearchAttributes):
        raise TypeError("search_attributes must be TypedSearchAttributes for a pipeline; found the untyped form")
    labels = {
        ATTRIBUTE_PIPELINE: input.workflow,
        ATTRIBUTE_STATUS: PipelineStatus.RUNNING.value,
        ATTRIBUTE_TASK: start.task_id,
    }
    ours = [SearchAttributePair(SearchAttributeKey.for_keyword(name), value or "") for name, value in labels.items()]
    theirs = [pair for pair in given or () if pair.key.name not in labels]
    return TypedSearchAttributes([*theirs, *ours])


class _WorkerInterceptor(worker.Interceptor):
    """Gives stages what their worker provides, and ends runs whose code fails."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:
        return _ProvidingActivity(next, self._parts)

    def workflow_interceptor_class(
        self, input: worker.WorkflowInterceptorClassInput
    ) -> type[worker.WorkflowInboundInterceptor]:
        return FailingWorkflow


class _ProvidingActivity(worker.ActivityInboundInterceptor):
    def __init__(self, next: worker.ActivityInboundInterceptor, parts: WorkerParts) -> None:
        super().__init__(next)
        self._parts = parts

    async def execute_activity(self, input: worker.ExecuteActivityInput) -> Any:
        with worker_parts(self._parts):
            return await super().execute_activity(input)


class FailingWorkflow(worker.WorkflowInboundInterceptor):
    """Gives a run that fails by whatever its code raises a message and a type that people and parents can read.

    That it fails at all, and is not tried again for ever, is due to `AnyFault`.
    """

    async def execute_workflow(self, input: worker.ExecuteWorkflowInput) -> Any:
        """Run the workflow; see the class.

        Raises:
            ApplicationError: Its code raised; the type is the exception's name.
        """
        try:
            return await super().execute_workflow(input)
        except (Exception, BaseExceptionGroup) as raised:
            end = _first(raised)
        # Raised out here, so that a failure keeps the cause it came with.
        if isinstance(end, workflow.ContinueAsNewError) or is_cancelled_exception(end):
            raise end
        show_failed()
        if isinstance(end, FailureError):
            raise end
        raise ApplicationError(str(end) or type(end).__name__, type=type(end).__name__, non_retryable=True) from end


def _first(error: BaseException) -> BaseException:
    """Return the first failure of a task group, which wraps what its tasks raise; another exception as it is.

    Continuing as new is no failure: it counts if a group holds nothing else.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_first(one) for one in error.exceptions]
    return next((one for one in leaves if not isinstance(one, workflow.ContinueAsNewError)), leaves[0])
