"""How the command ends: its exit codes, and the one function that every end goes through."""

import contextlib
import os
import sys
from enum import IntEnum
from typing import NoReturn


class ExitCode(IntEnum):
    """What the exit code of `baton` says."""

    OK = 0
    """Done."""
    NO = 1
    """What was asked about failed, was refused or denied, or does not exist."""
    USAGE = 2
    """The command line cannot be understood."""
    UNREACHABLE = 3
    """No Temporal server answers, or it does not let us in."""
    UNVERIFIED = 4
    """Nothing is wrong with a record, and nothing proves it either."""
    INTERRUPTED = 130
    """Ctrl-C."""


MEANINGS = (
    "Exit codes: 0 done; 1 what was asked about failed, was refused or denied, or does not exist; "
    "2 wrong usage; 3 no server answers; 4 nothing proves it; 130 Ctrl-C."
)
"""The exit codes for the end of `--help`."""


def leave(code: int) -> NoReturn:
    """End the process with ``code``, once everything that was written is out.

    The interpreter's own way out is not taken: threads of the Temporal SDK may then abort the process, after
    all work is done.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more, or it was closed
            stream.flush()
    os._exit(code)
