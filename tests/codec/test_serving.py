"""Serving an application as a guest: as many callers as are served."""

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
    """Return an application that says what it is told."""
    routes = [
        Route("/", _echo, methods=["POST"]),
        Route("/small", _refuse, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={ClientDisconnect: _handle_disconnect})


async def answered(url: str, sent: bytes) -> bytes:
    """Send something, nothing after it, and return all that comes until the server closes the connection."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    try:
        return await reader.read()
    finally:
        writer.close()


class TestServing:
    async def test_who_has_asked_is_answered(self) -> None:
        """Also one that asks for another protocol."""
        head = b"POST / HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"
        async with serving(app(), "the echo") as url:
            assert (await answered(url, head + b"hello")).endswith(b"\r\n\r\nhello")
            upgrade = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\n\r\n"
            assert (await answered(url, upgrade)).startswith(b"HTTP/1.1 405 ")

    async def test_more_connections_than_are_served_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Otherwise a thousand of them would leave the process no file for its own work."""
        monkeypatch.setattr("baton.codec.server.MAX_CONNECTIONS", 2)
        head = b"GET /nowhere HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
        async with serving(app(), "the echo") as url:
            host, _, port = url.removeprefix("http://").partition(":")
            idle = [(await asyncio.open_connection(host, int(port)))[1] for _ in range(2)]
            assert (await answered(url, head)).startswith(b"HTTP/1.1 503 ")
            for writer in idle:
                writer.close()

    async def test_who_sends_too_much_is_told_so(self) -> None:
        """A connection that is closed while they send is an error of the network to them: they would try again."""

        def send(url: str) -> int:
            try:
                with urllib.request.urlopen(url, data=bytes(32 * 1024 * 1024), timeout=60) as response:
                    return int(response.status)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code

        async with serving(app(), "the echo") as url:
            assert await asyncio.to_thread(send, url + "/small") == 413

    async def test_who_asks_before_sending_is_refused_at_once(self) -> None:
        """They need not send what nobody reads."""
        head = b"POST /nowhere HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        async with serving(app(), "the echo") as url:
            assert (await answered(url, head)).startswith(b"HTTP/1.1 404 ")
