"""A worker process with a key and a package that the test's own worker lacks."""

import asyncio
import sys
from pathlib import Path

import pydantic_ai.models
from temporalio.client import Client

from baton import Safeguards
from baton.testing import pipeline_worker
from tests.pipelines import missing_pipelines as they


async def main(address: str, task_queue: str, folder: str, url: str) -> None:
    """Run until the process is stopped."""
    client = await Client.connect(address, plugins=[they.plugin(Safeguards.development(Path(folder)))])
    stages = [they.begin, they.imports, they.asking(url)]
    with pydantic_ai.models.override_allow_model_requests(True):
        async with pipeline_worker(client, [they.needs], stages, task_queue=task_queue):
            print("up", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
