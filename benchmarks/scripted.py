"""Scripted models, of each framework that Baton has an adapter for: they act out `benchmarks.planted` turn by turn.

A model does what its prompt asks: it calls the tools it was offered, reads their results, and closes with notes only if
it was asked for them. What each read first is kept in `READ`.
"""

import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agents import Model, ModelResponse, Usage
from agents.items import TResponseStreamEvent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from pydantic_ai import ModelMessage, TextPart, ToolCallPart
from pydantic_ai import ModelResponse as PydanticResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel

from benchmarks.planted import TOOLS, Step, script

TASK = "You are one of five agents who prepare a move. Do your part with your tools, and answer with a short text."
"""What every agent is told."""

READ: dict[str, str] = {}
"""What each agent read before it began: all texts of its first request, by its role."""


def act(role: str, texts: Sequence[str], call_ids: Sequence[str]) -> tuple[str, Step | None, str]:
    """Return what an agent says next, its call of a tool if it is not done, and the call's id.

    Args:
        role: The agent.
        texts: All texts of the request.
        call_ids: The ids of the calls in the request, of this agent and of others.
    """
    done = sum(call_id.startswith(f"{role}-") for call_id in call_ids)
    if done == 0:
        READ[role] = "\n".join(texts)
    steps = script(role).steps
    if done < len(steps):
        return steps[done].said, steps[done], f"{role}-{done}"
    return script(role).closing(READ[role]), None, ""


def pydantic_model(role: str) -> FunctionModel:
    """Return the model of an agent of Pydantic AI."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> PydanticResponse:
        texts = [info.instructions or ""]
        call_ids = []
        for part in (part for message in messages for part in message.parts):
            if isinstance(part, ToolCallPart):
                call_ids.append(part.tool_call_id)
                texts.append(f"{part.tool_name} {part.args_as_json_str()}")
            else:
                texts.append(str(getattr(part, "content", "")))
        said, step, call_id = act(role, texts, call_ids)
        call = [ToolCallPart(step.tool, step.arguments, call_id)] if step else []
        return PydanticResponse([TextPart(said), *call])

    return FunctionModel(answer)


class SdkModel(Model):
    """The model of an agent of the OpenAI Agents SDK.

    Args:
        role: The agent.
        successor: The agent that it hands off to once it is done; None if it answers.
    """

    def __init__(self, role: str, successor: str | None = None) -> None:
        self._role, self._successor = role, successor

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        """Answer."""
        texts = [system_instructions or ""]
        call_ids = []
        for item in [{"content": input}] if isinstance(input, str) else input:
            if item.get("type") == "function_call":
                call_ids.append(item["call_id"])
                texts.append(f"{item['name']} {item['arguments']}")
            else:
                texts.append(_text_of(item.get("content") or item.get("output")))
        said, step, call_id = act(self._role, texts, call_ids)
        part = ResponseOutputText(text=said, annotations=[], type="output_text")
        output: list[Any] = [
            ResponseOutputMessage(
                id=f"m{len(texts)}", content=[part], role="assistant", status="completed", type="message"
            )
        ]
        if step is not None:
            output.append(_sdk_call(step.tool, step.arguments, call_id))
        elif self._successor is not None:
            output.append(_sdk_call(f"transfer_to_{self._successor}", {}, f"to-{self._successor}"))
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Refuse: nothing here streams."""
        raise NotImplementedError


def _sdk_call(name: str, arguments: dict[str, str], call_id: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(name=name, arguments=json.dumps(arguments), call_id=call_id, type="function_call")


class LangChainModel(BaseChatModel):
    """The model of an agent of LangGraph.

    Attributes:
        role: The agent.
    """

    role: str

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        """Return the model: the script knows its tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        texts, call_ids = [], []
        for message in messages:
            texts.append(_text_of(message.content))
            for call in getattr(message, "tool_calls", ()):
                call_ids.append(call["id"])
                texts.append(f"{call['name']} {json.dumps(call['args'])}")
        said, step, call_id = act(self.role, texts, call_ids)
        calls = [{"name": step.tool, "args": step.arguments, "id": call_id}] if step else []
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said, tool_calls=calls))])


def make_graph(role: str, task: str) -> Any:
    """Return the graph of an agent of LangGraph: its model and its tools in turns, over a state of messages."""

    async def model(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        request = [SystemMessage(task), *state["messages"]]
        return {"messages": [await LangChainModel(role=role).ainvoke(request, config)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([*TOOLS]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(name=role)


@contextmanager
def chat_server() -> Iterator[str]:
    """Serve chat completions on this machine, and yield the address; the model in a request names the role."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _ChatHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _ChatHandler(BaseHTTPRequestHandler):
    """Answers requests for chat completions."""

    def do_POST(self) -> None:
        """Answer."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts, call_ids = [], []
        for message in request["messages"]:
            texts.append(_text_of(message.get("content")))
            for call in message.get("tool_calls") or ():
                call_ids.append(call["id"])
                texts.append(f"{call['function']['name']} {call['function']['arguments']}")
        said, step, call_id = act(request["model"], texts, call_ids)
        reply: dict[str, Any] = {"role": "assistant", "content": said}
        if step is not None:
            function = {"name": step.tool, "arguments": json.dumps(step.arguments)}
            reply["tool_calls"] = [{"id": call_id, "type": "function", "function": function}]
        choice = {"index": 0, "message": reply, "finish_reason": "tool_calls" if step else "stop"}
        completion = {"id": "1", "object": "chat.completion", "created": 0, "model": request["model"]}
        usage = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 1)
        body = json.dumps({**completion, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def _text_of(content: Any) -> str:
    """Return the text of a message's content: a text, or parts of which some have texts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content)
    return "" if content is None else str(content)
