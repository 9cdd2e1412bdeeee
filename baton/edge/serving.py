"""Serving an ASGI application inside a running event loop, as a guest: it takes neither signals nor log settings."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

from baton.protocol.errors import ServerError

_STOP_SECONDS = 2
_LAST_PORT = 65535


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, what: str, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve an application while the context is open; on leaving, calls under way get two seconds to finish.

    Args:
        app: The application.
        what: What it is called in an error.
        host: The address to listen on; only this machine reaches the default.
        port: The port, or 0 for a free one.

    Yields:
        The server's URL.

    Raises:
        ServerError: The port is taken, or the address is not this machine's.
    """
    with _listening(what, host, port) as listener:
        config = uvicorn.Config(
            app, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=_STOP_SECONDS
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


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: a guest in a program does not take its Ctrl-C."""

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
