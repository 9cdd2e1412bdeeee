"""The process of a peer: `python -m benchmarks.peers.worker PEER ADDRESS QUEUE FOLDER`; SIGTERM ends it.

The peers' own interpreter runs it. PEER is a module of `benchmarks.peers` with a coroutine `serve`.
"""

import argparse
import asyncio
import importlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

Serve = Callable[[str, str, Path], Awaitable[None]]
"""Works until cancelled, given the server's address, the task queue and a folder for files."""

PEERS = {
    "pydantic_ai": "benchmarks.peers.pydantic_ai",
    "openai_agents": "benchmarks.peers.openai_agents",
    "langgraph": "benchmarks.peers.langgraph",
    "langgraph_sqlite": "benchmarks.peers.langgraph_sqlite",
    "dbos_sqlite": "benchmarks.peers.dbos_sqlite",
}
"""The module of each peer; none is imported before it is asked for, as each needs another library."""


async def run(serve: Serve, address: str, queue: str, folder: Path) -> None:
    """Serve until SIGTERM."""
    task = asyncio.ensure_future(serve(address, queue, folder))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return


def main() -> None:
    """Run the peer that the command line names, and end the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.worker")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("address")
    parser.add_argument("queue")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    serve: Serve = importlib.import_module(PEERS[given.peer]).serve
    asyncio.run(run(serve, given.address, given.queue, given.folder))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the SDK's threads may otherwise end the process with SIGABRT


if __name__ == "__main__":
    main()
