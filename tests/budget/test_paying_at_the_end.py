"""A paid stage reports its cost even if something fails after its work."""

import pytest
from temporalio.client import Client

from baton import MemoryArtifactStore, WorkerParts
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker
from tests.budget.paying import paid, taken, told
from tests.budget.paying_pipelines import PIPELINES
from tests.budget.paying_stages import STAGES


async def test_a_stage_that_fails_while_the_ledger_is_busy_reports_its_cost(
    server: DevServer, safeguards: Safeguards
) -> None:
    """Heartbeats keep it while the failure is recorded, for the next run (S3-11-e)."""
    does = {"watched": [{"charge": [500], "end": "raise before a ledger that is busy"}, {"spend": 7}]}

    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])

    async with pipeline_worker(client, PIPELINES, STAGES) as worker:
        run = await taken(worker, ["watched"], does, ledger=str(safeguards.ledger))

    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        on_record = (await ledger.task_cost(run.task_id or "")).micro_usd
    assert (paid(run), told(run), on_record) == (507, 507, 507)


class _FullStore(MemoryArtifactStore):
    """A store that accepts nothing."""

    async def put(self, data: bytes) -> str:
        raise OSError("no space left")


@pytest.mark.parametrize("pays", [pytest.param("charge", id="charged"), pytest.param("spend", id="returned")])
async def test_a_stage_that_fails_after_its_answer_reports_its_cost(
    server: DevServer, safeguards: Safeguards, pays: str
) -> None:
    """For example if its journal cannot be stored: the agent was paid (S3-11-e)."""
    parts = WorkerParts(artifacts=_FullStore())
    client = await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards=safeguards)])
    does = {"first": [{"note": "hm", pays: [500] if pays == "charge" else 500}]}

    async with pipeline_worker(client, PIPELINES, STAGES) as worker:
        run = await taken(worker, ["first"], does)

    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        on_record = (await ledger.task_cost(run.task_id or "")).micro_usd
    assert (paid(run), told(run), on_record) == (1_500, 1_500, 1_500)
