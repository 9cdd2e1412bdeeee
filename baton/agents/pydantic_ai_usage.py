"""Usage as Pydantic AI counts it, corrected by Baton's one reader (`Usage.read`).

A chat-completions server may restate the usage of the whole request in each chunk of a stream, or report reasoning
beside the output. The framework adds up the one and overlooks the other; `counted` makes its chat model do neither.
"""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from openai.types.completion_usage import CompletionUsage
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.usage import RequestUsage

from baton.wire.money import Usage

ResponseT = TypeVar("ResponseT", bound=Any)


def counted(model: Model) -> Model:
    """Return Pydantic AI's chat model as one that reads usage by `Usage.read`; any other model as it is."""
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
