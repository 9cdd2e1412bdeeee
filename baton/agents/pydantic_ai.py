"""Agents of Pydantic AI as stages: any provider, structured answers, checked tools, and what they cost on the bill."""

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
    from pydantic_ai.exceptions import ModelRetry
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
from baton.agents.billing import window_of
from baton.agents.port import AgentWork
from baton.agents.pydantic_ai_run import OUTPUT_TOOL, RecordingCapability, names_of_tools, reported, settings_under
from baton.agents.tools import AgentTool
from baton.core.stages import name_set
from baton.wire.money import Price
from baton.wire.text import describe_faults

_BEAT = 1.0  # seconds between two heartbeats with the progress of a stream


@dataclass(frozen=True)
class PydanticAgent:
    """An agent of Pydantic AI that does a stage.

    Attributes:
        agent: The agent, with its model, its own instructions and its own tools. Its key is the provider's business:
            it comes from the environment of the worker and is in no message.
        answer: How the model is made to answer in the stage's schema: by a tool (every provider), by the provider's
            structured output (`native`), or by the prompt. A stage that answers with a report has plain text.
        of_output: Makes the answer of the agent's own output, for an agent whose `output_type` is to be kept.
        stream: Stream the model's answers, as `p.stage(…, stream=True)` does for one stage: what it says and which
            tools it calls is shown to those who follow the run; the progress is in the heartbeats.
        price: What the model costs, where `genai-prices` does not know it.
        named: The agent's name, if it is not `agent.name`.
        deps: What the agent's own tools depend on (`RunContext.deps`).
        uses: The tools that its toolsets bring only in a run, such as those of an MCP server, by the names that the
            model is shown. What is named nowhere is not shown to it under a contract.
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
        """Refuse a way of answering that there is not, before a stage fails by it; and a lone name."""
        name_set(self.uses, "uses")
        if self.answer not in _SHAPES:
            raise ValueError(f"answer={self.answer!r}: expected one of {', '.join(_SHAPES)}")

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.named or self.agent.name or "agent"

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the agent's own functions, its provider's tools, and those that `uses` names."""
        return names_of_tools(self.agent) | frozenset(self.uses)

    @property
    def window(self) -> int | None:
        """How many tokens the window of the agent's model holds, as far as the price list knows."""
        model = self.agent.model
        name = model if isinstance(model, str) else getattr(model, "model_name", "")
        return window_of(name.rpartition(":")[2])

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Run the agent once; its stage's activity is around it.

        Raises:
            AgentError: The provider refused or failed, or a limit was reached.
            PatchError: The model gave no usable answer as often as the agent's own retries allow.
            ToolDeniedError: It called a tool that its contract does not allow.
        """
        usage = RunUsage()
        record = RecordingCapability(
            work, self.name, self.price, schema=self.of_output is None and work.schema is not None
        )
        try:
            result = await self.agent.run(
                work.user_turn(with_schema=self.of_output is None and self.answer == "prompted"),
                output_type=self._output(work),
                instructions=work.instructions or None,
                deps=self.deps,
                model_settings=settings_under(work.handoff_id),
                usage=usage,
                usage_limits=UsageLimits(request_limit=None),  # the meter keeps the limits
                timeout=work.limits.seconds,
                toolsets=[FunctionToolset([_tool(tool) for tool in work.tools])] if work.tools else None,
                capabilities=[record],
                metadata={"handoff_id": work.handoff_id},
                event_stream_handler=self._streamed(work) if self.stream or work.context.stream.wanted else None,
            )
        except Exception as error:
            raise record.explained(reported(error, self.name)) from None
        finally:
            record.settle(usage)
        if self.of_output is not None:
            return self.of_output(result.output)
        return record.read(result.output)

    def _output(self, work: AgentWork) -> Any:
        """Return what the model is to answer with; None keeps the agent's own type."""
        if self.of_output is not None:
            return None
        if work.schema is None:
            return str
        return _SHAPES[self.answer](work.schema)

    def _streamed(self, work: AgentWork) -> EventStreamHandler[Any]:
        """Return what reads the stream: it tells the progress, and hands the events to the agent's own handler."""
        own = self.agent.event_stream_handler

        async def read(run: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
            seen = _beating(work, run, events)
            if own is not None:
                await own(run, seen)
            async for _ in seen:
                pass

        return read


def _shape(schema: Mapping[str, Any], form: Any) -> Any:
    """Return how a model is made to answer in a schema."""
    return form(StructuredDict(dict(schema), name="answer", description="The answer of the stage."))


# Made once for each schema: making one costs as much as a request by script.
_SHAPES = {
    "tool": cached_by_identity(partial(_shape, form=partial(ToolOutput, name=OUTPUT_TOOL))),
    "native": cached_by_identity(partial(_shape, form=NativeOutput)),
    "prompted": cached_by_identity(partial(_shape, form=PromptedOutput)),
}


async def _beating(
    work: AgentWork, run: RunContext[Any], events: AsyncIterable[AgentStreamEvent]
) -> AsyncIterator[AgentStreamEvent]:
    """Yield the events, and tell Temporal once a second how far the run is."""
    count, last = 0, time.monotonic()
    async for event in events:
        count += 1
        _say(work, event)
        if time.monotonic() - last >= _BEAT:
            last = time.monotonic()
            work.context.heartbeat({"requests": run.usage.requests, "events": count})
        yield event


def _say(work: AgentWork, event: AgentStreamEvent) -> None:
    """Tell those who follow the run what the model says, and which tools it calls."""
    stream = work.context.stream
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            stream.text(text)
        case FunctionToolCallEvent(part=call):
            stream.tool_called(call.tool_name, call.args_as_dict())
        case FunctionToolResultEvent():
            answered = event.part
            stream.tool_answered(answered.tool_name or "", _answer_of(answered))


def _answer_of(part: ToolReturnPart | RetryPromptPart) -> str:
    """Return what the model reads as a tool's answer."""
    return part.model_response_str() if isinstance(part, ToolReturnPart) else part.model_response()


def _tool(tool: AgentTool) -> Tool[Any]:
    """Return a tool of the stage as one of the framework; a call with wrong arguments goes back to the model."""

    async def call(**arguments: Any) -> Any:
        try:
            result = await tool.call(arguments)
        except ValidationError as error:
            raise ModelRetry(describe_faults(error)) from error
        return "null" if result is None else result  # as JSON; the framework would send an empty text

    return Tool.from_schema(call, tool.wire_name, tool.description, dict(tool.parameters))
