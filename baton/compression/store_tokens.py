"""Exact token counts, through the extra `tokens`; the estimate of `baton.wire.text` where it is absent.

A count depends on the vocabulary's version, so it belongs into activities and their outcomes, never into
workflow code that replays.
"""

from collections.abc import Callable
from functools import cache

from baton.wire.text import TokenEstimator, estimate_tokens

DEFAULT_ENCODING = "o200k_base"
"""The default vocabulary."""


def exact_counter(encoding: str = DEFAULT_ENCODING) -> TokenEstimator:
    """Return a function that counts the tokens of a text exactly in the vocabulary ``encoding``.

    The first call for a vocabulary loads it (20 to 500 ms), later ones share it. What looks like a control
    token in a text is counted as the ordinary text that it is: texts come from agents, and are hostile.
    A lone surrogate, which no vocabulary has, counts as a question mark.

    Args:
        encoding: `"o200k_base"`, `"cl100k_base"` or another that the library ships; nothing is downloaded.

    Raises:
        ModuleNotFoundError: The extra `tokens` is not installed.
        ValueError: The library ships no such vocabulary.

    Example:
        >>> count = exact_counter()
        >>> count("The baton carries notes."), count("<|endoftext|>") > 1, count("")
        (5, True, 0)
    """
    encode = _encoder(encoding)

    def count(text: str) -> int:
        try:
            return len(encode(text))
        except UnicodeEncodeError:
            return len(encode(text.encode("utf-8", "replace").decode("utf-8")))

    return count


def best_counter() -> tuple[str, TokenEstimator]:
    """Return the best counter that is installed and its name, to be recorded with what it counted.

    Returns:
        `("o200k_base", an exact counter)` with the extra `tokens`, else `("estimate", estimate_tokens)`.

    Example:
        >>> name, count = best_counter()
        >>> name in ("o200k_base", "estimate"), count("twelve chars") > 0
        (True, True)
    """
    try:
        return DEFAULT_ENCODING, exact_counter(DEFAULT_ENCODING)
    except ModuleNotFoundError:
        return "estimate", estimate_tokens


@cache
def _encoder(encoding: str) -> Callable[[str], list[int]]:
    try:
        # 37 MB with its vocabularies, and an extra: only who counts exactly pays for it.
        from splintr import Tokenizer  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"exact counts in {encoding!r} need a library: pip install 'temporal-baton[tokens]'"
        ) from error
    encode: Callable[[str], list[int]] = Tokenizer.from_pretrained(encoding).encode_ordinary
    return encode
