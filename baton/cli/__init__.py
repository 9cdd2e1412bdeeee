"""The `baton` command: start, watch, decide, repair, from a terminal or a script.

Reading commands ask the server for the run's event history and nothing else, so they work with no worker
running and on runs that ended. Every command takes `--json`; what it then writes is stable and meant for
programs. The process always ends in `baton.sdk.leave`.
"""

import signal
import sys
import traceback
from typing import Any, NoReturn

from baton.cli.app import make_app
from baton.cli.options import ExitCode
from baton.cli.output import prepare_streams
from baton.errors import BatonError
from baton.sdk import leave

_TERMINATED = 128 + signal.SIGTERM


def main() -> NoReturn:
    """Run the command line and end the process; SIGTERM ends it too, once the terminal is as it was."""
    signal.signal(signal.SIGTERM, _unwind)
    prepare_streams()
    try:
        try:
            make_app()(prog_name="baton")
        finally:
            sys.stdout.flush()
        code: object = ExitCode.OK
    except SystemExit as stop:
        code = stop.code
    except BatonError as error:  # a command that cannot be loaded, for want of an extra
        print(f"baton: {error}", file=sys.stderr)
        code = ExitCode.FAILURE
    except KeyboardInterrupt:  # while a command was still being loaded, or its usage told
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader of the output has gone
        code = ExitCode.FAILURE
    except OSError as error:  # the output has no room
        print(f"baton: {error}", file=sys.stderr)
        code = ExitCode.FAILURE
    except Exception:  # a bug: show where
        traceback.print_exc()
        code = ExitCode.FAILURE
    if isinstance(code, str):
        print(code, file=sys.stderr)
    if code == _TERMINATED:  # the parent process sees that it was the signal
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    leave(code if isinstance(code, int) else ExitCode.FAILURE if code else ExitCode.OK)


def _unwind(number: int, frame: Any) -> NoReturn:
    """Leave whatever is under way as an error would: a page on a terminal gives back the cursor that it hid."""
    raise SystemExit(_TERMINATED)
