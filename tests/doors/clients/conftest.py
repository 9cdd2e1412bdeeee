"""The service of these tests: real, over HTTP, with two callers and the pipelines of `door_pipelines`."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from mcp import Client as McpClient
from temporalio.client import Client
from temporalio.worker import Worker

from baton.client import Access, Caller, Offer, OutsideAgents, Role, ServiceParts, Tokens, serve_service, service
from baton.doors.client_access import Rate
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.testing import pipeline_worker
from tests.doors.clients.desks import desk_at
from tests.doors.clients.door_pipelines import PIPELINES, STAGES
from tests.exchange.exchange_pipelines import EXCHANGES
from tests.handoff.handoff_stages import extract

TOKENS = {
    "ann": "ann-token-0123456789",
    "bob": "bob-token-0123456789",
    "viewer": "viewer-token-0123456789",
    "reviewer": "reviewer-token-0123456789",
    "reviewer/bob": "reviewer-bob-0123456789",
    "painter": "painter-token-0123456789",
}
CALLERS = {Caller(name, Role.VIEWER if name == "viewer" else Role.OPERATOR): token for name, token in TOKENS.items()}


@pytest.fixture(scope="module")
async def presses(sealing: Client) -> AsyncIterator[Worker]:
    """Return a worker of the pipelines that the service offers, and of one that hands outside."""
    async with pipeline_worker(sealing, [*PIPELINES, *EXCHANGES], [*STAGES, extract, *EXCHANGE_ACTIVITIES]) as worker:
        yield worker


@pytest.fixture(scope="module")
def parts(presses: Worker, agents: OutsideAgents) -> ServiceParts:
    names = [item.__name__ for item in PIPELINES]
    params = {"type": "object", "properties": {"who": {"type": "array", "maxItems": 3}}}
    offers = {name: Offer(name, presses.task_queue, f"The pipeline {name}.", params) for name in names}
    url = "http://127.0.0.1:8235"
    access = Access(tokens=Tokens(CALLERS), rate=Rate(10_000, 10_000))
    return ServiceParts(presses.client, offers, access, url, agents=agents)


@pytest.fixture(scope="module")
async def url(parts: ServiceParts) -> AsyncIterator[str]:
    async with serve_service(service(parts), port=0) as url:
        yield url


def mcp_client(url: str, name: str, **options: Any) -> AbstractAsyncContextManager[McpClient]:
    """Connect the SDK's client over HTTP with a caller's token."""
    return desk_at(url, TOKENS[name], **options)
