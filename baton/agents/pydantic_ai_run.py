"""One run of a Pydantic AI agent under a handoff: guarded tools, billing, recording."""

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from openai.types.completion_usage import CompletionUsage
from pydantic_ai import Agent, RunContext, capture_run_messages, models
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    ModelRetry,
    OutputTokenLimitExceeded,
    RunTimedOut,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturn,
)
from pydantic_ai.models import Model, ModelRequestContext, StreamedResponse
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_core import PydanticSerializationError

from baton.agents.answers import AgentAnswer
from baton.agents.billing import UsageMeter
from baton.agents.current_work import new_notes
from baton.agents.failures import (
    cut_off_error,
    is_parse_error,
    is_permanent,
    missing_key_error,
    status_error,
    stopped_error,
    unreadable_error,
)
from baton.agents.nested import find_agents, is_limited, nested_error
from baton.agents.port import HANDOFF_HEADER, AgentWork
from baton.agents.pydantic_ai_session import answer_text, list_events, list_messages, record_events
from baton.agents.tools import CallIds, render_result
from baton.contract.activity import ToolAnswer
from baton.contract.activity_transcript import OpenRequest
from baton.core.lab import Overrides
from baton.errors import AgentError, ConfigurationError, PatchError
from baton.wire.money import Price, Usage, to_micro_usd

OUTPUT_TOOL = "final_result"
"""The name of the tool by which a model answers."""

_EXHAUSTED_FINDING = "the model gave no usable answer"
_HARMLESS = frozenset({"tool_search"})
"""Tools that the framework adds to every agent: they only find the agent's own tools, which are guarded."""


class RecordingCapability(AbstractCapability[Any]):
    """The capability that guards, charges and records a run."""

    def __init__(self, work: AgentWork, agent: str, price: Price | None = None, *, schema: bool = True) -> None:
        self._work = work
        self._agent = agent
        self._meter = UsageMeter(work, agent, price)
        self._nested_meter = UsageMeter(work, agent, price)
        self._asking = {tool.wire_name for tool in work.tools if tool.agent_tools is not None}
        self._schema = schema
        self._stage_tools = {tool.wire_name: tool.name for tool in work.tools}
        self._model = ""
        self._request: OpenRequest | None = None
        self._call_ids = CallIds()
        self._last_response: ModelResponse | None = None
        self._parsed: tuple[Any, AgentAnswer] | None = None

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Show the model only the tools that it may call."""
        allows = self._work.context.tools.allows
        return [tool for tool in tool_defs if tool.name in self._stage_tools or allows(tool.name)]

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Count the request, add people's notes, and remove forbidden provider tools."""
        if notes := await new_notes(self._work):
            ctx.enqueue(notes)
        self._request = self._meter.count_request(list_messages(request_context.messages))
        request_context.model = with_usage_reader(request_context.model)
        allows = self._work.context.tools.allows if self._work.context.lab is None else _refuse  # nobody answers these
        return filter_native_tools(request_context, allows)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, response: ModelResponse
    ) -> ModelResponse:
        """Charge and record a response, make the ids of its calls unique, and refuse its forbidden calls."""
        response = with_unique_calls(response, self._call_ids)
        self._last_response = response
        self._charge(response, request_context.messages)
        self._record(response)
        calls = [part.tool_name for part in response.parts if isinstance(part, ToolCallPart | NativeToolCallPart)]
        self._work.refuse_forbidden(calls)
        if {call.tool_name for call in response.tool_calls} - {OUTPUT_TOOL}:
            self._meter.check_limits()
        return check_finished(response)

    async def after_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any
    ) -> dict[str, Any]:
        """Return arguments that are not an object to the model; the stage's tools validate theirs."""
        if not isinstance(args, dict):
            raise ModelRetry("the arguments are expected as a JSON object")
        return args

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any], handler: Any
    ) -> Any:
        """Guard the agent's own tools; those of the stage are guarded already."""
        if call.tool_name in self._stage_tools:
            if call.tool_name in self._asking:  # they do all that by themselves
                return await handler(args)
            return (await self._watch_nested_run(ctx, call.tool_name, handler, args))[0]

        async def run(**arguments: Any) -> Any:
            value, has_nested = await self._watch_nested_run(ctx, call.tool_name, handler, arguments)
            if not isinstance(value, ToolReturn) and not has_nested:
                return value
            # A ToolReturn's metadata is neither for models nor for later stages.
            claim = render_result(value.return_value if isinstance(value, ToolReturn) else value)
            return ToolAnswer(value, claim, by_model=has_nested)

        return await self._work.context.tools.guard(run, call.tool_name)(**args)

    async def _watch_nested_run(
        self, ctx: RunContext[Any], tool: str, handler: Any, arguments: dict[str, Any]
    ) -> tuple[Any, bool]:
        """Call a tool, and return whether another agent ran in it, which is charged and recorded.

        Under a contract the result is withheld, if that agent's tools could not be checked before.
        """
        with capture_run_messages() as messages:
            try:
                value = await handler(arguments)
            finally:
                responses = [message for message in messages if isinstance(message, ModelResponse)]
                for response in responses:
                    self._charge_response(self._nested_meter, response)
                with self._work.context.session.acting_as(tool):
                    record_events(self._work.context.session, list_events(messages, {OUTPUT_TOOL}))
        if responses and is_limited(self._work.context) and not self._is_checked(ctx, tool):
            raise nested_error(self._agent, tool)
        return value, bool(responses)

    def _is_checked(self, ctx: RunContext[Any], tool: str) -> bool:
        """Return whether the agents that a tool refers to were found before the run, and so checked."""
        functions = {own.wire_name: own.function for own in self._work.tools}
        if isinstance(ctx.agent, Agent):
            functions |= functions_of(ctx.agent)
        return tool in functions and any(True for _ in find_agents(functions[tool]))

    async def after_output_validate(self, ctx: RunContext[Any], *, output_context: Any, output: Any) -> Any:
        """Return an answer that does not fit the stage's schema to the model, in the same conversation."""
        if not ctx.partial_output and self._schema and isinstance(output, Mapping):
            try:
                self.read(output)
            except PatchError as error:
                raise ModelRetry("; ".join(error.findings)) from None
        return output

    def read(self, output: Any) -> AgentAnswer:
        """Parse an output, once."""
        if self._parsed is None or self._parsed[0] is not output:
            self._parsed = output, self._work.read(output)
        return self._parsed[1]

    def explain_exhaustion(self, error: Exception) -> Exception:
        """Return the findings about the last answer if the framework says only that its retries are exhausted."""
        exhausted = isinstance(error, PatchError) and error.findings[0].startswith(_EXHAUSTED_FINDING)
        if exhausted and self._schema and self._last_response is not None:
            answer: Any = self._last_response.text
            for call in self._last_response.tool_calls:
                answer = call.args if call.tool_name == OUTPUT_TOOL and call.args else answer
            try:
                self._work.read(answer or "")
            except PatchError as specific:
                return specific
        return error

    def settle(self, usage: RunUsage) -> None:
        """Charge usage beyond the seen responses: attempts of fallback models, continuations."""
        cost = _convert_cost(usage)
        self._meter.settle(convert_usage(usage), self._model, cost=cost, nested=self._nested_meter)

    def _charge(self, response: ModelResponse, messages: list[ModelMessage]) -> None:
        """Charge a response; estimate usage that its provider did not measure."""
        usage = convert_usage(response.usage)
        if response.usage.unmeasured_requests:
            usage = self._meter.estimate_usage((part for message in messages for part in message.parts), response.parts)
        self._model = response.model_name or ""
        answered = {"request": self._request, "said": answer_text(response, OUTPUT_TOOL)}
        self._charge_response(self._meter, response, usage, **answered)

    def _charge_response(
        self, meter: UsageMeter, response: ModelResponse, usage: Usage | None = None, **answered: Any
    ) -> None:
        # The framework misprices usage with more cached tokens than input tokens.
        is_priced = response.usage.cache_read_tokens <= response.usage.input_tokens
        cost = _convert_cost(response.usage) if is_priced else None
        usage = usage or convert_usage(response.usage)
        meter.charge(usage, response.model_name or "", cost=cost, url=response.provider_url, **answered)

    def _record(self, response: ModelResponse) -> None:
        """Record the model's texts and thoughts, and the results of its provider's tools."""
        session = self._work.context.session
        calls: dict[str, str] = {}
        for part in response.parts:
            match part:
                case TextPart(content=text) if text.strip() and response.tool_calls:
                    session.model_response(text)
                case ThinkingPart(content=text) if text.strip():
                    session.internal_note(text)
                case NativeToolCallPart():
                    calls[part.tool_call_id] = session.tool_call(part.tool_name, part.args_as_dict())
                case NativeToolReturnPart():
                    session.tool_result(
                        part.tool_name,
                        part.model_response_str(),
                        call_id=calls.get(part.tool_call_id),
                        success=part.outcome == "success",
                        retrieved_at=_with_timezone(part.timestamp),
                    )


def convert_usage(usage: RequestUsage | RunUsage) -> Usage:
    """Return the framework's token counts as a `Usage`."""
    report = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "input_token_details": {"cache_read": usage.cache_read_tokens, "cache_creation": usage.cache_write_tokens},
        "reasoning_tokens": usage.output_reasoning_tokens or usage.details.get("reasoning_tokens"),
    }
    return Usage.read(report) or Usage()


def _convert_cost(usage: RequestUsage | RunUsage) -> int | None:
    return None if usage.cost is None else to_micro_usd(usage.cost)


def tool_names_of(agent: Agent[Any, Any]) -> frozenset[str]:
    """Return the names of an agent's own functions and its provider's tools."""
    own = frozenset(functions_of(agent))
    native = agent.root_capability.get_native_tools()
    return own | frozenset(tool.unique_id for tool in native if isinstance(tool, AbstractNativeTool)) - _HARMLESS


def has_own_type(agent: Agent[Any, Any]) -> bool:
    """Return whether an agent has an `output_type`; a text is the framework's default."""
    return agent.output_type is not str


def functions_of(agent: Agent[Any, Any]) -> dict[str, Callable[..., Any]]:
    """Return an agent's own functions by the names of their tools."""
    toolsets = (toolset for toolset in agent.toolsets if isinstance(toolset, FunctionToolset))
    return {name: tool.function for toolset in toolsets for name, tool in toolset.tools.items()}


def handoff_settings(handoff_id: str) -> Callable[[RunContext[Any]], ModelSettings]:
    """Return settings for every request under a handoff, without those that the model does not support."""

    def build_settings(run: RunContext[Any]) -> ModelSettings:
        base: Any = run.model_settings or {}
        settings = ModelSettings(max_retries=0)
        if handoff_id:
            headers: dict[str, str] = dict(base.get("extra_headers") or ())
            settings["extra_headers"] = headers | {HANDOFF_HEADER: handoff_id}
        unsupported: frozenset[str] = frozenset(getattr(run.model, "unsupported_settings", ()))
        for name in ("max_retries", "extra_headers"):
            if name in unsupported:
                settings.pop(name, None)
        return settings

    return build_settings


def with_unique_calls(response: ModelResponse, ids: CallIds) -> ModelResponse:
    """Return a response whose function calls have ids of their own."""
    parts = [
        replace(part, tool_call_id=ids.unique(part.tool_call_id)) if isinstance(part, ToolCallPart) else part
        for part in response.parts
    ]
    return replace(response, parts=parts)


def check_finished(response: ModelResponse) -> ModelResponse:
    """Raise if a response was stopped or cut off; the framework would only retry, without a reason."""
    if response.finish_reason == "content_filter":
        raise ContentFilterError("the answer was stopped")
    if response.finish_reason == "length" and all(call.tool_name == OUTPUT_TOOL for call in response.tool_calls):
        raise OutputTokenLimitExceeded("the answer was cut off")
    return response


def filter_native_tools(request: ModelRequestContext, allows: Callable[[str], bool]) -> ModelRequestContext:
    """Remove forbidden provider tools from a request; the provider would run them without asking."""
    parameters = request.model_request_parameters
    allowed = [tool for tool in parameters.native_tools if tool.unique_id in _HARMLESS or allows(tool.unique_id)]
    if len(allowed) < len(parameters.native_tools):
        request.model_request_parameters = replace(parameters, native_tools=allowed)
    return request


def _refuse(tool: str) -> bool:
    return False


@contextmanager
def changed(agent: Agent[Any, Any], overrides: Overrides) -> Iterator[None]:
    """Change an agent in the `with` block as a candidate of the lab says."""
    # In place of the agent's own and of those of the run, which the port has replaced likewise.
    changes: dict[str, Any] = {} if overrides.prompt is None else {"instructions": overrides.prompt}
    if overrides.model is not None:
        changes["model"] = _other_model(agent.model, overrides.model)
    if not changes:
        yield
        return
    with agent.override(**changes):
        yield


def _other_model(model: Any, name: str) -> Any:
    """Return another model of the same provider, or the one that a name with a provider names."""
    if ":" in name or not hasattr(model, "_model_name"):
        return name
    other = copy.copy(model)
    other._model_name = name
    return other


def _with_timezone(at: datetime) -> datetime:
    return at if at.tzinfo else at.replace(tzinfo=UTC)


_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}")
_KEY_MARK = re.compile(r"(?i)sk-|key-|bearer")
_RETRIES_EXHAUSTED = re.compile(r"Tool '(?P<tool>[\w.-]{1,64})' exceeded max retries count of (?P<retries>\d+)")
_NOT_ALLOWED = "Model requests are not allowed"
_EXHAUSTED = re.compile(r"Exceeded maximum (?:output )?retries|maximum retries|Exceeded max")


def translate_error(error: Exception, agent: str) -> Exception:
    """Return the error of the stage for an error of the framework."""
    subject = f"agent {agent!r}"
    match error:
        case ModelAPIError():
            return _translate_request_error(error, subject)
        case FallbackExceptionGroup():
            parts = [translate_error(part, agent) for part in error.exceptions if isinstance(part, Exception)]
            if all(isinstance(part, ConfigurationError) for part in parts):
                return parts[0]
            permanent = all(isinstance(part, AgentError) and part.permanent for part in parts)
            waits = any(isinstance(part, AgentError) and part.waits for part in parts)
            message = f"{subject}: every model failed: " + "; ".join(map(str, parts))
            return AgentError(message, permanent=permanent, waits=waits)
        case UsageLimitExceeded():  # of a durable agent, whose limits the framework enforces
            limit = str(error).partition(". ")[0]
            return AgentError(f"{subject} reached a limit of its run: {limit}", permanent=True)
        case RunTimedOut():
            return AgentError(f"{subject} did not finish in the time of its stage")
        case ContentFilterError():
            return stopped_error(agent)
        case OutputTokenLimitExceeded():
            return cut_off_error()
        case UnexpectedModelBehavior() if _EXHAUSTED.search(error.message):
            return PatchError([f"{_EXHAUSTED_FINDING}: {error.message}"])
        case UnexpectedModelBehavior() if match := _RETRIES_EXHAUSTED.match(error.message):
            tool, retries = match["tool"], match["retries"]
            problem = f"calls of the tool {tool!r} failed more often than the agent's retries ({retries}) allow"
            return PatchError([f"{problem}; call a tool that exists, with arguments that fit, or do without"])
        case UnexpectedModelBehavior():
            return unreadable_error(error, agent)
        case PydanticSerializationError():
            message = "a tool's result cannot be sent to a model, for example because of a lone surrogate; return JSON"
            return AgentError(f"{subject}: {message}", permanent=True)
        case UserError() if missing := missing_key_error(error, agent):
            return missing
        case UserError():
            return AgentError(f"{subject} is not set up to run: {error.message}", permanent=True)
        case AgentRunError():
            return AgentError(f"{subject} failed ({type(error).__name__})")
        case RuntimeError() if not models.ALLOW_MODEL_REQUESTS and str(error).startswith(_NOT_ALLOWED):
            message = "cannot call a model: pydantic_ai.models.ALLOW_MODEL_REQUESTS is False; use a TestModel"
            return AgentError(f"{subject} {message}", permanent=True)
        case _ if is_parse_error(error, Model) or is_parse_error(error, StreamedResponse):
            return unreadable_error(error, agent)
        case _:
            return error


def _find_status(error: ModelAPIError) -> int | None:
    """Return the HTTP status of a response; only the provider's client knows that of a redirect."""
    status = getattr(error if isinstance(error, ModelHTTPError) else error.__cause__, "status_code", None)
    return status if isinstance(status, int) and status >= 300 else None


def _translate_request_error(error: ModelAPIError, subject: str) -> AgentError:
    """Return the error for a failed request, without the body of the response."""
    kind, code, status = type(error).__name__, error.provider_error_code, _find_status(error)
    permanent = isinstance(error, ModelRequestRejectedError | ModelQuotaExceededError)
    permanent |= status is not None and is_permanent(status)
    if code and _CODE.fullmatch(code) and not _KEY_MARK.search(code):
        kind += f", {code}"
    subject = f"{subject}: the provider of {error.model_name!r}"
    if status is not None:
        return status_error(subject, status, kind, permanent=permanent, retry_after=error.retry_after)
    message = f"{subject} could not be reached or read ({kind})"
    return AgentError(message, permanent=permanent, waits=not permanent, retry_after=error.retry_after)


ResponseT = TypeVar("ResponseT", bound=Any)


def with_usage_reader(model: Model) -> Model:
    """Return Pydantic AI's chat model with Baton's usage reader; return other models unchanged.

    A server may restate the usage of the whole request in each chunk of a stream, or report reasoning beside the
    output. The framework would add up the restated usage and ignore the reasoning, and has no public hook for either:
    only the methods that `CountedChatModel` overrides see what the server said.
    """
    if type(model) is not OpenAIChatModel:
        return model
    counted = copy.copy(model)
    counted.__class__ = CountedChatModel
    return counted


class CountedChatModel(OpenAIChatModel):
    """A chat model that reads usage by `Usage.read`."""

    def _map_usage(self, response: Any) -> RequestUsage:
        return _read_usage(response, super()._map_usage)

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _CountedStream


class _CountedStream(OpenAIStreamedResponse):
    """A streamed answer; each chunk with usage reports that of the whole request."""

    def _map_usage(self, response: Any) -> RequestUsage:
        return _read_usage(response, super()._map_usage)

    def _add_usage(self, usage: RequestUsage, *, reported: bool, cumulative: bool = False) -> None:
        super()._add_usage(usage, reported=reported, cumulative=cumulative or reported)


def _read_usage(response: ResponseT, map_usage: Callable[[ResponseT], RequestUsage]) -> RequestUsage:
    """Map usage as the framework does, with the counts of `Usage.read`."""
    if response.usage is None:
        return map_usage(response)
    report = response.usage.model_dump(exclude_none=True)
    if (counts := Usage.read(report)) is None:
        return RequestUsage(unmeasured_requests=1)
    usage = map_usage(response.model_copy(update={"usage": CompletionUsage.construct(**_to_integers(report))}))
    usage.input_tokens, usage.output_tokens = counts.input, counts.output
    usage.cache_read_tokens, usage.cache_write_tokens = counts.cached_input, counts.cache_write
    usage.output_reasoning_tokens = counts.reasoning
    return usage


def _to_integers(report: Any) -> Any:
    """Convert counts such as `1000.0` to integers."""
    if isinstance(report, dict):
        return {name: _to_integers(member) for name, member in report.items()}
    return int(report) if isinstance(report, float) and report.is_integer() else report
