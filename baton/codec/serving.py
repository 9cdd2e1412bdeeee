"""Serving an ASGI application inside a running event loop, as a guest: it takes neither signals nor log settings."""

import asyncio
import contextlib
import hmac
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp

from baton.errors import ServerError

_STOP_SECONDS = 2
_LAST_PORT = 65535
_IDLE_SECONDS = 5
_LONGEST_HEAD = 64 * 1024
_MOST_DROPPED = 64 * 1024 * 1024

MOST_CONNECTIONS = 256
"""So many connections are served at once; each is a file of this process, which may be the worker."""


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, what: str, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve an application while the context is open; on leaving, calls under way get two seconds to finish."""
    with _listening(what, host, port) as listener:
        config = uvicorn.Config(
            app,
            lifespan="off",
            http="h11",
            ws="none",
            proxy_headers=False,  # else a header of the caller's would say where the call comes from
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
            timeout_keep_alive=_IDLE_SECONDS,
            limit_concurrency=MOST_CONNECTIONS,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
        )
        server = _Server(config)
        serve = asyncio.create_task(server.serve(sockets=[listener]))
        name, bound = listener.getsockname()[:2]
        try:
            # The socket listens already: a call that comes before the task runs just waits for it.
            yield f"http://[{name}]:{bound}" if ":" in name else f"http://{name}:{bound}"
        finally:
            server.should_exit = True
            await serve


def has_bearer_token(request: Request, token: str) -> bool:
    """Return whether a request carries a token as `Authorization: Bearer <token>` (RFC 9110)."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    is_it = hmac.compare_digest(given.strip().encode(), token.encode())
    return is_it and bool(token) and scheme.lower() == "bearer"


async def read_body(request: Request, most: int) -> bytes | None:
    """Return a request's body, or None if it is larger than so many bytes; no more of it than that is ever held."""
    body, dropped = bytearray(), 0
    async for chunk in request.stream():
        if not dropped and len(body) + len(chunk) <= most:
            body += chunk
        elif (dropped := dropped + len(chunk)) > _MOST_DROPPED:
            break
    return None if dropped else bytes(body)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: a guest does not take a program's Ctrl-C."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _listening(what: str, host: str, port: int) -> Iterator[socket.socket]:
    if not 0 <= port <= _LAST_PORT:
        raise ServerError(f"{what} cannot listen on port {port}; choose one up to {_LAST_PORT}, or 0 for a free one")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ServerError(
            f"{what} cannot listen on {host!r} port {port}: {error.strerror or error}; "
            "choose another port, or 0 for a free one"
        ) from error
    with listener:
        yield listener
