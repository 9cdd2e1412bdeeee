"""An agent that is asked as a tool of another: no contract guards its tools, and what it says is a model's."""

from collections.abc import Callable
from typing import Any

import pytest
from agents import Agent as SdkAgent
from agents import Runner, function_tool
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio.exceptions import ApplicationError

from baton import Baton, StageContext
from baton.agents import AgentTool, DurableAgent, UnderContract, agent_stage
from baton.agents.langgraph import LangGraphAgent
from baton.agents.openai_agents import OpenAIAgent
from baton.agents.pydantic_ai import PydanticAgent
from baton.contract.activity import SessionLog, ToolAnswer, Toolbox
from baton.contract.compiler import compile_contract, derive_confidence
from baton.contract.records import Confidence, EventType
from tests.agents.material import BATON, context, contract
from tests.contract.contract_material import request

SENT: list[str] = []


def scripted(*answers: Any) -> FunctionModel:
    """Return a model that answers with these parts, one after the other."""
    left = list(answers)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([left.pop(0)])

    return FunctionModel(answer)


helper = Agent(name="helper")


@helper.tool_plain(name="email_send")
def send(to: str) -> str:
    """Send a mail, which the contract of the tests forbids."""
    SENT.append(to)
    return "sent"


def helping() -> FunctionModel:
    """Return a model that sends a mail."""
    return scripted(ToolCallPart("email_send", {"to": "jane"}), TextPart("I sent it."))


async def ask(question: str) -> str:
    """Ask the helper."""
    return (await helper.run(question, model=helping())).output


async def ask_made(question: str) -> str:
    """Ask a helper that nothing refers to before."""
    return (await Agent(scripted(TextPart("I know.")), name="made").run(question)).output


async def ask_indirectly(question: str) -> str:
    """Have another function ask the helper."""
    return await ask(question)


class Desk:
    """Holds a helper."""

    def __init__(self) -> None:
        self.helper = helper

    async def ask(self, question: str) -> str:
        """Ask it."""
        return (await self.helper.run(question, model=helping())).output


def asking(tool_name: str = "ask") -> FunctionModel:
    return scripted(ToolCallPart(tool_name, {"question": "Send it"}), ToolCallPart("final_result", {"baton_patch": {}}))


def own_tool(function: Callable[..., Any]) -> Any:
    """Return a stage of an agent that has the function as a tool of its own."""
    agent = Agent(asking(), name="plan")
    agent.tool_plain(name="ask")(function)
    return agent_stage(PydanticAgent(agent))


def stage_tool(function: Callable[..., Any]) -> Any:
    """Return a stage that gives its agent the function as a tool."""
    return agent_stage(PydanticAgent(Agent(asking(), name="plan")), tools=[AgentTool.of(function, name="ask")])


@pytest.mark.parametrize("make", [own_tool, stage_tool])
class TestPydanticAgent:
    @pytest.mark.parametrize("function", [ask, ask_indirectly, Desk().ask])
    async def test_is_refused_before_it_calls_a_tool(self, make: Any, function: Any) -> None:
        """`email.send` is forbidden, and the helper's tools are not the stage's."""
        SENT.clear()
        with pytest.raises(ApplicationError, match="'ask' runs the agent 'helper', whose own tools no contract guards"):
            await make(function)(context(contract(["ask"], ["email.send"])))
        assert SENT == []

    async def test_what_it_says_is_withheld_where_it_cannot_be_seen_before(self, make: Any) -> None:
        """An agent that the tool makes."""
        with pytest.raises(ApplicationError, match="'ask' runs another agent"):
            await make(ask_made)(context(contract(["ask"], ["email.send"])))

    async def test_may_do_as_it_likes_where_nothing_is_forbidden(self, make: Any) -> None:
        """A pipeline without contracts promises nothing."""
        SENT.clear()
        await make(ask)(StageContext.for_test(BATON))
        assert SENT == ["jane"]


async def test_a_durable_agent_that_runs_one_is_refused_when_it_is_handed_the_task() -> None:
    """The framework shows nobody what runs in the activity of a tool."""
    capabilities: list[Any] = [UnderContract(), TemporalDurability()]
    durable = DurableAgent(Agent(asking(), name="plan", tools=[ask], capabilities=capabilities))

    with pytest.raises(ApplicationError, match="'ask' runs the agent 'helper'"):
        await durable.stages[0](context(contract(["ask"])))


async def test_a_function_of_the_sdk_that_runs_an_agent_is_refused() -> None:
    inner = SdkAgent("inner")

    @function_tool(name_override="ask")
    async def ask_inner(question: str) -> str:
        """Ask."""
        return str((await Runner.run(inner, question)).final_output)

    with pytest.raises(ApplicationError, match="'ask' runs the agent 'inner', whose own tools no contract guards"):
        await agent_stage(OpenAIAgent(SdkAgent("outer", tools=[ask_inner])))(context(contract(["ask"])))


async def test_the_words_of_a_model_in_a_tool_of_a_graph_are_no_certain_fact() -> None:
    """Only a tool that asked no model is certain."""
    inner = GenericFakeChatModel(messages=iter([AIMessage("I think so.")]))

    @tool
    async def ask_model(question: str) -> str:
        """Ask a model."""
        return str((await inner.ainvoke(question)).content)

    @tool
    async def look_up(question: str) -> str:
        """Ask nobody."""
        return "It is so."

    async def work(state: MessagesState) -> dict[str, Any]:
        for asked in (ask_model, look_up):
            await asked.ainvoke({"question": "Is it?"})
        return {"messages": [AIMessage("done")]}

    graph = StateGraph(MessagesState).add_node("work", work).add_edge(START, "work").compile()
    stage_context = StageContext.for_test(Baton(goal="Ask"))
    await agent_stage(LangGraphAgent(graph, into={"messages": "messages"}, out={}, uses=["ask_model", "look_up"]))(
        stage_context
    )
    results = [event for event in stage_context.session.events if event.type is EventType.TOOL_RESULT]
    assert [(event.tool_name, derive_confidence(event)) for event in results] == [
        ("ask_model", Confidence.MEDIUM),
        ("look_up", Confidence.HIGH),
    ]


async def test_a_tool_can_say_that_a_model_wrote_its_result() -> None:
    """Nobody else can know it of a function."""
    log = SessionLog("research", "1.1", "h-1")
    await Toolbox(None, log, "h-1").call("ask", lambda: ToolAnswer("Yes", "It is so.", by_model=True))
    [fact] = compile_contract(log.events, request(created_at=log.events[-1].at)).contract.facts

    assert fact.confidence is Confidence.MEDIUM
