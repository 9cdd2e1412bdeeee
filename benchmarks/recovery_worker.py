"""A worker to be killed: `python -m benchmarks.recovery_worker ADDRESS FOLDER`; it says `ready` when it works."""

import asyncio
import sys
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Worker

from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from benchmarks.settings import SETTINGS, collect_as
from benchmarks.stages import lap
from benchmarks.workflows.laps import Laps

QUEUE = "recovery"
"""The task queue that all workers share."""


async def serve(address: str, folder: Path) -> None:
    """Work, with the settings of `worker.py` and the safeguards in a folder, until the process is killed."""
    client = await Client.connect(address, plugins=[BatonPlugin(safeguards=Safeguards.development(folder))])
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[Laps],
        activities=[lap],
        **SETTINGS["shipped"],
    ):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    collect_as("shipped")
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
