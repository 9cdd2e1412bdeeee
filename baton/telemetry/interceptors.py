"""Interceptors that put spans around what a client starts and what an activity is handed.

The client's makes a span of each pipeline that is started and hands its traceparent on in the input; the
activity's reads the handoff that came in and makes the spans of handoff and stage. Workflow code sees none of it.
"""

from collections.abc import Mapping
from typing import Any

from temporalio import activity, client, worker

from baton.core.messages import PipelineInput, StageReturn
from baton.errors import BatonError
from baton.exchange.records import AcceptRequest
from baton.handoff.records import Handoff
from baton.handoff.sealed import UnverifiedHandoff, VerifiedHandoff
from baton.handoff.trace import HandoffTrace
from baton.telemetry.tracing import Tracing
from baton.wire.json_values import loads_strict


def tracing_interceptors(tracing: Tracing) -> tuple[client.Interceptor, worker.Interceptor]:
    """Return an interceptor for clients and one for workers that record spans."""
    return TracedClient(tracing), TracedWorker(tracing)


class TracedClient(client.Interceptor):
    """Records each pipeline that is started, in the span that is current where it is started."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:
        """Return the client's next interceptor with ours before it."""
        return _TracedOutbound(next, self._tracing)


class _TracedOutbound(client.OutboundInterceptor):
    def __init__(self, next: client.OutboundInterceptor, tracing: Tracing) -> None:
        super().__init__(next)
        self._tracing = tracing

    async def start_workflow(self, input: client.StartWorkflowInput) -> client.WorkflowHandle[Any, Any]:
        start = input.args[0] if len(input.args) == 1 else None
        if not isinstance(start, PipelineInput):
            return await super().start_workflow(input)
        with self._tracing.pipeline_start(input.workflow, input.id, start.task_id, start.traceparent) as traceparent:
            input.args = [start.model_copy(update={"traceparent": traceparent})]
            return await super().start_workflow(input)


class TracedWorker(worker.Interceptor):
    """Records each activity that is handed a handoff."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:
        """Return the worker's next interceptor with ours before it."""
        return _TracedActivity(next, self._tracing)


class _TracedActivity(worker.ActivityInboundInterceptor):
    def __init__(self, next: worker.ActivityInboundInterceptor, tracing: Tracing) -> None:
        super().__init__(next)
        self._tracing = tracing

    async def execute_activity(self, input: worker.ExecuteActivityInput) -> Any:
        handoff = trace_of(input.args[0]) if input.args else None
        if handoff is None:
            return await super().execute_activity(input)
        info = activity.info()
        where = {
            "temporalWorkflowID": info.workflow_id or "",
            "temporalRunID": info.workflow_run_id or "",
            "temporalActivityID": info.activity_id,
        }
        with self._tracing.stage(info.activity_type, handoff, where, info.attempt) as stage:
            answer = await super().execute_activity(input)
            if isinstance(answer, StageReturn):
                stage.returned(answer)
            return answer


def trace_of(argument: object) -> HandoffTrace | None:
    """Return what an activity's argument says for a trace, or None if it is not a readable handoff."""
    message: Mapping[str, Any]
    match argument:
        case UnverifiedHandoff(raw=raw) | AcceptRequest(message=raw):
            try:
                read = loads_strict(raw)
            except BatonError:
                return None
            if not isinstance(read, dict):
                return None
            message = read
        case VerifiedHandoff(message=verified):
            message = verified
        case Handoff():
            message = argument.to_json_object()
        case _:
            return None
    return HandoffTrace.of(message)
