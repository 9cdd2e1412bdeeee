"""Exceptions in a pipeline's code: which end the run, and how the worker's log names their lines."""

from abc import ABCMeta
from collections.abc import Iterator
from contextlib import contextmanager

from temporalio import workflow
from temporalio.exceptions import FailureError
from temporalio.workflow import NondeterminismError

from baton.errors import BatonError

FAILED_THE_RUN = "the pipeline's code failed the run"


class AnyFault(Exception, metaclass=ABCMeta):  # noqa: N818 - it stands for all, and is never raised
    """Stands for every exception in Temporal's list of those that fail a run instead of its task."""

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        """Return whether exceptions of a kind end a run."""
        return issubclass(kind, Exception) and kind is not NondeterminismError


@contextmanager
def logging_failures(message: str) -> Iterator[None]:
    """Log what is raised in the block, and raise it on."""
    try:
        yield
    except Exception as error:
        log_failure(error, message)
        raise


def log_failure(error: BaseException, message: str) -> None:
    """Log an exception of a pipeline's code with its workflow, run and lines; nothing in a replay."""
    if not isinstance(error, FailureError | BatonError):
        workflow.logger.error(message, exc_info=error)
