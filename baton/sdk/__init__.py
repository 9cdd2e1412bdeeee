"""Ends a process that used the Temporal client, and adapts the SDK's workers (`runner`, `early_queries`, `suspension`).

Threads of the SDK may outlive the interpreter's shutdown and abort the process, after all work is done
(temporalio issue 300). So such a process skips that shutdown.
"""

import contextlib
import os
import sys
from typing import NoReturn


def exit_process(code: int) -> NoReturn:
    """Flush standard output and error, and end the process with ``code``.

    Args:
        code: The exit code, 0 for success.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the reader has ended, or the stream is closed
            stream.flush()
    os._exit(code)
