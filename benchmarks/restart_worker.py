"""A worker to be killed and started again: `python -m benchmarks.restart_worker ADDRESS QUEUE`."""

import asyncio
import sys

from temporalio.client import Client
from temporalio.worker import Worker

from baton.plugin import WORKFLOW_TASKS, BatonPlugin
from benchmarks.settings import SETTINGS, collect_as
from benchmarks.stages import lap
from benchmarks.workflows.laps import Waits


async def serve(address: str, queue: str) -> None:
    """Work, with the settings of `worker.py` and the plugin's bound, until the process is killed."""
    client = await Client.connect(address, plugins=[BatonPlugin(safeguards="off")])
    settings = {**SETTINGS["shipped"], "max_concurrent_workflow_tasks": WORKFLOW_TASKS}
    async with Worker(client, task_queue=queue, workflows=[Waits], activities=[lap], **settings):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    collect_as("shipped")
    asyncio.run(serve(sys.argv[1], sys.argv[2]))
