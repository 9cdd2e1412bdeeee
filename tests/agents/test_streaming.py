"""What an adapter tells while its agent works: one suite for all five, against servers that speak the wire format.

`plain` is `chat_agent`, `pydantic` Pydantic AI, `sdk` and `responses` are the OpenAI Agents SDK with both of OpenAI's
interfaces, `graph` is a LangGraph graph, `program` a command.
"""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import Agent as OpenAISdkAgent
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from temporalio.exceptions import ApplicationError

from baton import Spend
from baton.agents import Agent as Port
from baton.agents import AgentTool, AnswerForm, agent_stage
from baton.agents.langgraph import LangGraphAgent
from baton.agents.openai_agents import OpenAIAgent
from baton.agents.subprocess_agent import SubprocessAgent
from baton.core.streaming import Part, PartKind
from baton.pipelines.activity_stream import StageStream
from tests.agents.material import context, contract, lookup
from tests.agents.test_adapters import own_server, plain, pydantic, sdk
from tests.agents.wire_model import WireModel
from tests.chat_server import (
    ChatServer,
    Reply,
    chat_server,
    chunks,
    completion,
    refusal,
    responses_call,
    responses_text,
    text_chunks,
)

CRM = AgentTool.of(lookup, name="crm.lookup")
PIECES = ["Batons ", "travel."]
__all__ = ["own_server"]
TOOL = {"name": "crm_lookup", "parameters": dict(CRM.parameters)}


def responses(server: ChatServer) -> Port:
    """Return an agent of the Agents SDK that speaks OpenAI's own interface."""
    return sdk(server, api="responses")


@tool("crm_lookup")
def crm_lookup(customer: str) -> str:
    """Find what a customer pays."""
    return lookup(customer)


def graph(server: ChatServer) -> Port:
    """Return a graph of a model and its tools."""
    model = WireModel(base=server.base, tools=(TOOL,))

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("ask", ask).add_node("tools", ToolNode([crm_lookup]))
    graph.add_edge(START, "ask").add_conditional_edges("ask", tools_condition).add_edge("tools", "ask")
    return LangGraphAgent(
        graph.compile(), into={"messages": "messages"}, out={"answer": "messages"}, uses=["crm_lookup"]
    )


Maker = Callable[[ChatServer], Port]
ALL = [plain, pydantic, sdk, responses, graph]


def calling(agent: Maker) -> Reply:
    """Return the stream of a call of the tool, as the agent's interface has it."""
    make_call = responses_call if agent is responses else chunks
    return Reply(events=make_call("crm_lookup", {"customer": "c-1"}))


def answering(agent: Maker, gate: threading.Event | None = None, *, measured: bool = True) -> Reply:
    """Return the stream of a text."""
    make_text = responses_text if agent is responses else text_chunks
    return Reply(events=make_text(*PIECES, measured=measured), gate=gate)


class Watched:
    """A stage's context, what was said in it, and a way to wait for a text."""

    def __init__(self) -> None:
        self.context = context(contract(["crm.lookup", "crm_lookup"]))
        self.context.given = self.context.given.model_copy(update={"stream": True})
        self._loop, self._said = asyncio.get_running_loop(), asyncio.Event()
        self.context.__dict__["stream"] = StageStream(True, self._tell)

    def _tell(self) -> None:
        self._loop.call_soon_threadsafe(self._said.set)

    @property
    def parts(self) -> Sequence[Part]:
        """What was said so far."""
        return tuple(self.context.stream.snapshot(1).parts)

    @property
    def whole(self) -> Sequence[Part]:
        """What was said, once the stage has ended."""
        return [part for member in self.context.stream.to_json() if (part := Part.from_json(member))]

    async def until(self, text: str) -> None:
        """Wait until a text was said."""
        while not any(text in part.text for part in self.parts):
            self._said.clear()
            await self._said.wait()


def staged(agent: Port, *tools: AgentTool) -> Any:
    """Return the stage of an agent that answers with a text."""
    return agent_stage(agent, answers=AnswerForm.TEXT, tools=tools)


@pytest.mark.parametrize("agent", ALL)
class TestModels:
    """An adapter must ..."""

    async def test_tell_tokens_and_tool_calls_as_they_come(self, agent: Maker) -> None:
        """Before the answer is there; the answer and the bill are those of an agent that does not stream (issue 35)."""
        gate, watched = threading.Event(), Watched()
        with chat_server(calling(agent), answering(agent, gate)) as server:
            running = asyncio.create_task(staged(agent(server), *([] if agent is graph else [CRM]))(watched.context))
            await watched.until(PIECES[0])
            parts_before = watched.parts
            gate.set()
            result = await running

        assert not running.cancelled()
        assert all(request.body["stream"] for request in server.asked)
        called, answered, text = watched.whole
        assert (called.kind, called.tool, json.loads(called.text)) == (
            PartKind.TOOL_CALLED,
            "crm_lookup",
            {"customer": "c-1"},
        )
        assert answered == Part(PartKind.TOOL_ANSWERED, "c-1 pays 20 USD", "crm_lookup")
        assert text == Part(PartKind.TEXT, "".join(PIECES))
        assert parts_before == (called, answered, Part(PartKind.TEXT, PIECES[0]))
        assert result.output == "".join(PIECES)
        assert watched.context.charged == Spend(micro_usd=7_000, prompt_tokens=2_000, completion_tokens=200)

    async def test_stream_nothing_that_nobody_follows(self, agent: Maker) -> None:
        """The provider is asked as always."""
        stage_context = context()
        with chat_server(refusal(503, "overloaded")) as server, pytest.raises(ApplicationError):
            await staged(agent(server))(stage_context)
        assert not server.asked[0].body.get("stream")
        assert stage_context.stream.snapshot(1).parts == ()

    async def test_charge_a_stream_that_nobody_measured(self, agent: Maker) -> None:
        """Many servers tell the usage only of what they do not stream; it is estimated, so no budget is blind."""
        watched = Watched()
        with chat_server(answering(agent, measured=False)) as server:
            await staged(agent(server))(watched.context)

        assert watched.context.charged.prompt_tokens > 50
        assert 0 < watched.context.charged.completion_tokens < 100

    async def test_wait_as_long_as_the_provider_asks(self, agent: Maker) -> None:
        """A stream that is refused fails as an answer that is."""
        watched = Watched()
        with (
            chat_server(refusal(429, "rate_limit_exceeded", Retry_After="70")) as server,
            pytest.raises(ApplicationError, match="answered 429") as raised,
        ):
            await staged(agent(server))(watched.context)
        assert raised.value.next_retry_delay is not None
        assert raised.value.next_retry_delay.total_seconds() == 70

    async def test_leave_nothing_running_when_it_is_cancelled(self, agent: Maker) -> None:
        """In the middle of a stream, whose server would never end."""
        gate, watched = threading.Event(), Watched()
        with chat_server(answering(agent, gate)) as server:
            others = asyncio.all_tasks()
            running = asyncio.create_task(staged(agent(server))(watched.context))
            await watched.until(PIECES[0])
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            while pending := asyncio.all_tasks() - others:  # of a framework that closes its connection by itself
                await asyncio.wait(pending)
            gate.set()


class TestPrograms:
    """A command tells the lines of its output."""

    async def test_lines_are_told_as_they_come(self, tmp_path: Path) -> None:
        """Without colours; the last line needs no end."""
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        code = (
            f"print('\\x1b[1mBatons\\x1b[0m', flush=True); open({str(gate)!r}).read();"
            "print('trav', end='', flush=True); print('el.', end='')"
        )
        watched = Watched()
        agent = SubprocessAgent("plan", [sys.executable, "-c", code])
        running = asyncio.create_task(staged(agent)(watched.context))
        await watched.until("Batons\n")
        assert watched.parts == (Part(PartKind.TEXT, "Batons\n"),)
        await asyncio.to_thread(gate.write_text, "go on")
        result = await running

        assert result.output == "Batons\ntravel."
        assert watched.whole == [Part(PartKind.TEXT, "Batons\ntravel.")]

    async def test_no_key_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nor a line of one that has several."""
        monkeypatch.setenv("PLAN_KEY", "sk-first-line\nsk-second-line")
        code = (
            "import os\nfor line in os.environ['PLAN_KEY'].splitlines(): print('key', line, flush=True)\nprint('done')"
        )
        watched = Watched()
        await staged(SubprocessAgent("plan", [sys.executable, "-c", code], environment=["PLAN_KEY"]))(watched.context)

        assert watched.whole == [Part(PartKind.TEXT, "key [withheld]\nkey [withheld]\ndone\n")]


@pytest.mark.parametrize(
    "agent",
    [
        SubprocessAgent("plan", ["true"], stream=True),
        OpenAIAgent(OpenAISdkAgent("plan", model="gpt-4o"), stream=True),
        LangGraphAgent(lambda state: state, stream=True),
    ],
    ids=["a command", "agents sdk", "a node"],
)
def test_an_agent_may_stream_in_every_pipeline(agent: Port) -> None:
    """Without a word of the pipeline's."""
    assert agent_stage(agent, name="plan").spec.stream


async def test_a_node_tells_what_a_model_of_it_said_that_does_not_stream() -> None:
    """Whole, once it has answered: a node that is no graph has no streaming mode."""
    watched = Watched()
    with chat_server(completion("".join(PIECES))) as server:
        model = WireModel(base=server.base)

        async def ask(state: dict[str, Any]) -> dict[str, Any]:
            return {"said": (await model.ainvoke("Plan")).text}

        node = LangGraphAgent(ask, out={"answer": "said"})
        result = await staged(node)(watched.context)

    assert result.output == "".join(PIECES)
    assert watched.whole == [Part(PartKind.TEXT, "".join(PIECES))]
