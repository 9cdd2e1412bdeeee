"""Handlers that Temporal's SDK need not inspect.

It reads the parameters and annotations of each handler anew for each run. In the sandbox that takes longer than a
stage's own bookkeeping, and for a handler that takes JSON as it comes, or nothing, there is nothing to learn.
"""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, TypeVar, cast

AnswerT = TypeVar("AnswerT")

_WHATEVER_IS_GIVEN = Signature([Parameter("given", Parameter.VAR_POSITIONAL)])


def plain(handler: Callable[..., AnswerT]) -> Callable[..., AnswerT]:
    """Return a handler of a query or signal that does the same and has no annotations to read.

    Args:
        handler: No coroutine function, and one that takes its arguments as JSON.

    Example:
        >>> plain(lambda name: f"hello {name}")("Ann")
        'hello Ann'
    """
    told: Any = lambda *given: handler(*given)  # noqa: E731 - annotations are what it is without
    told.__signature__ = _WHATEVER_IS_GIVEN
    return cast("Callable[..., AnswerT]", told)
