"""How many pages a session follows at once."""

from collections import Counter
from contextlib import AsyncExitStack

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from baton.client import Role
from baton.codec.server import serving
from baton.console.rendering import stream_changes
from baton.console.security import Access, Guard, Links, enter, page


async def _events(request: Request) -> Response:
    async def mark() -> str:
        return "new"

    return stream_changes(request, mark, every=0.01)


async def _home(_: Request) -> Response:
    return PlainTextResponse("home")


async def test_one_session_cannot_open_streams_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is closed makes room; another session has its own."""
    monkeypatch.setattr("baton.console.rendering.MAX_STREAMS", 2)
    links = Links("ann", Role.VIEWER)
    access = Access(links=links)
    routes = [Route("/enter", enter), page("/", _home), page("/events", _events)]
    app = Starlette(routes=routes, middleware=[Middleware(Guard, access=access)])
    app.state.access, app.state.streams = access, Counter()
    async with serving(app, "the console") as url, AsyncExitStack() as stack:
        ann, bob = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=url, follow_redirects=True, timeout=60))
            for _ in range(2)
        ]
        for browser in (ann, bob):
            assert (await browser.get(links.path)).status_code == 200
        opened = [await stack.enter_async_context(ann.stream("GET", "/events")) for _ in range(2)]
        for stream in opened:
            await anext(stream.aiter_raw())
        assert (await ann.get("/events")).status_code == 429
        async with bob.stream("GET", "/events") as other:
            assert other.status_code == 200
        await opened[0].aclose()
        while True:
            async with ann.stream("GET", "/events") as again:
                if again.status_code == 200:
                    break
