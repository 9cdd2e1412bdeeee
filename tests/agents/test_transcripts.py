"""What an agent was asked and answered is kept as one record, whatever its framework."""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pydantic_ai.models
import pytest
from agents import Agent as OpenAISdkAgent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from baton import Baton, MemoryArtifactStore, Spend, StageContext
from baton.agents import Agent as Port
from baton.agents import AgentAnswer, AgentTool, AgentWork, agent_stage
from baton.agents.chat_completions import chat_agent
from baton.agents.langgraph import LangGraphAgent
from baton.agents.openai_agents import OpenAIAgent, provider
from baton.agents.pydantic_ai import PydanticAgent
from baton.agents.subprocess_agent import SubprocessAgent
from baton.client import Transcript
from baton.client.faces import moments, read_transcripts
from tests.agents.material import PATCH, lookup
from tests.chat_server import ChatServer, chat_server, completion

GOOD = json.dumps({"baton_patch": PATCH})
CRM = AgentTool.of(lookup, name="crm.lookup")
SYSTEM = "Be brief, and never say sk-proj-0123456789abcdefghij0123456789."
CALL = completion(calls=[("crm_lookup", {"customer": "c-1"})])


def plain(server: ChatServer) -> Port:
    """Return an agent behind a plain endpoint."""
    return chat_agent("plan", server.url, "gpt-4o", retries=0)


def pydantic(server: ChatServer) -> Port:
    """Return an agent of Pydantic AI."""
    model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=server.base, api_key="key"))
    return PydanticAgent(Agent(model, name="plan"))


def sdk(server: ChatServer) -> Port:
    """Return an agent of the OpenAI Agents SDK."""
    models = provider(base_url=server.base, api_key="key", api="chat")
    return OpenAIAgent(OpenAISdkAgent("plan", model="gpt-4o"), provider=models)


async def kept(agent: Port, *tools: AgentTool, **terms: Any) -> tuple[Transcript, StageContext[Baton]]:
    """Run an agent once, and return what is kept of it."""
    context = StageContext.for_test(Baton(goal="Add login"))
    await agent_stage(agent, instructions=SYSTEM, tools=tools, **terms)(context)
    store = MemoryArtifactStore()
    _, digest = await context.session.close(store)
    assert digest is not None
    [read] = await read_transcripts(store, [digest])
    assert read.transcript is not None
    return read.transcript, context


def said(transcript: Transcript, role: str) -> str:
    """Return what the messages of a role say."""
    return "\n".join(message.text for message in transcript.messages if message.role == role)


@pytest.fixture(autouse=True)
def own_server() -> Iterator[None]:
    """Allow requests; they go to this machine."""
    with pydantic_ai.models.override_allow_model_requests(True):
        yield


@pytest.mark.parametrize("make", [plain, pydantic, sdk])
class TestRequests:
    """The agents whose requests are seen."""

    async def test_each_request_has_what_it_asked_and_what_was_answered(
        self, make: Callable[[ChatServer], Port]
    ) -> None:
        """With model, tokens, cost and time; a message that is sent again is kept once."""
        answer = completion(calls=[("final_result", json.loads(GOOD))]) if make is pydantic else completion(GOOD)
        with chat_server(CALL, answer) as server:
            transcript, context = await kept(make(server), CRM)
        first, second = transcript.requests

        assert [request.model for request in transcript.requests] == ["gpt-4o"] * 2
        assert first.spend + second.spend == context.charged
        assert (first.spend.prompt_tokens, first.spend.micro_usd > 0) == (1_000, True)
        assert all(request.milliseconds is not None for request in transcript.requests)
        assert json.loads(second.said) == json.loads(GOOD)
        assert second.asked[: len(first.asked)] == first.asked
        assert len(second.asked) > len(first.asked)
        assert len({(message.role, message.text) for message in transcript.messages}) == len(transcript.messages)

    async def test_it_has_system_prompt_tools_and_no_secret(self, make: Callable[[ChatServer], Port]) -> None:
        """The prompt as the model read it, the call's arguments and its result; what looks like a key is masked."""
        answer = completion(calls=[("final_result", json.loads(GOOD))]) if make is pydantic else completion(GOOD)
        with chat_server(CALL, answer) as server:
            transcript, _ = await kept(make(server), CRM)
        [called] = [moment for moment in moments(transcript) if moment.title == "tool crm.lookup"]

        assert "Be brief" in said(transcript, "system")
        assert "sk-proj" not in transcript.model_dump_json()
        assert "Add login" in said(transcript, "user")
        assert dict(called.texts) == {"arguments": '{"customer":"c-1"}', "result": "c-1 pays 20 USD"}
        assert "c-1 pays 20 USD" in said(transcript, "tool")


async def test_what_was_refused_in_the_conversation_is_there() -> None:
    """A first answer in the wrong form costs a request, which nothing else shows."""
    wrong = completion(calls=[("final_result", {"baton_patch": {"goal": 1}})])
    with chat_server(wrong, completion(calls=[("final_result", json.loads(GOOD))])) as server:
        transcript, _ = await kept(pydantic(server))

    assert [json.loads(request.said)["baton_patch"] for request in transcript.requests] == [{"goal": 1}, PATCH]


class TestGraph:
    async def test_the_models_of_a_graph_are_seen(self) -> None:
        """Each call of a model in it is a request, also of nodes that the adapter did not make."""

        @langchain_tool
        def find(customer: str) -> str:
            """Find a customer."""
            return f"{customer} pays 20 USD"

        calls = AIMessage("", tool_calls=[{"name": "find", "args": {"customer": "c-1"}, "id": "1"}])
        chat = GenericFakeChatModel(messages=iter([calls, AIMessage(GOOD)]))

        async def ask(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await chat.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState).add_node("ask", ask).add_node("tools", ToolNode([find]))
        graph.add_edge(START, "ask").add_conditional_edges("ask", tools_condition).add_edge("tools", "ask")
        agent = LangGraphAgent(
            graph.compile(), into={"messages": "messages"}, out={"answer": "messages"}, uses=["find"]
        )
        transcript, _ = await kept(agent)
        first, second = transcript.requests

        assert ["Add login" in message.text for message in transcript.asked(first)] == [True]
        assert [message.role for message in transcript.asked(second)] == ["user", "assistant", "tool"]
        assert (second.said, transcript.answer) == (GOOD, GOOD)
        assert [moment.title for moment in moments(transcript)] == ["request 1", "tool find", "request 2"]


class TestUnseen:
    """The agents whose requests nobody sees."""

    async def test_a_program_has_what_it_was_given_and_what_it_wrote(self) -> None:
        """Without requests."""
        agent = SubprocessAgent("plan", [sys.executable, "-c", f"print({GOOD!r})"])
        transcript, _ = await kept(agent)

        assert transcript.requests == []
        assert "Add login" in said(transcript, "user")
        assert [moment.title for moment in moments(transcript)] == ["asked", "answer"]
        assert transcript.answer.strip() == GOOD

    async def test_an_agent_of_ones_own_needs_nothing_for_it(self) -> None:
        """Its thoughts and its tools are there too."""

        class Own:
            name = "own"

            async def run(self, work: AgentWork) -> AgentAnswer:
                """Think, call a tool and answer."""
                work.context.session.internal_note("I should look first.")
                await work.tools[0].call({"customer": "c-1"})
                work.charge(Spend(micro_usd=10))
                return AgentAnswer(patch=PATCH)

        transcript, _ = await kept(Own(), CRM, notes=False)
        found = moments(transcript)

        assert [moment.title for moment in found] == ["asked", "thought", "tool crm.lookup"]
        assert found[1].texts == [("", "I should look first.")]
