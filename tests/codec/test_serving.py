"""Serving an application in a running event loop, with a limit of connections."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from baton.codec.server import read_body, serving


async def _echo(request: Request) -> Response:
    return PlainTextResponse(await request.body())


async def _refuse(request: Request) -> Response:
    body = await read_body(request, 1024)
    return PlainTextResponse(body or "too large", status_code=413 if body is None else 200)


async def _slow(_: Request) -> Response:
    await asyncio.sleep(600)
    raise AssertionError


async def _stream(_: Request) -> Response:
    async def events() -> AsyncIterator[bytes]:
        yield b": begun\n\n"
        await asyncio.sleep(600)

    return StreamingResponse(events(), media_type="text/event-stream")


async def _handle_disconnect(_: Request, __: Exception) -> Response:
    return PlainTextResponse("the body ended too soon", status_code=400)


def app() -> Starlette:
    """Return an application that echoes the body."""
    routes = [
        Route("/", _echo, methods=["POST"]),
        Route("/slow", _slow),
        Route("/stream", _stream),
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

    async def test_connections_without_a_request_shut_nobody_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The oldest is closed for a new one, and any after its deadline, with half a head as well."""
        monkeypatch.setattr("baton.codec.server.MAX_CONNECTIONS", 2)
        monkeypatch.setattr("baton.codec.server.HEAD_SECONDS", 0.5)
        head = b"GET /nowhere HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
        async with serving(app(), "the echo") as url:
            host, _, port = url.removeprefix("http://").partition(":")
            half_open = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
            for _, writer in half_open:
                writer.write(head[:9])
            assert (await answered(url, head)).startswith(b"HTTP/1.1 404 ")
            async with asyncio.timeout(60):
                assert [await reader.read() for reader, _ in half_open] == [b""] * 5
            for _, writer in half_open:
                writer.close()

    async def test_event_streams_take_no_place_of_requests(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Requests in progress do."""
        monkeypatch.setattr("baton.codec.server.MAX_CONNECTIONS", 2)
        head = b"GET /%b HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
        async with serving(app(), "the echo") as url:
            host, _, port = url.removeprefix("http://").partition(":")
            for path, told in ((b"stream", b"404"), (b"slow", b"503")):
                opened = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
                for reader, writer in opened:
                    writer.write(head % path)
                    if path == b"stream":
                        await reader.readline()
                while not (answer := await answered(url, head % b"nowhere")).startswith(b"HTTP/1.1 " + told):
                    assert path == b"slow", answer
                for _, writer in opened:
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
