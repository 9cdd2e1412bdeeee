"""`run_and_leave`, the last line of a script: how it ends, and what it leaves on the terminal."""

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


def ended(raised: str) -> tuple[int, str]:
    """Return the exit code of a program that raises, and the last line that it wrote."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(raised=raised)], capture_output=True, text=True)
    return done.returncode, done.stderr.splitlines()[-1] if done.stderr else ""


class TestRunAndLeave:
    """`run_and_leave`."""

    def test_the_last_line_says_why_a_run_failed(self) -> None:
        """Temporal's exception by itself says there only that it did."""
        cause = "ApplicationError('stage \\'check\\' failed', type='StageFailedError')"

        assert ended(f"WorkflowFailureError(cause={cause})") == (1, "StageFailedError: stage 'check' failed")

    def test_another_exception_is_shown_as_it_is(self) -> None:
        """As Python shows it."""
        assert ended("KeyError('x')") == (1, "KeyError: 'x'")

    def test_ctrl_c_leaves_no_traceback(self) -> None:
        """The code is a shell's own for it."""
        assert ended("KeyboardInterrupt") == (130, "")
