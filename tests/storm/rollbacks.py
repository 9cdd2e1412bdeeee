"""`python -m tests.storm.rollbacks --runs 8 --times 8`: failing runs with budgets are rolled back over and over.

What their stages paid never exceeds what was granted plus one reservation; it exits with 1 if it does.
"""

import argparse
import asyncio
import logging
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowFailureError

from baton import Budget, OnExhaustion, PipelineInput
from baton.client import roll_back
from baton.errors import HistoryError
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import local_server, pipeline_worker
from tests.budget.paying_pipelines import PIPELINES, Takes
from tests.budget.paying_stages import BILLS, STAGES, dear

RESERVED = dear.spec.reserve_micro_usd
GRANTED = 4 * RESERVED


async def storm(folder: Path, runs: int, times: int) -> list[int]:
    """Return what the stages of each run have paid after that many roll-backs, with concurrent runs."""
    does: Any = {"dear": [{"charge": [RESERVED], "end": "raise for good"}]}
    budget = Budget(initial_micro_usd=GRANTED, then=OnExhaustion.STOP)
    start = PipelineInput(goal="Pay", budget=budget, params={"steps": ["dear"], "does": does})
    async with local_server() as server:
        client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=Safeguards.development(folder))])
        async with pipeline_worker(client, PIPELINES, STAGES) as worker:

            async def run_one() -> int:
                id = f"paying-{uuid4()}"
                await client.start_workflow(Takes.run, start, id=id, task_queue=worker.task_queue)
                with suppress(WorkflowFailureError):
                    await client.get_workflow_handle(id).result()
                with suppress(HistoryError):  # once the money is gone the stage does not begin, so it has no event
                    for _ in range(times):
                        await roll_back(client, id, "1", by="ann", why="try again")
                        with suppress(WorkflowFailureError):
                            await client.get_workflow_handle(id).result()
                return BILLS[id]

            return await asyncio.gather(*(run_one() for _ in range(runs)))


async def main() -> int:
    """Run a storm."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm.rollbacks", description=__doc__)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--times", type=int, default=8)
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        paid = await storm(Path(folder), options.runs, options.times)
    print(f"{options.runs} runs, {options.times} roll-backs each: {GRANTED:,} granted, at most {max(paid):,} paid")
    return 0 if max(paid) <= GRANTED + RESERVED else 1


if __name__ == "__main__":
    code = asyncio.run(main())
    sys.stdout.flush()
    os._exit(code)  # temporalio can abort while the interpreter ends, after all work is done
