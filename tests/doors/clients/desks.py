"""The MCP door of agents outside as tests serve it, and an agent that calls it with its token."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from baton.client import Access, Caller, OutsideAgents, Role, ServiceParts, Tokens, serve_service, service
from baton.doors.client_mcp import door

TOKENS = {"reviewer": "reviewer-token-0123456789", "painter": "painter-token-0123456789"}


@asynccontextmanager
async def served(agents: OutsideAgents, tokens: Mapping[str, str] = TOKENS, *, port: int = 0) -> AsyncIterator[str]:
    """Serve handoffs to agents, and nothing else."""
    access = Access(tokens=Tokens({Caller(name, Role.VIEWER): token for name, token in tokens.items()}))
    parts = ServiceParts(agents.client, {}, access, "http://127.0.0.1:8235", agents=agents)
    async with serve_service(service(parts, doors=[door(parts)]), port=port) as url:
        yield url


@asynccontextmanager
async def desk_at(url: str, token: str = TOKENS["reviewer"], **options: Any) -> AsyncIterator[McpClient]:
    """Connect the SDK's own client over HTTP."""
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=httpx2.Timeout(120)) as http,
        McpClient(streamable_http_client(f"{url}/mcp", http_client=http), **options) as client,
    ):
        yield client
