"""The child processes of the tests: run to their end, or at work while a block is open."""

import asyncio
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Ended(NamedTuple):
    """How a process ended, and what it wrote."""

    code: int | None
    said: str
    beside: str


async def ran(*command: str, folder: Path = ROOT, environment: Mapping[str, str] | None = None) -> Ended:
    """Run a command to its end; the test's timeout bounds the wait."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    output, beside = await process.communicate()
    return Ended(process.returncode, output.decode(), beside.decode())


@asynccontextmanager
async def working(
    *command: str, once: str, folder: Path = ROOT, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Process]:
    """Run a Python program that has said a line when the block begins, and has been killed when it ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=folder, env=environment, stdin=DEVNULL, stdout=PIPE
    )
    try:
        await heard(process, once)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def heard(process: Process, line: str) -> None:
    """Wait until a process says a line; the test's timeout bounds the wait."""
    assert process.stdout is not None
    while (first_line := (await process.stdout.readline()).decode().strip()) != line:
        assert first_line, "the process has ended"


def started(module: str, *words: str) -> subprocess.Popen[str]:
    """Start a module of the tests as a process."""
    return subprocess.Popen([sys.executable, "-m", module, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True)
