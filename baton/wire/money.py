"""Money in millionths of a US dollar, and the cost of a model's tokens."""

from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from baton.wire.records import CompactRecord

MICRO_PER_USD = 1_000_000
MAX_USD = 1_000_000_000
"""The largest amount in a message; up to here every millionth is exact as a JSON number."""

_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)  # independent of the caller's decimal context


def to_micro_usd(amount: Decimal) -> int:
    """Convert US dollars to millionths, rounded half to even."""
    return int(_EXACT.to_integral_value(_EXACT.multiply(amount, Decimal(MICRO_PER_USD))))


def parse_amount(text: str) -> int:
    """Parse an amount in US dollars, such as `5.00`, into millionths.

    Raises:
        ValueError: The text is not an amount above zero.
    """
    try:
        amount = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not to_usd(1) <= amount <= MAX_USD:
        raise ValueError(f"{text[:40]!r} is not an amount above zero, such as 5.00")
    return to_micro_usd(amount)


def to_usd(micro: int) -> Decimal:
    """Convert millionths of a US dollar to US dollars, exactly."""
    return _EXACT.divide(Decimal(micro), Decimal(MICRO_PER_USD))


def format_usd(micro_usd: int | None, places: int | None = None) -> str:
    """Format an amount, rounded half up; by default to cents, and to five places below one cent."""
    if micro_usd is None:
        return ""
    if places is None:
        places = 2 if abs(micro_usd) >= 10_000 or not micro_usd else 5
    return f"${to_usd(micro_usd).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP):,}"


def format_cost(micro_usd: int, tokens: int) -> str:
    """Format what was spent; it is unknown if tokens were used and none had a price."""
    return "unknown" if tokens and not micro_usd else format_usd(micro_usd)


def _read_amount(value: Any) -> Any:
    """Convert a JSON number to the decimal that its shortest spelling shows."""
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if not isinstance(value, Decimal):
        raise ValueError("an amount of money is a number, not a text or anything else")
    if value.is_finite() and Decimal(repr(float(value))) != value:
        raise ValueError("a JSON number does not hold the amount exactly; round it to millionths")
    return value


_read = BeforeValidator(_read_amount)
_write = PlainSerializer(float, return_type=float, when_used="json")

Usd = Annotated[
    Decimal,
    _read,
    Field(ge=-MAX_USD, le=MAX_USD),
    _write,
    WithJsonSchema({"type": "number", "minimum": -MAX_USD, "maximum": MAX_USD}),
]
"""US dollars: a Decimal in Python, a number in JSON; between `-MAX_USD` and `MAX_USD`."""

UsdSpent = Annotated[
    Decimal,
    _read,
    Field(ge=0, le=MAX_USD),
    _write,
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": MAX_USD}),
]
"""US dollars that were spent; never negative."""


MAX_TOKENS = 10**9
"""The largest plausible token count of a request; larger numbers are ignored."""

_INPUT = ("prompt_tokens", "input_tokens", "promptTokenCount", "inputTokens", "prompt_token_count", "prompt_eval_count")
_OUTPUT = (
    "completion_tokens",
    "output_tokens",
    "candidatesTokenCount",
    "outputTokens",
    "candidates_token_count",
    "eval_count",
)
_CACHED = (
    "prompt_tokens_details.cached_tokens",
    "input_tokens_details.cached_tokens",
    "input_token_details.cache_read",
    "cachedContentTokenCount",
    "cached_content_token_count",
    "prompt_cache_hit_tokens",
    "cache_read_input_tokens",
    "cacheReadInputTokens",
)
_CACHE_WRITES = (
    "prompt_tokens_details.cache_write_tokens",
    "input_tokens_details.cache_write_tokens",
    "input_token_details.cache_creation",
    "cache_creation_input_tokens",
    "cacheWriteInputTokens",
)
_REASONING = (
    "completion_tokens_details.reasoning_tokens",
    "output_tokens_details.reasoning_tokens",
    "output_token_details.reasoning",
    "reasoning_tokens",
)
_THOUGHTS = ("thoughtsTokenCount", "thoughts_token_count")
_TOTAL = ("total_tokens", "totalTokenCount", "totalTokens", "total_token_count")
# Anthropic and Bedrock report these in addition to the input, except where `prompt_tokens` is the total.
_ADDITIONAL_CACHED = frozenset({"cache_read_input_tokens", "cacheReadInputTokens"})
_ADDITIONAL_CACHE_WRITES = frozenset({"cache_creation_input_tokens", "cacheWriteInputTokens"})


class Usage(CompactRecord):
    """The tokens of one or more requests.

    Attributes:
        input: All input tokens, including cache reads and writes.
        output: All output tokens, including reasoning.
        cached_input: The part of `input` that was read from the provider's cache.
        cache_write: The part of `input` that was written to the provider's cache.
        reasoning: The part of `output` that was reasoning.

    Example:
        >>> Usage(input=1_000, output=100) + Usage(input=500, cached_input=500)
        Usage(input=1500, output=100, cached_input=500, cache_write=0, reasoning=0)
    """

    input: int = 0
    output: int = 0
    cached_input: int = 0
    cache_write: int = 0
    reasoning: int = 0

    @classmethod
    def read(cls, report: Mapping[str, Any]) -> Self | None:
        """Return the usage in a provider's report, or None if it contains no token counts.

        Understands the reports of OpenAI (both APIs), Anthropic, Google, Bedrock, DeepSeek, Ollama and LangChain.
        `1000.0` is a valid count; negative or implausibly large numbers are ignored.

        Reasoning always counts as output. It is added where the provider's total, or the size of the count, shows
        that the reported output does not include it.

        Example:
            >>> Usage.read({"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 5})
            Usage(input=100, output=5, cached_input=90, cache_write=0, reasoning=0)
            >>> Usage.read({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 45,
            ...             "completion_tokens_details": {"reasoning_tokens": 30}})
            Usage(input=10, output=35, cached_input=0, cache_write=0, reasoning=30)
        """
        input, output = _find_count(report, _INPUT)[1], _find_count(report, _OUTPUT)[1]
        if input is None and output is None:
            return None
        cached_key, cached = _find_count(report, _CACHED)
        write_key, cache_write = _find_count(report, _CACHE_WRITES)
        input, output, cached, cache_write = input or 0, output or 0, cached or 0, cache_write or 0
        if _find_count(report, ("prompt_tokens",))[1] is None:
            input += cached * (cached_key in _ADDITIONAL_CACHED) + cache_write * (write_key in _ADDITIONAL_CACHE_WRITES)
        thoughts = _find_count(report, _THOUGHTS)[1] or 0
        reasoning = thoughts or _find_count(report, _REASONING)[1] or 0
        excess = (_find_count(report, _TOTAL)[1] or 0) - input - output
        if thoughts or reasoning > output or excess == reasoning:
            output += reasoning
        elif excess > 0 and not reasoning:  # Gemini's OpenAI-compatible API includes thoughts in the total only
            output, reasoning = output + excess, excess
        return cls(
            input=input,
            output=output,
            cached_input=min(cached, input),
            cache_write=min(cache_write, max(0, input - cached)),
            reasoning=reasoning,
        )

    @property
    def total(self) -> int:
        """Input and output tokens together."""
        return self.input + self.output

    def after_chunk(self, chunk: Self) -> Self:
        """Return the usage of a stream after its next chunk.

        A chunk that repeats the input restates the whole request, as most servers do in each or in the last chunk.
        Any other chunk adds to the chunks before it.

        Example:
            >>> Usage(input=10, output=1).after_chunk(Usage(input=10, output=2)).output
            2
            >>> Usage(input=10, output=1).after_chunk(Usage(output=2)).output
            3
        """
        restated = chunk.input >= self.input > 0 and chunk.output >= self.output
        return chunk if restated else self + chunk

    def minus(self, other: "Usage") -> Self:
        """Return the difference to another usage, member by member and never negative."""
        return type(self)(
            **{name: max(0, getattr(self, name) - getattr(other, name)) for name in type(self).model_fields}
        )

    def __add__(self, other: "Usage") -> Self:
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in type(self).model_fields})

    def __bool__(self) -> bool:
        return bool(self.input or self.output)


class Price(CompactRecord):
    """A model's prices in US dollars per million tokens, each an int, float or Decimal.

    Attributes:
        input: The price of input.
        output: The price of output.
        cached_input: The price of input that is read from the provider's cache; by default `input`.
        cache_write: The price of input that is written to the provider's cache; by default `input`.
        reasoning: The price of reasoning; by default `output`.

    Example:
        >>> price = Price(input=3, output=15, cached_input=0.30)
        >>> price.micro_usd(Usage(input=4_200, output=300)), price.micro_usd(Usage(input=1_000, cached_input=1_000))
        (17100, 300)
    """

    input: UsdSpent
    output: UsdSpent
    cached_input: UsdSpent | None = None
    cache_write: UsdSpent | None = None
    reasoning: UsdSpent | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            input: Decimal | float,
            output: Decimal | float,
            cached_input: Decimal | float | None = None,
            cache_write: Decimal | float | None = None,
            reasoning: Decimal | float | None = None,
        ) -> None: ...

    def micro_usd(self, usage: Usage) -> int:
        """Return the cost of a request in millionths of a US dollar, rounded up."""
        special = (
            (usage.cached_input, self.input if self.cached_input is None else self.cached_input),
            (usage.cache_write, self.input if self.cache_write is None else self.cache_write),
            (usage.reasoning, self.output if self.reasoning is None else self.reasoning),
        )
        plain_input = usage.input - usage.cached_input - usage.cache_write
        exact = self.input * plain_input + self.output * (usage.output - usage.reasoning)
        exact += sum((rate * tokens for tokens, rate in special), Decimal(0))
        return int(exact.to_integral_value(ROUND_CEILING))


def _find_count(report: Mapping[str, Any], paths: tuple[str, ...]) -> tuple[str, int | None]:
    """Return the first of the dotted paths that leads to a token count, and the count."""
    for path in paths:
        if (count := _read_count(reduce(_get_member, path.split("."), report))) is not None:
            return path, count
    return "", None


def _get_member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _read_count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS else None
