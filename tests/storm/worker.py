"""A worker of the storm as a process of its own: `python -m tests.storm.worker ADDRESS FOLDER CACHE SDK`.

With `SDK` as `next`, it does already what the SDK announces for its next versions.
"""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Worker, _workflow
from temporalio.worker._workflow_instance import _WorkflowLogicFlag

from baton import BatonPlugin, Safeguards, WorkerParts
from tests.storm.pipelines import PIPELINES
from tests.storm.stages import STAGES

QUEUE, DECIDERS = "storm", "deciders.toml"


async def main(address: str, folder: str, cache: str, sdk: str) -> None:
    """Work until killed."""
    if sdk == "next":
        vars(_workflow)["_DEFAULT_ENABLED_WORKFLOW_LOGIC_FLAGS"] = frozenset(_WorkflowLogicFlag)
    parts = WorkerParts(deciders=Path(folder, DECIDERS))
    plugin = BatonPlugin(parts, safeguards=Safeguards.development(Path(folder)))
    client = await Client.connect(address, plugins=[plugin])
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=PIPELINES,
        activities=STAGES,
        max_cached_workflows=int(cache),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),
    ):
        print("up", flush=True)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the SDK logs there too, and nobody reads more of it
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
