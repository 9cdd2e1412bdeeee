"""OpenTelemetry spans of runs, handoffs, stages and tools, by the GenAI conventions (semantic-conventions-genai 0.1).

A run is the span `invoke_workflow`, which ends once the run is started: its handoffs and stages are below it, however
long it takes. A handoff says who passes control to whom; a stage, who called it. What agents are asked and answer is in
no span, unless `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` switches it on.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import datetime
from time import time_ns
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
)

from baton.core.messages import StageReturn
from baton.core.transcript import Transcript
from baton.core.verdict import HandoffStatus
from baton.telemetry.trace import HandoffTrace, TraceContext, child_traceparent
from baton.telemetry.verdicts import current_stage
from baton.wire.money import Usage

_SCOPE = "baton"
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURES_ON_SPANS = {"TRUE", "SPAN_ONLY", "SPAN_AND_EVENT"}
_OPERATION, _AGENT, _CONVERSATION = "gen_ai.operation.name", "gen_ai.agent.name", "gen_ai.conversation.id"
_MICRO = 1_000_000
_log = logging.getLogger(__name__)


class ChosenIds(IdGenerator):
    """Random ids, except for spans with a predetermined id."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._chosen: ContextVar[tuple[int, int] | None] = ContextVar("baton_chosen_ids", default=None)

    def generate_span_id(self) -> int:
        """Return the chosen id, else a random one."""
        chosen = self._chosen.get()
        return self._random.generate_span_id() if chosen is None else chosen[1]

    def generate_trace_id(self) -> int:
        """Return the chosen id, else a random one. The SDK calls it for spans without a parent."""
        chosen = self._chosen.get()
        return self._random.generate_trace_id() if chosen is None or not chosen[0] else chosen[0]

    @contextmanager
    def chosen(self, span_id: str, trace_id: str = "0") -> Iterator[None]:
        """Use this id for the span that is started in the block, and the trace id if it is a root span."""
        token = self._chosen.set((int(trace_id, 16), int(span_id, 16)))
        try:
            yield
        finally:
            self._chosen.reset(token)


class OpenTelemetryTracing:
    """Records the spans of a process and exports them."""

    def __init__(self, provider: TracerProvider, ids: ChosenIds, *, captures_content: bool = False) -> None:
        """Use a provider whose id generator is ``ids``; record what agents are asked only with ``captures_content``."""
        self.provider = provider
        self._captures_content = captures_content
        self._ids = ids
        self._tracer = provider.get_tracer(_SCOPE)

    @classmethod
    def over_http(cls, environment: Mapping[str, str], service: str) -> "OpenTelemetryTracing":
        """Return a tracing that exports in the background; see `baton.hosting.tracing.open_tracing`."""
        ids = ChosenIds()
        provider = TracerProvider(resource=Resource.create(_service_name(environment, service)), id_generator=ids)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=_find_endpoint(environment))))
        captures = environment.get(_CAPTURE, "").upper() in _CAPTURES_ON_SPANS
        return cls(provider, ids, captures_content=captures)

    @contextmanager
    def pipeline_start(self, pipeline: str, workflow_id: str, task_id: str | None, parent: str | None) -> Iterator[str]:
        """Record the start of a run for the block; yield the traceparent of the span."""
        context = None
        if parent is not None and not trace.get_current_span().get_span_context().is_valid:
            context = _child_context(_to_span_context(TraceContext.parse(parent)))
        attributes = {**_workflow_attributes(pipeline, task_id), "temporalWorkflowID": workflow_id}
        with self._current(f"invoke_workflow {pipeline}", context, SpanKind.INTERNAL, attributes) as span:
            yield _format_traceparent(span.get_span_context())

    @contextmanager
    def stage(
        self, name: str, handoff: HandoffTrace, location: Mapping[str, str], attempt: int
    ) -> Iterator["OpenTelemetryStage"]:
        """Record a stage for the block, and the handoff that started it."""
        started_at = time_ns()
        is_new = attempt == 1 and (handoff.attempt == 1 or handoff.hands_back)
        arrival = self._handoff(handoff, started_at) if is_new else None
        attributes: dict[str, str | int] = {
            _OPERATION: "invoke_agent",
            _AGENT: name,
            _CONVERSATION: handoff.task_id,
            "gen_ai.caller.name": handoff.sender,
            "gen_ai.caller.type": "workflow" if handoff.from_pipeline else "agent",
            "baton.handoff.id": handoff.handoff_id,
            "baton.sender": handoff.sender,
            "baton.attempt": handoff.attempt,
            "temporalActivityAttempt": attempt,
            **location,
        }
        context = self._context(handoff, arrival)
        with self._current(f"invoke_agent {name}", context, SpanKind.CONSUMER, attributes, started_at) as span:
            stage = OpenTelemetryStage(span, arrival, self._tracer, name, captures_content=self._captures_content)
            token = current_stage.set(stage)
            try:
                yield stage
            finally:
                current_stage.reset(token)
                stage.end_handoff(started_at)

    def close(self) -> None:
        """Export pending spans and stop; call it before the process ends."""
        self.provider.shutdown()

    @contextmanager
    def _current(
        self,
        name: str,
        context: Context | None,
        kind: SpanKind,
        attributes: Mapping[str, str | int],
        started_at: int | None = None,
    ) -> Iterator[Span]:
        """Start a span for the block; an exception is recorded by type, never with its text."""
        with self._tracer.start_as_current_span(
            name,
            context,
            kind,
            attributes,
            start_time=started_at,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                _fail(span, type(error).__name__)
                raise

    def _handoff(self, handoff: HandoffTrace, received_at: int) -> Span:
        """Start the span of a handoff at its dispatch time, by the sender's clock."""
        sent_at = received_at if handoff.sent_at is None else min(_to_nanoseconds(handoff.sent_at), received_at)
        if handoff.parent is not None and handoff.begins_trace:
            self._record_missing_start(handoff, handoff.parent, sent_at)
        links = []
        if handoff.parent is not None and handoff.previous_span_id is not None:
            previous = child_traceparent(str(handoff.parent), handoff.previous_span_id)
            links.append(Link(_to_span_context(TraceContext.parse(previous))))
        parent = None if handoff.parent is None else _to_span_context(handoff.parent, handoff.tracestate)
        with self._ids.chosen(handoff.span_id):
            return self._tracer.start_span(
                f"handoff {handoff.sender} to {handoff.receiver}",
                _child_context(parent),
                SpanKind.PRODUCER,
                {
                    _AGENT: handoff.sender,
                    _CONVERSATION: handoff.task_id,
                    "gen_ai.transfer.mode": "pass_control",
                    "gen_ai.transfer.target.name": handoff.receiver,
                    "baton.handoff.id": handoff.handoff_id,
                    "baton.sender": handoff.sender,
                    "baton.receiver": handoff.receiver,
                },
                links,
                sent_at,
            )

    def _record_missing_start(self, handoff: HandoffTrace, start: TraceContext, at: int) -> None:
        """Record the start of a pipeline whose starter has no tracing, as a parent of its spans."""
        with self._ids.chosen(start.span_id, start.trace_id):
            span = self._tracer.start_span(
                f"invoke_workflow {handoff.sender}",
                Context(),
                SpanKind.INTERNAL,
                _workflow_attributes(handoff.sender, handoff.task_id),
                start_time=at,
            )
        span.end(at)

    def _context(self, handoff: HandoffTrace, arrival: Span | None) -> Context:
        """Return the context of a stage's span: a child of its handoff's."""
        if arrival is not None:
            return trace.set_span_in_context(arrival, Context())
        if handoff.parent is None:
            return Context()
        traceparent = child_traceparent(str(handoff.parent), handoff.span_id)
        return _child_context(_to_span_context(TraceContext.parse(traceparent), handoff.tracestate))


class OpenTelemetryStage:
    """The span of a running stage."""

    def __init__(
        self, span: Span, arrival: Span | None, tracer: Tracer, name: str, *, captures_content: bool = False
    ) -> None:
        self._span = span
        self._arrival = arrival
        self._tracer = tracer
        self._name = name
        self._captures_content = captures_content

    def tool(self, tool: str, call_id: str) -> "OpenTelemetryTool":
        """Start the span of a tool's call, below the stage's."""
        attributes = {
            _OPERATION: "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call_id,
            _AGENT: self._name,
        }
        context = trace.set_span_in_context(self._span, Context())
        return OpenTelemetryTool(self._tracer.start_span(f"execute_tool {tool}", context, attributes=attributes))

    def record_content(self, transcript: Transcript) -> None:
        """Record what the stage's agents were asked and answered, if that is switched on."""
        if not self._captures_content:
            return
        answer = [_message("assistant", transcript.answer) | {"finish_reason": "stop"}] if transcript.answer else []
        said = {True: list[dict[str, Any]](), False: list[dict[str, Any]]()}
        for message in transcript.messages:
            said[message.role == "system"].append(_message(message.role, message.text))
        rules = [part for message in said[True] for part in message["parts"]]
        contents = {"system_instructions": rules, "input.messages": said[False], "output.messages": answer}
        for name, content in contents.items():
            if content:
                self._span.set_attribute(f"gen_ai.{name}", json.dumps(content, ensure_ascii=False))

    def record_verdict(self, verdict: str) -> None:
        """Record the gate's verdict and end the span of the handoff; only the first verdict counts."""
        for span in (self._span, self._arrival):
            if span is not None:
                span.set_attribute("baton.verdict", verdict)
                if verdict != HandoffStatus.ACCEPTED:
                    _fail(span, verdict)
        self.end_handoff(time_ns())

    def record_usage(self, model: str, usage: Usage) -> None:
        """Record the model of an agent, and the tokens of its run so far."""
        self._span.set_attributes(
            {
                "gen_ai.response.model": model,
                "gen_ai.usage.cache_read.input_tokens": usage.cached_input,
                "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
                "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
            }
        )

    def record_result(self, answer: StageReturn) -> None:
        """Record the cost, the tokens and the number of findings of the stage."""
        self._span.set_attributes(
            {
                "gen_ai.usage.input_tokens": answer.spend.prompt_tokens,
                "gen_ai.usage.output_tokens": answer.spend.completion_tokens,
                "baton.cost_usd": answer.spend.micro_usd / _MICRO,
                "baton.step": answer.seq,
                "baton.findings": len(answer.findings),
            }
        )

    def end_handoff(self, at: int) -> None:
        """End the span of the handoff, unless already ended, at a time in nanoseconds."""
        if self._arrival is not None:
            self._arrival.end(at)
            self._arrival = None


class OpenTelemetryTool:
    """The span of a tool's call."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def active(self) -> AbstractContextManager[Span]:
        """Have what is recorded in the block below the span."""
        return trace.use_span(self._span, record_exception=False, set_status_on_exception=False)

    def record_target(self, agent: str) -> None:
        """Record that the tool is another agent, which returns to the one that called it."""
        self._span.set_attributes({"gen_ai.transfer.mode": "return_to_caller", "gen_ai.transfer.target.name": agent})

    def end(self, error: str = "") -> None:
        """End the span, as failed if an error is named, by its type."""
        if error:
            _fail(self._span, error)
        self._span.end()


def _message(role: str, text: str) -> dict[str, Any]:
    """Return a message in the convention's form, which knows thoughts as a part of what an assistant says."""
    is_thought = role == "thought"
    part = {"type": "reasoning" if is_thought else "text", "content": text}
    return {"role": "assistant" if is_thought else role, "parts": [part]}


def _workflow_attributes(pipeline: str, task_id: str | None) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {_OPERATION: "invoke_workflow", _AGENT: pipeline, "baton.pipeline": pipeline}
    return attributes | ({_CONVERSATION: task_id} if task_id else {})


def _fail(span: Span, reason: str) -> None:
    span.set_attribute("error.type", reason)
    span.set_status(StatusCode.ERROR, reason)


def _to_span_context(context: TraceContext, tracestate: str = "") -> SpanContext:
    """Convert a remote trace context to OpenTelemetry's form."""
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT),
        trace_state=TraceState.from_header([tracestate]) if tracestate else None,
    )


def _child_context(parent: SpanContext | None) -> Context:
    """Return a new context with a remote parent span."""
    return Context() if parent is None else trace.set_span_in_context(NonRecordingSpan(parent), Context())


def _format_traceparent(context: SpanContext) -> str:
    return str(TraceContext(f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled))


def _to_nanoseconds(at: datetime) -> int:
    """Return a time in nanoseconds since 1970."""
    return round(at.timestamp() * _MICRO) * 1_000


def _service_name(environment: Mapping[str, str], service: str) -> dict[str, str]:
    """Return the service name, unless the attributes that OpenTelemetry reads itself include it."""
    attributes = environment.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    service_name = environment.get("OTEL_SERVICE_NAME")
    if not service_name and SERVICE_NAME in [attribute.partition("=")[0].strip() for attribute in attributes]:
        return {}
    return {SERVICE_NAME: service_name or service}


def _find_endpoint(environment: Mapping[str, str]) -> str:
    """Return the traces endpoint, or else the general endpoint with the path for traces."""
    traces_endpoint = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return traces_endpoint or environment["OTEL_EXPORTER_OTLP_ENDPOINT"].rstrip("/") + "/v1/traces"
