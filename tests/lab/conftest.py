"""A worker of refunds with the safeguards of production, and runs of it that were recorded."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import MemoryArtifactStore, PipelineInput, WorkerParts
from baton.client.faces import ArtifactStore
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.lab import Case, Cohort, read_cases
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker, run_pipeline
from tests.lab.refunds import decide, refund, transfer

ORDERS = range(1, 9)


class WatchedStore(MemoryArtifactStore):
    """An artifact store that remembers what was put into it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    async def put(self, data: bytes) -> str:
        self.written.append(data)
        return await super().put(data)


@pytest.fixture(scope="module")
def kept() -> WatchedStore:
    return WatchedStore()


@pytest.fixture(scope="module")
async def sealed(server: DevServer, safeguards: Safeguards, kept: ArtifactStore) -> Client:
    plugin = BatonPlugin(WorkerParts(artifacts=kept), safeguards=safeguards)
    return await Client.connect(server.address, plugins=[plugin])


@pytest.fixture(scope="module")
async def refunds(sealed: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(sealed, [refund], [decide, transfer]) as worker:
        yield worker


@pytest.fixture(scope="module")
async def cohort(refunds: Worker, kept: ArtifactStore) -> Cohort:
    """Return the decisions about eight orders."""
    cases: list[Case] = []
    for order in ORDERS:
        start = PipelineInput(goal=f"Refund order {order}", params={"order": order})
        run = await run_pipeline(refunds, refund, start, id=f"refund-{order}-{uuid4().hex[:6]}")
        found = await read_cases(refunds.client, run.handle.id, "decide", store=kept)
        cases += [case.model_copy(update={"id": f"refund-{order}"}) for case in found]
    return Cohort(name="refunds", cases=cases)
