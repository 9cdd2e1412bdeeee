"""The worker's log of exceptions in a pipeline's code, with their lines, which a failure's message does not name."""

from collections.abc import Iterator
from contextlib import contextmanager

from temporalio import workflow
from temporalio.exceptions import FailureError

from baton.errors import BatonError

FAILED_THE_RUN = "the pipeline's code failed the run"


@contextmanager
def logging_failures(message: str) -> Iterator[None]:
    """Log what is raised in the block, and raise it on."""
    try:
        yield
    except Exception as error:
        log_failure(error, message)
        raise


def log_failure(error: BaseException, message: str) -> None:
    """Log an exception of a pipeline's code with its workflow, run and lines; nothing in a replay.

    Failures of Temporal's kind are meant as such, and Baton's errors name the step: they are not logged.
    """
    if not isinstance(error, FailureError | BatonError):
        workflow.logger.error(message, exc_info=error)
