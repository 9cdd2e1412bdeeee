"""A pipeline whose agent thinks in workflow code: every request to its model is an activity of its own."""

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityConfig

with workflow.unsafe.imports_passed_through():
    import asyncio

    from pydantic import BaseModel
    from pydantic_ai import Agent
    from pydantic_ai.durable_exec.temporal import PydanticAIWorkflow, TemporalDurability
    from pydantic_ai.exceptions import ContentFilterError, ModelHTTPError, UnexpectedModelBehavior
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.settings import ModelSettings

    from baton.agents import AgentLimits, AnswerForm, Notes
    from baton.agents.pydantic_ai_durable import DurableAgent, UnderContract

from baton import Baton, ContinueAfter, ContractTerms, HandoffReport, Pipeline, PipelineResult, StageContext, stage
from baton.core.messages import PipelineInput
from baton.report.records import Readiness, Status
from baton.report.rendering import render_report
from baton.wire.money import Price

ANSWER = {"baton_patch": {"current_state": ["Found out"], "decision_log": ["Ask the customer"]}}
ONCE = ActivityConfig(start_to_close_timeout=timedelta(seconds=60), retry_policy=RetryPolicy(maximum_attempts=1))
REQUESTS: list[list[ModelMessage]] = []
"""What the model was asked, in order."""
HEADERS: list[dict[str, str]] = []
"""What headers its requests had, in order."""
KEY = "sk-durable-0123456789"
HALF = chr(0xD83D)
"""Half a character, which JSON can spell and no payload can hold."""
OVERDONE = {"baton_patch": {"goal": "Something else"}}
CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "looks": [("lookup", {"customer": "c-1"})],
    "sends": [("send", {"to": "ann"})],
    "waits": [("lookup", {"customer": "slow"})],
    "halves": [("lookup", {"customer": "half"})],
    "breaks": [("lookup", {"customer": "broken"})],
    "twins": [("lookup", {"customer": "c-1"}), ("lookup", {"customer": "c-2"})],
    "studies": [
        ("read_artifact", {"id": "handoff_report", "offset": 3, "limit": 15}),
        ("read_artifact", {"id": "draft", "offset": 3, "limit": 15}),
    ],
    "noted": [
        ("lookup", {"customer": "c-1"}),
        ("note_decision", {"text": "Offer 10 %"}),
        ("open_question", {"text": "Since when?"}),
        ("consider", {"text": "A bot?"}),
        ("reject", {"text": "A refund"}),
    ],
    "reads": [
        ("read_artifact", {"id": "draft", "offset": 30_000, "limit": 5}),
        ("read_artifact", {"id": "notes", "offset": 20_000, "limit": 50_000}),
        ("read_artifact", {"id": "secret"}),
    ],
}
"""What the model calls first, by the wish in its instructions."""
TYPED: dict[str, Any] = {
    "output": {"customer": "c-1", "pays": 20},
    "decided": ["Offer 10 %, because they pay late"],
    "thought": ["A bot?"],
}
"""The answer of the model whose output has a type."""
NOTED = Notes(decided=["Say batons, because runners do"], thoughts=["Perhaps a poem?"])
"""What the model notes below its text, once it is asked."""


class Facts(BaseModel):
    """What is known of a customer."""

    customer: str
    pays: int
    owes: int = 0


REPORT = HandoffReport(
    sender="reports",
    receiver="studies",
    task="Look",
    status=Status.COMPLETED,
    confidence=85,
    summary="It is old.",
    readiness=Readiness.YES,
)
"""What a stage answers with, and a durable agent too."""


async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call a tool once, then answer; one takes longer over its answer than a run may."""
    REQUESTS.append(messages)
    HEADERS.append({**(info.model_settings or {}).get("extra_headers", {})})
    wishes = info.instructions or ""
    if "refused" in wishes:
        raise ModelHTTPError(401, "house-1", body={"error": {"message": f"no such key: {KEY}"}})
    if "garbled" in wishes:
        raise UnexpectedModelBehavior("Invalid response: input_value", KEY)
    if "filtered" in wishes:
        raise ContentFilterError(f"Content filter triggered. Refusal: {KEY!r}", body=KEY)
    if "empty" in wishes:
        raise IndexError(KEY)
    if "refuses" in wishes:
        return ModelResponse(parts=[TextPart("I will not")], finish_reason="content_filter")
    if "long" in wishes:
        return ModelResponse(parts=[TextPart("The plan has 1")], finish_reason="length")
    if "overdoes" in wishes:
        return ModelResponse(parts=[ToolCallPart("final_result", OVERDONE)])
    if "typed" in wishes:
        wrong = {"output": {"customer": "c-1", "pays": "much"}}
        return ModelResponse(parts=[ToolCallPart("final_result", wrong if len(messages) == 1 else TYPED)])
    if "writes" in wishes:
        bare = "Batons travel."
        return ModelResponse(parts=[TextPart(bare if len(messages) == 1 else f"{bare}\n\n{NOTED.render()}")])
    if "reporting" in wishes:
        return ModelResponse(parts=[TextPart("Done." if len(messages) == 1 else render_report(REPORT))])
    if "owns" in wishes:
        return ModelResponse(parts=[ToolCallPart("final_result", TYPED["output"])])
    if len(messages) == 1:
        if "errs" in wishes:
            return ModelResponse(parts=[ToolCallPart("final_result", {"baton_patch": {"constraints": ["None"]}})])
        wish = next((name for name in CALLS if name in wishes), "looks")
        content = f"One moment{HALF if wish == 'halves' else ''}."
        ids: list[dict[str, Any]] = [{"tool_call_id": "x"} if wish == "twins" else {} for _ in CALLS[wish]]
        calls = [ToolCallPart(*call, **id) for call, id in zip(CALLS[wish], ids, strict=True)]
        return ModelResponse(parts=[TextPart(content), *calls])
    await asyncio.sleep(30 if "ponders" in wishes else 1.1 if "lasts" in wishes else 0)
    return ModelResponse(parts=[ToolCallPart("final_result", ANSWER)])


PRICE = Price(input=1, output=10)


def make_agent(name: str, instructions: str, limits: AgentLimits | None = None, **terms: Any) -> DurableAgent:
    """Return a durable agent with two tools, of which it may not send."""
    agent = Agent(
        FunctionModel(respond),
        name=name,
        capabilities=[UnderContract(), TemporalDurability(activity_config=ONCE)],
        model_settings=ModelSettings(extra_headers={"X-Gateway": "house"}),
        output_type=terms.pop("output_type", str),
    )

    @agent.tool_plain
    async def lookup(customer: str) -> str:
        """Find what a customer pays; one of them takes longer than a run may."""
        await asyncio.sleep(30 if customer == "slow" else 0)
        if customer == "broken":
            raise RuntimeError("the register is down")
        if customer == "half":
            customer += HALF
        return f"{customer} pays 20 USD"

    @agent.tool_plain
    async def send(to: str) -> str:
        """Send a mail."""
        raise AssertionError("a denied tool ran")

    writes = ["goal", "current_state", "decision_log"]
    forbids = ["send", *terms.pop("forbids", ())]
    return DurableAgent(
        agent, instructions=instructions, limits=limits, forbids=forbids, writes=writes, price=PRICE, **terms
    )


LOOKS = make_agent("looks", "You plan: looks.")
SENDS = make_agent("sends", "You plan: sends.")
LIMITED = make_agent("limited", "You plan: looks.", AgentLimits(requests=1))
ERRS = make_agent("errs", "You plan: errs.")
REFUSED = make_agent("refused", "You plan: refused.")
OVERDOES = make_agent("overdoes", "You plan: overdoes.")
WAITS = make_agent("waits", "You plan: waits.", AgentLimits(seconds=1.0))
HALVES = make_agent("halves", "You plan: halves.")
GARBLED = make_agent("garbled", "You plan: garbled.")
TWINS = make_agent("twins", "You plan: twins.")
BREAKS = make_agent("breaks", "You plan: breaks.")
FILTERED = make_agent("filtered", "You plan: filtered.")
EMPTY = make_agent("empty", "You plan: empty.")
REFUSES = make_agent("refuses", "You plan: refuses.")
LONG = make_agent("long", "You plan: long.")
STOPPED = make_agent("stopped", "You plan: waits.")
PONDERS = make_agent("ponders", "You plan: ponders.")
HURRIES = make_agent("hurries", "You plan: ponders.", AgentLimits(seconds=2.0))
ALL = (LOOKS, SENDS, LIMITED, ERRS, REFUSED, OVERDOES, WAITS, HALVES, GARBLED, BREAKS, FILTERED, EMPTY, REFUSES, LONG)
LASTS = make_agent("lasts", "You plan: lasts.")
READS = make_agent("reads", "You plan: reads.", window=8_000)
STUDIES = make_agent("studies", "You plan: studies.")
MAY_NOT_READ = make_agent("may_not_read", "You plan: reads.", window=8_000, forbids=["read_artifact"])
TYPES = make_agent("typed", "You plan: typed.", answers=Facts)
OWNS = make_agent("owns", "You plan: owns.", output_type=Facts)
WRITES = make_agent("writing", "You plan: writes.", answers=AnswerForm.TEXT, notes="required")
REPORTS = make_agent("reporting", "You plan: reporting.", answers=AnswerForm.REPORT)
NOTES = make_agent("notes", "You plan: noted.")
ANSWERING = (TYPES, OWNS, NOTES, WRITES, REPORTS)
AGENTS = {
    agent.name: agent
    for agent in (
        *ALL,
        TWINS,
        STOPPED,
        PONDERS,
        HURRIES,
        LASTS,
        READS,
        MAY_NOT_READ,
        STUDIES,
        TYPES,
        OWNS,
        NOTES,
        WRITES,
        REPORTS,
    )
}


@stage
async def reports(context: StageContext[Baton]) -> HandoffReport:
    """Answer with a report."""
    return REPORT


@workflow.defn
class Thinks(PydanticAIWorkflow):
    """One durable agent, under a contract."""

    __pydantic_ai_agents__ = tuple(durable.agent for durable in AGENTS.values())

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms(), protected=["goal"])

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        agent = AGENTS[str(start.params.get("agent", "looks"))]
        if agent is STUDIES:
            await self.pipeline.stage(reports)
        result = await agent.run(self.pipeline, inputs=self.pipeline.inputs)
        return self.pipeline.result(result.output)


@workflow.defn
class ThinksLong(PydanticAIWorkflow):
    """A durable agent, whose conversation makes the history so long that the run continues as new."""

    __pydantic_ai_agents__ = (LASTS.agent,)

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms(), continue_after=ContinueAfter(events=25))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        for _ in range(2):
            await LASTS.run(self.pipeline)
        return self.pipeline.result({"runs": start.continued})


@workflow.defn
class Delegates:
    """A pipeline that has the durable agent as its child."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.child(Thinks.run, "Plan the login")
        return self.pipeline.result()


DURABLE_PIPELINES = [Thinks, ThinksLong, Delegates]
DURABLE_STAGES: list[Any] = [reports, *(stage for agent in AGENTS.values() for stage in agent.stages)]
