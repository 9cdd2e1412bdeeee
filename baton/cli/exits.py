"""What the exit codes of `baton` say."""

from enum import IntEnum


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
    "2 wrong usage; 3 no server answers; 4 unverified (no proof either way); 130 Ctrl-C."
)
"""The exit codes for the end of `--help`."""
