"""Packages from npm, pinned, in a folder that is thrown away."""

import asyncio
import os
import shutil
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

_NEEDED = "no npm with a registry here"


async def installed(folder: Path, *packages: str) -> Path:
    """Install packages into a folder and return that of their commands; skip the test where that is impossible."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"left out: {_NEEDED}; {', '.join(packages)} are from npm")
    options = (
        "--silent",
        "--no-audit",
        "--no-fund",
        "--fetch-retries",
        "1",
        "--fetch-timeout",
        "30000",
        "--prefix",
        str(folder),
    )
    installing = await asyncio.create_subprocess_exec(npm, "install", *options, *packages, stdout=PIPE, stderr=PIPE)
    out, err = await installing.communicate()
    if installing.returncode:
        pytest.skip(f"left out: {_NEEDED}: {(err or out).decode(errors='replace')[-300:]}")
    return folder / "node_modules" / ".bin"


async def output_of(*command: str | Path, folder: Path, path: Path | None = None) -> tuple[int, str]:
    """Return the exit code of a command, and what it said."""
    environment = {**os.environ, "NO_COLOR": "1"}
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    running = await asyncio.create_subprocess_exec(
        *map(str, command), cwd=folder, env=environment, stdout=PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await running.communicate()
    return running.returncode or 0, out.decode(errors="replace")
