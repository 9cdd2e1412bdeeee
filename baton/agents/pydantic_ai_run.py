"""One run of a Pydantic AI agent under a handoff: its tools checked, its cost charged, its session recorded."""

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from openai.types.completion_usage import CompletionUsage
from pydantic_ai import Agent, RunContext, models
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
from baton.agents.failures import (
    answered,
    cut_off_error,
    is_parse_error,
    is_permanent,
    missing_key,
    stopped_error,
    unreadable,
)
from baton.agents.port import HANDOFF_HEADER, AgentWork
from baton.agents.tools import as_text
from baton.contract.activity import ToolAnswer
from baton.errors import AgentError, ConfigurationError, PatchError
from baton.wire.money import Price, Usage, to_micro_usd

OUTPUT_TOOL = "final_result"
"""How the tool is called by which a model answers."""

_EXHAUSTED_FINDING = "the model gave no usable answer"
_HARMLESS = frozenset({"tool_search"})
"""What the framework adds to every agent itself: it finds only tools of the agent's own, which are checked."""


class RecordingCapability(AbstractCapability[Any]):
    """The capability that Baton adds to a run."""

    def __init__(self, work: AgentWork, agent: str, price: Price | None = None, *, schema: bool = True) -> None:
        self._work = work
        self._meter = UsageMeter(work, agent, price)
        self._schema = schema
        self._given = {tool.wire_name: tool.name for tool in work.tools}
        self._model = ""
        self._last: ModelResponse | None = None
        self._read: tuple[Any, AgentAnswer] | None = None

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Show the model the tools that it may call, and no others."""
        allows = self._work.context.tools.allows
        return [one for one in tool_defs if one.name in self._given or allows(one.name)]

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Count the request, and offer the model those tools of its provider that it may call."""
        self._meter.request()
        request_context.model = counted(request_context.model)
        return offered(request_context, self._work.context.tools.allows)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, response: ModelResponse
    ) -> ModelResponse:
        """Charge a response, record it, and refuse the calls in it that are not allowed."""
        self._last = response
        self._charge(response, request_context.messages)
        self._record(response)
        calls = [one.tool_name for one in response.parts if isinstance(one, ToolCallPart | NativeToolCallPart)]
        self._work.refuse_forbidden(calls)
        if {one.tool_name for one in response.tool_calls} - {OUTPUT_TOOL}:
            self._meter.check()
        return finished(response)

    async def after_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any
    ) -> dict[str, Any]:
        """Return arguments that are not an object to the model; the stage's tools check theirs themselves."""
        if not isinstance(args, dict):
            raise ModelRetry("the arguments are expected as a JSON object")
        return args

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any], handler: Any
    ) -> Any:
        """Run a tool of the agent's own through the guard; those of the stage are guarded already."""
        if call.tool_name in self._given:
            return await handler(args)

        async def run(**arguments: Any) -> Any:
            value = await handler(arguments)
            if not isinstance(value, ToolReturn):
                return value
            told = as_text(value.return_value)  # what stands beside it is not for models, nor for those of later stages
            return ToolAnswer(value, told)

        return await self._work.context.tools.guard(run, call.tool_name)(**args)

    async def after_output_validate(self, ctx: RunContext[Any], *, output_context: Any, output: Any) -> Any:
        """Return an answer that does not fit the stage's schema, in the same conversation."""
        if not ctx.partial_output and self._schema and isinstance(output, Mapping):
            try:
                self.read(output)
            except PatchError as error:
                raise ModelRetry("; ".join(error.findings)) from None
        return output

    def read(self, output: Any) -> AgentAnswer:
        """Return the answer in an output; of one that was read, as it was."""
        if self._read is None or self._read[0] is not output:
            self._read = output, self._work.read(output)
        return self._read[1]

    def explained(self, error: Exception) -> Exception:
        """Return what is wrong with the last answer, where the framework says only that its retries are used up."""
        exhausted = isinstance(error, PatchError) and error.findings[0].startswith(_EXHAUSTED_FINDING)
        if exhausted and self._schema and self._last is not None:
            answer: Any = self._last.text
            for call in self._last.tool_calls:
                answer = call.args if call.tool_name == OUTPUT_TOOL and call.args else answer
            try:
                self._work.read(answer or "")
            except PatchError as better:
                return better
        return error

    def settle(self, usage: RunUsage) -> None:
        """Charge what the run used beyond the responses that were seen: attempts of fallback models, continuations."""
        self._meter.settle(usage_of(usage), self._model, cost=_cost(usage))

    def _charge(self, response: ModelResponse, messages: list[ModelMessage]) -> None:
        """Charge a response; what its provider did not measure is estimated."""
        usage = usage_of(response.usage)
        if response.usage.unmeasured_requests:
            usage = self._meter.estimated((part for one in messages for part in one.parts), response.parts)
        self._model = response.model_name or ""
        # The framework prices nothing that a provider counts in its cache beyond what was read.
        known = response.usage.cache_read_tokens <= response.usage.input_tokens
        cost = _cost(response.usage) if known else None
        self._meter.charge(usage, self._model, cost=cost, url=response.provider_url)

    def _record(self, response: ModelResponse) -> None:
        """Record what a model said and thought, and what tools of its provider found."""
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
                        retrieved_at=_utc(part.timestamp),
                    )


def usage_of(found: RequestUsage | RunUsage) -> Usage:
    """Return the tokens that the framework counted."""
    told = {
        "input_tokens": found.input_tokens,
        "output_tokens": found.output_tokens,
        "input_token_details": {"cache_read": found.cache_read_tokens, "cache_creation": found.cache_write_tokens},
        "reasoning_tokens": found.output_reasoning_tokens or found.details.get("reasoning_tokens"),
    }
    return Usage.read(told) or Usage()


def _cost(found: RequestUsage | RunUsage) -> int | None:
    """Return what the framework says that tokens cost, in millionths of a US dollar."""
    return None if found.cost is None else to_micro_usd(found.cost)


def names_of_tools(agent: Agent[Any, Any]) -> frozenset[str]:
    """Return the names of an agent's own functions and its provider's tools."""
    own = frozenset(name for one in agent.toolsets if isinstance(one, FunctionToolset) for name in one.tools)
    native = agent.root_capability.get_native_tools()
    return own | frozenset(one.unique_id for one in native if isinstance(one, AbstractNativeTool)) - _HARMLESS


def settings_under(handoff_id: str) -> Callable[[RunContext[Any]], ModelSettings]:
    """Return the settings of every request under a handoff, as far as the model of the request knows them."""

    def settings(run: RunContext[Any]) -> ModelSettings:
        base: Any = run.model_settings or {}
        made = ModelSettings(max_retries=0)
        if handoff_id:
            own: dict[str, str] = dict(base.get("extra_headers") or ())
            made["extra_headers"] = own | {HANDOFF_HEADER: handoff_id}
        ignored: frozenset[str] = frozenset(getattr(run.model, "unsupported_settings", ()))
        for name in ("max_retries", "extra_headers"):
            if name in ignored:
                made.pop(name, None)
        return made

    return settings


def finished(response: ModelResponse) -> ModelResponse:
    """Return a response that its model brought to an end; the framework would ask again, and not say why."""
    if response.finish_reason == "content_filter":
        raise ContentFilterError("the answer was stopped")
    if response.finish_reason == "length" and all(one.tool_name == OUTPUT_TOOL for one in response.tool_calls):
        raise OutputTokenLimitExceeded("the answer was cut off")
    return response


def offered(request: ModelRequestContext, allows: Callable[[str], bool]) -> ModelRequestContext:
    """Return a request without the tools of the provider that are not allowed; the provider would run them."""
    given = request.model_request_parameters
    kept = [one for one in given.native_tools if one.unique_id in _HARMLESS or allows(one.unique_id)]
    if len(kept) < len(given.native_tools):
        request.model_request_parameters = replace(given, native_tools=kept)
    return request


def _utc(at: datetime) -> datetime:
    return at if at.tzinfo else at.replace(tzinfo=UTC)


_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}")
_KEY = re.compile(r"(?i)sk-|key-|bearer")
_IN_VAIN = re.compile(r"Tool '(?P<tool>[\w.-]{1,64})' exceeded max retries count of (?P<most>\d+)")
_NOT_ALLOWED = "Model requests are not allowed"
_EXHAUSTED = re.compile(r"Exceeded maximum (?:output )?retries|maximum retries|Exceeded max")


def reported(error: Exception, agent: str) -> Exception:
    """Return what the stage raises for what a run of the framework raised."""
    who = f"agent {agent!r}"
    match error:
        case ModelAPIError():
            return _of_request(error, who)
        case FallbackExceptionGroup():
            parts = [reported(one, agent) for one in error.exceptions if isinstance(one, Exception)]
            if all(isinstance(one, ConfigurationError) for one in parts):
                return parts[0]
            permanent = all(isinstance(one, AgentError) and one.permanent for one in parts)
            waits = any(isinstance(one, AgentError) and one.waits for one in parts)
            why = f"{who}: every model failed: " + "; ".join(map(str, parts))
            return AgentError(why, permanent=permanent, waits=waits)
        case UsageLimitExceeded():  # of a durable agent, whose limits the framework keeps
            limit = str(error).partition(". ")[0]
            return AgentError(f"{who} reached a limit of its run: {limit}", permanent=True)
        case RunTimedOut():
            return AgentError(f"{who} did not come to an end in the time that its stage has")
        case ContentFilterError():
            return stopped_error(agent)
        case OutputTokenLimitExceeded():
            return cut_off_error()
        case UnexpectedModelBehavior() if _EXHAUSTED.search(error.message):
            return PatchError([f"{_EXHAUSTED_FINDING}: {error.message}"])
        case UnexpectedModelBehavior() if found := _IN_VAIN.match(error.message):
            often = f"more often than the agent's retries ({found['most']}) allow"
            todo = "call a tool that there is, with arguments that fit, or do without"
            return PatchError([f"the tool {found['tool']!r} was called in vain {often}; {todo}"])
        case UnexpectedModelBehavior():
            return unreadable(error, agent)
        case PydanticSerializationError():
            told = (
                "what a tool returned, or said in halves of characters, cannot be sent to a model; have it return JSON"
            )
            return AgentError(f"{who}: {told}", permanent=True)
        case UserError() if missing := missing_key(error, agent):
            return missing
        case UserError():
            return AgentError(f"{who} is not set up to run: {error.message}", permanent=True)
        case AgentRunError():
            return AgentError(f"{who} failed ({type(error).__name__})")
        case RuntimeError() if not models.ALLOW_MODEL_REQUESTS and str(error).startswith(_NOT_ALLOWED):
            told = (
                "may ask no model, by pydantic_ai.models.ALLOW_MODEL_REQUESTS; give it a TestModel or a FunctionModel"
            )
            return AgentError(f"{who} {told}", permanent=True)
        case _ if is_parse_error(error, Model) or is_parse_error(error, StreamedResponse):
            return unreadable(error, agent)
        case _:
            return error


def _status(error: ModelAPIError) -> int | None:
    """Return the status of the answer; that of a redirect is known to the provider's client alone."""
    status = getattr(error if isinstance(error, ModelHTTPError) else error.__cause__, "status_code", None)
    return status if isinstance(status, int) and status >= 300 else None


def _of_request(error: ModelAPIError, who: str) -> AgentError:
    """Return what a request failed with, without the body of the provider's answer."""
    kind, code, status = type(error).__name__, error.provider_error_code, _status(error)
    permanent = isinstance(error, ModelRequestRejectedError | ModelQuotaExceededError)
    permanent |= status is not None and is_permanent(status)
    if code and _CODE.fullmatch(code) and not _KEY.search(code):
        kind += f", {code}"
    who = f"{who}: the provider of {error.model_name!r}"
    if status is not None:
        return answered(who, status, kind, permanent=permanent, retry_after=error.retry_after)
    why = f"{who} could not be reached or read ({kind})"
    return AgentError(why, permanent=permanent, waits=not permanent, retry_after=error.retry_after)


ResponseT = TypeVar("ResponseT", bound=Any)


def counted(model: Model) -> Model:
    """Return Pydantic AI's chat model as one that reads usage by `Usage.read`; any other model as it is.

    A server may restate the usage of the whole request in each chunk of a stream, or report reasoning beside the
    output; the framework adds up the one and overlooks the other.
    """
    if type(model) is not OpenAIChatModel:
        return model
    made = copy.copy(model)
    made.__class__ = CountedChatModel
    return made


class CountedChatModel(OpenAIChatModel):
    """The chat model with Baton's reader of usage."""

    def _map_usage(self, response: Any) -> RequestUsage:
        return _read(response, super()._map_usage)

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _CountedStream


class _CountedStream(OpenAIStreamedResponse):
    """A streamed answer; usage in a chunk of this format is that of the whole request, wherever it stands."""

    def _map_usage(self, response: Any) -> RequestUsage:
        return _read(response, super()._map_usage)

    def _add_usage(self, usage: RequestUsage, *, reported: bool, cumulative: bool = False) -> None:
        super()._add_usage(usage, reported=reported, cumulative=cumulative or reported)


def _read(response: ResponseT, read: Callable[[ResponseT], RequestUsage]) -> RequestUsage:
    """Return the usage in a response, as the framework reads it, with the counts that `Usage.read` finds."""
    if response.usage is None:
        return read(response)
    told = response.usage.model_dump(exclude_none=True)
    if (seen := Usage.read(told)) is None:
        return RequestUsage(unmeasured_requests=1)
    usage = read(response.model_copy(update={"usage": CompletionUsage.construct(**_in_whole_numbers(told))}))
    usage.input_tokens, usage.output_tokens = seen.input, seen.output
    usage.cache_read_tokens, usage.cache_write_tokens = seen.cached_input, seen.cache_write
    usage.output_reasoning_tokens = seen.reasoning
    return usage


def _in_whole_numbers(told: Any) -> Any:
    """Return counts that are spelled `1000.0` as whole numbers."""
    if isinstance(told, dict):
        return {name: _in_whole_numbers(one) for name, one in told.items()}
    return int(told) if isinstance(told, float) and told.is_integer() else told
