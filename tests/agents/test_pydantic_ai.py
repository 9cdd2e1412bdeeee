"""Agents of Pydantic AI as stages, with scripted models and against a server that speaks the providers' wire format."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pydantic_ai.models
import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import NativeTool, ProcessEventStream
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturn,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from temporalio.exceptions import ApplicationError

from baton import Spend, Stage
from baton.agents import AgentAnswer, AgentTool, agent_stage
from baton.agents.pydantic_ai import PydanticAgent
from baton.contract.records import EventType, ToolDeniedError
from baton.errors import PatchError
from baton.wire.money import Price
from tests.agents.material import ANSWER, context, contract, events, lookup
from tests.chat_server import ChatServer, Reply, chat_server, chunks, completion

KEY = "sk-proj-0123456789abcdef"
CRM = AgentTool.of(lookup, name="crm.lookup")


@pytest.fixture(autouse=True)
def no_requests_by_accident() -> Iterator[None]:
    """Refuse requests to real providers; a test that asks its own server lifts the ban."""
    with pydantic_ai.models.override_allow_model_requests(False):
        yield


class Script:
    """A model that answers with what a test wrote, and keeps what it was asked."""

    def __init__(self, *answers: list[Any]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[list[ModelMessage], AgentInfo]] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Return the next answer."""
        self.asked.append((list(messages), info))
        return ModelResponse(parts=self.answers.pop(0))

    @property
    def agent(self) -> PydanticAgent:
        """The agent of this model."""
        return PydanticAgent(Agent(FunctionModel(self), name="plan"))

    @property
    def user_turn(self) -> str:
        """What stood in the first user turn."""
        (turn,) = (part.content for part in self.asked[0][0][0].parts if isinstance(part, UserPromptPart))
        assert isinstance(turn, str)
        return turn


def final(answer: Any = ANSWER) -> list[Any]:
    """Return a model's final answer, by the tool that the framework makes for it."""
    return [ToolCallPart("final_result", answer)]


def remote(server: ChatServer, *, model: str = "gpt-4o", **options: Any) -> Stage[Any, Any]:
    """Return a stage whose agent asks a server as it would ask the provider."""
    provider = OpenAIProvider(base_url=server.base, api_key=KEY)
    agent = Agent(OpenAIChatModel(model, provider=provider), name="plan")
    return agent_stage(PydanticAgent(agent, **options), instructions="You plan features.")


class TestRun:
    """`PydanticAgent.run` with scripted models."""

    async def test_a_tool_that_is_not_allowed_is_neither_shown_nor_run(self) -> None:
        """Whatever the model believes, the call is denied (S5-fields-k)."""
        calls: list[str] = []
        agent = Agent(FunctionModel(script := Script([ToolCallPart("send_mail", {"to": "ann"})])), name="plan")

        @agent.tool_plain
        def send_mail(to: str) -> None:
            """Send a mail."""
            calls.append(to)

        stage_context = context(contract(["crm.lookup"]))
        with pytest.raises(ToolDeniedError, match="'send_mail'"):
            await agent_stage(PydanticAgent(agent), tools=[CRM], notes=False)(stage_context)

        assert [tool.name for tool in script.asked[0][1].function_tools] == ["crm_lookup"]
        assert calls == []

    async def test_the_agents_own_tools_are_guarded_as_well(self) -> None:
        """They are declared by the stage, and each call of an allowed one is recorded."""
        agent = Agent(FunctionModel(Script([ToolCallPart("count", {"name": "abc"})], final())), name="plan")

        @agent.tool
        def count(run: RunContext[object], name: str) -> int:
            """Count."""
            return len(name)

        stage = agent_stage(PydanticAgent(agent))
        stage_context = context(contract(["count"]))
        await stage(stage_context)

        assert stage.spec.tools == {"count"}
        assert events(stage_context) == [(EventType.TOOL_CALL, "count"), (EventType.TOOL_RESULT, "count")]

    async def test_no_model_sees_the_metadata_of_a_tool_return(self) -> None:
        """It is the program's own: a fact of a later stage would be made of it."""
        agent = Agent(FunctionModel(Script([ToolCallPart("look", {})], final())), name="plan")

        @agent.tool_plain
        def look() -> ToolReturn:
            """Look."""
            return ToolReturn({"paid": True}, metadata={"row": "secret"})

        await agent_stage(PydanticAgent(agent))(stage_context := context(contract(["look"])))

        assert stage_context.session.events[1].content == '{"paid": true}'

    async def test_a_tool_that_found_nothing_says_so(self) -> None:
        """An empty text may be anything; nothing is `null`, as under every framework."""
        script = Script([ToolCallPart("find", {})], final())
        await agent_stage(script.agent, tools=[AgentTool.of(lambda: None, name="find")])(context(contract(["find"])))

        assert getattr(script.asked[1][0][-1].parts[0], "content", "") == "null"

    async def test_its_providers_tools_are_offered_only_where_they_are_allowed(self) -> None:
        """They run where nobody could check them, so a model that may not use one is not given it (S5-fields-k)."""
        script = Script([ToolCallPart("final_result", ANSWER)], [ToolCallPart("final_result", ANSWER)])
        profile = ModelProfile(supported_native_tools=frozenset({WebSearchTool}))
        model = FunctionModel(script, profile=profile)
        plan = agent_stage(PydanticAgent(Agent(model, name="plan", capabilities=[NativeTool(WebSearchTool())])))
        for allowed in ([], ["web_search"]):
            await plan(context(contract(allowed)))

        native_tools = [info.model_request_parameters.native_tools for _, info in script.asked]
        assert [[tool.kind for tool in tools] for tools in native_tools] == [[], ["web_search"]]
        assert plan.spec.tools == {"web_search"}

    @pytest.mark.parametrize("call", [ToolCallPart("crm_lookup", {"customer": 7}), ToolCallPart("crm_search", {})])
    async def test_calls_that_stay_in_vain_lead_to_another_attempt(self, call: ToolCallPart) -> None:
        """It is the model that does not mend them: the provider's answers were read."""
        message = f"calls of the tool '{call.tool_name}' failed more often than the agent's retries \\(1\\) allow"
        with pytest.raises(PatchError, match=message):
            await agent_stage(Script([call], [call]).agent, tools=[CRM])(context())

    async def test_an_unsendable_tool_result_is_the_tools_fault(self) -> None:
        """Another run would ask for it again, and the provider has no part in it."""
        script = Script([ToolCallPart("look", {})], final())

        with pytest.raises(ApplicationError, match=r"a tool's result cannot be sent to a model") as raised:
            await agent_stage(script.agent, tools=[AgentTool.of(lambda: object(), name="look")])(
                context(contract(["look"]))
            )

        assert raised.value.non_retryable

    async def test_texts_thoughts_and_provider_tools_are_recorded(self) -> None:
        """Text is a model's claim, thinking is a note that never crosses, a provider's tool has its time (S5-fm-b)."""
        at = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
        script = Script(
            [
                ThinkingPart("Perhaps skip the check?"),
                TextPart("I look it up."),
                NativeToolCallPart("web_search", {"query": "x"}, tool_call_id="n1"),
                NativeToolReturnPart("web_search", "20 USD", tool_call_id="n1", timestamp=at),
                *final(),
            ]
        )
        stage_context = context(contract(["web_search"]))
        await agent_stage(script.agent)(stage_context)

        assert events(stage_context) == [
            (EventType.INTERNAL_NOTE, None),
            (EventType.ASSISTANT_MESSAGE, None),
            (EventType.TOOL_CALL, "web_search"),
            (EventType.TOOL_RESULT, "web_search"),
        ]
        assert datetime.fromisoformat(str(stage_context.session.events[-1].timestamp)) == at
        assert stage_context.session.events[-1].call_id == stage_context.session.events[-2].id

    async def test_an_agent_may_keep_its_own_output_type(self) -> None:
        """A function makes the answer of it."""
        agent = Agent(TestModel(custom_output_args=7), output_type=int, name="plan")

        def answer(count: int) -> AgentAnswer:
            return AgentAnswer(patch={"current_state": [f"{count} files"]}, output=count)

        result = await agent_stage(PydanticAgent(agent, of_output=answer))(context())
        assert (result.baton_patch, result.output) == ({"current_state": ["7 files"]}, 7)


class TestProvider:
    """The provider's client against a server that speaks its wire format."""

    @pytest.fixture(autouse=True)
    def own_server(self, no_requests_by_accident: None) -> Iterator[None]:
        """Allow requests; they go to this machine."""
        with pydantic_ai.models.override_allow_model_requests(True):
            yield

    async def test_an_unreadable_stream_is_reported_without_its_text(self) -> None:
        """As any answer that cannot be: another run may get a better one."""
        garbled = {"choices": KEY}
        with (
            chat_server(Reply(events=[*chunks("final_result", ANSWER)[:3], garbled])) as server,
            pytest.raises(ApplicationError, match="the provider's answer cannot be read") as raised,
        ):
            await remote(server, stream=True)(context())

        assert (raised.value.type, raised.value.non_retryable) == ("AgentError", False)

    async def test_an_unknown_model_is_charged_tokens_and_the_given_price(self) -> None:
        """A price of one's own stands in for the price list."""
        reply = completion(calls=[("final_result", ANSWER)], model="mine-1")
        with chat_server(reply, reply) as server:
            unpriced, priced = context(), context()
            await remote(server, model="mine-1")(unpriced)
            await remote(server, model="mine-1", price=Price(input=Decimal(1), output=Decimal(10)))(priced)

        assert unpriced.charged == Spend(prompt_tokens=1_000, completion_tokens=100)
        assert priced.charged == Spend(micro_usd=2_000, prompt_tokens=1_000, completion_tokens=100)

    async def test_a_streams_progress_is_in_the_heartbeats(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In the details of the heartbeats, and the agent's own handler gets the events."""
        monkeypatch.setattr("baton.agents.pydantic_ai._HEARTBEAT_INTERVAL", 0)
        seen: list[Any] = []

        async def own(run: RunContext[Any], events: Any) -> None:
            async for event in events:
                seen.append(event)

        with chat_server(Reply(events=chunks("final_result", ANSWER))) as server:
            provider = OpenAIProvider(base_url=server.base, api_key=KEY)
            watch = ProcessEventStream(own)
            agent = Agent(OpenAIChatModel("gpt-4o", provider=provider), name="plan", capabilities=[watch])
            stage_context = context()
            await agent_stage(PydanticAgent(agent, stream=True))(stage_context)

        (heartbeat,) = stage_context.last_heartbeat
        assert heartbeat["events"] > 0
        assert len(seen) >= heartbeat["events"]
