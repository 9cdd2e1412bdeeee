"""A service over a real server, with a worker of the pipelines that its tests call."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import Keyring
from baton.client import Access, Caller, Offer, Role, ServiceParts, Tokens, serve_service, service
from baton.client.faces import ArtifactStore, Rate
from baton.devserver.processes import held_port
from baton.testing import pipeline_worker
from tests.doors.door_pipelines import PIPELINES, STAGES
from tests.handoff.companies import acme

__all__ = ["acme"]

TOKENS: Mapping[Caller, str] = {
    Caller("ann"): "ann-token-0123456789",
    Caller("bob"): "bob-token-0123456789",
    Caller("shop", decides=False): "shop-token-0123456789",
    Caller("eve", Role.VIEWER): "eve-token-0123456789",
    Caller("ops", sees_all=True): "ops-token-0123456789",
}
HOOKS = "http://127.0.0.1:1"
"""The origin that notifications may go to; a test that receives some replaces it."""


def token_of(name: str) -> str:
    """Return a caller's token."""
    return next(token for caller, token in TOKENS.items() if caller.name == name)


@pytest.fixture(scope="session")
async def doors_worker(client: Client) -> AsyncIterator[Worker]:
    """Return a running worker of the pipelines."""
    async with pipeline_worker(client, PIPELINES, STAGES) as running:
        yield running


@pytest.fixture(scope="session")
def keyring(tmp_path_factory: pytest.TempPathFactory) -> Keyring:
    """Return the keys that sign notifications."""
    return Keyring.development(Path(tmp_path_factory.mktemp("keys")))


def make_parts(worker: Worker, store: ArtifactStore, keyring: Keyring, *, url: str, push_to: str) -> ServiceParts:
    """Return the parts of a service with all pipelines of the worker."""
    words: dict[str, Any] = {
        "properties": {"words": {"$ref": "#/$defs/Words"}},
        "$defs": {"Words": {"type": "integer", "minimum": 1}},
    }
    queue = worker.task_queue
    offers = {
        "article": Offer("article", queue, "Writes an outline.", {"type": "object", **words}),
        **{name: Offer(name, queue) for name in ("quick", "endless", "conformance")},
    }
    access = Access(tokens=Tokens(TOKENS), rate=Rate(10_000, 10_000))
    return ServiceParts(worker.client, offers, access, url, store, keyring=keyring, push_to=[push_to])


@pytest.fixture(scope="session")
async def url(doors_worker: Worker, store: ArtifactStore, keyring: Keyring) -> AsyncIterator[str]:
    """Return the address of a running service."""
    with held_port() as port:
        address = f"http://127.0.0.1:{port}"
    app = service(make_parts(doors_worker, store, keyring, url=address, push_to=HOOKS))
    async with serve_service(app, port=urlsplit(address).port or 0):
        yield address


def http_of(name: str | None = "ann") -> httpx.AsyncClient:
    """Return the connection of a caller."""
    headers = {} if name is None else {"authorization": f"Bearer {token_of(name)}"}
    return httpx.AsyncClient(headers=headers, timeout=60)
