"""A worker whose pipelines hand outside, and the desks of two reviewers."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import StdioServerParameters
from temporalio.client import Client
from temporalio.worker import Worker

from baton import WorkerParts
from baton.client import HandoffTools
from baton.client.faces import LocalArtifactStore
from baton.devserver import DevServer
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.handoff.store_safeguards import Safeguards
from baton.keys.store_keyring import DEVELOPMENT_FILE, Keyring
from baton.outside.client_external import OutsideAgents
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker
from tests.contract.contract_pipelines import ReviewedOutside, research
from tests.exchange.exchange_pipelines import EXCHANGES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mcp")


@pytest.fixture(scope="module")
def safeguards(folder: Path) -> Safeguards:
    return Safeguards(Keyring.development(folder / ".baton"), folder / "ledger.db")


@pytest.fixture(scope="module")
def store(folder: Path) -> LocalArtifactStore:
    return LocalArtifactStore(folder / "artifacts")


@pytest.fixture(scope="module")
async def sealing(server: DevServer, safeguards: Safeguards) -> Client:
    return await Client.connect(server.address, plugins=[BatonPlugin(WorkerParts(), safeguards=safeguards)])


@pytest.fixture(scope="module")
async def exchange(sealing: Client) -> AsyncIterator[Worker]:
    """Return a worker that knows the pipelines of these tests."""
    pipelines = [*EXCHANGES, ReviewedOutside]
    async with pipeline_worker(sealing, pipelines, [*EXCHANGE_ACTIVITIES, research]) as it:
        yield it


@pytest.fixture
def ann(agents: OutsideAgents, store: LocalArtifactStore) -> HandoffTools:
    return HandoffTools(agents, "reviewer", "ann", store)


@pytest.fixture
def bob(agents: OutsideAgents, store: LocalArtifactStore) -> HandoffTools:
    return HandoffTools(agents, "reviewer", "bob", store)


@pytest.fixture
def server_command(server: DevServer, folder: Path, safeguards: Safeguards) -> StdioServerParameters:
    """Return how a coding agent starts `baton mcp`."""
    environment = {
        **os.environ,
        "TEMPORAL_ADDRESS": server.address,
        "BATON_KEYS": str(folder / ".baton" / DEVELOPMENT_FILE),
        "BATON_LEDGER": str(safeguards.ledger),
        "BATON_ARTIFACTS": str(folder / "artifacts"),
    }
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "baton", "mcp", "--agent", "reviewer", "--holder", "editor"],
        env=environment,
        cwd=folder,
    )
