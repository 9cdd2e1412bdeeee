"""Server-sent events: a page learns that it changed, and resumes after a lost connection where it was."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

HEARTBEAT_SECONDS = 10.0
"""So often a silent stream says that it is alive."""


@dataclass(frozen=True)
class Change:
    """One event of a stream.

    Attributes:
        kind: `changed`: the page has something new; `lost`: the server is out of reach; `ended`: nothing will follow.
        cursor: Where the stream is after it; the browser gives the last one back when it connects again.
        data: What happened, as JSON.
    """

    kind: str
    cursor: str
    data: Any = None

    def lines(self) -> bytes:
        """Return it in the format of the stream; JSON has no line breaks of its own."""
        cursor = "".join(sign for sign in self.cursor if sign.isprintable())
        return f"id: {cursor}\nevent: {self.kind}\ndata: {json.dumps(self.data)}\n\n".encode()


def cursor_of(request: Request) -> str | None:
    """Return where the browser was: after a lost connection by its header, at first by the page's own address."""
    return request.headers.get("last-event-id") or request.query_params.get("cursor") or None


def stream(changes: AsyncIterator[Change]) -> Response:
    """Return the stream of some changes, with heartbeats between them."""
    return StreamingResponse(_beating(changes), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def _beating(changes: AsyncIterator[Change]) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    coming = asyncio.ensure_future(anext(changes, None))
    try:
        while True:
            done, _ = await asyncio.wait((coming,), timeout=HEARTBEAT_SECONDS)
            if not done:
                yield b": alive\n\n"
                continue
            change = coming.result()
            if change is None:
                return
            yield change.lines()
            coming = asyncio.ensure_future(anext(changes, None))
    finally:
        coming.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await coming
