"""Failures in at most ten lines: what failed, the frames of the user's code, and the cause as the last line.

The SDK logs each failed attempt of an activity with its traceback, mostly the SDK's and Baton's. Here an
attempt that is retried becomes one line, and one that ends its activity a few; at level DEBUG nothing is shortened.
"""

import logging
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import TextIO

from temporalio import activity
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from baton.codec.failures import causes, leaf_errors, storable_text, storable_type, text_of
from baton.codec.secrets import mask_secrets
from baton.telemetry.worker_logs import RepeatFilter

MAX_LINES = 10
"""The maximum number of lines that a person sees of a failure: in the log, of the run's progress, and at the end."""

_MAX_LOGGED_LINES = 6  # beside one for earlier attempts, two of progress and one at the end
_MAX_FINAL_LINES = 3

_MAX_LINE_LENGTH = 500
_FOREIGN_FOLDERS = (
    f"{Path(__file__).parents[1]}/",
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    "<frozen ",
)
_MARK = "__temporal_error_identifier"  # set by the SDK
_LOGGERS = ("temporalio.activity", "temporalio.workflow")


class RunFailedError(WorkflowFailureError):
    """A run failed; unlike the SDK's error, the message has the reason."""

    def __init__(self, failure: BaseException) -> None:
        super().__init__(cause=failure)
        self.args = (storable_text(str(failure)),)
        self._failure = failure
        self.__cause__ = None  # its chain would be printed; all of it repeats the message

    @property
    def cause(self) -> BaseException:
        """The failure."""
        return self._failure


class FailureFilter(logging.Filter):
    """Shortens the tracebacks of failures of stages and of pipelines' code, unless the logger logs at level DEBUG."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten a record in place, and mask secrets in its traceback; all are logged."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return True
        if lines := _short_lines(record, error):
            record.msg, record.args = "\n".join(lines), ()
            record.exc_info = record.exc_text = None
        else:  # formatters take the text as it stands here
            record.exc_text = mask_secrets("".join(traceback.format_exception(error)).rstrip())
        return True


def _short_lines(record: logging.LogRecord, error: BaseException) -> list[str]:
    """Return the lines for a failure; none where all of its traceback is to be logged."""
    if record.levelno < logging.WARNING or logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
        return []
    is_activity = getattr(record, _MARK, None) == "ActivityFailure" and activity.in_activity()
    if is_activity and not _ends_activity(error):
        return [f"{_describe_activity()} failed and is retried (attempt {activity.info().attempt}): {_summary(error)}"]
    if frames := failure_frames(error):
        return [
            f"{_describe_activity()} failed for good (attempt {activity.info().attempt})"
            if is_activity
            else _describe_workflow(record),
            *fit_lines(frames, cause_lines(error), _MAX_LOGGED_LINES - 1),
        ]
    return []  # not the user's code, so the rest may matter


@contextmanager
def short_failures() -> Iterator[None]:
    """Shorten logged failures while the context is open, and log repeated ones once a minute."""
    filters = FailureFilter(), RepeatFilter()
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger, added in product(loggers, filters):
        logger.addFilter(added)
    try:
        yield
    finally:
        for logger, added in product(loggers, filters):
            logger.removeFilter(added)


def failure_frames(error: BaseException) -> list[str]:
    """Return a line for each frame of the user's code in an error, its causes and the members of its groups."""
    lines: dict[str, None] = {}
    for cause in (inner for outer in causes(error) for leaf in (outer, *leaf_errors(outer)) for inner in causes(leaf)):
        for frame in traceback.extract_tb(cause.__traceback__):
            if not frame.filename.startswith(_FOREIGN_FOLDERS):
                lines[_cut(f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}")] = None
    return [*lines]


def cause_lines(error: BaseException) -> list[str]:
    """Return an error on the last line; of a group, a line for each member."""
    groups = [cause for cause in causes(error) if isinstance(cause, BaseExceptionGroup)]
    members = [member for group in groups[:1] for member in leaf_errors(group)]
    return [_summary(member) for member in members] or [_summary(error)]


def short_failure(error: BaseException) -> str:
    """Return a failure of the user's code in at most ten lines; of a syntax error, with its place."""
    reasons = cause_lines(error)
    if isinstance(error, SyntaxError):
        reasons = [_cut(line.rstrip()) for line in traceback.format_exception_only(error)]
    return "\n".join(fit_lines(failure_frames(error), "\n".join(reasons).splitlines(), MAX_LINES))


def fit_lines(frames: list[str], reasons: list[str], room: int) -> list[str]:
    """Return frames and reasons in so many lines: a frame at least, and no reason left out."""
    if len(reasons) > room - 1:  # those that do not fit share the last line
        reasons = [*reasons[: room - 2], "; ".join(reasons[room - 2 :])]
    kept = room - len(reasons)
    if len(frames) > kept:
        frames = frames[-1:] if kept < 3 else [frames[0], f"  (+{len(frames) - kept + 1} more)", *frames[2 - kept :]]
    return [*frames, *reasons]


def _describe_activity() -> str:
    info = activity.info()
    return f"{info.activity_type!r} of run {info.workflow_id!r}"


def _describe_workflow(record: logging.LogRecord) -> str:
    """Return a message with the run's id, in place of all that the SDK's logger adds."""
    info = getattr(record, "temporal_workflow", None)
    message = record.getMessage()
    if not isinstance(info, dict) or "workflow_id" not in info:
        return message
    return f"run {info['workflow_id']!r}: {message.partition(' ({')[0]}"


def _ends_activity(error: BaseException) -> bool:
    """Return whether the server does not retry the running activity after an error."""
    policy = activity.info().retry_policy
    if isinstance(error, ApplicationError) and error.non_retryable:
        return True
    if policy is None:
        return False
    names = policy.non_retryable_error_types or ()
    return storable_type(error) in names or 0 < policy.maximum_attempts <= activity.info().attempt


def _summary(error: BaseException) -> str:
    """Return an error on one line, with its root cause unless the text has it."""
    *_, root = causes(error)
    text, root_text = text_of(error), text_of(root)
    suffix = "" if root is error or root_text in text else f" (from {_kind(root)}: {root_text})"
    room = max(_MAX_LINE_LENGTH - len(suffix), _MAX_LINE_LENGTH // 2)
    return _one_line(f"{_one_line(f'{_kind(error)}: {text}')[:room]}{suffix}")


def _kind(error: BaseException) -> str:
    return storable_type(error) or type(error).__name__


def _one_line(text: str) -> str:
    return _cut(" ".join(text.split()))


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_LINE_LENGTH else f"{line[: _MAX_LINE_LENGTH - 1]}…"


def print_failure(error: WorkflowFailureError, file: TextIO) -> None:
    """Print a run's failure that ends a program: the frames of the user's code, and the reason as the last line."""
    reasons = [_one_line(storable_text(str(error.cause)))]
    print("\n".join(fit_lines(failure_frames(error), reasons, _MAX_FINAL_LINES)), file=file)


def print_uncaught_shortly() -> None:
    """Have a `RunFailedError` that ends the program printed in one line, unless the program prints errors itself.

    The log has the frames of the stage; those of a traceback would be Baton's and the line that runs the pipeline.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_uncaught


def _print_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, RunFailedError):
        print(_one_line(f"{kind.__name__}: {error}"), file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)
