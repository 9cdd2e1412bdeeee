"""How a short program that used the Temporal client ends, in one place."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn

from temporalio.client import WorkflowFailureError

from baton.sdk.leaving import leave


def run_and_leave(main: Coroutine[Any, Any, Any]) -> NoReturn:
    """Run ``main`` like `asyncio.run`, then end the process; the last line of a script or worker.

    The exit code is 0; 1 after an exception, whose traceback is printed, and why a run failed in its last line; 130
    after Ctrl-C.

    Args:
        main: What to run.

    Example:
        ```python
        if __name__ == "__main__":
            run_and_leave(main())
        ```
    """
    try:
        asyncio.run(main)
    except KeyboardInterrupt:
        leave(130)
    except BaseException as error:  # whatever it is, it is shown, and the process ends with it
        if isinstance(error, WorkflowFailureError):  # which by itself says no more than that, in the last line
            error.add_note(str(error.cause))
        sys.excepthook(*sys.exc_info())
        leave(1)
    leave(0)
