"""One run of the OpenAI Agents SDK under a handoff: who takes part with which tools, what is charged, what crosses."""

import asyncio
import copy
import json
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
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
)
from agents import (
    Usage as SdkUsage,
)
from agents.items import HandoffOutputItem, ToolCallItem, ToolCallOutputItem
from agents.models import get_default_model
from agents.stream_events import RawResponsesStreamEvent, RunItemStreamEvent
from agents.tool import (
    FunctionTool,
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
from pydantic import ValidationError

from baton.agents.billing import UsageMeter
from baton.agents.port import HANDOFF_HEADER, AgentWork
from baton.agents.tools import AgentTool, as_text, wire_name
from baton.contract.compiler import compile_contract
from baton.contract.draft import ContractRequest, render_contract
from baton.contract.records import MAX_TASK_LENGTH, ToolDeniedError
from baton.contract.validation import validate_contract
from baton.errors import AgentError, PatchError
from baton.pipelines.activity_stream import StageStream
from baton.wire.money import Price, Usage
from baton.wire.text import describe_faults, fence

_CONTENT = ("text", "image", "file")  # the types of a dictionary that the SDK takes for content


class ToolRaisedError(Exception):
    """Carries what a tool raised out of a run, which the SDK would take for a wrong set-up."""

    def __init__(self, error: Exception) -> None:
        super().__init__(type(error).__name__)
        self.error = error


class AgentGraph:
    """An agent and all that it may hand off to, as they take part in the run of a stage."""

    def __init__(self, first: Agent[Any]) -> None:
        self.first = first
        self.agents = tuple(_reached(first))
        for agent in self.agents:
            for tool in agent.tools:
                if getattr(tool, "_is_agent_tool", False):
                    raise ValueError(
                        f"agent {agent.name!r} has the agent {tool.name!r} as a tool, whose own tools are not checked; "
                        "hand off to it, or make it a stage of its own"
                    )

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the tools that they bring along, except those of MCP servers, which are known later."""
        return frozenset(tool.name for agent in self.agents for tool in agent.tools)


class GuardedCopies:
    """Copies of a graph for one run: their tools are checked, and those that the contract does not allow are gone."""

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
        self._given: dict[int, Tool] = {}

    async def agent(self, agent: Agent[Any], context: Any) -> Agent[Any]:
        """Return the copy of an agent."""
        if id(agent) not in self._copies:
            copied = copy.copy(agent)  # not a clone, which reads the types of all members at every run
            copied.tools = await self._tools(agent, context)
            copied.mcp_servers = []
            copied.instructions = self._instructions(agent)
            copied.model_settings = self._settings(agent)
            copied.output_type = self._output(agent) if callable(self._output) else self._output
            self._copies[id(agent)] = copied  # before its handoffs, which may lead back to it
            copied.handoffs = [await self._handoff(one, context) for one in agent.handoffs]
        return self._copies[id(agent)]

    def tools_of(self, name: str) -> frozenset[str]:
        """Return the tools that an agent of the run may call."""
        names = {tool.wire_name: tool.name for tool in self._work.tools}
        return frozenset(
            names.get(tool.name, tool.name)
            for agent in self._copies.values()
            if agent.name == name
            for tool in agent.tools
        )

    def hidden(self) -> dict[str, str]:
        """Return the tools that are there and not allowed: by the name for the model, that of the contract."""
        context = self._work.context
        known = self._graph.tool_names | context.spec.tools | self._work.withheld | self._mcp_tools
        known |= frozenset(context.contract.forbidden_tools if context.contract else ())
        return {wire_name(name): name for name in known if not context.tools.allows(name)}

    def added(self, agent: Agent[Any]) -> frozenset[str]:
        """Return the tools that a copy was given by somebody else, as a tool may do to its agent, and may not call."""
        allows = self._work.context.tools.allows
        return frozenset(one.name for one in agent.tools if id(one) not in self._given and not allows(one.name))

    async def _tools(self, agent: Agent[Any], context: Any) -> list[Tool]:
        """Return the tools that a copy has: those that the contract allows, each checked where it is called."""
        allows = self._work.context.tools.allows
        tools = list(agent.tools)
        if agent.mcp_servers and self._mcp_tools:
            fetched = await agent.get_mcp_tools(RunContextWrapper(context))
            tools += [tool for tool in fetched if tool.name in self._mcp_tools]
        checked: list[Tool] = [
            _guarded(tool, self._work) if isinstance(tool, FunctionTool) else tool
            for tool in tools
            if allows(tool.name)
        ]
        if agent is self._graph.first:
            checked += [_of_stage(tool) for tool in self._work.tools]
        self._given |= {id(tool): tool for tool in checked}
        return checked

    def _settings(self, agent: Agent[Any]) -> ModelSettings:
        """Return an agent's own settings; its requests name the handoff, beside headers that it has itself."""
        made = copy.copy(agent.model_settings)
        made.preserve_raw_usage = True
        if made.include_usage is None and self._work.context.stream.wanted:
            made.include_usage = True  # else a server of chat completions that streams tells no usage
        made.extra_headers = {**(made.extra_headers or {}), HANDOFF_HEADER: self._work.handoff_id}
        return made

    def _instructions(self, agent: Agent[Any]) -> Any:
        """Return an agent's own instructions, and those of the stage after them."""
        own, ours = agent.instructions, self._work.instructions
        if not ours or not callable(own):
            return "\n\n".join(text for text in (own, ours) if text) or None if not callable(own) else own

        async def both(context: RunContextWrapper[Any], current: Agent[Any]) -> str:
            said = await agent.get_system_prompt(context)
            return "\n\n".join(text for text in (said, ours) if text)

        return both

    async def _handoff(self, one: Agent[Any] | Handoff[Any, Any], context: Any) -> Agent[Any] | Handoff[Any, Any]:
        """Return a handoff that leads to the copy of an agent."""
        if isinstance(one, Agent):
            return await self.agent(one, context)
        made, invoke = copy.copy(one), one.on_invoke_handoff

        async def to_copy(run: RunContextWrapper[Any], raw: str) -> Agent[Any]:
            return await self.agent(await invoke(run, raw), context)

        made.on_invoke_handoff = to_copy
        return made


class RecordingHooks(RunHooks[Any]):
    """Charges every response, records what was said, and ends a run that calls what it may not."""

    def __init__(self, work: AgentWork, agent: str, copies: GuardedCopies, price: Price | None) -> None:
        self._work = work
        self._copies_of_run = copies
        self._meter = UsageMeter(work, agent, price)
        self._asked: tuple[RunContextWrapper[Any], Agent[Any]] | None = None
        self._read: list[Any] = []

    async def on_llm_start(
        self, context: RunContextWrapper[Any], agent: Agent[Any], system_prompt: str | None, input_items: list[Any]
    ) -> None:
        """Count the request, and keep what counts the tokens of the run."""
        self._asked = context, agent
        self._read = [system_prompt, *input_items]
        self._meter.request()

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """Charge and record a response."""
        session = self._work.context.session
        calls = [one.name for one in response.output if isinstance(one, ResponseFunctionToolCall)]
        for item in response.output:
            if isinstance(item, ResponseOutputMessage) and calls and (text := _text(item)):
                session.model_response(text)
            elif isinstance(item, ResponseReasoningItem):
                for part in item.summary:
                    session.internal_note(part.text)
        usage = Usage.read(response.raw_usage or {}) or _usage(response.usage)
        if not usage and self._work.context.stream.wanted:  # many servers measure only what they do not stream
            usage = self._meter.estimated(self._read, response.output)
        self._meter.charge(usage, _model_of(agent))
        denied = {name: name for name in self._copies_of_run.added(agent)} | self._copies_of_run.hidden()
        for name in calls:
            if name in denied:
                self._work.context.tools.check(denied[name])
        if calls:
            self._meter.check()
        if all(isinstance(one, ResponseReasoningItem) or _is_empty(one) for one in response.output):
            raise PatchError(["the answer is empty; answer in the form asked for"])

    def settle(self) -> None:
        """Charge what the run used beyond the responses that were seen: those in which the SDK itself found fault."""
        if self._asked is None:
            return
        run, agent = self._asked
        self._meter.settle(_usage(run.usage), _model_of(agent))


class EventSpeaker:
    """Tells those who follow the run what the events of a streamed run say."""

    def __init__(self, stream: StageStream) -> None:
        self._stream = stream
        self._called: dict[str, str] = {}

    def tell(self, event: StreamEvent) -> None:
        """Tell what one event says: a piece of a text, the call of a tool, or its answer."""
        match event:
            case RawResponsesStreamEvent(data=ResponseTextDeltaEvent(delta=text)):
                self._stream.text(text)
            case RunItemStreamEvent(item=ToolCallItem(raw_item=ResponseFunctionToolCall() as call)):
                self._called[call.call_id] = call.name
                self._stream.tool_called(call.name, call.arguments)
            case RunItemStreamEvent(item=ToolCallOutputItem(raw_item={"call_id": str(call_id)}, output=output)):
                self._stream.tool_answered(self._called.get(call_id, ""), as_text(output))


async def ended(running: RunResultStreaming) -> None:
    """Wait until nothing of a streamed run is left running, also where it was given up."""
    running.cancel()
    if running.run_loop_task is not None:
        await asyncio.wait([running.run_loop_task])


def contract_input_filter(
    work: AgentWork, tools_of: Callable[[str], frozenset[str]] | None = None, turn: Callable[[], str] | None = None
) -> HandoffInputFilter:
    """Return a filter for handoffs inside a run: the next agent reads a contract instead of the history."""

    def passed_on(data: HandoffInputData) -> HandoffInputData:
        receiver = next(
            (one.target_agent.name for one in data.new_items if isinstance(one, HandoffOutputItem)), "agent"
        )
        found = _established(work, receiver, tools_of(receiver) if tools_of else frozenset())
        text = f"{fence(found, secrets.token_hex(8))}\n{(turn or work.user_turn)()}"
        return data.clone(input_history=text, pre_handoff_items=(), input_items=())

    return passed_on


def _established(work: AgentWork, receiver: str, tools: frozenset[str]) -> str:
    """Return what a run has established, as the contract for an agent that it hands off to."""
    context = work.context
    given = context.contract
    able = frozenset(filter(context.tools.allows, tools))
    request = ContractRequest(
        handoff_id=f"{work.handoff_id or context.given.stage}:{receiver}",
        receiving_agent=receiver,
        task=given.task if given else context.baton.goal[:MAX_TASK_LENGTH],
        trace_id=given.trace_id if given else context.given.task_id,
        created_at=datetime.now(UTC),
        capability=able,
        granted=able,
        forbidden=frozenset(given.forbidden_tools if given else ()),
    )
    made = compile_contract(context.session.events, request, estimator=context.parts.counter)
    events = context.session.events
    verdict = validate_contract(made.contract, now=request.created_at, report=made.report, events=events)
    if not verdict:
        raise AgentError(f"the contract for agent {receiver!r} does not hold: {verdict}", permanent=True)
    return render_contract(made.contract)


def _reached(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """Yield an agent and all that it leads to by handoffs, each once."""
    seen: dict[int, Agent[Any]] = {}
    found = [agent]
    while found:
        one = found.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            yield one
            for next_one in one.handoffs:
                ref = None if isinstance(next_one, Agent) else next_one._agent_ref
                target = ref() if ref else next_one
                if isinstance(target, Agent):
                    found.append(target)


def _guarded(tool: FunctionTool, work: AgentWork) -> FunctionTool:
    """Return a tool that is checked and recorded at every call; what it tells the model of an error stays its own."""
    bare = set_function_tool_failure_error_function(copy.copy(tool), None)  # so that the guard sees an error as one

    async def invoke(context: ToolContext[Any], raw: str) -> Any:
        async def call(**arguments: Any) -> Any:
            return await bare.on_invoke_tool(context, raw)

        try:
            return await work.context.tools.guard(call, tool.name)(**_arguments(raw))
        except ToolDeniedError:
            raise
        except Exception as error:
            told = await maybe_invoke_function_tool_failure_error_function(
                function_tool=tool, context=context, error=error
            )
            if told is None:
                raise ToolRaisedError(error) from error
            return told

    made = copy.copy(tool)
    made.on_invoke_tool = invoke
    return made


def _of_stage(tool: AgentTool) -> FunctionTool:
    """Return a tool of the stage, which is guarded already, as one of the SDK."""

    async def invoke(context: ToolContext[Any], raw: str) -> Any:
        try:
            arguments = json.loads(raw or "{}")
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):  # called without its arguments, a tool may do more than was asked of it
            return "error: the arguments are expected as a JSON object"
        try:
            result = await tool.call(arguments)
            return result if _is_content(result) else as_text(result)
        except ToolDeniedError:
            raise
        except ValidationError as error:
            return f"error: the arguments do not fit: {describe_faults(error)}"
        except Exception as error:
            raise ToolRaisedError(error) from error

    return FunctionTool(tool.wire_name, tool.description, {**tool.parameters}, invoke, strict_json_schema=False)


def _is_content(result: Any) -> bool:
    """Return whether a tool returned what the SDK sends as texts, images or files; of the rest it sends Python's."""
    parts = result if isinstance(result, list | tuple) else [result]
    return bool(parts) and all(
        one.get("type") in _CONTENT
        if isinstance(one, dict)
        else isinstance(one, ToolOutputText | ToolOutputImage | ToolOutputFileContent)
        for one in parts
    )


def _arguments(raw: str) -> dict[str, Any]:
    """Return the arguments in the text that a model wrote, for the record; empty unless it is an object."""
    try:
        found = json.loads(raw or "{}")
    except ValueError:
        return {}
    return {str(name): value for name, value in found.items()} if isinstance(found, dict) else {}


def _usage(usage: SdkUsage) -> Usage:
    """Return the tokens that the SDK counted."""
    told = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "input_tokens_details": usage.input_tokens_details.model_dump(),
        "output_tokens_details": usage.output_tokens_details.model_dump(),
    }
    return Usage.read(told) or Usage()


def _is_empty(item: Any) -> bool:
    """Return whether an item is a message without a text, and without a word on why there is none."""
    return isinstance(item, ResponseOutputMessage) and not any(
        getattr(part, "text", "").strip() or getattr(part, "refusal", "") for part in item.content
    )


def _text(message: ResponseOutputMessage) -> str:
    """Return the text of a message."""
    return "".join(getattr(part, "text", "") for part in message.content).strip()


def _model_of(agent: Agent[Any]) -> str:
    """Return the name of an agent's model."""
    model = agent.model
    return model if isinstance(model, str) else str(getattr(model, "model", "") or get_default_model())
