"""A worker with safeguards as a process: `python -m tests.acceptance.handoff_worker ADDRESS QUEUE FOLDER ROLE`.

The role is `pipelines` or `stages`, with `+encrypt` behind it where everything is encrypted. It says `ready` when it
works, and works until it is killed.
"""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Worker

from baton.plugin import BatonPlugin
from tests.acceptance.handoff_errands import STAGES, Relayed, safeguards


async def work(address: str, queue: str, folder: str, role: str) -> None:
    plugin = BatonPlugin(safeguards=safeguards(Path(folder), encrypt=role.endswith("+encrypt")))
    client = await Client.connect(address, plugins=[plugin], identity="test")
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[] if role.startswith("stages") else [Relayed],
        activities=[] if role.startswith("pipelines") else STAGES,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(milliseconds=100),
        max_heartbeat_throttle_interval=timedelta(milliseconds=100),
    )
    async with worker:
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:5]))
