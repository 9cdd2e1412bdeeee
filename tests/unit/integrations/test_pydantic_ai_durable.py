"""What a durable agent's capability does to a request, without a workflow around it."""

from pydantic_ai import Agent
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.profiles import ModelProfile

from baton.agents.pydantic_ai_durable import UnderContract


class TestUnderContract:
    """A request of a durable agent."""

    async def test_a_providers_tool_is_offered_only_where_it_is_allowed(self) -> None:
        """It runs where nobody could check it, so a model that may not use it is not given it (S5-fields-k)."""
        offered: list[list[str]] = []

        def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            offered.append([one.kind for one in info.model_request_parameters.native_tools])
            return ModelResponse(parts=[TextPart("done")])

        model = FunctionModel(answer, profile=ModelProfile(supported_native_tools=frozenset({WebSearchTool})))
        agent = Agent(model, capabilities=[UnderContract(), NativeTool(WebSearchTool())])
        for allowed in ([], ["web_search"]):
            await agent.run("Plan it.", metadata={"tools": allowed, "withheld": [], "handoff_id": "h-1"})
        await agent.run("Plan it.")  # outside a durable agent's run nothing is changed

        assert offered == [[], ["web_search"], ["web_search"]]
