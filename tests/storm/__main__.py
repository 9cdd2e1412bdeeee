"""`python -m tests.storm --runs 200 --seed 1`: prints a line for each kind of run; exits with 1 on a fault.

With `--approvals` all runs ask people, who decide late, twice, against each other and about other questions. After a
fault the folder with the histories that do not replay and the output of the workers is kept, and named.
"""

import argparse
import asyncio
import dataclasses
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

from baton.testing import local_server
from tests.storm.approvals import ApprovalStorm
from tests.storm.storm import Options, Storm


async def main() -> int:
    """Run a storm."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    for field in dataclasses.fields(Options):
        default = field.default
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(default), default=default)
    parser.add_argument("--approvals", action="store_true")
    arguments = vars(parser.parse_args())
    kind = ApprovalStorm if arguments.pop("approvals") else Storm
    options = Options(**arguments)
    logging.disable(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="storm-"))
    async with local_server() as server:
        report = await kind(server, folder, options).run()
    print(*report.lines(), sep="\n")
    if report.is_sound:
        shutil.rmtree(folder)
    else:
        print(f"kept: {folder}")
    return 0 if report.is_sound else 1


if __name__ == "__main__":
    code = asyncio.run(main())
    sys.stdout.flush()
    os._exit(code)  # temporalio can abort while the interpreter ends, after all work is done
