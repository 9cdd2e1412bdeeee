"""A pipeline whose agent thinks in workflow code: every request to its model is an activity of its own."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from pydantic_ai import Agent
    from pydantic_ai.durable_exec.temporal import PydanticAIWorkflow, TemporalDurability
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from baton.integrations.pydantic_ai_durable import DurableAgent, UnderContract

from baton.protocol.messages import PipelineInput, PipelineResult
from baton.workflow import ContractTerms, Pipeline

ANSWER = {"baton_patch": {"current_state": ["Found out"], "decision_log": ["Ask the customer"]}}
REQUESTS: list[list[ModelMessage]] = []
"""What the model was asked, in order."""
CALLS = {"looks": ("lookup", {"customer": "c-1"}), "sends": ("send", {"to": "ann"})}
"""What the model calls first, by the wish in its instructions."""


def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call a tool once, then answer."""
    REQUESTS.append(messages)
    if len(messages) == 1:
        wish = "sends" if "sends" in (info.instructions or "") else "looks"
        return ModelResponse(parts=[TextPart("One moment."), ToolCallPart(*CALLS[wish])])
    return ModelResponse(parts=[ToolCallPart("final_result", ANSWER)])


def made(name: str, instructions: str) -> DurableAgent:
    """Return a durable agent with two tools, of which it may not send."""
    agent = Agent(FunctionModel(respond), name=name, capabilities=[UnderContract(), TemporalDurability()])

    @agent.tool_plain
    async def lookup(customer: str) -> str:
        """Find what a customer pays."""
        return f"{customer} pays 20 USD"

    @agent.tool_plain
    async def send(to: str) -> str:
        """Send a mail."""
        raise AssertionError("a denied tool ran")

    return DurableAgent(agent, instructions=instructions, forbids=["send"], writes=["current_state", "decision_log"])


LOOKS = made("looks", "You plan: looks.")
SENDS = made("sends", "You plan: sends.")


@workflow.defn
class Thinks(PydanticAIWorkflow):
    """One durable agent, under a contract."""

    __pydantic_ai_agents__ = (LOOKS.agent, SENDS.agent)

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Let it think."""
        agent = SENDS if start.params.get("agent") == "sends" else LOOKS
        result = await agent.run(self.pipeline)
        return self.pipeline.result(result.output)


@workflow.defn
class Delegates:
    """A pipeline that has the durable agent as its child."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Have it done."""
        await self.pipeline.child(Thinks.run, "Plan the login")
        return self.pipeline.result()


DURABLE_PIPELINES = [Thinks, Delegates]
DURABLE_STAGES = [*LOOKS.stages, *SENDS.stages]
