"""The worker of the tests of the command, as a process: its connection and task queue come from the environment."""

import asyncio
import os
import signal
import sys

from temporalio.worker import Worker

from baton import WorkerParts, open_store
from baton.client import connect
from baton.plugin import BatonPlugin
from tests.acceptance.operated_pipelines import PIPELINES
from tests.acceptance.operated_stages import STAGES


async def main() -> None:
    """Work until SIGTERM; print a line once the worker runs."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    parts = WorkerParts(artifacts=open_store(os.environ["BATON_ARTIFACTS"]))
    searchable = "BATON_SEARCHABLE" not in os.environ
    client = await connect(plugins=[BatonPlugin(parts, safeguards="off", searchable=searchable)])
    queue = os.environ.get("BATON_TASK_QUEUE", "baton")
    async with Worker(client, task_queue=queue, workflows=PIPELINES, activities=STAGES):
        print("working", flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
    os._exit(0)
