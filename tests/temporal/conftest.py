"""One client and one worker for all pipelines of these tests."""

from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton.activity import WorkerParts
from baton.devserver import DevServer
from baton.edge.artifacts import ArtifactStore, MemoryArtifactStore
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker
from tests.temporal.pipelines import PIPELINES
from tests.temporal.stages import STAGES


@pytest.fixture(scope="session")
def store() -> ArtifactStore:
    """Return the artifact store of the shared worker."""
    return MemoryArtifactStore()


@pytest.fixture(scope="session")
async def client(server: DevServer, store: ArtifactStore) -> Client:
    """Return a client that speaks Baton."""
    return await Client.connect(server.address, plugins=[BatonPlugin(WorkerParts(artifacts=store))])


@pytest.fixture(scope="session")
async def worker(client: Client) -> AsyncIterator[Worker]:
    """Return a running worker that knows every pipeline and stage of these tests."""
    async with pipeline_worker(client, PIPELINES, STAGES) as it:
        yield it
