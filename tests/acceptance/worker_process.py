"""A worker in a process of its own: `python -m tests.acceptance.worker_process ADDRESS QUEUE ROLE`.

The role is `both`, `pipelines` or `stages`. It says `ready` when it works, and works until it is killed.
"""

import asyncio
import sys
from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Worker

from baton.plugin import BatonPlugin
from tests.acceptance.errands import STAGES, Errand


async def work(address: str, queue: str, role: str) -> None:
    client = await Client.connect(address, plugins=[BatonPlugin(safeguards="off")], identity="test")
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[] if role == "stages" else [Errand],
        activities=[] if role == "pipelines" else STAGES,
        no_remote_activities=role == "pipelines",  # else it would take stages, and has none
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(milliseconds=100),
        max_heartbeat_throttle_interval=timedelta(milliseconds=100),
    )
    async with worker:
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:4]))
