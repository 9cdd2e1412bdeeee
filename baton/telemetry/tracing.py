"""Traces: spans around what a client starts and what an activity is handed, where somebody collects them."""

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any

from temporalio import activity, client, worker

from baton.core.messages import PipelineInput, StageReturn
from baton.errors import BatonError
from baton.exchange.records import AcceptRequest
from baton.handoff.records import Handoff
from baton.handoff.sealed import UnverifiedHandoff, VerifiedHandoff
from baton.handoff.trace import HandoffTrace
from baton.wire.json_values import loads_strict

if TYPE_CHECKING:
    from baton.telemetry.spans import OpenTelemetryStage, OpenTelemetryTracing

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"

_log = logging.getLogger(__name__)


class TracingError(BatonError):
    """Traces are asked for and cannot be made; the text says what to install, correct or unset."""


current_stage: "ContextVar[OpenTelemetryStage | None]" = ContextVar("baton_stage_span", default=None)
"""The span of the stage that the running code belongs to; None without tracing."""


def handoff_answered(verdict: str) -> None:
    """Tell the span of the running stage what its gate answered; nothing happens without tracing."""
    span = current_stage.get()
    if span is not None:
        span.answered(verdict)


def open_tracing(environment: Mapping[str, str]) -> "OpenTelemetryTracing | None":
    """Return where this process sends its spans, or None without an address for traces."""
    asked = any(environment.get(name) for name in _ENDPOINTS)
    disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if not asked or disabled or environment.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    try:
        spans = import_module("baton.telemetry.spans")  # an extra, and 50 ms that only those pay who ask for traces
    except ModuleNotFoundError as error:
        raise TracingError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT is set, but {error.name!r} is not installed; install "
            "temporal-baton[otel], or unset the variable"
        ) from error
    protocol = next(filter(None, (environment.get(name) for name in _PROTOCOLS)), _PROTOCOL)
    if protocol != _PROTOCOL:
        _log.warning(
            "OTEL_EXPORTER_OTLP_PROTOCOL is %r, and spans are sent by %s all the same: name the address at which the "
            "collector takes that, as a rule port 4318",
            protocol,
            _PROTOCOL,
        )
    try:
        tracing: OpenTelemetryTracing = spans.OpenTelemetryTracing.over_http(environment, "baton-worker")
    except (ValueError, RuntimeError) as error:
        raise TracingError(
            f"the OTEL_… variables cannot be used: {error}; correct or unset the one it is about"
        ) from error
    return tracing


class TracedClient(client.Interceptor):
    """Records each pipeline that is started, in the span that is current where it is started."""

    def __init__(self, tracing: "OpenTelemetryTracing") -> None:
        self._tracing = tracing

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:
        """Return the client's next interceptor with ours before it."""
        return _TracedOutbound(next, self._tracing)


class _TracedOutbound(client.OutboundInterceptor):
    def __init__(self, next: client.OutboundInterceptor, tracing: "OpenTelemetryTracing") -> None:
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

    def __init__(self, tracing: "OpenTelemetryTracing") -> None:
        self._tracing = tracing

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:
        """Return the worker's next interceptor with ours before it."""
        return _TracedActivity(next, self._tracing)


class _TracedActivity(worker.ActivityInboundInterceptor):
    def __init__(self, next: worker.ActivityInboundInterceptor, tracing: "OpenTelemetryTracing") -> None:
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
