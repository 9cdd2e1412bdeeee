"""Errors as the server may store them: bounded texts without secrets, in characters that UTF-8 can encode."""

from collections.abc import Iterator
from typing import Any

from temporalio.converter import DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import ApplicationError, FailureError

from baton.codec.secrets import mask_secrets, mask_values

_MAX_MEMBER_LENGTH = 2_000
_MAX_SURPLUS_LENGTH = 40
_MAX_TEXT_LENGTH = 20_000  # the server rejects a failure of 2 MB
_MAX_TYPE_LENGTH = 200
_MAX_SECRET_LENGTH = 4_000  # so that a key at the limit is masked before it is cut
_MAX_CAUSES = 20  # an error may be its own cause


class BoundedFailureConverter(DefaultFailureConverter):
    """Writes an error without its causes, and with shortened texts, if it cannot be stored as it is.

    Otherwise the server would reject a workflow task again and again, or the converter follow a cycle of causes.
    """

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Any) -> None:
        """Write an error."""
        super().to_failure(bounded(exception), payload_converter, failure)


class EncodedFailureConverter(BoundedFailureConverter):
    """Also moves texts into a payload, which a codec encrypts."""

    def __init__(self) -> None:
        """Use the SDK's encoded attributes."""
        super().__init__(encode_common_attributes=True)


def as_exception(error: BaseException) -> RuntimeError:
    """Return an exception that fails a run, instead of an error that would end the worker or be lost."""
    return RuntimeError(
        f"it raised {type(error).__name__}({text_of(error)}), which is not an Exception; raise another error"
    )


def leaf_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group at any depth, or the exception itself."""
    pending = [error]
    while pending:
        inner = pending.pop()
        if isinstance(inner, BaseExceptionGroup):
            pending.extend(reversed(inner.exceptions))
        else:
            yield inner


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, as far as a failure contains them; at most one more than can be stored."""
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES + 1):
        if cause is None:
            return
        yield cause
        if isinstance(cause, FailureError) and cause.failure is not None:  # it comes from the server, with its causes
            return
        has_context = isinstance(cause, FailureError) and not cause.__suppress_context__
        cause = cause.__cause__ or (cause.__context__ if has_context else None)


def text_of(error: BaseException) -> str:
    """Return an error's text in storable characters, also if its class fails to give one."""
    try:
        return storable_text(_raw_text(error))
    except Exception:
        return "(without a text: its __str__ failed)"


def error_text(error: BaseException) -> str:
    """Return an error's text in storable characters, with the exceptions of a group as far as the text has room."""
    text = text_of(error)
    if not isinstance(error, BaseExceptionGroup):
        return text
    members = [*leaf_errors(error)]
    room = _MAX_TEXT_LENGTH - len(text) - _MAX_SURPLUS_LENGTH
    separator = ": "
    for index, inner in enumerate(members):
        member = f"{separator}{type(inner).__name__}: {storable_text(text_of(inner), _MAX_MEMBER_LENGTH)}"
        room -= len(member)
        if room < 0:
            return storable_text(f"{text}; (+{len(members) - index} more)")
        text, separator = text + member, "; "
    return storable_text(text)


def storable_text(text: str, limit: int = _MAX_TEXT_LENGTH) -> str:
    """Return a text shortened, without secrets, and in characters that UTF-8 can encode."""
    start = text[: limit + _MAX_SECRET_LENGTH]  # a text may have megabytes
    storable = mask_secrets(start.encode("utf-8", "backslashreplace").decode())
    return storable if len(storable) <= limit else f"{storable[: limit - 1]}…"


def storable_type(error: BaseException) -> str:
    """Return the failure type of an error: its own, or the name of its class."""
    return storable_text(_raw_type(error), _MAX_TYPE_LENGTH)


def is_storable(error: BaseException) -> bool:
    """Return whether the server may store an error with its causes; then it may also be logged."""
    chain = [*causes(error)]
    return len(chain) <= _MAX_CAUSES and all(
        _has_storable_texts(inner) for cause in chain for inner in (cause, *leaf_errors(cause))
    )


def storable_cause(error: BaseException) -> ApplicationError | None:
    """Return an error's direct cause in storable texts, or None if it has none."""
    _, cause, *_ = (*causes(error), None, None)
    return None if cause is None else ApplicationError(error_text(cause), type=storable_type(cause))


def bounded(error: BaseException) -> BaseException:
    """Return the error if it can be stored, otherwise one with a shortened text and without causes."""
    if is_storable(error):
        return error
    if isinstance(error, ApplicationError):
        storable = with_details(error)
    else:
        storable = ApplicationError(error_text(error), type=storable_type(error))
    return storable.with_traceback(error.__traceback__)


def with_details(error: ApplicationError, *details: Any) -> ApplicationError:
    """Return the failure without its causes, in storable texts, with further details after its own."""
    return ApplicationError(
        text_of(error),
        *mask_values(error.details),
        *details,
        type=storable_type(error),
        non_retryable=error.non_retryable,
        next_retry_delay=error.next_retry_delay,
        category=error.category,
    )


def _raw_text(error: BaseException) -> str:
    return error.message if isinstance(error, FailureError) else str(error)


def _raw_type(error: BaseException) -> str:
    return error.type or "" if isinstance(error, ApplicationError) else type(error).__name__


def _has_storable_texts(error: BaseException) -> bool:
    try:
        text = _raw_text(error)
    except Exception:
        return False
    if isinstance(error, ApplicationError) and error.failure is None and _details_leak(error):
        return False
    limits = ((text, _MAX_TEXT_LENGTH), (_raw_type(error), _MAX_TYPE_LENGTH))
    return all(len(value) <= limit and storable_text(value, limit) == value for value, limit in limits)


def _details_leak(error: ApplicationError) -> bool:
    """Return whether an error's own details have a secret in a text."""
    try:
        details = tuple(error.details)
        return bool(mask_values(details) != details)
    except RecursionError:  # details that contain themselves are refused where they are written
        return False
