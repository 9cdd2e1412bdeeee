"""What models and tools of a LangGraph run do is watched wherever they are called, counted once, and told in words."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.language_models.llms import BaseLLM
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.output_parsers import PydanticToolsParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, Generation, LLMResult
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send
from pydantic import BaseModel
from temporalio.exceptions import ApplicationError

from baton import StageContext
from baton.agents import AgentLimits, agent_stage
from baton.agents.langgraph import LangGraphAgent
from baton.contract.records import EventType, ToolDeniedError
from baton.errors import PatchError
from tests.agents.material import node_stage
from tests.agents.test_langgraph import BATON, USAGE, calling, contract, crm_lookup, looping, model, run_stage

OWN: Any = {"callbacks": [BaseCallbackHandler()]}
"""What a team gives its models and tools for tracing of its own."""


class TestReach:
    """`GuardCallback` is told wherever a model or tool is called."""

    @pytest.mark.parametrize("in_a_graph", [False, True])
    async def test_a_tool_called_with_other_callbacks_is_checked(self, in_a_graph: bool) -> None:
        """Those given with a call take the place of those of the run; a denied tool ran (S5-fields-k)."""

        async def look(state: Any) -> dict[str, Any]:
            await crm_lookup.ainvoke({"customer": "c-1"}, config=OWN)
            return {}

        node: Any = StateGraph(MessagesState).add_node(look).add_edge(START, "look") if in_a_graph else look
        context = StageContext.for_test(BATON, contract=contract("policy_search"))
        with pytest.raises(ToolDeniedError, match="'crm_lookup' is not among the tools"):
            await run_stage(node_stage(node, into={"messages": "messages"}, uses=["crm_lookup"]), context)

    async def test_a_model_called_with_other_callbacks_is_charged_once(self) -> None:
        """Also where it has them by itself, and where the node runs in a thread."""
        chat = model(*(AIMessage("20 USD", usage_metadata=USAGE) for _ in range(3)))

        def ask(state: Any) -> dict[str, Any]:
            chat.invoke("What does it cost?")
            chat.invoke("What does it cost?", config=OWN)
            chat.with_config(OWN).invoke("What does it cost?")
            return {}

        context = StageContext.for_test(BATON)
        await run_stage(node_stage(ask), context)

        assert context.charged.prompt_tokens == 300

    @pytest.mark.parametrize("what", ["a model", "a tool"])
    async def test_a_node_in_a_thread_calls_nothing_when_its_run_has_ended(
        self, what: str, let_pass: Callable[[float], None]
    ) -> None:
        """A thread cannot be ended: it would go on asking and doing when the stage is cancelled or run again."""
        chat = model(AIMessage("20 USD", usage_metadata=USAGE))
        calls: dict[str, Callable[[], Any]] = {
            "a model": lambda: chat.invoke("What does it cost?"),
            "a tool": lambda: crm_lookup.invoke({"customer": "c-1"}),
        }
        began, over, ended, raised = threading.Event(), threading.Event(), threading.Event(), list[str]()

        def ask(state: Any) -> dict[str, Any]:
            began.set()
            over.wait()
            try:
                calls[what]()
            except Exception as error:
                raised.append(str(error))
            ended.set()
            return {}

        context = StageContext.for_test(BATON)
        stage = agent_stage(LangGraphAgent(ask), limits=AgentLimits(seconds=60))
        running = asyncio.ensure_future(run_stage(stage, context))
        await asyncio.to_thread(began.wait)
        let_pass(60)
        with pytest.raises(ApplicationError, match="did not finish"):
            await running
        over.set()
        await asyncio.to_thread(ended.wait)

        assert raised == ["the run has ended"]
        assert (context.session.events, context.charged.prompt_tokens) == ([], 0)


class Choosing(GenericFakeChatModel):
    """A model that gives two answers at once, each with what the request used."""

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(
            generations=[ChatGeneration(message=AIMessage(text, usage_metadata=USAGE)) for text in ("20 USD", "30 USD")]
        )


class Cached(GenericFakeChatModel):
    """A model whose answer was kept, as LangChain tells it."""

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        message = AIMessage("20 USD", usage_metadata={**USAGE, "total_cost": 0})
        return ChatResult(generations=[ChatGeneration(message=message)])


class OfTexts(BaseLLM):
    """A model of texts, which tells what it used beside its answer."""

    def _generate(self, prompts: list[str], *args: Any, **kwargs: Any) -> LLMResult:
        used = {"token_usage": {"prompt_tokens": 100, "completion_tokens": 10}, "model_name": "gpt-4o"}
        return LLMResult(generations=[[Generation(text="20 USD")] for _ in prompts], llm_output=used)

    @property
    def _llm_type(self) -> str:
        return "of texts"


class CutOff(GenericFakeChatModel):
    """A model whose client raises of an answer that was cut off, which the error has."""

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        error = type("LengthFinishReasonError", (Exception,), {})("the length limit was reached")
        error.completion = SimpleNamespace(
            model="gpt-4o", usage=SimpleNamespace(prompt_tokens=100, completion_tokens=10)
        )
        raise error


class BreaksOff(GenericFakeChatModel):
    """A model whose stream breaks off after it has told what the request used so far."""

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        yield ChatGenerationChunk(message=AIMessageChunk(content="20", usage_metadata=USAGE))
        raise ConnectionError("it was reset")


class TestBill:
    """What a request took is charged once, wherever it is told."""

    @pytest.mark.parametrize(
        ("chat", "charged"),
        [
            pytest.param(Choosing(messages=iter(())), 100, id="two choices of one request"),
            pytest.param(Cached(messages=iter(())), 0, id="an answer out of a cache"),
            pytest.param(OfTexts(), 100, id="a model of texts"),
        ],
    )
    async def test_a_request_is_charged_as_it_was_paid(self, chat: Any, charged: int) -> None:
        """Two choices were charged twice, kept answers again, and texts not at all."""

        async def ask(state: Any) -> dict[str, Any]:
            await chat.ainvoke("What does it cost?")
            return {}

        context = StageContext.for_test(BATON)
        await run_stage(node_stage(ask), context)

        assert context.charged.prompt_tokens == charged

    async def test_an_answer_that_was_cut_off_is_paid_as_well(self) -> None:
        """Its client raises instead of returning it."""
        chat = CutOff(messages=iter(()))
        context = StageContext.for_test(BATON)
        with pytest.raises(PatchError, match="cut off"):
            await run_stage(node_stage(lambda state: {"current_state": [chat.invoke("Plan")]}, name="node"), context)

        assert (context.charged.prompt_tokens, context.charged.completion_tokens) == (100, 10)

    async def test_a_stream_that_breaks_off_is_charged(self) -> None:
        """Anthropic tells what it has read in the first piece."""
        chat = BreaksOff(messages=iter(()))
        context = StageContext.for_test(BATON)
        with pytest.raises(ApplicationError, match="cannot be read"):
            await run_stage(node_stage(lambda state: {"current_state": [*chat.stream("Plan")]}, name="node"), context)

        assert context.charged.prompt_tokens == 100


class Verdict(BaseModel):
    """What a model is to answer with."""

    customer: int


class StructuredOutputValidationError(type("StructuredOutputError", (Exception,), {})):  # type: ignore[misc]
    """What `create_agent` raises of an answer in the wrong form."""


class TestForm:
    """An answer in the wrong form."""

    @pytest.mark.parametrize("raised", ["by a parser of tool calls", "by an agent of LangChain"])
    async def test_leads_to_another_attempt_and_is_not_quoted(self, raised: str) -> None:
        """What its reader says of it quotes it."""
        chat = model(calling("Verdict", "sk-123")) | PydanticToolsParser(tools=[Verdict], first_tool_only=True)

        async def ask(state: Any) -> dict[str, Any]:
            if raised == "by an agent of LangChain":
                raise StructuredOutputValidationError("failed to parse 'sk-123'")
            await chat.ainvoke("What does it cost?")
            return {}

        with pytest.raises(PatchError, match="did not answer in a form") as caught:
            await run_stage(node_stage(ask))
        assert "sk-123" not in str(caught.value)

    async def test_a_refusal_is_reported_as_a_refusal(self) -> None:
        """It would be refused again, and be paid again."""
        chat = model(AIMessage("", usage_metadata=USAGE, additional_kwargs={"refusal": "No."}))

        async def ask(state: Any) -> dict[str, Any]:
            await chat.ainvoke("What does it cost?")
            raise StructuredOutputValidationError("no JSON")

        with pytest.raises(ApplicationError, match="refused to answer") as caught:
            await run_stage(node_stage(ask))
        assert caught.value.non_retryable


@tool("crm_lookup")
def commanding(customer: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Find what a customer pays, and say so in the state."""
    return Command(update={"messages": [ToolMessage(f"{customer} pays 20 USD", tool_call_id=tool_call_id)]})


@tool("crm_lookup")
def showing(customer: str) -> list[dict[str, Any]]:
    """Find what a customer pays, with a picture."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    return [{"type": "text", "text": f"{customer} pays 20 USD"}, picture]


class TestFacts:
    """What tools and nodes return, as others are told."""

    async def test_the_answer_is_not_recorded_as_a_claim(self) -> None:
        """The patch is in the baton; what the model said on its way to it is on record, in its place."""
        message = AIMessage("I look it up.", tool_calls=calling("crm_lookup", "c-1").tool_calls)
        graph = looping(model(message, AIMessage('{"baton_patch": {"acceptance": ["pytest"]}}')))
        context = StageContext.for_test(BATON, contract=contract("crm_lookup"))
        stage = node_stage(graph, into={"messages": "messages"}, out={"answer": "messages"}, uses=["crm_lookup"])

        assert (await run_stage(stage, context)).baton_patch == {"acceptance": ["pytest"]}
        recorded = [(event.type, event.tool_name or event.content) for event in context.session.events]
        assert recorded == [
            (EventType.ASSISTANT_MESSAGE, "I look it up."),
            (EventType.TOOL_CALL, "crm_lookup"),
            (EventType.TOOL_RESULT, "crm_lookup"),
        ]

    @pytest.mark.parametrize("function", [commanding, showing], ids=["a command", "blocks"])
    async def test_a_fact_is_the_text_that_the_tool_gave_its_model(self, function: Any) -> None:
        """And not how Python shows what it returned."""

        async def look(state: Any) -> dict[str, Any]:
            call = {"name": "crm_lookup", "args": {"customer": "c-1"}, "id": "call-1", "type": "tool_call"}
            await function.ainvoke(call)
            return {}

        context = StageContext.for_test(BATON, contract=contract("crm_lookup"))
        await run_stage(node_stage(look), context)

        (result,) = [event for event in context.session.events if event.type is EventType.TOOL_RESULT]
        assert (result.content, result.success) == ("c-1 pays 20 USD", True)

    async def test_a_command_with_a_send_names_its_node(self) -> None:
        """Where it goes is a name; what it sends there stays with the node."""

        def route(state: Any) -> Command[str]:
            return Command(goto=[Send("legal", {"draft": "secret"}), "release"])

        assert (await run_stage(node_stage(route))).output == {"goto": ["legal", "release"]}
