"""What an adapter must do, whatever framework it is of: one suite for all, against servers that speak the wire format.

`plain` is `chat_agent`, `pydantic` and `native` are Pydantic AI (by a tool, by structured output), `sdk` is the OpenAI
Agents SDK, `graph` a LangGraph graph whose model answers from a script.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, cast

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
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from baton import ArtifactRef, Baton, MemoryArtifactStore, Spend, StageContext, StageResult
from baton.agents import Agent as Port
from baton.agents import AgentLimits, AgentTool, AnswerForm, agent_stage
from baton.agents.chat_completions import chat_agent
from baton.agents.langchain_watch import read_artifact
from baton.agents.langgraph import LangGraphAgent
from baton.agents.openai_agents import OpenAIAgent, provider
from baton.agents.pydantic_ai import PydanticAgent
from baton.agents.subprocess_agent import SubprocessAgent
from baton.contract.records import EventType, ToolDeniedError
from baton.errors import PatchError
from baton.wire.text import FENCE_LABEL
from tests.agents.material import PATCH, context, contract, events, lookup
from tests.chat_server import ChatServer, Reply, chat_server, completion, refusal

GOOD = json.dumps({"baton_patch": PATCH})
CRM = AgentTool.of(lookup, name="crm.lookup")
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

    graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile()
    return LangGraphAgent(graph, into={"messages": "messages"}, out={"answer": "messages"})


async def with_artifact(characters: int, **members: Any) -> StageContext[Baton]:
    """Return a context whose work scope selects an artifact of so many characters."""
    store = MemoryArtifactStore()
    text = "".join(f"{place:<10}" for place in range(0, characters, 10))
    ref = ArtifactRef(id="plan-1", type="plan", hash=await store.put(text.encode()), size=len(text), path="plan.md")
    baton = Baton(goal="Add login", artifacts=[ref], work_scope=["plan.md"])
    return StageContext.for_test(baton, artifacts=store, **members)


def refused() -> dict[str, Any]:
    """Return a completion in which the model refuses."""
    body = completion(None)
    body["choices"][0]["message"]["refusal"] = WORDS
    return body


def half_a_call() -> dict[str, Any]:
    """Return a completion whose call of the answer's tool is cut off."""
    body = completion(calls=[("final_result", {})], finish="length")
    body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = '{"baton_patch": {"deci'
    return body


def incomplete(reason: str) -> dict[str, Any]:
    """Return an answer in the format of responses that did not come to its end."""
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "output": []}
    update = {"status": "incomplete", "incomplete_details": {"reason": reason}}
    return {"id": "r", "object": "response", "created_at": 1, "model": "m", **update, **rest}


async def run_agent(agent: Port, *tools: AgentTool) -> StageResult:
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


CALL = completion(calls=[("crm_lookup", {"customer": "c-1"})])
ALL = [plain, pydantic, native, sdk]
Maker = Callable[..., Port]


def good(agent: Maker) -> dict[str, Any]:
    """Return the completion by which an agent gives the good answer."""
    return completion(calls=[("final_result", json.loads(GOOD))]) if agent is pydantic else completion(GOOD)


def sent_text(server: ChatServer, role: str) -> str:
    """Return what the messages of a role had in the first request."""
    return "".join(str(message["content"]) for message in server.asked[0].body["messages"] if message["role"] == role)


class TestReading:
    """How adapters read the rest whose frameworks take no tools of the stage."""

    async def test_a_graph_has_a_tool_for_its_nodes(self) -> None:
        """In the event loop and in a thread; what was read is no fact for the next stage (issue 33)."""
        read: list[Any] = []

        async def in_loop(state: MessagesState) -> dict[str, Any]:
            read.append(await read_artifact.ainvoke({"id": "plan-1", "offset": 30_000, "limit": 5}))
            return {}

        def in_thread(state: MessagesState) -> dict[str, Any]:
            read.append(read_artifact.invoke({"id": "secret"}))
            return {"messages": [AIMessage(GOOD)]}

        graph = StateGraph(MessagesState).add_sequence([in_loop, in_thread]).add_edge(START, "in_loop").compile()
        node = LangGraphAgent(graph, into={"messages": "messages"}, out={"answer": "messages"}, uses=["read_artifact"])
        stage_context = await with_artifact(40_000)
        await agent_stage(node, window=4_000)(stage_context)

        assert "of 40,000 characters; read the rest with `read_artifact`" in stage_context.prompt
        assert [read[0]["text"], read[0]["next"]] == ["30000", 30_005]
        assert read[1] == {"error": "no artifact 'secret' is named in your handoff; named are: 'plan-1'"}
        assert not [event for event in events(stage_context) if event[1] == "read_artifact"]

    async def test_a_program_finds_files(self) -> None:
        """Whole, in a folder that is gone with it; an id of an agent's making names no file."""
        code = (
            "import json, os, pathlib; folder = pathlib.Path(os.environ['BATON_FILES']);"
            "[one] = json.loads((folder / 'index.json').read_text());"
            "text = (folder / one['file']).read_text();"
            "print(json.dumps({'baton_patch': {'decision_log': [one['id'], text[30_000:30_005], str(folder)]}}))"
        )
        stage_context = await with_artifact(40_000)
        result = await agent_stage(SubprocessAgent("plan", [sys.executable, "-c", code]), window=4_000)(stage_context)

        assert "of 40,000 characters; for the rest see `index.json` in the folder" in stage_context.prompt
        assert isinstance(result.baton_patch, dict)
        id, text, folder = cast(Any, result.baton_patch["decision_log"])
        assert (id, text) == ("plan-1", "30000")
        assert not await asyncio.to_thread(os.path.exists, folder)

    async def test_what_is_forbidden_is_not_promised_and_not_there(self) -> None:
        """Neither as a tool nor as files."""
        code = f"import os; assert 'BATON_FILES' not in os.environ; print({GOOD!r})"
        stage_context = await with_artifact(40_000)
        stage_context.spec = replace(stage_context.spec, forbids=frozenset(["read_artifact"]))
        await agent_stage(SubprocessAgent("plan", [sys.executable, "-c", code]), window=4_000)(stage_context)

        assert "of 40,000 characters; the rest is not shown" in stage_context.prompt

    async def test_the_rest_is_said_not_to_be_shown(self) -> None:
        """A model is not sent to a tool that it does not have."""
        prompts = []

        async def ask(state: MessagesState) -> dict[str, Any]:
            prompts.append(state["messages"][-1].content)
            return {"messages": [AIMessage(GOOD)]}

        graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile()
        node = LangGraphAgent(graph, into={"messages": "messages"}, out={"answer": "messages"})
        context = await with_artifact(40_000)
        await agent_stage(node, window=4_000)(context)
        assert "of 40,000 characters; the rest is not shown" in context.prompt
        assert "read_artifact" not in context.prompt
        assert "the rest is not shown" in prompts[0]


class TestWindow:
    """Where the window comes from."""

    @pytest.mark.parametrize("agent", [plain, pydantic, native, sdk])
    async def test_the_adapter_knows_its_models(self, agent: Maker) -> None:
        """A window that the stage does not name is that of the model, which the price list knows."""
        with chat_server(good(agent), good(agent)) as server:
            large, small = await with_artifact(200_000), await with_artifact(200_000)
            await agent_stage(agent(server))(large)
            await agent_stage(agent(server), window=32_000)(small)

        assert (large.window, small.window) == (128_000, 32_000)
        assert "199990" in large.prompt
        assert "of 200,000 characters" in small.prompt


@pytest.mark.parametrize("agent", ALL)
class TestContract:
    """An adapter must ..."""

    async def test_put_the_handoff_into_the_user_turn(self, agent: Maker) -> None:
        """Inside the fence; the system turn has the author's words alone, the header the handoff (X-6, S3-10.1-d)."""
        stage_context = context()
        with chat_server(good(agent)) as server:
            result = await agent_stage(agent(server), instructions="You plan features.")(stage_context)

        assert result.baton_patch == PATCH
        assert FENCE_LABEL in sent_text(server, "user")
        assert "Add OAuth2 login" in sent_text(server, "user")
        assert sent_text(server, "system") == "You plan features."
        assert server.asked[0].headers["x-baton-handoff-id"] == stage_context.handoff_id

    async def test_take_a_report_as_text(self, agent: Maker) -> None:
        """No shape is asked for."""
        with chat_server(completion("## Agent Handoff Report\n")) as server:
            result = await agent_stage(agent(server), answers=AnswerForm.REPORT)(context())

        assert result.report is not None
        assert result.report.strip() == "## Agent Handoff Report"
        assert "response_format" not in server.asked[0].body

    async def test_guard_and_record_the_tools_of_the_stage(self, agent: Maker) -> None:
        """Under the handoff, with the time; every request is charged (S5-fields-a, S5-compiler-h)."""
        stage_context = context()
        with chat_server(CALL, good(agent)) as server:
            await agent_stage(agent(server), tools=[CRM])(stage_context)

        assert events(stage_context)[:2] == [(EventType.TOOL_CALL, "crm.lookup"), (EventType.TOOL_RESULT, "crm.lookup")]
        assert {event.handoff_id for event in stage_context.session.events} == {stage_context.handoff_id}
        assert server.asked[1].body["messages"][-1]["content"] == "c-1 pays 20 USD"
        assert stage_context.charged == Spend(micro_usd=7_000, prompt_tokens=2_000, completion_tokens=200)

    async def test_read_on_demand_what_the_handoff_names(self, agent: Maker) -> None:
        """`read_artifact` reads a part of it; what is not named is refused to the model in the same conversation."""
        calls = [{"id": "plan-1", "offset": 30_000, "limit": 5}, {"id": "secret"}]
        asks = completion(calls=[("read_artifact", arguments) for arguments in calls])
        with chat_server(asks, good(agent)) as server:
            stage_context = await with_artifact(40_000)
            await agent_stage(agent(server), window=4_000)(stage_context)
            prompt = sent_text(server, "user")
            answers = [message for message in server.asked[-1].body["messages"] if message["role"] == "tool"]
            results = [answer["content"] for answer in sorted(answers, key=lambda answer: str(answer["tool_call_id"]))]

        assert "of 40,000 characters; read the rest with `read_artifact`" in prompt
        assert json.loads(results[0]) == {
            "id": "plan-1",
            "characters": 40_000,
            "offset": 30_000,
            "text": "30000",
            "next": 30_005,
        }
        assert json.loads(results[1]) == {"error": "no artifact 'secret' is named in your handoff; named are: 'plan-1'"}
        assert (EventType.TOOL_RESULT, "read_artifact") not in events(stage_context)  # it is no fact for the next stage

    async def test_neither_show_nor_call_a_tool_that_is_not_allowed(self, agent: Maker) -> None:
        """Whatever the model believes, the call is denied and the run ends (S5-fields-k)."""
        with chat_server(CALL) as server, pytest.raises(ToolDeniedError):
            await agent_stage(agent(server), tools=[CRM])(context(contract([])))

        assert "crm_lookup" not in json.dumps(server.asked[0].body.get("tools", ""))

    async def test_return_arguments_that_do_not_fit_to_the_model(self, agent: Maker) -> None:
        """In the same conversation, which is paid already."""
        for arguments in ({"customer": 7}, [1], "c-1"):
            with chat_server(completion(calls=[("crm_lookup", arguments)]), good(agent)) as server:
                result = await agent_stage(agent(server), tools=[CRM])(context())
            assert result.baton_patch == PATCH, arguments

    async def test_lead_a_malformed_answer_to_another_attempt(self, agent: Maker) -> None:
        """With findings; Temporal is not asked for a retry."""
        with chat_server(*[completion("Done!")] * 3) as server, pytest.raises(PatchError):
            await agent_stage(agent(server))(context())

    async def test_say_which_failures_may_pass(self, agent: Maker) -> None:
        """It asks once, names the status and repeats no word of the provider; waiting helps where it may pass."""
        errors = {}
        for status, code in (
            (307, "moved"),
            (400, "invalid_request"),
            (401, "invalid_api_key"),
            (403, "forbidden"),
            (404, "model_not_found"),
            (429, "insufficient_quota"),
            (429, "rate_limit_exceeded"),
            (500, "server_error"),
            (503, "overloaded"),
        ):
            reply = refusal(status, code, WORDS, Location="http://127.0.0.1:9/")
            with chat_server(reply) as server, pytest.raises(ApplicationError) as raised:
                await agent_stage(agent(server))(context())
            assert f"answered {status}" in str(raised.value)
            assert WORDS not in repr(raised.value)
            assert raised.value.__cause__ is None
            assert len(server.asked) == 1
            errors[status, code] = raised.value.category is ApplicationErrorCategory.BENIGN
            assert raised.value.non_retryable is not errors[status, code]

        passing = {key for key, waits in errors.items() if waits}
        assert passing == {(429, "rate_limit_exceeded"), (500, "server_error"), (503, "overloaded")}

    async def test_wait_as_long_as_the_provider_asks(self, agent: Maker) -> None:
        """In seconds or milliseconds, or as a date."""
        date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
        for headers, minimum, maximum in (
            ({"Retry-After": "70"}, 70, 70),
            ({"Retry-After": "80", "Retry-After-Ms": "71500"}, 71, 80),
            ({"Retry-After": date}, 3_500, 3_600),
        ):
            reply = refusal(429, "rate_limit_exceeded", **headers)
            with chat_server(reply) as server, pytest.raises(ApplicationError) as raised:
                await agent_stage(agent(server))(context())
            delay = raised.value.next_retry_delay
            assert delay is not None
            assert minimum <= delay.total_seconds() <= maximum, headers

    async def test_retry_an_answer_that_cannot_be_read(self, agent: Maker) -> None:
        """It is the provider's fault, not the model's; the error names the agent."""
        bodies: tuple[Any, ...] = (b'{"choices": [', b"<html>", {**completion(None), "choices": []})
        for body in bodies:
            with chat_server(Reply(body)) as server, pytest.raises(ApplicationError, match="agent 'plan'") as raised:
                await agent_stage(agent(server))(context())
            assert not raised.value.non_retryable, body

    async def test_retry_where_nobody_listens(self, agent: Maker) -> None:
        """Waiting may help."""
        with chat_server() as server:
            pass
        with pytest.raises(ApplicationError, match="could not be reached") as raised:
            await agent_stage(agent(server))(context())
        assert raised.value.category is ApplicationErrorCategory.BENIGN

    async def test_end_in_its_time(self, agent: Maker) -> None:
        """Before the stage's timeout would lose it with its bill; a byte now and then does not keep it."""
        with chat_server(Reply(b"{", slow=True)) as server:
            stage = agent_stage(agent(server), limits=AgentLimits(seconds=0.5))
            with pytest.raises(ApplicationError, match="did not finish") as raised:
                await stage(context())
        assert not raised.value.non_retryable

    async def test_end_when_it_is_cancelled(self, agent: Maker) -> None:
        """The connection is closed; the provider may stop its work."""
        with chat_server(Reply(b"{", slow=True)) as server:
            running = asyncio.create_task(agent_stage(agent(server))(context()))
            await asyncio.to_thread(server.streaming.wait)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running


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
            await run_agent(agent(server))
        assert len(server.asked) == 1

    @pytest.mark.parametrize(
        "message",
        [
            pytest.param({"finish_reason": "length"}, id="openai"),
            pytest.param({"stop_reason": "max_tokens"}, id="anthropic"),
            pytest.param({"finish_reason": "MAX_TOKENS"}, id="google"),
            pytest.param({"incomplete_details": {"reason": "max_output_tokens"}}, id="openai's responses"),
        ],
    )
    async def test_a_graphs_message_tells_it(self, message: Any) -> None:
        """Each provider in its own word; without it, half an answer would be called no JSON."""
        with pytest.raises(PatchError, match=CUT_OFF):
            await run_agent(graph(AIMessage('{"baton', response_metadata=message)))


class TestStopped:
    """A refusal or a content filter: the stage fails at once, and the provider's words stay out."""

    @pytest.mark.parametrize("reply", [refused(), completion(None, finish="content_filter")], ids=["refusal", "filter"])
    @pytest.mark.parametrize("agent", [plain, pydantic, native, sdk])
    async def test_it_is_final(self, agent: Callable[[ChatServer], Port], reply: Any) -> None:
        """It is asked once."""
        with chat_server(reply) as server, final():
            await run_agent(agent(server))
        assert len(server.asked) == 1

    @pytest.mark.parametrize("agent", [plain, pydantic, native])
    async def test_a_filter_that_stopped_half_an_answer_is_final(self, agent: Callable[[ChatServer], Port]) -> None:
        """The half is no answer that the model could mend."""
        with chat_server(completion(WORDS, finish="content_filter")) as server, final():
            await run_agent(agent(server))
        assert len(server.asked) == 1

    async def test_a_response_that_was_filtered_is_final(self) -> None:
        """In OpenAI's own interface as well."""
        with chat_server(incomplete("content_filter")) as server, final():
            await run_agent(sdk(server, api="responses"))

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
            await run_agent(graph(message))

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
            message = await chat.ainvoke("Plan")
            raise OutputParserException(f"Invalid json output: {message.content}")

        with expected:
            await run_agent(LangGraphAgent(ask))

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
            await run_agent(LangGraphAgent(Structured(messages=iter(())), into=lambda work: work.user_turn()))


class TestUnreadable:
    """An answer without choices: Temporal runs the stage again."""

    async def test_no_choices_in_a_graph(self) -> None:
        """LangChain stumbles over them only after the model has answered."""

        class Empty(GenericFakeChatModel):
            def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
                return ChatResult(generations=[])

        agent = LangGraphAgent(Empty(messages=iter(())), into=lambda work: work.user_turn())
        with pytest.raises(ApplicationError, match="the provider's answer cannot be read") as raised:
            await run_agent(agent)
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
                await run_agent(agent(server), AgentTool.of(lookup))
            assert len(server.asked) == 1

    async def test_a_tool_of_the_sdk_that_is_to_raise_does(self) -> None:
        """The SDK would call it a wrong set-up, which is final."""

        @function_tool(failure_error_function=None)
        def lookup(customer: str) -> str:
            raise LookupError("the CRM is down")

        with chat_server(completion(calls=[("lookup", {"customer": "c-1"})])) as server:
            models = provider(base_url=server.base, api_key="key", api="chat")
            with pytest.raises(LookupError, match=r"^the CRM is down$"):
                await run_agent(OpenAIAgent(OpenAISdkAgent("plan", model="gpt-4o", tools=[lookup]), provider=models))

    @pytest.mark.parametrize("agent", [plain, native, sdk])
    async def test_a_tool_that_is_not_there_is_told(self, agent: Callable[[ChatServer], Port]) -> None:
        """In the same conversation, which is paid already."""
        with chat_server(completion(calls=[("nope", {})]), completion(GOOD)) as server:
            assert (await run_agent(agent(server))).baton_patch == PATCH
            assert "nope" in json.dumps(server.asked[1].body["messages"][-1])


class TestNames:
    @pytest.mark.parametrize(
        "make",
        [
            pytest.param(lambda: PydanticAgent(Agent(), uses="search"), id="Pydantic AI"),
            pytest.param(lambda: OpenAIAgent(OpenAISdkAgent("plan"), mcp_tools="search"), id="OpenAI"),
            pytest.param(lambda: LangGraphAgent(lambda state: state, uses="search"), id="LangGraph"),
            pytest.param(lambda: SubprocessAgent("plan", ["true"], environment="KEY"), id="a program"),
        ],
    )
    def test_a_lone_name_is_not_taken_for_its_letters(self, make: Callable[[], Port]) -> None:
        """No tool has the name of a letter, and no worker a variable of it."""
        with pytest.raises(TypeError, match=" is one text; write "):
            make()
