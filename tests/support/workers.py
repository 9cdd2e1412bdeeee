"""The workers of the tests on a server: one of all plain pipelines, and for a module with safeguards one of its own."""

from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import MemoryArtifactStore, WorkerParts
from baton.client.faces import ArtifactStore
from baton.devserver import DevServer
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.handoff.store_safeguards import Safeguards
from baton.outside.client_external import OutsideAgents
from baton.plugin import BatonPlugin
from baton.testing import local_server, pipeline_worker
from tests.exchange.exchange_pipelines import EXCHANGES
from tests.handoff.handoff_stages import extract
from tests.pipelines.pipelines import PIPELINES
from tests.pipelines.stages import STAGES


@pytest.fixture(scope="session")
def store() -> ArtifactStore:
    """Return the artifact store of the shared worker."""
    return MemoryArtifactStore()


@pytest.fixture(scope="session")
async def client(server: DevServer, store: ArtifactStore) -> Client:
    return await Client.connect(server.address, plugins=[BatonPlugin(WorkerParts(artifacts=store), safeguards="off")])


@pytest.fixture(scope="session")
async def worker(client: Client) -> AsyncIterator[Worker]:
    """Return a running worker that knows every pipeline and stage of these tests."""
    async with pipeline_worker(client, PIPELINES, STAGES) as worker:
        yield worker


@pytest.fixture(scope="module")
def safeguards(tmp_path_factory: pytest.TempPathFactory) -> Safeguards:
    """Return keys and a ledger of a module's own."""
    return Safeguards.development(tmp_path_factory.mktemp("safeguards"))


@pytest.fixture(scope="module")
async def sealing(server: DevServer, safeguards: Safeguards) -> Client:
    """Return a client whose handoffs are sealed, and that has no artifact store."""
    return await Client.connect(server.address, plugins=[BatonPlugin(WorkerParts(), safeguards=safeguards)])


@pytest.fixture(scope="module")
async def exchange(sealing: Client) -> AsyncIterator[Worker]:
    """Return a running worker of the pipelines that hand on to each other."""
    async with pipeline_worker(sealing, EXCHANGES, [extract, *EXCHANGE_ACTIVITIES]) as worker:
        yield worker


@pytest.fixture(scope="module")
async def agents(sealing: Client, safeguards: Safeguards) -> AsyncIterator[OutsideAgents]:
    """Return what the agents of a module's own pipelines list and move their handoffs with."""
    async with safeguards.shared().open() as guarded:
        yield OutsideAgents(sealing, guarded.gate)


@pytest.fixture
async def own_server() -> AsyncIterator[DevServer]:
    """Return a server without the runs of other tests, for what looks at all runs."""
    async with local_server() as server:
        yield server
