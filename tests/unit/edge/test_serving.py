"""Serving an application as a guest: whoever does not ask is let go."""

import asyncio
import urllib.error
import urllib.request

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from baton.codec.serving import serving

LARGE = 64 * 1024 * 1024
"""More than the system keeps on its way."""


async def _echo(request: Request) -> Response:
    return PlainTextResponse(await request.body())


async def _refuse(request: Request) -> Response:
    async for _ in request.stream():  # the first of it is enough
        break
    return PlainTextResponse("too large", status_code=413)


async def _large(_: Request) -> Response:
    return PlainTextResponse(bytes(LARGE))


async def _gone(_: Request, __: Exception) -> Response:
    return PlainTextResponse("the body ended too soon", status_code=400)


def app() -> Starlette:
    """Return an application that says what it is told."""
    routes = [
        Route("/", _echo, methods=["POST"]),
        Route("/small", _refuse, methods=["POST"]),
        Route("/large", _large),
    ]
    return Starlette(routes=routes, exception_handlers={ClientDisconnect: _gone})


async def answered(url: str, sent: bytes) -> bytes:
    """Send something, nothing after it, and return all that comes until the server closes the connection."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    try:
        return await reader.read()
    finally:
        writer.close()


async def pestered(writer: asyncio.StreamWriter) -> None:
    """Send, and read nothing, until the system says that the other end is gone."""
    while True:
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0.05)


class TestServing:
    """`serving`."""

    async def test_who_has_asked_is_answered(self) -> None:
        """Patience is for those who do not."""
        head = b"POST / HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"
        async with serving(app(), "the echo", patience=5) as url:
            assert (await answered(url, head + b"hello")).endswith(b"\r\n\r\nhello")
            upgrade = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\n\r\n"
            assert (await answered(url, upgrade)).startswith(b"HTTP/1.1 405 ")

    @pytest.mark.parametrize(
        ("sent", "answer"),
        [
            pytest.param(b"", b"", id="nothing at all"),
            pytest.param(b"POST / HTTP/1.1\r\nHost: he", b"", id="half a head"),
            pytest.param(
                b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhe",
                b"the body ended too soon",
                id="half a body",
            ),
        ],
    )
    async def test_who_never_finishes_asking_is_let_go(self, sent: bytes, answer: bytes) -> None:
        """Otherwise a thousand such connections would leave the process no file for its own work."""
        async with serving(app(), "the echo", patience=0.1) as url:
            assert (await answered(url, sent)).endswith(answer)

    async def test_who_never_takes_the_answer_is_cut_off(self) -> None:
        """Otherwise a few short requests would hold the memory of their long answers for ever."""
        async with serving(app(), "the service", patience=0.1) as url:
            host, _, port = url.removeprefix("http://").partition(":")
            _, writer = await asyncio.open_connection(host, int(port), limit=1024)
            writer.write(b"GET /large HTTP/1.1\r\nHost: here\r\n\r\n")
            with pytest.raises(ConnectionError):
                await pestered(writer)
            writer.close()

    @pytest.mark.parametrize(("path", "status"), [("/small", 413), ("/nowhere", 404)], ids=["begun", "not read at all"])
    async def test_who_is_refused_is_told_so_however_long_they_send(self, path: str, status: int) -> None:
        """A connection that is closed while they send is an error of the network to them: they would try again."""

        def send(url: str) -> int:
            try:
                with urllib.request.urlopen(url, data=bytes(32 * 1024 * 1024), timeout=60) as response:
                    return int(response.status)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code

        async with serving(app(), "the echo") as url:
            assert await asyncio.to_thread(send, url + path) == status

    async def test_who_asks_before_sending_is_refused_at_once(self) -> None:
        """They need not send what nobody reads."""
        head = b"POST /nowhere HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        async with serving(app(), "the echo", patience=60) as url:
            assert (await answered(url, head)).startswith(b"HTTP/1.1 404 ")
