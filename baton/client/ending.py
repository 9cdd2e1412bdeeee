"""How a short program that used the Temporal client ends, in one place.

Threads of the SDK may outlive the interpreter's shutdown and abort the process, after all work is done
(temporalio issue 300). So such a program does not take the interpreter's way out.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn


def leave(code: int) -> NoReturn:
    """End the process with ``code``, once everything that was written is out.

    Args:
        code: The exit code, 0 for success.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more, or it was closed
            stream.flush()
    os._exit(code)


def run_and_leave(main: Coroutine[Any, Any, Any]) -> NoReturn:
    """Run ``main`` like `asyncio.run`, then end the process; the last line of a script or worker.

    The exit code is 0; 1 after an exception, whose traceback is printed; 130 after Ctrl-C.

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
    except BaseException:  # whatever it is, it is shown, and the process ends with it
        sys.excepthook(*sys.exc_info())
        leave(1)
    leave(0)
