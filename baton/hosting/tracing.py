"""Tracing: spans around pipeline starts and activities with a handoff, if an endpoint is configured."""

import logging
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from temporalio import activity, client, worker

from baton.core.messages import PipelineInput, StageReturn
from baton.core.outline import Outline
from baton.errors import BatonError
from baton.exchange.records import AcceptRequest
from baton.handoff.records import Handoff
from baton.handoff.sealed import UnverifiedHandoff, VerifiedHandoff
from baton.telemetry.trace import HandoffTrace
from baton.wire.json_values import loads_strict

if TYPE_CHECKING:
    from baton.telemetry.spans import OpenTelemetryTracing

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"

_log = logging.getLogger(__name__)


class TracingError(BatonError):
    """Tracing is configured but impossible. The message says what to install, correct or unset."""


def open_tracing(environment: Mapping[str, str]) -> "OpenTelemetryTracing | None":
    """Return the tracing of this process, or None if no endpoint is configured."""
    is_configured = any(environment.get(name) for name in _ENDPOINTS)
    disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if not is_configured or disabled or environment.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    try:
        spans = import_module("baton.telemetry.spans")  # an extra, and takes 50 ms to import
    except ModuleNotFoundError as error:
        raise TracingError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT is set, but {error.name!r} is not installed; install "
            "temporal-baton[otel], or unset the variable"
        ) from error
    protocol = next(filter(None, (environment.get(name) for name in _PROTOCOLS)), _PROTOCOL)
    if protocol != _PROTOCOL:
        _log.warning(
            "OTEL_EXPORTER_OTLP_PROTOCOL is %r, but spans are sent by %s: set the endpoint at which the collector "
            "accepts that, usually on port 4318",
            protocol,
            _PROTOCOL,
        )
    try:
        tracing: OpenTelemetryTracing = spans.OpenTelemetryTracing.over_http(environment, "baton-worker")
    except (ValueError, RuntimeError) as error:
        raise TracingError(f"the OTEL_… variables are invalid: {error}; correct or unset the one it names") from error
    return tracing


class TracedClient(client.Interceptor):
    """Records each pipeline start as a child of the caller's current span."""

    def __init__(self, tracing: "OpenTelemetryTracing") -> None:
        self._tracing = tracing

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:
        """Return the next interceptor, wrapped."""
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
    """Records each activity whose input is a handoff."""

    def __init__(self, tracing: "OpenTelemetryTracing") -> None:
        self._tracing = tracing

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:
        """Return the next interceptor, wrapped."""
        return _TracedActivity(next, self._tracing)


class _TracedActivity(worker.ActivityInboundInterceptor):
    def __init__(self, next: worker.ActivityInboundInterceptor, tracing: "OpenTelemetryTracing") -> None:
        super().__init__(next)
        self._tracing = tracing

    async def execute_activity(self, input: worker.ExecuteActivityInput) -> Any:
        handoff = extract_trace(input.args[0]) if input.args else None
        if handoff is None:
            return await super().execute_activity(input)
        info = activity.info()
        attributes = {
            "temporalWorkflowID": info.workflow_id or "",
            "temporalRunID": info.workflow_run_id or "",
            "temporalActivityID": info.activity_id,
        }
        with self._tracing.stage(info.activity_type, handoff, attributes, info.attempt) as stage:
            result = await super().execute_activity(input)
            if isinstance(result, StageReturn):
                stage.record_result(result)
            return result


def extract_trace(argument: object) -> HandoffTrace | None:
    """Return the trace data of an activity's argument, or None if it is not a readable handoff."""
    match argument:
        case UnverifiedHandoff(raw=raw) | AcceptRequest(message=raw):
            try:
                message = loads_strict(raw)
            except BatonError:
                return None
        case VerifiedHandoff():
            message = argument.message
        case Handoff():
            message = argument.to_json_object()
        case _:
            return None
    return HandoffTrace.of(Outline.of(message))
