"""Exact token counts (extra `tokens`), or the estimate of `baton.wire.text` without it.

A count depends on the version of the vocabulary, so it belongs in activities and their results, never in workflow
code that replays.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module

from baton.wire.text import TokenEstimator, estimate_tokens

DEFAULT_ENCODING = "o200k_base"
"""The default vocabulary."""


def exact_counter(encoding: str = DEFAULT_ENCODING) -> TokenEstimator:
    """Return a function that counts tokens exactly in a vocabulary."""
    encode = _load_encoder(encoding)

    def count(text: str) -> int:
        try:
            return len(encode(text))
        except UnicodeEncodeError:
            return len(encode(text.encode("utf-8", "replace").decode("utf-8")))

    return count


def best_counter() -> tuple[str, TokenEstimator]:
    """Return the name of the best installed counter, to record with its counts, and the counter."""
    try:
        return DEFAULT_ENCODING, exact_counter(DEFAULT_ENCODING)
    except ModuleNotFoundError:
        return "estimate", estimate_tokens


@cache
def _load_encoder(encoding: str) -> Callable[[str], list[int]]:
    try:
        tokenizers = import_module("splintr")  # an extra of 37 MB
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"exact counts in {encoding!r} need a library: pip install 'temporal-baton[tokens]'"
        ) from error
    encode: Callable[[str], list[int]] = tokenizers.Tokenizer.from_pretrained(encoding).encode_ordinary
    return encode
