"""Agents of Pydantic AI as stages: any provider, structured answers, guarded tools, billing."""

import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pydantic import ValidationError

from baton.lazy import needs_extra

with needs_extra("agents", __name__):
    from pydantic_ai import Agent, NativeOutput, PromptedOutput, RunContext, StructuredDict, ToolOutput
    from pydantic_ai.agent import EventStreamHandler
    from pydantic_ai.exceptions import ModelRetry, RunTimedOut
    from pydantic_ai.messages import (
        AgentStreamEvent,
        FunctionToolCallEvent,
        FunctionToolResultEvent,
        PartDeltaEvent,
        PartStartEvent,
        RetryPromptPart,
        TextPart,
        TextPartDelta,
        ToolReturnPart,
    )
    from pydantic_ai.tools import Tool
    from pydantic_ai.toolsets import FunctionToolset
    from pydantic_ai.usage import RunUsage, UsageLimits

from baton.agents.answers import AgentAnswer, cached_by_identity
from baton.agents.billing import find_window, time_error
from baton.agents.nested import find_agents, refuse_nested_agents
from baton.agents.port import AgentWork
from baton.agents.pydantic_ai_run import (
    OUTPUT_TOOL,
    RecordingCapability,
    changed,
    functions_of,
    handoff_settings,
    has_own_type,
    tool_names_of,
    translate_error,
)
from baton.agents.tools import AgentTool
from baton.core.stages import name_set
from baton.wire.money import Price
from baton.wire.text import describe_faults

_HEARTBEAT_INTERVAL = 1.0  # seconds, during a stream


@dataclass(frozen=True)
class PydanticAgent:
    """A Pydantic AI agent as a stage.

    Attributes:
        agent: The agent, with its model, instructions and tools. Its provider takes the key from the worker's
            environment; no message contains it.
        answer: How the model gets the stage's schema: by a tool (every provider), by the provider's structured
            output (`native`), or in the prompt. A stage that answers with a report has plain text.
        of_output: Makes the answer from the agent's own output; it keeps the agent's `output_type`. Without it that
            output is the stage's, unless the stage says what the agent answers with.
        stream: Stream the model's answers, like `p.stage(…, stream=True)`: clients that follow the run see texts and
            tool calls, and heartbeats carry the progress.
        price: The model's price, if `genai-prices` does not know it.
        named: The agent's name, if it differs from `agent.name`.
        deps: The dependencies of the agent's own tools (`RunContext.deps`).
        uses: Tools that its toolsets add only during a run, such as those of an MCP server, by the names for the model.
            Under a contract the model sees only tools that are declared.
    """

    agent: Agent[Any, Any]
    answer: Literal["tool", "native", "prompted"] = "tool"
    of_output: Callable[[Any], AgentAnswer] | None = None
    stream: bool = False
    price: Price | None = None
    named: str | None = None
    deps: Any = None
    uses: Collection[str] = ()

    def __post_init__(self) -> None:
        """Refuse an unknown `answer`, and a string as `uses`."""
        name_set(self.uses, "uses")
        if self.answer not in _OUTPUT_TYPES:
            raise ValueError(f"answer={self.answer!r}: expected one of {', '.join(_OUTPUT_TYPES)}")

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.named or self.agent.name or "agent"

    @property
    def steers(self) -> bool:
        """Whether its model is shown people's notes: it is."""
        return True

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the agent's own functions, its provider's tools, and those that `uses` names."""
        return tool_names_of(self.agent) | frozenset(self.uses)

    @property
    def own_output(self) -> bool:
        """Whether the agent has an `output_type`, or its output is made into an answer."""
        return self.of_output is not None or has_own_type(self.agent)

    @property
    def lab_overrides(self) -> frozenset[str]:
        """A candidate may have another model and, unless the agent has `system_prompts`, another prompt."""
        return frozenset({"model"} if self.agent._system_prompts else {"model", "prompt"})

    @property
    def window(self) -> int | None:
        """The size of the model's context window in tokens, if the price list knows it."""
        model = self.agent.model
        name = model if isinstance(model, str) else getattr(model, "model_name", "")
        return find_window(name.rpartition(":")[2])

    def nested_tools(self, agent: Any) -> frozenset[str] | None:
        """Return the tools of an agent that runs inside a tool; None if not all that can be called in it are known."""
        if not isinstance(agent, Agent) or not all(isinstance(toolset, FunctionToolset) for toolset in agent.toolsets):
            return None
        if any(True for function in functions_of(agent).values() for _ in find_agents(function)):
            return None  # only the first run inside a tool is watched
        return tool_names_of(agent)

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Run the agent once inside the stage's activity.

        Raises:
            AgentError: The provider rejected the request or failed, or a limit was reached.
            PatchError: The model gave no usable answer within the agent's own retries.
            ToolDeniedError: The agent called a forbidden tool.
        """
        refuse_nested_agents(work.context, self, functions_of(self.agent))
        usage = RunUsage()
        keeps_type = self.of_output is not None or work.own_output
        capability = RecordingCapability(work, self.name, self.price, schema=not keeps_type and work.schema is not None)
        try:
            with changed(self.agent, work.overrides):
                result = await self.agent.run(
                    work.user_turn(with_schema=not keeps_type and self.answer == "prompted"),
                    output_type=None if keeps_type else self._output_type(work),
                    instructions=work.instructions or None,
                    deps=self.deps,
                    model_settings=handoff_settings(work.handoff_id),
                    usage=usage,
                    usage_limits=UsageLimits(request_limit=None),  # the meter keeps the limits
                    timeout=work.limits.seconds,
                    toolsets=[FunctionToolset([_convert_tool(tool) for tool in work.tools])] if work.tools else None,
                    capabilities=[capability],
                    metadata={"handoff_id": work.handoff_id},
                    event_stream_handler=self._stream_handler(work)
                    if self.stream or work.context.stream.wanted
                    else None,
                )
        except RunTimedOut:
            raise time_error(work, self.name) from None
        except Exception as error:
            raise capability.explain_exhaustion(translate_error(error, self.name)) from None
        finally:
            capability.settle(usage)
        if self.of_output is not None:
            return self.of_output(result.output)
        return capability.read(result.output)

    def _output_type(self, work: AgentWork) -> Any:
        """Return the type of the model's output."""
        return str if work.schema is None else _OUTPUT_TYPES[self.answer](work.schema)

    def _stream_handler(self, work: AgentWork) -> EventStreamHandler[Any]:
        """Return a handler that reports progress and passes the events to the agent's own handler."""
        own_handler = self.agent.event_stream_handler

        async def handle(run: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
            reported_events = _report_progress(work, run, events)
            if own_handler is not None:
                await own_handler(run, reported_events)
            async for _ in reported_events:
                pass

        return handle


def _structured_output(schema: Mapping[str, Any], form: Any) -> Any:
    return form(StructuredDict(dict(schema), name="answer", description="The answer of the stage."))


# Built once for each schema: building takes as long as a scripted request.
_OUTPUT_TYPES = {
    "tool": cached_by_identity(partial(_structured_output, form=partial(ToolOutput, name=OUTPUT_TOOL))),
    "native": cached_by_identity(partial(_structured_output, form=NativeOutput)),
    "prompted": cached_by_identity(partial(_structured_output, form=PromptedOutput)),
}


async def _report_progress(
    work: AgentWork, run: RunContext[Any], events: AsyncIterable[AgentStreamEvent]
) -> AsyncIterator[AgentStreamEvent]:
    """Yield the events, forward them to clients, and send a heartbeat once a second."""
    count, last_heartbeat = 0, time.monotonic()
    async for event in events:
        count += 1
        _forward_event(work, event)
        if time.monotonic() - last_heartbeat >= _HEARTBEAT_INTERVAL:
            last_heartbeat = time.monotonic()
            work.context.heartbeat({"requests": run.usage.requests, "events": count})
        yield event


def _forward_event(work: AgentWork, event: AgentStreamEvent) -> None:
    stream = work.context.stream
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            stream.text(text)
        case FunctionToolCallEvent(part=call):
            stream.tool_called(call.tool_name, call.args_as_dict())
        case FunctionToolResultEvent():
            part = event.part
            stream.tool_answered(part.tool_name or "", _result_text(part))


def _result_text(part: ToolReturnPart | RetryPromptPart) -> str:
    return part.model_response_str() if isinstance(part, ToolReturnPart) else part.model_response()


def _convert_tool(tool: AgentTool) -> Tool[Any]:
    """Convert a tool of the stage to one of the framework; calls with wrong arguments go back to the model."""

    async def call(**arguments: Any) -> Any:
        try:
            result = await tool.call(arguments)
        except ValidationError as error:
            raise ModelRetry(describe_faults(error)) from error
        return "null" if result is None else result  # the framework would send an empty text for None

    return Tool.from_schema(call, tool.wire_name, tool.description, dict(tool.parameters))
