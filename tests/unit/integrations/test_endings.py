"""The same misfortune under every framework: answers that are cut off, refused or missing, tools, redirects."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pydantic_ai.models
import pytest
from agents import Agent as OpenAISdkAgent
from agents import function_tool
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatResult
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from temporalio.exceptions import ApplicationError

from baton import Baton, StageContext, StageResult
from baton.agents.chat_completions import chat_agent
from baton.agents.langgraph import LangGraphAgent
from baton.agents.openai_agents import OpenAIAgent, provider
from baton.agents.port import Agent as Port
from baton.agents.port import AgentTool, agent_stage
from baton.agents.pydantic_ai import PydanticAgent
from baton.errors import PatchError
from tests.chat_server import ChatServer, Reply, chat_server, completion

PATCH = {"decision_log": ["Use JWT, because sessions need a store"]}
GOOD = json.dumps({"baton_patch": PATCH})
WORDS = "the words of the provider"
CUT_OFF = "the answer was cut off at the most tokens"
STOPPED = "the model refused to answer, or its provider's content filter stopped it"


def plain(server: ChatServer) -> Port:
    """Return an agent behind a plain endpoint."""
    return chat_agent("plan", server.url, "gpt-4o", retries=0)


def pydantic(server: ChatServer, **options: Any) -> Port:
    """Return an agent of Pydantic AI."""
    model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=server.base, api_key="key"))
    return PydanticAgent(Agent(model, name="plan"), **options)


def native(server: ChatServer) -> Port:
    """Return an agent of Pydantic AI that answers by its provider's structured output."""
    return pydantic(server, answer="native")


def sdk(server: ChatServer, **options: Any) -> Port:
    """Return an agent of the OpenAI Agents SDK."""
    models = provider(base_url=server.base, api_key="key", **{"api": "chat", **options})
    return OpenAIAgent(OpenAISdkAgent("plan", model="gpt-4o"), provider=models)


def graph(*messages: AIMessage) -> Port:
    """Return a graph whose model answers from a script."""
    chat = GenericFakeChatModel(messages=iter(messages))

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await chat.ainvoke(state["messages"])]}

    made = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile()
    return LangGraphAgent(made, into={"messages": "messages"}, out={"answer": "messages"})


def refused() -> dict[str, Any]:
    """Return a completion in which the model refuses."""
    made = completion(None)
    made["choices"][0]["message"]["refusal"] = WORDS
    return made


def half_a_call() -> dict[str, Any]:
    """Return a completion whose call of the answer's tool is cut off."""
    made = completion(calls=[("final_result", {})], finish="length")
    made["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = '{"baton_patch": {"deci'
    return made


def incomplete(reason: str) -> dict[str, Any]:
    """Return an answer in the format of responses that did not come to its end."""
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "output": []}
    told = {"status": "incomplete", "incomplete_details": {"reason": reason}}
    return {"id": "r", "object": "response", "created_at": 1, "model": "m", **told, **rest}


async def done(agent: Port, *tools: AgentTool) -> StageResult:
    """Return what an agent's stage answers."""
    result: StageResult = await agent_stage(agent, tools=tools)(StageContext.for_test(Baton(goal="Add login")))
    return result


@contextmanager
def final(match: str = STOPPED) -> Iterator[None]:
    """Expect the stage to fail for good, in words of our own."""
    with pytest.raises(ApplicationError, match=match) as caught:
        yield
    assert caught.value.non_retryable
    assert WORDS not in repr(caught.value) + repr(caught.value.__cause__)


@pytest.fixture(autouse=True)
def own_server() -> Iterator[None]:
    """Allow requests; they go to this machine."""
    with pydantic_ai.models.override_allow_model_requests(True):
        yield


class TestCutOff:
    """An answer that reached the most tokens: another attempt, which is told to be briefer."""

    @pytest.mark.parametrize(
        ("agent", "reply"),
        [
            pytest.param(plain, completion('{"baton', finish="length"), id="a plain endpoint"),
            pytest.param(pydantic, half_a_call(), id="pydantic-ai, in the tool"),
            pytest.param(pydantic, completion('{"baton', finish="length"), id="pydantic-ai, in a text"),
            pytest.param(pydantic, completion(None, finish="length"), id="pydantic-ai, before a word"),
            pytest.param(native, completion('{"baton', finish="length"), id="pydantic-ai, native"),
            pytest.param(sdk, completion(None, finish="length"), id="agents sdk, before a word"),
            pytest.param(
                lambda server: sdk(server, api="responses"), incomplete("max_output_tokens"), id="agents sdk, responses"
            ),
        ],
    )
    async def test_it_is_told(self, agent: Callable[[ChatServer], Port], reply: Any) -> None:
        """It is asked once; nothing of a transport is tried again for it."""
        with chat_server(reply) as server, pytest.raises(PatchError, match=CUT_OFF):
            await done(agent(server))
        assert len(server.asked) == 1

    @pytest.mark.parametrize(
        "said",
        [
            pytest.param({"finish_reason": "length"}, id="openai"),
            pytest.param({"stop_reason": "max_tokens"}, id="anthropic"),
            pytest.param({"finish_reason": "MAX_TOKENS"}, id="google"),
            pytest.param({"incomplete_details": {"reason": "max_output_tokens"}}, id="openai's responses"),
        ],
    )
    async def test_a_graphs_message_tells_it(self, said: Any) -> None:
        """Each provider in its own word; without it, half an answer would be called no JSON."""
        with pytest.raises(PatchError, match=CUT_OFF):
            await done(graph(AIMessage('{"baton', response_metadata=said)))


class TestStopped:
    """A refusal or a content filter: the stage fails at once, and the provider's words stay out."""

    @pytest.mark.parametrize("reply", [refused(), completion(None, finish="content_filter")], ids=["refusal", "filter"])
    @pytest.mark.parametrize("agent", [plain, pydantic, native, sdk])
    async def test_it_is_final(self, agent: Callable[[ChatServer], Port], reply: Any) -> None:
        """It is asked once."""
        with chat_server(reply) as server, final():
            await done(agent(server))
        assert len(server.asked) == 1

    @pytest.mark.parametrize("agent", [plain, pydantic, native])
    async def test_a_filter_that_stopped_half_an_answer_is_final(self, agent: Callable[[ChatServer], Port]) -> None:
        """The half is no answer that the model could mend."""
        with chat_server(completion(WORDS, finish="content_filter")) as server, final():
            await done(agent(server))
        assert len(server.asked) == 1

    async def test_a_response_that_was_filtered_is_final(self) -> None:
        """In OpenAI's own interface as well."""
        with chat_server(incomplete("content_filter")) as server, final():
            await done(sdk(server, api="responses"))

    @pytest.mark.parametrize(
        "message",
        [
            pytest.param(AIMessage("", additional_kwargs={"refusal": WORDS}), id="openai, a refusal"),
            pytest.param(AIMessage(WORDS, response_metadata={"stop_reason": "refusal"}), id="anthropic, a refusal"),
            pytest.param(AIMessage("", response_metadata={"finish_reason": "content_filter"}), id="openai, a filter"),
            pytest.param(AIMessage("", response_metadata={"finish_reason": "SAFETY"}), id="google, a filter"),
        ],
    )
    async def test_a_graphs_message_tells_it(self, message: AIMessage) -> None:
        """It would be tried three times as an answer that is no JSON."""
        with final():
            await done(graph(message))

    @pytest.mark.parametrize(
        ("metadata", "expected"),
        [
            pytest.param(
                {"finish_reason": "stop"}, pytest.raises(PatchError, match="in a form that can be used"), id="no"
            ),
            pytest.param({"finish_reason": "content_filter"}, final(), id="a filter"),
        ],
    )
    async def test_a_parser_that_gives_up_is_no_failure_of_the_worker(self, metadata: Any, expected: Any) -> None:
        """The model is told, unless it was stopped; what it said is not quoted."""
        chat = GenericFakeChatModel(messages=iter([AIMessage(WORDS, response_metadata=metadata)]))

        async def ask(state: Any) -> None:
            said = await chat.ainvoke("Plan")
            raise OutputParserException(f"Invalid json output: {said.content}")

        with expected:
            await done(LangGraphAgent(ask))

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            pytest.param("LengthFinishReasonError", pytest.raises(PatchError, match=CUT_OFF), id="cut off"),
            pytest.param("ContentFilterFinishReasonError", final(), id="a filter"),
        ],
    )
    async def test_what_openais_client_raises_instead_of_an_answer(self, kind: str, expected: Any) -> None:
        """As LangChain has it do, where it asks for structured output."""

        class Structured(GenericFakeChatModel):
            def _generate(self, *args: Any, **kwargs: Any) -> Any:
                raise type(kind, (Exception,), {})(WORDS)

        with expected:
            await done(LangGraphAgent(Structured(messages=iter(())), into=lambda work: work.user_turn()))


class TestUnreadable:
    """An answer without choices: Temporal runs the stage again."""

    @pytest.mark.parametrize("agent", [plain, pydantic, native, sdk])
    async def test_no_choices(self, agent: Callable[[ChatServer], Port]) -> None:
        """It was an IndexError, which said nothing of agent or provider."""
        reply = {**completion(None), "choices": []}
        with (
            chat_server(reply) as server,
            pytest.raises(ApplicationError, match=r"agent 'plan': .*can.* be read") as raised,
        ):
            await done(agent(server))
        assert not raised.value.non_retryable

    async def test_no_choices_in_a_graph(self) -> None:
        """LangChain stumbles over them only after the model has answered."""

        class Empty(GenericFakeChatModel):
            def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
                return ChatResult(generations=[])

        agent = LangGraphAgent(Empty(messages=iter(())), into=lambda work: work.user_turn())
        with pytest.raises(ApplicationError, match="the provider's answer cannot be read") as raised:
            await done(agent)
        assert not raised.value.non_retryable


class TestTools:
    """Tools that raise, and tools that are not there."""

    @pytest.mark.parametrize("agent", [plain, pydantic, sdk])
    async def test_what_a_tool_of_the_stage_raises_is_the_stages(self, agent: Callable[[ChatServer], Port]) -> None:
        """Temporal runs it again, by its retries; no model is asked to make do without."""

        def lookup(customer: str) -> str:
            raise LookupError("the CRM is down")

        with chat_server(completion(calls=[("lookup", {"customer": "c-1"})])) as server:
            with pytest.raises(LookupError, match=r"^the CRM is down$"):
                await done(agent(server), AgentTool.of(lookup))
            assert len(server.asked) == 1

    async def test_a_tool_of_the_sdk_that_is_to_raise_does(self) -> None:
        """The SDK would call it a wrong set-up, which is final."""

        @function_tool(failure_error_function=None)
        def lookup(customer: str) -> str:
            raise LookupError("the CRM is down")

        with chat_server(completion(calls=[("lookup", {"customer": "c-1"})])) as server:
            models = provider(base_url=server.base, api_key="key", api="chat")
            with pytest.raises(LookupError, match=r"^the CRM is down$"):
                await done(OpenAIAgent(OpenAISdkAgent("plan", model="gpt-4o", tools=[lookup]), provider=models))

    @pytest.mark.parametrize("agent", [plain, native, sdk])
    async def test_a_tool_that_is_not_there_is_told(self, agent: Callable[[ChatServer], Port]) -> None:
        """In the same conversation, which is paid already."""
        with chat_server(completion(calls=[("nope", {})]), completion(GOOD)) as server:
            assert (await done(agent(server))).baton_patch == PATCH
            assert "nope" in json.dumps(server.asked[1].body["messages"][-1])


class TestRedirects:
    """A redirect leads prompt and key to whoever it names."""

    @pytest.mark.parametrize("agent", [plain, pydantic, sdk])
    async def test_none_is_followed(self, agent: Callable[[ChatServer], Port]) -> None:
        """The stage fails, and says what to do."""
        with chat_server(completion(GOOD)) as other:
            reply = Reply({"error": {"message": WORDS}}, 307, {"Location": other.url})
            with chat_server(reply) as server, final("answered 307.*name the address that it leads to"):
                await done(agent(server))
            assert other.asked == []
