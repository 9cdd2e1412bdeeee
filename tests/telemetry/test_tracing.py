"""Tests of `baton.hosting.tracing` and `baton.telemetry.spans`, against a real OTLP receiver."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from baton import Spend
from baton.core.messages import StageReturn
from baton.core.outline import Outline
from baton.exchange.records import AcceptRequest
from baton.handoff.records import Handoff
from baton.handoff.sealed import UnverifiedHandoff
from baton.hosting.tracing import extract_trace, open_tracing
from baton.telemetry.spans import OpenTelemetryTracing
from baton.telemetry.trace import HandoffTrace, TraceContext, TraceparentError, task_traceparent
from baton.telemetry.verdicts import record_verdict
from tests.collector import Collector, attributes, collecting
from tests.handoff.material import EXAMPLE, HANDOFF_ID, PARENT_ID, RECEIVER, TASK_ID, TRACEPARENT

PARENT = TraceContext.parse(TRACEPARENT)
WHERE = {"temporalWorkflowID": "w", "temporalRunID": "r", "temporalActivityID": "1"}


@contextmanager
def recording(collector: Collector, **environment: str) -> Iterator[OpenTelemetryTracing]:
    """Open tracing as a worker does; whatever was recorded is sent at the end of the block."""
    tracing = open_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, **environment})
    assert isinstance(tracing, OpenTelemetryTracing)
    try:
        yield tracing
    finally:
        tracing.close()


def told(**members: Any) -> HandoffTrace:
    """Return what the example says for a trace, with other members."""
    trace = HandoffTrace.of(Outline.of({**EXAMPLE, "timestamp": datetime.now(UTC).isoformat(), **members}))
    assert trace is not None
    return trace


class TestTraceparent:
    def test_opentelemetry_reads_it(self) -> None:
        """S3-5.2-x: a task's trace id is valid and sampled, so any tracer can continue the trace."""
        fresh = task_traceparent(TASK_ID)
        context = TraceContextTextMapPropagator().extract({"traceparent": fresh})
        span = trace.get_current_span(context).get_span_context()

        assert f"{span.trace_id:032x}" == TraceContext.parse(fresh).trace_id
        assert span.trace_flags.sampled

    @given(st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[a-z]{0,8})?", fullmatch=True))
    def test_opentelemetry_and_baton_read_alike(self, text: str) -> None:
        """A reader that others wrote accepts the same traceparents, and finds the same in them."""
        their_context = trace.get_current_span(TraceContextTextMapPropagator().extract({"traceparent": text}))
        span = their_context.get_span_context()
        try:
            our_context = TraceContext.parse(text)
        except TraceparentError:
            assert not span.is_valid
        else:
            assert (f"{span.trace_id:032x}", f"{span.span_id:016x}") == (our_context.trace_id, our_context.span_id)
            assert span.trace_flags.sampled == our_context.sampled


class TestOpenTracing:
    @pytest.mark.parametrize(
        "environment",
        [
            pytest.param({}, id="no address"),
            pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, id="an empty address"),
            pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, id="switched off"),
            pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, id="no traces"),
        ],
    )
    def test_nobody_pays_who_did_not_ask(self, environment: dict[str, str]) -> None:
        """Without an endpoint there is no tracing."""
        assert open_tracing(environment) is None

    def test_opentelemetry_is_loaded_by_nothing_else(self) -> None:
        """Neither traceparents nor the interceptors need it, so neither does a worker that is not asked for traces."""
        code = "import sys, baton.hosting.tracing as _; print('opentelemetry' in sys.modules)"
        fresh = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

        assert fresh.stdout == "False\n"

    @pytest.mark.parametrize(
        ("variable", "path"),
        [
            pytest.param("OTEL_EXPORTER_OTLP_ENDPOINT", "/v1/traces", id="the address for all signals"),
            pytest.param("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "/custom", id="the address for traces"),
        ],
    )
    def test_the_address_is_read_as_opentelemetry_reads_it(self, variable: str, path: str) -> None:
        """The one gets the path of traces added, the other is used as it is."""
        with collecting() as collector:
            address = collector.endpoint + (path if variable.endswith("TRACES_ENDPOINT") else "/")
            tracing = open_tracing({variable: address, "OTEL_SERVICE_NAME": "reviews"})
            assert tracing is not None
            with tracing.pipeline_start("P", "w", None, None):
                pass
            tracing.close()

            assert collector.paths == [path]
            assert collector.services() == {"reviews"}

    @pytest.mark.parametrize(
        ("traces", "every", "warned"),
        [
            pytest.param("", "http/protobuf", False, id="the one there is"),
            pytest.param("", "grpc", True, id="another one"),
            pytest.param("http/protobuf", "grpc", False, id="another one for what are no traces"),
        ],
    )
    def test_a_protocol_that_is_not_spoken_is_warned_of(
        self, caplog: pytest.LogCaptureFixture, traces: str, every: str, warned: bool
    ) -> None:
        """The address is most likely that of the other protocol too, where nothing that is sent would be taken."""
        environment = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": traces, "OTEL_EXPORTER_OTLP_PROTOCOL": every}
        tracing = open_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", **environment})
        assert tracing is not None
        tracing.close()

        assert ("OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'" in caplog.text) is warned

    @pytest.mark.parametrize(
        ("variables", "name"),
        [
            pytest.param({}, "baton-worker", id="nothing said"),
            pytest.param({"OTEL_RESOURCE_ATTRIBUTES": "a=1, service.name=reviews"}, "reviews", id="an attribute"),
            pytest.param(
                {"OTEL_RESOURCE_ATTRIBUTES": "service.name=reviews", "OTEL_SERVICE_NAME": "legal"}, "legal", id="both"
            ),
        ],
    )
    def test_the_service_has_the_name_that_it_was_given(
        self, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], name: str
    ) -> None:
        """Platforms name a service by its resource's attributes; a default must not win over them."""
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        with collecting() as collector:
            with recording(collector, **variables) as tracing, tracing.pipeline_start("P", "w", None, None):
                pass

            assert collector.services() == {name}


class TestPipelineStart:
    def test_it_is_a_child_of_the_services_own_span(self) -> None:
        """One trace begins in the service, and what the pipeline is given names the span of its start."""
        with collecting() as collector, recording(collector) as tracing:
            service = TracerProvider().get_tracer("service")
            with service.start_as_current_span("POST /contracts") as outer:
                with tracing.pipeline_start("Review", "w1", TASK_ID, TRACEPARENT) as traceparent:
                    pass
                their_context = outer.get_span_context()
            tracing.close()
            span = collector.span("invoke_workflow Review")

        assert span.trace_id.hex() == f"{their_context.trace_id:032x}" == TraceContext.parse(traceparent).trace_id
        assert span.parent_span_id.hex() == f"{their_context.span_id:016x}"
        assert span.span_id.hex() == TraceContext.parse(traceparent).span_id
        assert attributes(span.attributes) == {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.agent.name": "Review",
            "gen_ai.conversation.id": TASK_ID,
            "baton.pipeline": "Review",
            "temporalWorkflowID": "w1",
        }

    def test_without_one_it_continues_the_trace_that_was_handed_in(self) -> None:
        """A service without OpenTelemetry can still pass on the header it received."""
        with collecting() as collector, recording(collector) as tracing:
            with tracing.pipeline_start("Review", "w1", None, TRACEPARENT) as traceparent:
                pass
            tracing.close()
            span = collector.span("invoke_workflow Review")

        assert span.parent_span_id.hex() == PARENT.span_id
        assert TraceContext.parse(traceparent).trace_id == PARENT.trace_id

    def test_a_start_that_fails_says_by_what_and_not_why(self) -> None:
        """The type of the exception is enough; its text may hold what was in the message."""
        with collecting() as collector, recording(collector) as tracing:
            with pytest.raises(RuntimeError), tracing.pipeline_start("Review", "w1", None, None):
                raise RuntimeError("the goal was: sell the house")
            tracing.close()
            span = collector.span("invoke_workflow Review")

        assert span.status.code == Status.STATUS_CODE_ERROR
        assert attributes(span.attributes)["error.type"] == "RuntimeError"
        assert b"house" not in span.SerializeToString()

    def test_a_trace_that_is_not_recorded_is_not_recorded_further(self) -> None:
        """The sampling decision of the root holds for the pipeline and its stages."""
        with collecting() as collector, recording(collector) as tracing:
            with tracing.pipeline_start("Review", "w1", None, TRACEPARENT[:-2] + "00") as traceparent:
                pass
            with tracing.stage("score", told(traceparent=traceparent), WHERE, 1):
                pass
            tracing.close()

            assert not TraceContext.parse(traceparent).sampled
            assert collector.spans == []


class TestStage:
    def recorded(self, handoff: HandoffTrace, attempt: int = 1, verdict: str | None = "ACCEPTED") -> list[Span]:
        with collecting() as collector, recording(collector) as tracing:
            with tracing.stage("score", handoff, WHERE, attempt) as stage:
                if verdict is not None:
                    record_verdict(verdict)
                stage.record_result(
                    StageReturn(stage="score", seq=3, spend=Spend(micro_usd=80_000, prompt_tokens=4200))
                )
            tracing.close()
            return collector.spans

    def test_the_handoff_is_below_the_start_and_the_stage_below_the_handoff(self) -> None:
        """The message's traceparent is the parent; the handoff's own span has the id that others work out."""
        handoff = told()
        arrival, stage = self.recorded(handoff)

        assert (arrival.name, stage.name) == (
            "handoff legal-analysis-agent to risk-scoring-agent",
            "invoke_agent score",
        )
        assert {arrival.trace_id.hex(), stage.trace_id.hex()} == {PARENT.trace_id}
        assert arrival.parent_span_id.hex() == PARENT.span_id
        assert arrival.span_id.hex() == handoff.span_id
        assert stage.parent_span_id == arrival.span_id

    def test_it_links_to_the_handoff_before(self) -> None:
        """A link instead of a nested span: a chain of a thousand handoffs is as deep as one of two."""
        handoff = told()
        arrival, _ = self.recorded(handoff)
        (link,) = arrival.links

        assert (link.trace_id.hex(), link.span_id.hex()) == (PARENT.trace_id, handoff.previous_span_id)

    def test_the_first_handoff_links_to_nothing(self) -> None:
        """There is nothing before it."""
        arrival, _ = self.recorded(told(parentHandoffId=None))

        assert list(arrival.links) == []

    def test_a_start_that_nobody_recorded_is_recorded_with_the_first_handoff(self) -> None:
        """Without OpenTelemetry in the service, the spans still hang together: in the trace of the task's id."""
        start, arrival, stage = self.recorded(
            told(parentHandoffId=None, initial=True, traceparent=task_traceparent(TASK_ID))
        )

        assert start.name == "invoke_workflow legal-analysis-agent"
        assert start.trace_id.hex() == arrival.trace_id.hex() == stage.trace_id.hex() == TASK_ID.replace("-", "")
        assert (start.parent_span_id, arrival.parent_span_id) == (b"", start.span_id)

    @pytest.mark.parametrize(
        "members",
        [
            pytest.param({}, id="a later handoff"),
            pytest.param(
                {"parentHandoffId": None, "initial": True, "receiverList": ["other", "risk-scoring-agent"]},
                id="another copy of a fan-out",
            ),
        ],
    )
    def test_it_is_recorded_once(self, members: dict[str, Any]) -> None:
        """One receiver records it: the first one of the first handoff."""
        recorded = self.recorded(told(traceparent=task_traceparent(TASK_ID), **members))

        assert [span.name.split()[0] for span in recorded] == ["handoff", "invoke_agent"]

    def test_the_handoffs_span_lasts_from_dispatch_to_accept(self) -> None:
        """S3-6.5-a: its length is the latency that the document limits."""
        sent = datetime.now(UTC) - timedelta(seconds=2)
        arrival, stage = self.recorded(told(timestamp=sent.isoformat()))

        assert arrival.start_time_unix_nano == int(sent.timestamp() * 1e6) * 1000
        assert stage.start_time_unix_nano <= arrival.end_time_unix_nano <= stage.end_time_unix_nano

    def test_a_sender_whose_clock_is_ahead_ends_nothing_before_it_began(self) -> None:
        """A span cannot last less than nothing."""
        ahead = datetime.now(UTC) + timedelta(hours=1)
        arrival, _ = self.recorded(told(timestamp=ahead.isoformat()))

        assert arrival.start_time_unix_nano <= arrival.end_time_unix_nano

    def test_the_stage_has_the_genai_attributes(self) -> None:
        """Names, ids, counts and cost, by the names that tools for agents know."""
        _, stage = self.recorded(told())

        assert attributes(stage.attributes) == {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "score",
            "gen_ai.conversation.id": TASK_ID,
            "gen_ai.usage.input_tokens": 4200,
            "gen_ai.usage.output_tokens": 0,
            "gen_ai.caller.name": "legal-analysis-agent",
            "gen_ai.caller.type": "agent",
            "baton.handoff.id": HANDOFF_ID,
            "baton.sender": "legal-analysis-agent",
            "baton.attempt": 1,
            "baton.verdict": "ACCEPTED",
            "baton.cost_usd": 0.08,
            "baton.step": 3,
            "baton.findings": 0,
            "temporalActivityAttempt": 1,
            **WHERE,
        }

    def test_no_text_of_the_message_gets_into_a_span(self) -> None:
        """What Temporal stores is encrypted, what a collector stores is not."""
        sent = b"".join(span.SerializeToString() for span in self.recorded(told()))

        assert b"Clause" not in sent
        assert b"liability" not in sent

    def test_a_rejected_handoff_is_marked_with_its_code(self) -> None:
        """Both spans fail, by the code of the verdict."""
        for span in self.recorded(told(), verdict="SAFETY_VIOLATION"):
            assert span.status.code == Status.STATUS_CODE_ERROR
            assert attributes(span.attributes)["error.type"] == "SAFETY_VIOLATION"

    @pytest.mark.parametrize(
        ("step", "attempt"),
        [pytest.param({"attempt": 2}, 1, id="the stage again"), pytest.param({}, 2, id="the activity again")],
    )
    def test_another_attempt_is_below_the_same_handoff(self, step: dict[str, int], attempt: int) -> None:
        """The handoff is recorded once; every attempt's stage has a span of its own below it."""
        handoff = told(step=step)
        (stage,) = self.recorded(handoff, attempt)

        assert stage.name == "invoke_agent score"
        assert stage.parent_span_id.hex() == handoff.span_id

    def test_an_unanswered_handoff_ends_when_it_arrived(self) -> None:
        """A gate that raised has answered nothing, and the span is not lost."""
        arrival, stage = self.recorded(told(), verdict=None)

        assert arrival.end_time_unix_nano == stage.start_time_unix_nano

    def test_a_stage_that_raises_says_by_what_and_not_why(self) -> None:
        """The exception's text stays inside."""
        with collecting() as collector, recording(collector) as tracing:
            with pytest.raises(ValueError, match="house"), tracing.stage("score", told(), WHERE, 1):
                raise ValueError("the house")
            tracing.close()
            stage = collector.span("invoke_agent score")

        assert attributes(stage.attributes)["error.type"] == "ValueError"
        assert b"house" not in stage.SerializeToString()

    def test_what_a_library_records_in_a_stage_is_below_it(self) -> None:
        """The span is current while the stage runs, so an agent's own model calls join the trace."""
        with collecting() as collector, recording(collector) as tracing:
            with (
                tracing.stage("score", told(), WHERE, 1),
                tracing.provider.get_tracer("a model's library").start_as_current_span("chat"),
            ):
                pass
            tracing.close()

            assert collector.span("chat").parent_span_id == collector.span("invoke_agent score").span_id

    @pytest.mark.parametrize("state", ["vendor=1", "rubbish, = ,,", "a=1," * 100])
    def test_a_tracestate_is_handed_on_or_dropped_but_never_raises(self, state: str) -> None:
        """An invalid tracestate does not prevent a stage from running."""
        arrival, _ = self.recorded(told(tracestate=state))

        assert arrival.trace_state == ("vendor=1" if state == "vendor=1" else arrival.trace_state)

    def test_without_tracing_an_answer_is_told_to_nobody(self) -> None:
        """The gate need not know whether traces are recorded."""
        record_verdict("ACCEPTED")


class TestTraceOf:
    def test_bytes_and_record_say_the_same(self) -> None:
        """The message as a stage and as a pipeline receive it, and as a record."""
        raw = json.dumps(EXAMPLE).encode()
        forms = (
            UnverifiedHandoff(raw),
            AcceptRequest(raw=base64.b64encode(raw).decode(), run_chain="r1", receiver=RECEIVER),
            Handoff.from_json_object(EXAMPLE),
        )

        assert [extract_trace(form) for form in forms] == [HandoffTrace.of(Outline.of(EXAMPLE))] * 3

    @pytest.mark.parametrize(
        "argument",
        [
            pytest.param(UnverifiedHandoff(b"\xff"), id="no text"),
            pytest.param(UnverifiedHandoff(b"{"), id="no JSON"),
            pytest.param(UnverifiedHandoff(b"[" * 100_000), id="nested without end"),
            pytest.param(UnverifiedHandoff(b"[]"), id="no object"),
            pytest.param(UnverifiedHandoff(b"{}"), id="an empty object"),
            pytest.param("text", id="no handoff"),
            pytest.param(None, id="nothing"),
        ],
    )
    def test_what_is_no_handoff_has_no_trace(self, argument: object) -> None:
        """The gate says what is wrong with it; the trace says nothing."""
        assert extract_trace(argument) is None

    def test_the_sender_is_the_receiver_of_the_handoff_before(self) -> None:
        """S3-5.2-d: by the parent's id and the sender's name, the span of the handoff before is known."""
        trace = extract_trace(UnverifiedHandoff(json.dumps(EXAMPLE).encode()))

        assert trace is not None
        assert trace.previous_id == PARENT_ID
