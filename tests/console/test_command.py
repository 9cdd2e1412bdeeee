"""`baton console` and `baton report` as processes."""

import asyncio
import json
import os
import sys
from pathlib import Path

import httpx
from temporalio.worker import Worker

from baton.devserver import DevServer
from tests.console.conftest import started
from tests.console.console_pipelines import checks

BATON = (sys.executable, "-m", "baton")


def _environment(server: DevServer) -> dict[str, str]:
    return {**os.environ, "TEMPORAL_ADDRESS": server.address, "BATON_USER": "ann"}


async def test_the_link_that_it_prints_signs_in_and_ends_with_it(server: DevServer, tmp_path: Path) -> None:
    """The next link is printed after its use; SIGTERM ends the console."""
    process = await asyncio.create_subprocess_exec(
        *BATON,
        "console",
        "--port",
        "0",
        "--json",
        cwd=tmp_path,
        env=_environment(server),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    announcement = json.loads(await process.stdout.readline())
    async with httpx.AsyncClient(follow_redirects=True) as http:
        page = await http.get(announcement["link"])
    following = json.loads(await process.stdout.readline())
    process.terminate()

    assert page.status_code == 200
    assert "<bdi>ann</bdi>" in page.text
    assert following["link"] != announcement["link"]
    assert await process.wait() == 0


async def test_a_report_is_written_once(server: DevServer, worker: Worker, tmp_path: Path) -> None:
    """An existing file is not overwritten without --force."""
    handle = await started(worker, checks, "command-1", "Check by command")
    await handle.result()
    command = (*BATON, "report", handle.id, "-o", "run.html")
    first = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=_environment(server))
    codes = [await first.wait()]
    second = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, env=_environment(server), stderr=asyncio.subprocess.DEVNULL
    )
    codes.append(await second.wait())

    assert codes == [0, 2]
    assert "Check by command" in (tmp_path / "run.html").read_text(encoding="utf-8")
