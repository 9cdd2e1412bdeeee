"""Exact token counts, through the extra `tokens`; the estimate of `baton.wire.text` where it is absent.

A count depends on the vocabulary's version, so it belongs into activities and their outcomes, never into
workflow code that replays.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module

from baton.wire.text import TokenEstimator, estimate_tokens

DEFAULT_ENCODING = "o200k_base"
"""The default vocabulary."""


def exact_counter(encoding: str = DEFAULT_ENCODING) -> TokenEstimator:
    """Return a function that counts the tokens of a text exactly in the vocabulary ``encoding``."""
    encode = _encoder(encoding)

    def count(text: str) -> int:
        try:
            return len(encode(text))
        except UnicodeEncodeError:
            return len(encode(text.encode("utf-8", "replace").decode("utf-8")))

    return count


def best_counter() -> tuple[str, TokenEstimator]:
    """Return the best counter that is installed and its name, to be recorded with what it counted."""
    try:
        return DEFAULT_ENCODING, exact_counter(DEFAULT_ENCODING)
    except ModuleNotFoundError:
        return "estimate", estimate_tokens


@cache
def _encoder(encoding: str) -> Callable[[str], list[int]]:
    try:
        tokenizers = import_module("splintr")  # an extra, and 37 MB: only who counts exactly pays for it
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"exact counts in {encoding!r} need a library: pip install 'temporal-baton[tokens]'"
        ) from error
    encode: Callable[[str], list[int]] = tokenizers.Tokenizer.from_pretrained(encoding).encode_ordinary
    return encode
