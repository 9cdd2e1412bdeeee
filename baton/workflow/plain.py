"""Handlers that Temporal's SDK need not inspect.

It reads the annotations of each handler anew for each run. In the sandbox that takes longer than a stage's own
bookkeeping, and for a handler that takes JSON as it comes, or nothing, there is nothing to learn.
"""

from collections.abc import Callable
from typing import TypeVar

AnswerT = TypeVar("AnswerT")


def plain(handler: Callable[..., AnswerT]) -> Callable[..., AnswerT]:
    """Return a handler of a query or signal that does the same and has no annotations to read.

    Args:
        handler: No coroutine function, and one that takes its arguments as JSON.

    Example:
        >>> plain(lambda name: f"hello {name}")("Ann")
        'hello Ann'
    """
    return lambda *given: handler(*given)
