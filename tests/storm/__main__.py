"""`python -m tests.storm --runs 200 --seed 1`: prints a line for each kind of run; exits with 1 on a fault."""

import argparse
import asyncio
import dataclasses
import logging
import os
import sys
import tempfile
from pathlib import Path

from baton.testing import local_server
from tests.storm.storm import Options, Storm


async def main() -> int:
    """Run a storm."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    for field in dataclasses.fields(Options):
        default = field.default
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(default), default=default)
    options = Options(**vars(parser.parse_args()))
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        async with local_server() as server:
            report = await Storm(server, Path(folder), options).run()
    print(*report.lines(), sep="\n")
    return 0 if report.is_sound else 1


if __name__ == "__main__":
    code = asyncio.run(main())
    sys.stdout.flush()
    os._exit(code)  # temporalio can abort while the interpreter ends, after all work is done
