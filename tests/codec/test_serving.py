"""Serving an application in a running event loop, with a limit of connections."""

import asyncio
import urllib.error
import urllib.request

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from baton.codec.server import read_body, serving


async def _echo(request: Request) -> Response:
    return PlainTextResponse(await request.body())


async def _refuse(request: Request) -> Response:
    body = await read_body(request, 1024)
    return PlainTextResponse(body or "too large", status_code=413 if body is None else 200)


async def _handle_disconnect(_: Request, __: Exception) -> Response:
    return PlainTextResponse("the body ended too soon", status_code=400)


def app() -> Starlette:
    """Return an application that echoes the body."""
    routes = [
        Route("/", _echo, methods=["POST"]),
        Route("/small", _refuse, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={ClientDisconnect: _handle_disconnect})


async def answered(url: str, sent: bytes) -> bytes:
    """Send data, and return everything until the server closes the connection."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    try:
        return await reader.read()
    finally:
        writer.close()


class TestServing:
    async def test_requests_are_answered(self) -> None:
        """Also those for another protocol."""
        head = b"POST / HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"
        async with serving(app(), "the echo") as url:
            assert (await answered(url, head + b"hello")).endswith(b"\r\n\r\nhello")
            upgrade = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\n\r\n"
            assert (await answered(url, upgrade)).startswith(b"HTTP/1.1 405 ")

    async def test_connections_above_the_limit_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Otherwise a thousand connections would use up the process's file descriptors."""
        monkeypatch.setattr("baton.codec.server.MAX_CONNECTIONS", 2)
        head = b"GET /nowhere HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
        async with serving(app(), "the echo") as url:
            host, _, port = url.removeprefix("http://").partition(":")
            idle = [(await asyncio.open_connection(host, int(port)))[1] for _ in range(2)]
            assert (await answered(url, head)).startswith(b"HTTP/1.1 503 ")
            for writer in idle:
                writer.close()

    async def test_the_client_of_a_large_body_gets_an_answer(self) -> None:
        """A client whose connection is closed while it sends would retry."""

        def send(url: str) -> int:
            try:
                with urllib.request.urlopen(url, data=bytes(32 * 1024 * 1024), timeout=60) as response:
                    return int(response.status)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code

        async with serving(app(), "the echo") as url:
            assert await asyncio.to_thread(send, url + "/small") == 413

    async def test_a_wrong_path_is_refused_before_the_body_is_sent(self) -> None:
        """`Expect: 100-continue` is answered before the body."""
        head = b"POST /nowhere HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        async with serving(app(), "the echo") as url:
            assert (await answered(url, head)).startswith(b"HTTP/1.1 404 ")
