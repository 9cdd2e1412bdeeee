"""How a short program that used the Temporal client ends, in one place."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn

from temporalio.client import WorkflowFailureError

from baton.sdk.leaving import leave

_TERMINATED = 128 + signal.SIGTERM


def run_and_leave(main: Coroutine[Any, Any, Any]) -> NoReturn:
    """Run ``main`` like `asyncio.run`, then end the process; the last line of a script or worker.

    SIGTERM cancels ``main`` as Ctrl-C does, so a worker in it lets its stages finish (`BATON_GRACE_SECONDS`).

    The exit code is 0; 1 after an exception, whose traceback is printed, and why a run failed in its last line; 130
    after Ctrl-C; 143 after SIGTERM.

    Args:
        main: What to run.

    Example:
        ```python
        if __name__ == "__main__":
            run_and_leave(main())
        ```
    """
    terminated: list[int] = []
    try:
        asyncio.run(_cancelled_by_sigterm(main, terminated))
    except KeyboardInterrupt:
        leave(130)
    except asyncio.CancelledError:
        if not terminated:
            sys.excepthook(*sys.exc_info())
        leave(_TERMINATED if terminated else 1)
    except BaseException as error:  # whatever it is, it is shown, and the process ends with it
        if isinstance(error, WorkflowFailureError):  # which by itself says no more than that, in the last line
            error.add_note(str(error.cause))
        sys.excepthook(*sys.exc_info())
        leave(1)
    leave(0)


async def _cancelled_by_sigterm(main: Coroutine[Any, Any, Any], terminated: list[int]) -> None:
    """Run ``main``; SIGTERM cancels it and is noted."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - asyncio.run makes one

    def stop() -> None:
        terminated.append(signal.SIGTERM)
        task.cancel()

    with contextlib.suppress(NotImplementedError):  # Windows has no such handlers
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await main
