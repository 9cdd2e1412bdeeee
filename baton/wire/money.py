"""Money in millionths of a US dollar, and what the tokens of a model cost."""

from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from baton.wire.records import CompactRecord

MICRO_PER_USD = 1_000_000
"""Millionths in a US dollar."""
MAX_USD = 1_000_000_000
"""The largest amount a message carries; up to here every millionth has a JSON number of its own."""

_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)  # whatever precision the caller's thread has set


def to_micro_usd(amount: Decimal) -> int:
    """Return an amount in millionths of a US dollar, rounded to the nearest one."""
    return int(_EXACT.to_integral_value(_EXACT.multiply(amount, Decimal(MICRO_PER_USD))))


def parse_amount(text: str) -> int:
    """Return an amount that a person wrote in US dollars, such as `5.00`, in millionths.

    Raises:
        ValueError: It is not an amount above zero.
    """
    try:
        amount = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not to_usd(1) <= amount <= MAX_USD:
        raise ValueError(f"{text[:40]!r} is not an amount above zero, such as 5.00")
    return to_micro_usd(amount)


def to_usd(micro: int) -> Decimal:
    """Return millionths of a US dollar as US dollars, exactly."""
    return _EXACT.divide(Decimal(micro), Decimal(MICRO_PER_USD))


def format_usd(micro_usd: int | None, places: int | None = None) -> str:
    """Return an amount for people, rounded half up: to a cent from one cent on, unless ``places`` says otherwise."""
    if micro_usd is None:
        return ""
    if places is None:
        places = 2 if abs(micro_usd) >= 10_000 or not micro_usd else 5
    return f"${to_usd(micro_usd).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP):,}"


def _amount(value: Any) -> Any:
    """Read a JSON number as the decimal that its shortest spelling shows; anything else as it is."""
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if not isinstance(value, Decimal):
        raise ValueError("an amount of money is a number, not a text or anything else")
    if value.is_finite() and Decimal(repr(float(value))) != value:
        raise ValueError("a JSON number does not hold the amount exactly; round it to millionths")
    return value


_read_amount = BeforeValidator(_amount)
_write_number = PlainSerializer(float, return_type=float, when_used="json")

Usd = Annotated[
    Decimal,
    _read_amount,
    Field(ge=-MAX_USD, le=MAX_USD),
    _write_number,
    WithJsonSchema({"type": "number", "minimum": -MAX_USD, "maximum": MAX_USD}),
]
"""US dollars: a Decimal in Python, a number in JSON; at most `MAX_USD` either way."""

UsdSpent = Annotated[
    Decimal,
    _read_amount,
    Field(ge=0, le=MAX_USD),
    _write_number,
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": MAX_USD}),
]
"""US dollars that were spent, which cannot be less than none."""


MAX_TOKENS = 10**9
"""The most tokens that one count of a request may have; a larger one is not a count."""

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
_WRITTEN = (
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
# Anthropic's and Bedrock's: counted beside the input there, and within it wherever `prompt_tokens` is the total.
_BESIDE = frozenset({"cache_read_input_tokens", "cacheReadInputTokens"})
_WRITTEN_BESIDE = frozenset({"cache_creation_input_tokens", "cacheWriteInputTokens"})


class Usage(CompactRecord):
    """The tokens of one request, or of several together.

    Attributes:
        input: All tokens read, those from and for the provider's cache included.
        output: All tokens written, reasoning included.
        cached_input: Of `input`, those that came from the provider's cache.
        cache_write: Of `input`, those that were written to the provider's cache.
        reasoning: Of `output`, those of the model's reasoning.

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
    def read(cls, told: Mapping[str, Any]) -> Self | None:
        """Return the usage that a provider reported; None if it reported no count.

        It reads the forms of OpenAI (both APIs), Anthropic, Google, Bedrock, DeepSeek, Ollama and LangChain. A whole
        number that is spelled `1000.0` is a count; a negative or absurd one is not.

        Reasoning counts as output in any case: it is added where the provider's total, or the size of the count,
        shows that the output does not include it.

        Example:
            >>> Usage.read({"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 5})
            Usage(input=100, output=5, cached_input=90, cache_write=0, reasoning=0)
            >>> Usage.read({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 45,
            ...             "completion_tokens_details": {"reasoning_tokens": 30}})
            Usage(input=10, output=35, cached_input=0, cache_write=0, reasoning=30)
        """
        read, written = _first(told, _INPUT)[1], _first(told, _OUTPUT)[1]
        if read is None and written is None:
            return None
        cached_by, cached = _first(told, _CACHED)
        write_by, cache_write = _first(told, _WRITTEN)
        read, written, cached, cache_write = read or 0, written or 0, cached or 0, cache_write or 0
        if _first(told, ("prompt_tokens",))[1] is None:
            read += cached * (cached_by in _BESIDE) + cache_write * (write_by in _WRITTEN_BESIDE)
        thoughts = _first(told, _THOUGHTS)[1] or 0
        reasoning = thoughts or _first(told, _REASONING)[1] or 0
        beyond = (_first(told, _TOTAL)[1] or 0) - read - written
        if thoughts or reasoning > written or beyond == reasoning:
            written += reasoning
        elif beyond > 0 and not reasoning:  # Gemini behind an OpenAI address names its thoughts in the total alone
            written, reasoning = written + beyond, beyond
        return cls(
            input=read,
            output=written,
            cached_input=min(cached, read),
            cache_write=min(cache_write, max(0, read - cached)),
            reasoning=reasoning,
        )

    @property
    def total(self) -> int:
        """All tokens, read and written."""
        return self.input + self.output

    def then(self, chunk: Self) -> Self:
        """Return the usage of a stream after another chunk of it.

        A chunk that repeats the input restates the whole request, as most servers do in each or in the last chunk;
        any other one adds to what the chunks before it said.

        Example:
            >>> Usage(input=10, output=1).then(Usage(input=10, output=2)).output
            2
            >>> Usage(input=10, output=1).then(Usage(output=2)).output
            3
        """
        restated = chunk.input >= self.input > 0 and chunk.output >= self.output
        return chunk if restated else self + chunk

    def beyond(self, other: "Usage") -> Self:
        """Return what this has more than another one, from zero up."""
        return type(self)(
            **{name: max(0, getattr(self, name) - getattr(other, name)) for name in type(self).model_fields}
        )

    def __add__(self, other: "Usage") -> Self:
        """Return the sum of both."""
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in type(self).model_fields})

    def __bool__(self) -> bool:
        """Return whether any token was used."""
        return bool(self.input or self.output)


class Price(CompactRecord):
    """What a model costs, in US dollars for a million tokens; an int, a float or a Decimal.

    Attributes:
        input: For tokens that it reads.
        output: For tokens that it writes.
        cached_input: For tokens that it reads from the provider's cache; by default as any input.
        cache_write: For tokens that it writes to the provider's cache; by default as any input.
        reasoning: For tokens of its reasoning; by default as any output.

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
        """Return what a request costs, in millionths of a US dollar, rounded up."""
        special = (
            (usage.cached_input, self.input if self.cached_input is None else self.cached_input),
            (usage.cache_write, self.input if self.cache_write is None else self.cache_write),
            (usage.reasoning, self.output if self.reasoning is None else self.reasoning),
        )
        plain_input = usage.input - usage.cached_input - usage.cache_write
        exact = self.input * plain_input + self.output * (usage.output - usage.reasoning)
        exact += sum((rate * tokens for tokens, rate in special), Decimal(0))
        return int(exact.to_integral_value(ROUND_CEILING))


def _first(told: Mapping[str, Any], paths: tuple[str, ...]) -> tuple[str, int | None]:
    """Return the first of several members that is a count, and its name; a path leads into inner objects."""
    for path in paths:
        if (count := _count(reduce(_member, path.split("."), told))) is not None:
            return path, count
    return "", None


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _count(value: Any) -> int | None:
    """Return a count of tokens, if it is one; with a larger one no handoff could be written."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS else None
