"""The worker's log of what a pipeline's code raises, with the lines that a failure's message does not name.

Temporal fails the run, or the update, and says so to nobody but whoever reads that. Where code runs by an interceptor,
that one tells the log; no interceptor stands around `__init__`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from baton.errors import BatonError

FAILED_THE_RUN = "the pipeline's code failed the run"
"""What the log says of an exception by which a run ends."""

_MAKE = "_instantiate_workflow_object"  # the method of the SDK's instance that calls `__init__`


class TellingRunner(UnsandboxedWorkflowRunner):
    """What runs a workflow, inside the sandbox or without one: Temporal's own, whose log has what `__init__` raises."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return an instance that logs what `__init__` raises."""
        instance = super().create_instance(det)
        make = getattr(instance, _MAKE, None)
        if make is not None:  # not part of the SDK's interface: another version may do without

            def made() -> Any:
                with telling(FAILED_THE_RUN):
                    return make()

            setattr(instance, _MAKE, made)
        return instance


@contextmanager
def telling(what: str) -> Iterator[None]:
    """Log what is raised in the block, which is raised on.

    Args:
        what: What comes of it.
    """
    try:
        yield
    except Exception as error:
        tell(error, what)
        raise


def tell(error: BaseException, what: str) -> None:
    """Log an exception of a pipeline's code with its workflow, its run and its lines; in a replay, nothing.

    Args:
        error: What was raised. A failure of Temporal's kind was meant as one, and Baton's errors say which step: they
            are not logged.
        what: What comes of it.
    """
    if not isinstance(error, FailureError | BatonError):
        workflow.logger.error(what, exc_info=error)
