"""What a durable agent's capability does to a request, without a workflow around it."""

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.profiles import ModelProfile

from baton.agents.pydantic_ai_durable import DurableAgent, UnderContract


class TestUnderContract:
    """A request of a durable agent."""

    async def test_a_providers_tool_is_offered_only_where_it_is_allowed(self) -> None:
        """It runs where nobody could check it, so a model that may not use it is not given it (S5-fields-k)."""
        offered: list[list[str]] = []

        def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            offered.append([tool.kind for tool in info.model_request_parameters.native_tools])
            return ModelResponse(parts=[TextPart("done")])

        model = FunctionModel(answer, profile=ModelProfile(supported_native_tools=frozenset({WebSearchTool})))
        agent = Agent(model, capabilities=[UnderContract(), NativeTool(WebSearchTool())])
        for allowed in ([], ["web_search"]):
            await agent.run("Plan it.", metadata={"tools": allowed, "withheld": [], "handoff_id": "h-1"})
        await agent.run("Plan it.")  # outside a durable agent's run nothing is changed

        assert offered == [[], ["web_search"], ["web_search"]]


class TestDurableAgent:
    """`DurableAgent`."""

    def test_it_takes_no_part_in_a_general_instrumentation(self) -> None:
        """`Agent.instrument_all()` would record each of its activities as an agent, with the text of its prompts."""
        durable: list[Any] = [UnderContract(), TemporalDurability()]
        durable_agent = Agent("test", name="plan", capabilities=durable)
        its_own = Agent("test", name="review", capabilities=durable)
        its_own.instrument = InstrumentationSettings(include_content=False)
        DurableAgent(durable_agent)
        DurableAgent(its_own)

        assert durable_agent.instrument is False
        assert isinstance(its_own.instrument, InstrumentationSettings)
