"""A worker to be killed and started again: `python -m benchmarks.restart_worker ADDRESS QUEUE TASKS`."""

import asyncio
import sys

from temporalio.client import Client
from temporalio.worker import Worker

from baton.plugin import BatonPlugin
from benchmarks.settings import SETTINGS, collect_as
from benchmarks.stages import lap
from benchmarks.workflows.laps import Waits


async def serve(address: str, queue: str, at_once: int) -> None:
    """Work, with the settings of `worker.py` but for the workflow tasks at once, until the process is killed."""
    client = await Client.connect(address, plugins=[BatonPlugin()])
    settings = {**SETTINGS["shipped"], "max_concurrent_workflow_tasks": at_once}
    async with Worker(client, task_queue=queue, workflows=[Waits], activities=[lap], **settings):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    collect_as("shipped")
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
