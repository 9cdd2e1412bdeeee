"""`baton audit verify --run`: a ledger held against the heads in a run's history."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from temporalio.worker import Worker
from typer.testing import CliRunner, Result

from baton.activity.safeguards import Safeguards
from baton.cli.app import make_app
from baton.devserver import DevServer
from tests.support import sealing_worker, start
from tests.temporal.handoff_pipelines import PIPELINES, FourAgents
from tests.temporal.handoff_stages import STAGES


@pytest.fixture(scope="module")
def safeguards(tmp_path_factory: pytest.TempPathFactory) -> Safeguards:
    """Return keys and a ledger of their own for these tests."""
    return Safeguards.development(tmp_path_factory.mktemp("safeguards"))


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    """Return a running worker with safeguards."""
    async with sealing_worker(server, safeguards, PIPELINES, STAGES) as it:
        yield it


async def test_the_run_must_be_one_of_the_task(worker: Worker, server: DevServer, safeguards: Safeguards) -> None:
    """The heads of another one prove nothing of it, and it was called valid as if they did."""
    mine, others = [await start(worker, FourAgents.run) for _ in range(2)]
    task, other = [(await handle.result()).task_id for handle in (mine, others)]
    environment = {"TEMPORAL_ADDRESS": server.address, "COLUMNS": "200"}

    async def verify(*words: str) -> Result:
        line = ["audit", "verify", *words, "--ledger", str(safeguards.ledger)]
        return await asyncio.to_thread(CliRunner().invoke, make_app(), line, env=environment)

    done, refused = await verify(task, "--run", mine.id), await verify(task, "--run", others.id)

    assert (done.exit_code, "8 records · anchored through 8" in done.stdout) == (0, True), done.output
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"the run is one of task {other!r}, whose heads tell nothing of task {task!r}" in refused.stderr
