"""How a process ends that used the Temporal client.

Threads of the SDK may outlive the interpreter's shutdown and abort the process, after all work is done
(temporalio issue 300). So such a process does not take the interpreter's way out.
"""

import contextlib
import os
import sys
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End the process with ``code``, once everything that was written is out.

    Args:
        code: The exit code, 0 for success.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the reader has gone, or it was closed
            stream.flush()
    os._exit(code)
