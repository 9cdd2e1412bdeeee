"""Attacks on every door of the service: strangers, other sites, many streams, slow and broken senders."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from baton.doors.client_service import MAX_STREAMS
from tests.doors.clients.conftest import TOKENS, mcp_client
from tests.doors.clients.test_ag_ui import body

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
MCP_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
_DOORS = [pytest.param("/mcp", INITIALIZE, id="mcp"), pytest.param("/ag-ui/article", body(), id="ag-ui")]
DOORS = pytest.mark.parametrize(("path", "sent"), _DOORS)


async def post(url: str, path: str, sent: Any, **headers: str) -> httpx.Response:
    """Send a request as Ann, unless the headers say otherwise."""
    ann = {"authorization": f"Bearer {TOKENS['ann']}"}
    content = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    async with httpx.AsyncClient(timeout=30) as http:
        return await http.post(f"{url}{path}", content=content, headers={**MCP_HEADERS, **ann, **headers})


@DOORS
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"authorization": ""}, 401, id="no token"),
        pytest.param({"authorization": "Bearer another-token-0123456789"}, 401, id="an unknown token"),
        pytest.param({"origin": "https://evil.example"}, 403, id="another site"),
        pytest.param({"host": "evil.example"}, 421, id="another name (DNS rebinding)"),
        pytest.param({"content-encoding": "gzip"}, 415, id="an encoded body"),
    ],
)
async def test_strangers_get_nothing(url: str, path: str, sent: Any, headers: dict[str, str], status: int) -> None:
    assert (await post(url, path, sent, **headers)).status_code == status


@DOORS
async def test_a_large_body_is_refused(url: str, path: str, sent: Any) -> None:
    assert (await post(url, path, b" " * (1024 * 1024 + 1))).status_code == 413


@pytest.mark.parametrize("raw", [b"{", b"[]", b"7", b"[" * 100_000, b'{"jsonrpc": "1"}'], ids=str)
async def test_a_broken_message_is_an_error_of_the_protocol(url: str, raw: bytes) -> None:
    for version in ("2025-11-25", "2026-07-28"):
        answer = await post(url, "/mcp", raw, **{"mcp-protocol-version": version})
        assert (400 <= answer.status_code < 500, "error" in answer.text) == (True, True)


async def test_parameters_that_the_offer_does_not_allow_start_nothing(url: str) -> None:
    given = {"goal": "Batons", "params": {"who": ["bob"] * 4}}
    answer = await post(url, "/ag-ui/article", {**body(), "forwardedProps": given})
    assert (answer.status_code, "/params/who" in answer.text) == (400, True)
    async with mcp_client(url, "ann") as client:
        result = await client.call_tool("run_article", given)
    assert (result.is_error, "/params/who" in str(result.content)) == (True, True)


async def test_a_session_belongs_to_its_caller(url: str) -> None:
    opened = await post(url, "/mcp", INITIALIZE)
    session = {"mcp-session-id": opened.headers["mcp-session-id"]}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert (await post(url, "/mcp", listing, **session)).status_code == 200
    bob = {"authorization": f"Bearer {TOKENS['bob']}"}
    assert (await post(url, "/mcp", listing, **session, **bob)).status_code == 404


async def test_one_caller_has_some_streams_and_the_others_are_served(url: str) -> None:
    """300 streams of one caller are 32; another caller's is opened, and the health is told."""
    sent = {**body(), "forwardedProps": {"params": {"who": ["bob"]}}}  # it waits for another, so the stream stays open
    async with AsyncExitStack() as stack:
        limits = httpx.Limits(max_connections=None)
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=30, limits=limits))

        async def opened(name: str) -> int:
            headers = {"authorization": f"Bearer {TOKENS[name]}"}
            request = http.stream("POST", f"{url}/ag-ui/article", json=sent, headers=headers)
            return (await stack.enter_async_context(request)).status_code

        statuses = [status for _ in range(10) for status in await asyncio.gather(*(opened("ann") for _ in range(30)))]
        assert (statuses.count(200), set(statuses)) == (MAX_STREAMS, {200, 429})
        assert await opened("painter") == 200
        assert (await http.get(f"{url}/healthz")).status_code == 200


async def test_a_slow_head_is_cut_off(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton.codec.server.HEAD_SECONDS", 0.1)
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /mcp HTTP/1.1\r\nHost: ")
    await writer.drain()
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()
