"""The `baton` command: start, watch, decide, repair, from a terminal or a script.

Reading commands ask the server for the run's event history and nothing else, so they work with no worker
running and on runs that ended. Every command takes `--json`; what it then writes is stable and meant for
programs. The process always ends in `baton.edge.leaving.leave`.
"""

import sys
import traceback
from typing import NoReturn

from baton.cli.app import make_app
from baton.cli.exits import ExitCode
from baton.cli.output import prepare_streams
from baton.edge.leaving import leave
from baton.protocol.errors import BatonError


def main() -> NoReturn:
    """Run the command line and end the process."""
    prepare_streams()
    try:
        try:
            make_app()(prog_name="baton")
        finally:
            sys.stdout.flush()
        code: object = ExitCode.OK
    except SystemExit as stop:
        code = stop.code
    except BatonError as error:  # a command that cannot be loaded, for want of an extra, or an output without room
        print(f"baton: {error}", file=sys.stderr)
        code = ExitCode.NO
    except BrokenPipeError:  # whoever read the output has gone
        code = ExitCode.NO
    except Exception:  # a bug, then; whoever mends it needs to see where
        traceback.print_exc()
        code = ExitCode.NO
    if isinstance(code, str):
        print(code, file=sys.stderr)
    leave(code if isinstance(code, int) else ExitCode.NO if code else ExitCode.OK)
