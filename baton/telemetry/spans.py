"""Spans by OpenTelemetry: the start of a pipeline, each handoff, each stage; with the GenAI attribute names."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from time import time_ns

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState

from baton.core.messages import StageReturn
from baton.core.verdict import HandoffStatus
from baton.handoff.trace import HandoffTrace, TraceContext, child_traceparent
from baton.telemetry.tracing import current_stage
from baton.wire.money import Usage

_SCOPE = "baton"
_MICRO = 1_000_000
_log = logging.getLogger(__name__)


class ChosenIds(IdGenerator):
    """Random ids, except for a span whose id somebody else can work out."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._chosen: ContextVar[tuple[int, int] | None] = ContextVar("baton_chosen_ids", default=None)

    def generate_span_id(self) -> int:
        """Return the chosen id, else a random one."""
        chosen = self._chosen.get()
        return self._random.generate_span_id() if chosen is None else chosen[1]

    def generate_trace_id(self) -> int:
        """Return the chosen id, else a random one; asked only for a span without a parent."""
        chosen = self._chosen.get()
        return self._random.generate_trace_id() if chosen is None or not chosen[0] else chosen[0]

    @contextmanager
    def chosen(self, span_id: str, trace_id: str = "0") -> Iterator[None]:
        """Give the span that is started in the block this id, and its trace that one if it begins there."""
        token = self._chosen.set((int(trace_id, 16), int(span_id, 16)))
        try:
            yield
        finally:
            self._chosen.reset(token)


class OpenTelemetryTracing:
    """Where a process sends its spans."""

    def __init__(self, provider: TracerProvider, ids: ChosenIds) -> None:
        """Use a provider that was made with ``ids`` as its id generator."""
        self.provider = provider
        self._ids = ids
        self._tracer = provider.get_tracer(_SCOPE)

    @classmethod
    def over_http(cls, environment: Mapping[str, str], service: str) -> "OpenTelemetryTracing":
        """Return one that sends its spans in the background; see `baton.telemetry.tracing.open_tracing`."""
        ids = ChosenIds()
        provider = TracerProvider(resource=Resource.create(_names(environment, service)), id_generator=ids)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=_address(environment))))
        return cls(provider, ids)

    @contextmanager
    def pipeline_start(self, pipeline: str, workflow_id: str, task_id: str | None, parent: str | None) -> Iterator[str]:
        """Record that a pipeline is started while the block runs; give the traceparent of that span."""
        context = None
        if parent is not None and not trace.get_current_span().get_span_context().is_valid:
            context = _below(_remote(TraceContext.parse(parent)))
        attributes: dict[str, str | int] = {"baton.pipeline": pipeline, "temporalWorkflowID": workflow_id}
        if task_id:
            attributes["gen_ai.conversation.id"] = task_id
        with self._current(f"pipeline start {pipeline}", context, SpanKind.PRODUCER, attributes) as span:
            yield _traceparent(span.get_span_context())

    @contextmanager
    def stage(
        self, name: str, handoff: HandoffTrace, where: Mapping[str, str], attempt: int
    ) -> Iterator["OpenTelemetryStage"]:
        """Record that a stage runs while the block does, and the handoff that brought it here."""
        began = time_ns()
        is_new = attempt == 1 and (handoff.attempt == 1 or handoff.hands_back)
        arrival = self._handoff(handoff, began) if is_new else None
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": name,
            "gen_ai.conversation.id": handoff.task_id,
            "baton.handoff.id": handoff.handoff_id,
            "baton.sender": handoff.sender,
            "baton.attempt": handoff.attempt,
            "temporalActivityAttempt": attempt,
            **where,
        }
        context = self._context(handoff, arrival)
        with self._current(f"invoke_agent {name}", context, SpanKind.CONSUMER, attributes, began) as span:
            stage = OpenTelemetryStage(span, arrival)
            token = current_stage.set(stage)
            try:
                yield stage
            finally:
                current_stage.reset(token)
                stage.end_handoff(began)

    def close(self) -> None:
        """Send what is still held back, and stop; a process calls it before it ends."""
        self.provider.shutdown()

    @contextmanager
    def _current(
        self,
        name: str,
        context: Context | None,
        kind: SpanKind,
        attributes: Mapping[str, str | int],
        began: int | None = None,
    ) -> Iterator[Span]:
        """Begin a span for the block; if that raises, it fails with the exception's type, and never with its text."""
        with self._tracer.start_as_current_span(
            name,
            context,
            kind,
            attributes,
            start_time=began,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                _fail(span, type(error).__name__)
                raise

    def _handoff(self, handoff: HandoffTrace, now: int) -> Span:
        """Begin the span of a handoff at the time it was dispatched, by the sender's clock."""
        sent = now if handoff.sent_at is None else min(_nanoseconds(handoff.sent_at), now)
        if handoff.parent is not None and handoff.begins_trace:
            self._unrecorded_start(handoff, handoff.parent, sent)
        links = []
        if handoff.parent is not None and handoff.previous_span_id is not None:
            before = child_traceparent(str(handoff.parent), handoff.previous_span_id)
            links.append(Link(_remote(TraceContext.parse(before))))
        parent = None if handoff.parent is None else _remote(handoff.parent, handoff.tracestate)
        with self._ids.chosen(handoff.span_id):
            return self._tracer.start_span(
                f"handoff {handoff.sender} to {handoff.receiver}",
                _below(parent),
                SpanKind.PRODUCER,
                {
                    "gen_ai.conversation.id": handoff.task_id,
                    "baton.handoff.id": handoff.handoff_id,
                    "baton.sender": handoff.sender,
                    "baton.receiver": handoff.receiver,
                },
                links,
                sent,
            )

    def _unrecorded_start(self, handoff: HandoffTrace, start: TraceContext, at: int) -> None:
        """Record the start of a pipeline whose starter records nothing: a point, where its spans hang together."""
        with self._ids.chosen(start.span_id, start.trace_id):
            span = self._tracer.start_span(
                f"pipeline start {handoff.sender}",
                Context(),
                SpanKind.PRODUCER,
                {
                    "baton.pipeline": handoff.sender,
                    "gen_ai.conversation.id": handoff.task_id,
                },
                start_time=at,
            )
        span.end(at)

    def _context(self, handoff: HandoffTrace, arrival: Span | None) -> Context:
        """Return the context of a stage's span: below its handoff's."""
        if arrival is not None:
            return trace.set_span_in_context(arrival, Context())
        if handoff.parent is None:
            return Context()
        own = child_traceparent(str(handoff.parent), handoff.span_id)
        return _below(_remote(TraceContext.parse(own), handoff.tracestate))


class OpenTelemetryStage:
    """The span of a stage that is under way."""

    def __init__(self, span: Span, arrival: Span | None) -> None:
        self._span = span
        self._arrival = arrival

    def answered(self, verdict: str) -> None:
        """Tell what the receiver's gate answered, which ends the span of the handoff; the first answer counts."""
        for span in (self._span, self._arrival):
            if span is not None:
                span.set_attribute("baton.verdict", verdict)
                if verdict != HandoffStatus.ACCEPTED:
                    _fail(span, verdict)
        self.end_handoff(time_ns())

    def used(self, model: str, usage: Usage) -> None:
        """Record which model an agent asked, and all tokens of its run so far."""
        self._span.set_attributes(
            {
                "gen_ai.response.model": model,
                "gen_ai.usage.cache_read.input_tokens": usage.cached_input,
                "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
                "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
            }
        )

    def returned(self, answer: StageReturn) -> None:
        """Tell what the stage returned: its cost, its tokens and how many findings there are."""
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
        """End the span of the handoff, if that was not done yet, at a time in nanoseconds."""
        if self._arrival is not None:
            self._arrival.end(at)
            self._arrival = None


def _fail(span: Span, kind: str) -> None:
    """Mark a span as failed, with a word for the reason."""
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR, kind)


def _remote(context: TraceContext, tracestate: str = "") -> SpanContext:
    """Return OpenTelemetry's form of a trace context from elsewhere."""
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT),
        trace_state=TraceState.from_header([tracestate]) if tracestate else None,
    )


def _below(parent: SpanContext | None) -> Context:
    """Return a context of its own, below a span from elsewhere."""
    return Context() if parent is None else trace.set_span_in_context(NonRecordingSpan(parent), Context())


def _traceparent(context: SpanContext) -> str:
    """Return the traceparent that hands a span's context on."""
    return str(TraceContext(f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled))


def _nanoseconds(at: datetime) -> int:
    """Return a time as nanoseconds since 1970."""
    return round(at.timestamp() * _MICRO) * 1_000


def _names(environment: Mapping[str, str], service: str) -> dict[str, str]:
    """Return the service's name, unless it is among the attributes that OpenTelemetry reads by itself."""
    told = environment.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    named = environment.get("OTEL_SERVICE_NAME")
    if not named and SERVICE_NAME in [one.partition("=")[0].strip() for one in told]:
        return {}
    return {SERVICE_NAME: named or service}


def _address(environment: Mapping[str, str]) -> str:
    """Return where spans are sent: the address for traces as it is, or the one for all signals with its path."""
    exact = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return exact or environment["OTEL_EXPORTER_OTLP_ENDPOINT"].rstrip("/") + "/v1/traces"
