"""How a peer without a server is given work: jobs as lines of JSON on its standard input, results on its output."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Job = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Takes the state of a job, and returns the state in the end."""

_LONGEST_LINE = 1 << 20


async def take_jobs(job: Job) -> None:
    """Run a job for every line of standard input, all at the same time, until the input ends.

    A line is `{"id": …, "state": {…}}`, and the answer has the same two members.
    """
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running: set[asyncio.Task[None]] = set()

    async def answer(line: bytes) -> None:
        given = json.loads(line)
        print(json.dumps({"id": given["id"], "state": await job(given["state"])}), flush=True)

    while line := await reader.readline():
        task = asyncio.create_task(answer(line))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
