"""A worker to be killed: `python -m benchmarks.recovery_worker ADDRESS FOLDER`; it says `ready` when it works."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Worker

from baton import __version__
from baton.activity.safeguards import Safeguards
from baton.plugin import BatonPlugin
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
        sticky_queue_schedule_to_start_timeout=timedelta(milliseconds=750),
        build_id=f"baton-{__version__}",
    ):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
