"""A console over a real server, with a worker of the pipelines that its tests look at."""

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import BatonPlugin, MemoryArtifactStore, PipelineInput, Safeguards, WorkerParts
from baton.client import Ledger, LedgerOptions, Role, Vault
from baton.client.faces import ArtifactStore
from baton.console.app import console_app
from baton.console.security import Access, Links
from baton.console.sources import Evidence, Sources, TemporalUi
from baton.devserver import DevServer
from baton.testing import local_server, pipeline_worker
from tests.console.console_pipelines import PIPELINES, STAGES

BASE = "http://127.0.0.1:8234"


class Browser:
    """What a person does with the console: open pages, send the forms on them."""

    def __init__(self, app: Any, links: Links | None = None) -> None:
        self.app = app
        self.links = links
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE, follow_redirects=True)

    async def sign_in(self, status: int = 200) -> "Browser":
        """Open the link that works now; the page of runs behind it has a status."""
        assert self.links is not None
        answer = await self.http.get(self.links.path)
        assert answer.status_code == status
        return self

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """Return a page."""
        return await self.http.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    async def post(self, path: str, fields: Mapping[str, str], **headers: str) -> httpx.Response:
        """Send a form as the browser does from a page of the console; its token is taken from the page of runs."""
        own = {"origin": BASE, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return await self.http.post(path, data=dict(fields), headers=own)


async def operator(sources: Sources) -> Browser:
    """Return the browser of an operator who has just signed in, so that no limit of requests is near."""
    links = Links("ann", Role.OPERATOR)
    return await Browser(console_app(sources, Access(links=links)), links).sign_in()


def token_in(page: str) -> str:
    """Return the forgery token of the first form of a page."""
    match = re.search(r'name="csrf" value="([0-9a-f]+)"', page)
    assert match is not None
    return match[1]


def parameters(address: str) -> dict[str, str]:
    """Return the parameters of an address."""
    return {name: values[-1] for name, values in parse_qs(urlsplit(address).query).items()}


@pytest.fixture(scope="session")
async def server() -> AsyncIterator[DevServer]:
    """Return a server of the console's own: its pages show every run that there is."""
    async with local_server() as running:
        yield running


@pytest.fixture(scope="session")
def console_store() -> ArtifactStore:
    """Return the artifact store of the worker."""
    return MemoryArtifactStore()


@pytest.fixture(scope="session")
def console_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where keys, ledger and vault of the worker are."""
    return tmp_path_factory.mktemp("console")


@pytest.fixture(scope="session")
def safeguards(console_folder: Path) -> Safeguards:
    """Return the worker's keys and ledger."""
    return Safeguards.development(console_folder)


@pytest.fixture(scope="session")
async def client(server: DevServer, console_store: ArtifactStore, safeguards: Safeguards) -> Client:
    """Return a client that reads and writes as the worker does."""
    plugin = BatonPlugin(WorkerParts(artifacts=console_store), safeguards=safeguards)
    return await Client.connect(server.address, plugins=[plugin])


@pytest.fixture(scope="session")
async def worker(client: Client) -> AsyncIterator[Worker]:
    """Return a running worker."""
    async with pipeline_worker(client, PIPELINES, STAGES) as running:
        yield running


@pytest.fixture(scope="session")
async def sources(
    client: Client, console_store: ArtifactStore, safeguards: Safeguards, console_folder: Path
) -> AsyncIterator[Sources]:
    """Return what the console reads."""

    async def connect() -> Client:
        return client

    async with Ledger(safeguards.ledger, LedgerOptions(signer=safeguards.keyring.signer())):
        pass  # it is there, whether a worker wrote to it before or not
    options = LedgerOptions(signer=safeguards.keyring.signer(), create=False)
    evidence = Evidence(
        lambda: Ledger(safeguards.ledger, options), options.name, lambda: (safeguards.keyring.public(), [])
    )
    place = safeguards.vault
    assert place is not None
    console_sources = Sources(
        connect,
        console_store,
        TemporalUi("http://127.0.0.1:8233", client.namespace),
        evidence,
        lambda: Vault(place, safeguards.keyring),
    )
    yield console_sources
    await console_sources.close()


@pytest.fixture(scope="session")
async def browser(sources: Sources) -> Browser:
    """Return the browser of an operator who is signed in."""
    return await operator(sources)


async def started(worker: Worker, pipeline: Any, id: str, goal: str = "Write the notes", **params: Any) -> Any:
    """Start a pipeline, and return its handle."""
    start = PipelineInput(goal=goal, params=params)
    return await worker.client.start_workflow(pipeline, start, id=id, task_queue=worker.task_queue)
