"""The `baton` command: start, watch, decide, repair, from a terminal or a script.

Reading commands ask the server for the run's event history and nothing else, so they work with no worker
running and on runs that ended. Every command takes `--json`; what it then writes is stable and meant for
programs. The process always ends in `baton.sdk.exit_process`.
"""

import signal
import sys
import traceback
from typing import Any, NoReturn

from baton.cli.app import make_app
from baton.cli.options import ExitCode
from baton.cli.output import prepare_streams
from baton.client.faces import exit_process
from baton.errors import BatonError

_TERMINATED = 128 + signal.SIGTERM


def main() -> NoReturn:
    """Run the command line and exit the process. SIGTERM first restores the terminal."""
    signal.signal(signal.SIGTERM, _exit_on_signal)
    prepare_streams()
    try:
        try:
            make_app()(prog_name="baton")
        finally:
            sys.stdout.flush()
        code: object = ExitCode.OK
    except SystemExit as stop:
        code = stop.code
    except BatonError as error:  # the command needs an extra that is not installed
        print(f"baton: {error}", file=sys.stderr)
        code = ExitCode.FAILURE
    except KeyboardInterrupt:  # before the command itself ran
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader closed the pipe
        code = ExitCode.FAILURE
    except OSError as error:  # the output cannot be written, such as on a full disk
        print(f"baton: {error}", file=sys.stderr)
        code = ExitCode.FAILURE
    except Exception:  # a bug
        traceback.print_exc()
        code = ExitCode.FAILURE
    if isinstance(code, str):
        print(code, file=sys.stderr)
    if code == _TERMINATED:  # so the parent process sees the signal
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    exit_process(code if isinstance(code, int) else ExitCode.FAILURE if code else ExitCode.OK)


def _exit_on_signal(number: int, frame: Any) -> NoReturn:
    """Raise SystemExit, so that context managers restore the terminal."""
    raise SystemExit(_TERMINATED)
