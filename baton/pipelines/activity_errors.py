"""What a stage raised, as its record tells it: the exceptions inside a task group, and texts that can be stored."""

from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, TypeVar

from temporalio.exceptions import ApplicationError

from baton.wire.json_values import holds_half

T = TypeVar("T")
_MOST_TOLD = 5


async def ungrouped(answering: Awaitable[T]) -> T:
    """Return what is awaited; of a group that holds a single exception, raise that one."""
    try:
        return await answering
    except SystemExit as error:
        raise RuntimeError(f"it asked its worker to end: SystemExit({error.code!r}); raise another error") from error
    except ExceptionGroup as group:
        alone, *others = leaves(group)
        if others:
            raise
        raise alone from None


def leaves(error: Exception) -> Iterator[Exception]:
    """Yield the exceptions that a group holds, however deep; another exception as it is."""
    if not isinstance(error, ExceptionGroup):
        yield error
        return
    for one in error.exceptions:
        yield from leaves(one)


def told(error: Exception) -> str:
    """Return what happened, for the history: of a group what its exceptions say, in characters that can be stored."""
    text = str(error)
    if isinstance(error, ExceptionGroup):
        said = [f"{type(one).__name__}: {one}" for one in leaves(error)]
        more = f"; (+{len(said) - _MOST_TOLD} more)" if len(said) > _MOST_TOLD else ""
        text = f"{text}: {'; '.join(said[:_MOST_TOLD])}{more}"
    return text.encode("utf-8", "backslashreplace").decode()


def as_failure(error: Exception, bill: Sequence[Any], *, never: bool) -> Exception:
    """Return what a stage's run ends with that raised: it takes along the bill, after any details of its own."""
    if isinstance(error, ApplicationError):
        if not bill:
            return error
        same = ApplicationError(
            error.message,
            *error.details,
            *bill,
            type=error.type,
            non_retryable=error.non_retryable,
            next_retry_delay=error.next_retry_delay,
            category=error.category,
        )
        same.__cause__ = error.__cause__
        return same
    message = told(error)
    if not (never or bill or message != str(error)):
        return error
    failure = ApplicationError(message, *bill, type=type(error).__name__, non_retryable=never)
    failure.__cause__ = error if is_storable(error) else None
    return failure


def is_storable(error: Exception) -> bool:
    """Return whether the texts of an exception, and of those that a group holds, are characters that can be stored."""
    return not any(holds_half(str(one)) for one in leaves(error))
