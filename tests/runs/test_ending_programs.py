"""`run_and_leave`, the last line of a script: its exit codes and its output."""

import subprocess
import sys

PROGRAM = """
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from baton.client import run_and_leave


async def main() -> None:
    raise {raised}

run_and_leave(main())
"""


def run_program(raised: str) -> tuple[int, str]:
    """Return the exit code of a program that raises, and its last line of output."""
    process = subprocess.run([sys.executable, "-c", PROGRAM.format(raised=raised)], capture_output=True, text=True)
    return process.returncode, process.stderr.splitlines()[-1] if process.stderr else ""


class TestRunAndLeave:
    """`run_and_leave`."""

    def test_the_last_line_says_why_a_run_failed(self) -> None:
        """Temporal's own exception has no reason."""
        cause = "ApplicationError('stage \\'check\\' failed', type='StageFailedError')"

        assert run_program(f"WorkflowFailureError(cause={cause})") == (1, "StageFailedError: stage 'check' failed")

    def test_another_exception_is_printed_unchanged(self) -> None:
        """As Python prints it."""
        assert run_program("KeyError('x')") == (1, "KeyError: 'x'")

    def test_ctrl_c_leaves_no_traceback(self) -> None:
        """The exit code is the shell's own."""
        assert run_program("KeyboardInterrupt") == (130, "")
