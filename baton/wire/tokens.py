"""How many tokens a text costs: the port, and an estimator that needs no library.

An estimate is an estimate: on English, JSON and code it is within about a fifth of the exact count, on
Chinese, Japanese and Korean within about a half (C-8). For exact counts install the extra `tokens` and
use `baton.compression.store_tokens.exact_counter`.
"""

from collections.abc import Callable

TokenEstimator = Callable[[str], int]
"""A function from a text to its number of tokens (0 for the empty text)."""

_CHARACTERS_PER_TOKEN = 4.0
_WIDE_CHARACTERS_PER_TOKEN = 1.5
_FIRST_WIDE = "\u1100"  # Hangul Jamo: from here on scripts cost about a token for each character or two


def estimate_tokens(text: str) -> int:
    """Return an estimate of the tokens in ``text``, never below 1 for a text that is not empty.

    Four characters are a token; of Chinese, Japanese, Korean and other wide scripts one and a half (C-8),
    so that a text which is not Latin cannot pass any budget unseen.

    Args:
        text: Any text.

    Returns:
        The estimated number of tokens, 0 for the empty text.

    Example:
        >>> estimate_tokens("twelve chars"), estimate_tokens("日本語"), estimate_tokens("")
        (3, 2, 0)
    """
    if text.isascii():
        return -(-len(text) // 4)
    wide = sum(1 for character in text if character >= _FIRST_WIDE)
    cost = (len(text) - wide) / _CHARACTERS_PER_TOKEN + wide / _WIDE_CHARACTERS_PER_TOKEN
    return -int(-cost // 1)
