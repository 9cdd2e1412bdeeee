"""One run of the OpenAI Agents SDK under a handoff: guarded tools, billing, and contracts for handoffs inside it."""

import asyncio
import copy
import json
import secrets
from collections.abc import Callable, Iterator
from typing import Any

from agents import (
    Agent,
    AgentOutputSchemaBase,
    Handoff,
    HandoffInputData,
    HandoffInputFilter,
    ModelResponse,
    ModelSettings,
    RunContextWrapper,
    RunHooks,
    RunResultStreaming,
    StreamEvent,
    Tool,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    TResponseInputItem,
)
from agents import (
    Usage as SdkUsage,
)
from agents.items import HandoffOutputItem, ToolCallItem, ToolCallOutputItem
from agents.models import get_default_model
from agents.run import CallModelData, CallModelInputFilter, ModelInputData
from agents.stream_events import RawResponsesStreamEvent, RunItemStreamEvent
from agents.tool import (
    FunctionTool,
    ToolOriginType,
    get_function_tool_origin,
    maybe_invoke_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)
from agents.tool_context import ToolContext
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseReasoningItem,
    ResponseTextDeltaEvent,
)
from openai.types.responses.response_output_item import McpCall
from pydantic import ValidationError

from baton.agents.billing import UsageMeter
from baton.agents.current_work import new_notes
from baton.agents.failures import finish_error
from baton.agents.nested import find_agents
from baton.agents.openai_agents_wire import AnswerWatch
from baton.agents.port import HANDOFF_HEADER, AgentWork
from baton.agents.results import record_text
from baton.agents.sub_agents import sub_contract
from baton.agents.tools import AgentTool, render_result, wire_name
from baton.contract.activity import SessionLog
from baton.contract.activity_transcript import OpenRequest
from baton.contract.draft import render_contract
from baton.contract.records import ToolDeniedError
from baton.contract.registry import tool_key
from baton.errors import PatchError
from baton.pipelines.activity_stream import StageStream
from baton.wire.money import Price, Usage
from baton.wire.text import describe_faults, fence

_CONTENT_TYPES = ("text", "image", "file")  # the types of dictionaries that the SDK treats as content


class ToolRaisedError(Exception):
    """Wraps an exception of a tool, which the SDK would report as a misconfiguration."""

    def __init__(self, error: Exception) -> None:
        super().__init__(type(error).__name__)
        self.error = error


class AgentGraph:
    """An agent and all agents that it may hand off to."""

    def __init__(self, first: Agent[Any]) -> None:
        self.first = first
        self.agents = tuple(_reachable_agents(first))
        for agent in self.agents:
            for tool in agent.tools:
                if isinstance(tool, FunctionTool) and _asks_agent(tool):
                    raise ValueError(
                        f"agent {agent.name!r} has the agent {tool.name!r} as a tool, whose own tools are not checked; "
                        "hand off to it, or give the stage the tool agent_tool(OpenAIAgent(…), …)"
                    )

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the agents' tools, except those of MCP servers, which are not known yet."""
        return frozenset(tool.name for agent in self.agents for tool in agent.tools)

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        """What the agents' tools call, by their names."""
        tools = (tool for agent in self.agents for tool in agent.tools)
        return {tool.name: tool.on_invoke_tool for tool in tools if isinstance(tool, FunctionTool)}


class GuardedCopies:
    """Copies of a graph for one run, with guarded tools and without forbidden ones."""

    def __init__(
        self,
        graph: AgentGraph,
        work: AgentWork,
        output: AgentOutputSchemaBase | Callable[[Agent[Any]], Any] | None,
        mcp_tools: frozenset[str],
    ) -> None:
        self._graph = graph
        self._work = work
        self._output = output
        self._mcp_tools = mcp_tools
        self._copies: dict[int, Agent[Any]] = {}
        self._added: dict[int, Tool] = {}

    async def copy_agent(self, agent: Agent[Any], context: Any) -> Agent[Any]:
        """Return the copy of an agent, making it first if necessary."""
        if id(agent) not in self._copies:
            copied = copy.copy(agent)  # `clone` would read the types of all members
            copied.tools = await self._tools(agent, context)
            copied.mcp_servers = []
            copied.instructions = self._instructions(agent)
            copied.model_settings = self._settings(agent)
            copied.output_type = self._output(agent) if callable(self._output) else self._output
            self._copies[id(agent)] = copied  # before its handoffs, which may lead back to it
            copied.handoffs = [await self._copy_handoff(handoff, context) for handoff in agent.handoffs]
        return self._copies[id(agent)]

    def acting(self, agent: Agent[Any]) -> str | None:
        """Return the name under which an agent is recorded; None for the first, which is the stage."""
        return None if agent.name == self._graph.first.name else agent.name

    def tool_names_of(self, name: str) -> frozenset[str]:
        """Return the tools that an agent of the run may call."""
        names = {tool.wire_name: tool.name for tool in self._work.tools}
        return frozenset(
            names.get(tool.name, tool.name)
            for agent in self._copies.values()
            if agent.name == name
            for tool in agent.tools
        )

    def forbidden_tools(self) -> dict[str, str]:
        """Return the forbidden tools: the keys of the names for the model, and the names in the contract."""
        context = self._work.context
        names = self._graph.tool_names | context.spec.tools | self._work.withheld | self._mcp_tools
        names |= context.forbidden_tools
        return {tool_key(wire_name(name)): name for name in names if not context.tools.allows(name)}

    def foreign_tools(self, agent: Agent[Any]) -> frozenset[str]:
        """Return the forbidden tools that were added to a copy during the run, as a tool may do to its agent."""
        allows = self._work.context.tools.allows
        return frozenset(tool.name for tool in agent.tools if id(tool) not in self._added and not allows(tool.name))

    async def _tools(self, agent: Agent[Any], context: Any) -> list[Tool]:
        """Return the guarded tools that the contract allows."""
        allows = self._work.context.tools.allows
        tools = list(agent.tools)
        if agent.mcp_servers and self._mcp_tools:
            fetched = await agent.get_mcp_tools(RunContextWrapper(context))
            tools += [tool for tool in fetched if tool.name in self._mcp_tools]
        guarded: list[Tool] = [
            _guard_tool(tool, self._work, self.acting(agent)) if isinstance(tool, FunctionTool) else tool
            for tool in tools
            if allows(tool.name) and (isinstance(tool, FunctionTool) or self._work.context.lab is None)
        ]
        if agent is self._graph.first:
            guarded += [_convert_tool(tool) for tool in self._work.tools]
        self._added |= {id(tool): tool for tool in guarded}
        return guarded

    def _settings(self, agent: Agent[Any]) -> ModelSettings:
        """Return an agent's settings with the handoff id among the headers."""
        settings = copy.copy(agent.model_settings)
        settings.preserve_raw_usage = True
        if settings.include_usage is None and self._work.context.stream.wanted:
            settings.include_usage = True  # otherwise chat-completions servers do not report usage for streams
        settings.extra_headers = {**(settings.extra_headers or {}), HANDOFF_HEADER: self._work.handoff_id}
        return settings

    def _instructions(self, agent: Agent[Any]) -> Any:
        """Return an agent's own instructions followed by those of the stage."""
        own, added = agent.instructions, self._work.instructions
        if not added or not callable(own):
            return "\n\n".join(text for text in (own, added) if text) or None if not callable(own) else own

        async def combine(context: RunContextWrapper[Any], current: Agent[Any]) -> str:
            prompt = await agent.get_system_prompt(context)
            return "\n\n".join(text for text in (prompt, added) if text)

        return combine

    async def _copy_handoff(
        self, handoff: Agent[Any] | Handoff[Any, Any], context: Any
    ) -> Agent[Any] | Handoff[Any, Any]:
        if isinstance(handoff, Agent):
            return await self.copy_agent(handoff, context)
        copied, invoke = copy.copy(handoff), handoff.on_invoke_handoff

        async def invoke_copy(run: RunContextWrapper[Any], raw: str) -> Agent[Any]:
            return await self.copy_agent(await invoke(run, raw), context)

        copied.on_invoke_handoff = invoke_copy
        return copied


class RecordingHooks(RunHooks[Any]):
    """Charges every response, records the session, and ends a run that calls a forbidden tool."""

    def __init__(self, work: AgentWork, agent: str, copies: GuardedCopies, price: Price | None) -> None:
        self._work = work
        self._agent = agent
        self.watch = AnswerWatch()
        self._copies = copies
        self._meter = UsageMeter(work, agent, price)
        self._last_request: tuple[RunContextWrapper[Any], Agent[Any]] | None = None
        self._prompt: list[Any] = []
        self._request: OpenRequest | None = None

    async def on_llm_start(
        self, context: RunContextWrapper[Any], agent: Agent[Any], system_prompt: str | None, input_items: list[Any]
    ) -> None:
        """Count the request."""
        self._last_request = context, agent
        self.watch.begin()
        self._prompt = [system_prompt, *input_items]
        self._request = self._meter.count_request(_list_messages(system_prompt, input_items))

    async def on_handoff(self, context: RunContextWrapper[Any], from_agent: Agent[Any], to_agent: Agent[Any]) -> None:
        """Record a handoff inside the run: it is a call of the tool by which a model hands off."""
        handoffs = (handoff for handoff in from_agent.handoffs if isinstance(handoff, Handoff))
        names = (handoff.tool_name for handoff in handoffs if handoff.agent_name == to_agent.name)
        session = self._work.context.session
        with session.acting_as(self._copies.acting(from_agent)):
            session.tool_call(next(names, Handoff.default_tool_name(to_agent)), {"to": to_agent.name})

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """Charge and record a response."""
        session = self._work.context.session
        calls = [item.name for item in response.output if isinstance(item, ResponseFunctionToolCall)]
        with session.acting_as(self._copies.acting(agent)):
            for item in response.output:
                if isinstance(item, ResponseOutputMessage) and calls:
                    record_text(session, _message_text(item))
                elif isinstance(item, ResponseReasoningItem):
                    for part in item.summary:
                        session.internal_note(part.text)
                else:
                    _record_provider_call(session, item)
        usage = Usage.read(response.raw_usage or {}) or _convert_usage(response.usage)
        if not usage and not response.raw_usage:  # many servers do not measure
            usage = self._meter.estimate_usage(self._prompt, response.output)
        said = "\n".join(_message_text(item) for item in response.output if isinstance(item, ResponseOutputMessage))
        self._meter.charge(usage, _model_name(agent), request=self._request, said=said)
        self.watch.usage = None
        forbidden = {tool_key(name): name for name in self._copies.foreign_tools(agent)}
        forbidden |= self._copies.forbidden_tools()
        for name in calls:
            if (forbidden_name := forbidden.get(tool_key(name))) is not None:
                self._work.context.tools.check(forbidden_name)
        if calls:
            self._meter.check_limits()
        error = finish_error(self.watch.reason, self._agent)
        if error is not None and not (calls and isinstance(error, PatchError)):
            raise error
        if all(isinstance(item, ResponseReasoningItem) or _is_empty(item) for item in response.output):
            raise PatchError(["the answer is empty; answer in the form asked for"])

    def settle(self) -> None:
        """Charge usage beyond the seen responses: the SDK drops responses that it finds invalid."""
        if self._last_request is None:
            return
        run, agent = self._last_request
        if self.watch.usage is not None:
            self._meter.charge(self.watch.usage, _model_name(agent))
        self._meter.settle(_convert_usage(run.usage), _model_name(agent))


class EventForwarder:
    """Forwards the events of a streamed run to clients that follow it."""

    def __init__(self, stream: StageStream) -> None:
        self._stream = stream
        self._tool_names: dict[str, str] = {}

    def forward(self, event: StreamEvent) -> None:
        """Forward a piece of text, a tool call, or a tool result."""
        match event:
            case RawResponsesStreamEvent(data=ResponseTextDeltaEvent(delta=text)):
                self._stream.text(text)
            case RunItemStreamEvent(item=ToolCallItem(raw_item=ResponseFunctionToolCall() as call)):
                self._tool_names[call.call_id] = call.name
                self._stream.tool_called(call.name, call.arguments)
            case RunItemStreamEvent(item=ToolCallOutputItem(raw_item={"call_id": str(call_id)}, output=output)):
                self._stream.tool_answered(self._tool_names.get(call_id, ""), render_result(output))


async def stop_run(running: RunResultStreaming) -> None:
    """Cancel a streamed run and wait for its end."""
    running.cancel()
    if running.run_loop_task is not None:
        await asyncio.wait([running.run_loop_task])


def contract_input_filter(
    work: AgentWork, tool_names_of: Callable[[str], frozenset[str]] | None = None, turn: Callable[[], str] | None = None
) -> HandoffInputFilter:
    """Return an input filter for handoffs inside a run: the next agent reads a contract instead of the history."""

    def filter_input(data: HandoffInputData) -> HandoffInputData:
        receiver = next(
            (item.target_agent.name for item in data.new_items if isinstance(item, HandoffOutputItem)), "agent"
        )
        tools = tool_names_of(receiver) if tool_names_of else frozenset[str]()
        contract = render_contract(sub_contract(work, receiver, tools))
        text = f"{fence(contract, secrets.token_hex(8))}\n{(turn or work.user_turn)()}"
        return data.clone(input_history=text, pre_handoff_items=(), input_items=())

    return filter_input


def notes_filter(work: AgentWork) -> CallModelInputFilter | None:
    """Return a filter that ends each request with people's notes so far; None if nobody may send any."""
    if not work.context.given.steer:
        return None
    shown: list[TResponseInputItem] = []  # the run itself does not keep what a filter adds

    async def add_notes(data: CallModelData[Any]) -> ModelInputData:
        if notes := await new_notes(work):
            shown.append({"role": "user", "content": notes})
        return ModelInputData([*data.model_data.input, *shown], data.model_data.instructions)

    return add_notes


def _reachable_agents(first: Agent[Any]) -> Iterator[Agent[Any]]:
    """Yield an agent and all agents that its handoffs lead to."""
    seen: dict[int, Agent[Any]] = {}
    pending = [first]
    while pending:
        agent = pending.pop()
        if id(agent) not in seen:
            seen[id(agent)] = agent
            yield agent
            for handoff in agent.handoffs:
                if isinstance(handoff, Agent):
                    pending.append(handoff)
                else:
                    targets = find_agents(handoff.on_invoke_handoff)
                    pending += [target for target in targets if target.name == handoff.agent_name]


def _asks_agent(tool: FunctionTool) -> bool:
    origin = get_function_tool_origin(tool)
    return origin is not None and origin.type is ToolOriginType.AGENT_AS_TOOL


def _guard_tool(tool: FunctionTool, work: AgentWork, acting: str | None) -> FunctionTool:
    """Return an agent's tool that is checked and recorded at every call; errors reach the model as the tool wants."""
    raising = set_function_tool_failure_error_function(copy.copy(tool), None)  # so that the guard sees errors

    async def invoke(context: ToolContext[Any], raw: str) -> Any:
        async def call(**arguments: Any) -> Any:
            return await raising.on_invoke_tool(context, raw)

        try:
            with work.context.session.acting_as(acting):
                return await work.context.tools.guard(call, tool.name)(**_parse_arguments(raw))
        except ToolDeniedError:
            raise
        except Exception as error:
            message = await maybe_invoke_function_tool_failure_error_function(
                function_tool=tool, context=context, error=error
            )
            if message is None:
                raise ToolRaisedError(error) from error
            return message

    guarded = copy.copy(tool)
    guarded.on_invoke_tool = invoke
    return guarded


def _convert_tool(tool: AgentTool) -> FunctionTool:
    """Convert a tool of the stage, which is guarded already, to one of the SDK."""

    async def invoke(context: ToolContext[Any], raw: str) -> Any:
        try:
            arguments = json.loads(raw or "{}")
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):  # without its arguments, a tool might do more than the model asked for
            return "error: the arguments are expected as a JSON object"
        try:
            result = await tool.call(arguments)
            return result if _is_content(result) else render_result(result)
        except ToolDeniedError:
            raise
        except ValidationError as error:
            return f"error: the arguments do not fit: {describe_faults(error)}"
        except Exception as error:
            raise ToolRaisedError(error) from error

    return FunctionTool(tool.wire_name, tool.description, {**tool.parameters}, invoke, strict_json_schema=False)


def _is_content(result: Any) -> bool:
    """Return whether the SDK sends a result as text, image or file content; other results it sends as `str`."""
    parts = result if isinstance(result, list | tuple) else [result]
    return bool(parts) and all(
        part.get("type") in _CONTENT_TYPES
        if isinstance(part, dict)
        else isinstance(part, ToolOutputText | ToolOutputImage | ToolOutputFileContent)
        for part in parts
    )


def _list_messages(system: str | None, items: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield what a request asks: role and text."""
    if system:
        yield "system", system
    for item in items:
        members = item if isinstance(item, dict) else item.model_dump(exclude_none=True)
        kind = members.get("type")
        if kind == "function_call":
            yield "assistant", f"{members.get('name')}({members.get('arguments')})"
        elif kind == "function_call_output":
            yield "tool", render_result(members.get("output"))
        else:
            content = members.get("content") or members.get("summary") or ""
            parts = content if isinstance(content, list) else [content]
            texts = (str(part.get("text") or part) if isinstance(part, dict) else str(part) for part in parts)
            yield ("thought" if kind == "reasoning" else str(members.get("role") or kind)), "\n".join(texts)


def _parse_arguments(raw: str) -> dict[str, Any]:
    """Parse the arguments of a call for the record; return {} unless they are an object."""
    try:
        arguments = json.loads(raw or "{}")
    except ValueError:
        return {}
    return {str(name): value for name, value in arguments.items()} if isinstance(arguments, dict) else {}


_PROVIDER_TOOLS = {
    "web_search_call": "web_search",
    "file_search_call": "file_search",
    "code_interpreter_call": "code_interpreter",
    "image_generation_call": "image_generation",
}
"""The tools that the provider runs, by the type of their calls."""


def _record_provider_call(session: SessionLog, item: Any) -> None:
    """Record the call of a tool that the provider ran, and its result where the response has it."""
    if isinstance(item, McpCall):
        call_id = session.tool_call(item.name, _parse_arguments(item.arguments))
        session.tool_result(item.name, item.output or "", call_id=call_id, success=item.error is None)
    elif tool := _PROVIDER_TOOLS.get(str(getattr(item, "type", ""))):
        members = item.model_dump(mode="json", exclude_none=True)
        asked = {name: members[name] for name in ("action", "queries", "code") if name in members}
        call_id = session.tool_call(tool, asked)
        if found := members.get("results") or members.get("outputs"):
            success = members.get("status") == "completed"
            session.tool_result(tool, render_result(found), call_id=call_id, success=success)


def _convert_usage(usage: SdkUsage) -> Usage:
    report = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "input_tokens_details": usage.input_tokens_details.model_dump(),
        "output_tokens_details": usage.output_tokens_details.model_dump(),
    }
    return Usage.read(report) or Usage()


def _is_empty(item: Any) -> bool:
    """Return whether an item is a message without text and without a refusal."""
    return isinstance(item, ResponseOutputMessage) and not any(
        getattr(part, "text", "").strip() or getattr(part, "refusal", "") for part in item.content
    )


def _message_text(message: ResponseOutputMessage) -> str:
    return "".join(getattr(part, "text", "") for part in message.content).strip()


def _model_name(agent: Agent[Any]) -> str:
    model = agent.model
    return model if isinstance(model, str) else str(getattr(model, "model", "") or get_default_model())
