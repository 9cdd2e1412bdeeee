"""Spans against the registry of the GenAI conventions: each name and value is one of theirs, or Baton's own."""

import json
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes
from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import GenAiOperationNameValues

from baton import Spend
from baton.contract.activity import SessionLog, ToolAnswer, Toolbox
from baton.core.messages import StageReturn
from tests.collector import Collector, attributes, collecting
from tests.contract.contract_material import end_session
from tests.handoff.material import TASK_ID
from tests.telemetry.test_tracing import WHERE, recording, told

NEWER = {"gen_ai.caller.name", "gen_ai.caller.type", "gen_ai.transfer.mode", "gen_ai.transfer.target.name"}
"""What semantic-conventions-genai has and the last package before it, whose constants are used here, has not."""
VALUES = {
    "gen_ai.operation.name": {operation.value for operation in GenAiOperationNameValues},
    "gen_ai.caller.type": {"agent", "workflow"},
    "gen_ai.transfer.mode": {"return_to_caller", "pass_control"},
    "gen_ai.tool.type": {"function", "extension", "datastore"},
}
REGISTRY = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")} | NEWER
CAPTURE = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"}


def toolbox(**options: Any) -> Toolbox:
    return Toolbox(None, SessionLog("score", "1", "h-1"), "h-1", **options)


async def recorded(environment: dict[str, str], how: str = "kept") -> Collector:
    """Return what a start, a handoff, a stage and its tools record."""
    tools = toolbox()
    with collecting() as collector:
        with recording(collector, **environment) as tracing:
            with tracing.pipeline_start("Review", "w1", TASK_ID, None):
                pass
            with tracing.stage("score", told(), WHERE, 1) as stage:
                await tools.call("crm.lookup", lambda: ToolAnswer("4", "It costs 4"))
                with pytest.raises(ValueError, match="no"):
                    await tools.call("crm.fail", fails)
                await end_session(how)
                stage.record_result(StageReturn(stage="score", seq=3, spend=Spend(micro_usd=5)))
        return collector


async def fails() -> None:
    raise ValueError("no")


def names(spans: list[Span]) -> dict[str, dict[str, Any]]:
    return {span.name: attributes(span.attributes) for span in spans}


class TestConvention:
    async def test_each_name_and_value_is_one_of_the_registry(self) -> None:
        """What is not `gen_ai.…` is Baton's own, Temporal's, or an error's type."""
        for span in (await recorded(CAPTURE)).spans:
            found = attributes(span.attributes)
            of_genai = {name for name in found if name.startswith("gen_ai.")}

            assert of_genai - REGISTRY == set()
            assert {name for name in of_genai & VALUES.keys() if found[name] not in VALUES[name]} == set()
            others = {name for name in found if not name.startswith(("gen_ai.", "baton.", "temporal"))}
            assert others <= {error_attributes.ERROR_TYPE}

    async def test_spans_are_named_by_operation_and_subject(self) -> None:
        """A run, its stages and their tools, each of the operation that its name begins with."""
        spans = names((await recorded({})).spans)
        of_genai = {name: found for name, found in spans.items() if "gen_ai.operation.name" in found}

        subject = {"execute_tool": "gen_ai.tool.name"}
        for name, found in of_genai.items():
            operation = found["gen_ai.operation.name"]
            assert name == f"{operation} {found[subject.get(operation, 'gen_ai.agent.name')]}"
        assert [found["gen_ai.operation.name"] for found in of_genai.values()].count("execute_tool") == 2
        assert {"invoke_workflow Review", "invoke_agent score"} <= of_genai.keys()

    async def test_a_handoff_passes_control_and_names_its_caller(self) -> None:
        """From whom, to whom, and whether an agent or the pipeline hands on."""
        spans = names((await recorded({})).spans)
        handoff = spans["handoff legal-analysis-agent to risk-scoring-agent"]

        assert (handoff["gen_ai.transfer.mode"], handoff["gen_ai.transfer.target.name"]) == (
            "pass_control",
            "risk-scoring-agent",
        )
        assert spans["invoke_agent score"]["gen_ai.caller.type"] == "agent"

    @pytest.mark.parametrize(
        "members",
        [
            pytest.param({"parentHandoffId": None, "initial": True}, id="the first of a run"),
            pytest.param({"step": {"follows": "b7ad6b7169203331"}}, id="the first of a child"),
        ],
    )
    def test_a_pipeline_is_a_caller_too(self, members: dict[str, Any]) -> None:
        """Its first agent is called by nobody else."""
        assert told(**members).from_pipeline

    async def test_a_tool_is_below_its_stage_and_fails_by_type(self) -> None:
        """With the call's id, which the transcript has too; without arguments and results."""
        collector = await recorded({})
        stage, tool = collector.span("invoke_agent score"), collector.span("execute_tool crm.fail")

        assert tool.parent_span_id == collector.span("execute_tool crm.lookup").parent_span_id == stage.span_id
        assert tool.status.code == Status.STATUS_CODE_ERROR
        assert attributes(tool.attributes)["error.type"] == "ValueError"
        assert attributes(tool.attributes)["gen_ai.tool.call.id"]

    async def test_what_a_tool_records_is_below_it(self) -> None:
        """A synchronous one in a thread, or one that is awaited."""
        tools = toolbox()
        with collecting() as collector:
            with recording(collector) as tracing, tracing.stage("score", told(), WHERE, 1):
                tracer = tracing.provider.get_tracer("a library")

                async def awaited() -> None:
                    with tracer.start_as_current_span("GET /b"):
                        pass

                def plain() -> None:
                    with tracer.start_as_current_span("GET /a"):
                        pass

                await tools.call("plain", plain)
                await tools.call("awaited", awaited)

            for tool, inner in (("plain", "GET /a"), ("awaited", "GET /b")):
                assert collector.span(inner).parent_span_id == collector.span(f"execute_tool {tool}").span_id


class TestContent:
    @pytest.mark.parametrize("value", ["", "false", "NO_CONTENT", "EVENT_ONLY", "yes"])
    async def test_nothing_is_recorded_unless_it_is_switched_on(self, value: str) -> None:
        """A collector stores in clear what Temporal may encrypt."""
        variable = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
        sent = b"".join(span.SerializeToString() for span in (await recorded({variable: value})).spans)

        assert not any(text in sent for text in (b"Be brief", b"Score it", b"High", b"It costs 4"))

    @pytest.mark.parametrize("value", ["true", "SPAN_ONLY", "span_and_event"])
    async def test_switched_on_it_has_the_conventions_form(self, value: str) -> None:
        """Instructions, what was asked, and the answer."""
        collector = await recorded({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": value})
        found = attributes(collector.span("invoke_agent score").attributes)

        assert json.loads(found["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief"}]
        assert json.loads(found["gen_ai.input.messages"]) == [
            {"role": "user", "parts": [{"type": "text", "content": "Score it"}]},
            {"role": "assistant", "parts": [{"type": "reasoning", "content": "Hm"}]},
        ]
        assert json.loads(found["gen_ai.output.messages"]) == [
            {"role": "assistant", "parts": [{"type": "text", "content": "High"}], "finish_reason": "stop"}
        ]

    @pytest.mark.parametrize("how", ["not kept", "sealed"])
    async def test_what_a_transcript_does_not_keep_in_clear_is_in_no_span(self, how: str) -> None:
        """A stage that keeps nothing, or seals it as of personal data, has no other place where it is read."""
        sent = b"".join(span.SerializeToString() for span in (await recorded(CAPTURE, how)).spans)

        assert not any(text in sent for text in (b"Be brief", b"Score it", b"High"))
