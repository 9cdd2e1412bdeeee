"""A worker as a process of its own that is killed at the worst moment; see `test_exchange_faults.py`.

Run as `python -m tests.exchange.exchange_worker ADDRESS TASK_QUEUE FOLDER MOMENT`.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from temporalio import activity
from temporalio.client import Client

from baton import WorkerParts
from baton.exchange.activity import admit
from baton.exchange.records import ADMIT, AcceptRequest, Admission
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker
from tests.exchange.exchange_pipelines import EXCHANGES


async def main(address: str, task_queue: str, folder: str, moment: str) -> None:
    """Work until a handoff is to be accepted; die right before or right after it is on record."""

    @activity.defn(name=ADMIT)
    async def die(request: AcceptRequest) -> Admission:
        if moment == "after":
            await admit(request)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    safeguards = Safeguards.development(Path(folder))
    client = await Client.connect(address, plugins=[BatonPlugin(WorkerParts(), safeguards=safeguards)])
    async with pipeline_worker(client, EXCHANGES, [die], task_queue=task_queue):
        print("up", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
