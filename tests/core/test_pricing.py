"""Token usage as reported by providers, and its price."""

from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from baton.agents import Usage
from baton.wire.money import Price

FORMS: dict[str, tuple[dict[str, Any], Usage | None]] = {
    "OpenAI, chat": (
        {
            "prompt_tokens": 1_000,
            "completion_tokens": 100,
            "total_tokens": 1_100,
            "prompt_tokens_details": {"cached_tokens": 600, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 40},
        },
        Usage(input=1_000, output=100, cached_input=600, reasoning=40),
    ),
    "OpenAI, responses": (
        {
            "input_tokens": 1_000,
            "input_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 300},
            "output_tokens": 100,
            "output_tokens_details": {"reasoning_tokens": 40},
            "total_tokens": 1_100,
        },
        Usage(input=1_000, output=100, cached_input=600, cache_write=300, reasoning=40),
    ),
    "Anthropic": (
        {
            "input_tokens": 100,
            "cache_read_input_tokens": 600,
            "cache_creation_input_tokens": 300,
            "output_tokens": 100,
        },
        Usage(input=1_000, output=100, cached_input=600, cache_write=300),
    ),
    "Anthropic behind a gateway in OpenAI's form": (
        {"prompt_tokens": 1_000, "completion_tokens": 100, "cache_read_input_tokens": 600},
        Usage(input=1_000, output=100, cached_input=600),
    ),
    "Bedrock": (
        {
            "inputTokens": 100,
            "outputTokens": 100,
            "totalTokens": 1_100,
            "cacheReadInputTokens": 600,
            "cacheWriteInputTokens": 300,
        },
        Usage(input=1_000, output=100, cached_input=600, cache_write=300),
    ),
    "Gemini": (
        {
            "promptTokenCount": 1_000,
            "cachedContentTokenCount": 600,
            "candidatesTokenCount": 60,
            "thoughtsTokenCount": 40,
            "totalTokenCount": 1_100,
        },
        Usage(input=1_000, output=100, cached_input=600, reasoning=40),
    ),
    "Gemini in OpenAI's form": (
        {"prompt_tokens": 1_000, "completion_tokens": 60, "total_tokens": 1_100},
        Usage(input=1_000, output=100, reasoning=40),
    ),
    "xAI: reasoning beside the completion": (
        {
            "prompt_tokens": 1_000,
            "completion_tokens": 60,
            "total_tokens": 1_100,
            "completion_tokens_details": {"reasoning_tokens": 40},
        },
        Usage(input=1_000, output=100, reasoning=40),
    ),
    "more reasoning than completion": (
        {"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 30}},
        Usage(input=10, output=35, reasoning=30),
    ),
    "DeepSeek": (
        {"prompt_tokens": 1_000, "completion_tokens": 100, "prompt_cache_hit_tokens": 600},
        Usage(input=1_000, output=100, cached_input=600),
    ),
    "Ollama": ({"prompt_eval_count": 10, "eval_count": 5}, Usage(input=10, output=5)),
    "LangChain": (
        {
            "input_tokens": 1_000,
            "output_tokens": 100,
            "total_tokens": 1_100,
            "input_token_details": {"cache_read": 600, "cache_creation": 300},
            "output_token_details": {"reasoning": 40},
        },
        Usage(input=1_000, output=100, cached_input=600, cache_write=300, reasoning=40),
    ),
    "whole numbers as floats": (
        {"prompt_tokens": 1000.0, "completion_tokens": 100.0},
        Usage(input=1_000, output=100),
    ),
    "more from the cache than was read": (
        {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 64}},
        Usage(input=10, output=5, cached_input=10),
    ),
    "one count": ({"prompt_tokens": 10}, Usage(input=10)),
    "nothing": ({}, None),
    "no counts": (
        {"prompt_tokens": -1, "completion_tokens": True, "input_tokens": "10", "output_tokens": 1.5},
        None,
    ),
    "absurd": ({"prompt_tokens": 10**30, "completion_tokens": 10**30}, None),
}


class TestRead:
    def test_every_providers_format_is_read(self) -> None:
        """Totals include separately reported tokens, so each token is charged once."""
        assert {name: Usage.read(told) for name, (told, _) in FORMS.items()} == {
            name: usage for name, (_, usage) in FORMS.items()
        }


class TestThen:
    def test_cumulative_and_incremental_chunks_are_counted_once(self) -> None:
        """Repeated usage is not added up."""
        cumulative = [Usage(input=1_000, output=n) for n in (0, 10, 100, 100)]
        adding = [Usage(input=1_000), Usage(output=60), Usage(output=40)]
        for chunks in (cumulative, adding):
            total = chunks[0]
            for chunk in chunks[1:]:
                total = total.after_chunk(chunk)
            assert total == Usage(input=1_000, output=100)


class TestPrice:
    @given(st.integers(0, 10**7), st.integers(0, 10**6))
    def test_a_price_is_never_rounded_down(self, read: int, written: int) -> None:
        """A budget gains nothing by rounding (S3-9-b)."""
        exact = Decimal("0.10") * read + Decimal("0.40") * written

        assert 0 <= Price(input=0.1, output=0.4).micro_usd(Usage(input=read, output=written)) - exact < 1

    def test_each_kind_of_token_has_its_price(self) -> None:
        """Cached input, cache writes and reasoning cost the same as plain tokens by default."""
        usage = Usage(input=1_000, output=100, cached_input=600, cache_write=300, reasoning=40)
        plain = Price(input=10, output=100)
        full = Price(input=10, output=100, cached_input=1, cache_write=Decimal("12.5"), reasoning=200)

        assert plain.micro_usd(usage) == 20_000
        assert full.micro_usd(usage) == 1_000 + 600 + 3_750 + 6_000 + 8_000
