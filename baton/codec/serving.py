"""Serving an ASGI application inside a running event loop, as a guest: it takes neither signals nor log settings."""

import asyncio
import contextlib
import hmac
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import TypeGuard

import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from baton.errors import ServerError

_STOP_SECONDS = 2
_LAST_PORT = 65535
_PATIENCE_SECONDS = 30.0
_TICKS_A_SECOND = 10  # of uvicorn's own loop


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, what: str, *, host: str = "127.0.0.1", port: int = 0, patience: float = _PATIENCE_SECONDS
) -> AsyncIterator[str]:
    """Serve an application while the context is open; on leaving, calls under way get two seconds to finish.

    A caller who holds a connection without asking is let go, and so is one who does not take the answer: each is a file
    of this process, which may be the worker, and holds what was not taken.

    Args:
        app: The application.
        what: What it is called in an error.
        host: The address to listen on; only this machine reaches the default.
        port: The port, or 0 for a free one.
        patience: How many seconds a caller may take to send a request's head, and then its body; and twice as many to
            take the answer.

    Yields:
        The server's URL.

    Raises:
        ServerError: The port is taken, or the address is not this machine's.
    """
    with _listening(what, host, port) as listener:
        config = uvicorn.Config(
            _timely(app, patience),
            lifespan="off",
            http="h11",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        server = _Server(config, patience)
        serve = asyncio.create_task(server.serve(sockets=[listener]))
        name, bound = listener.getsockname()[:2]
        try:
            # The socket listens already: a call that comes before the task runs just waits for it.
            yield f"http://[{name}]:{bound}" if ":" in name else f"http://{name}:{bound}"
        finally:
            server.should_exit = True
            await serve


def bears(request: Request, token: str) -> bool:
    """Return whether a request carries a token, as `Authorization: Bearer <token>`, the scheme in any case (RFC 9110).

    The time that it takes tells nothing of the token.

    Args:
        request: The request.
        token: The token; an empty one is carried by nobody.
    """
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    is_it = hmac.compare_digest(given.strip().encode(), token.encode())
    return is_it and bool(token) and scheme.lower() == "bearer"


async def body_of(request: Request, most: int) -> bytes | None:
    """Return a request's body, or None if it is larger than so many bytes; no more of it than that is ever held."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            return None
    return bytes(body)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, for a guest does not take a program's Ctrl-C; and not endlessly patient."""

    def __init__(self, config: uvicorn.Config, patience: float) -> None:
        super().__init__(config)
        self._patience = patience
        self._waits: dict[H11Protocol, float] = {}

    async def on_tick(self, counter: int) -> bool:
        """Close connections that have waited too long for the head of a request; uvicorn itself never does.

        What was answered is still sent then; whoever has not taken it by another patience is cut off.
        """
        if counter % _TICKS_A_SECOND == 0:
            now = time.monotonic()
            self._waits = {one: self._waits.get(one, now) for one in self.server_state.connections if _is_idle(one)}
            for connection, since in self._waits.items():
                if now - since > 2 * self._patience:
                    connection.transport.abort()
                elif now - since > self._patience:
                    connection.transport.close()
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _is_idle(connection: object) -> TypeGuard[H11Protocol]:
    """Return whether a connection has no request under way."""
    if not isinstance(connection, H11Protocol):
        return False
    return connection.cycle is None or connection.cycle.response_complete


def _timely(app: ASGIApp, seconds: float) -> ASGIApp:
    """Return an application that sees who takes too long over a body as one who has hung up.

    It answers only once a body has come, of which it keeps nothing: the connection of one who still sends is closed
    behind the answer, and they are told of that instead.
    """

    async def timely(scope: Scope, receive: Receive, send: Send) -> None:
        deadline: float | None = asyncio.get_running_loop().time() + seconds
        waits = any(name == b"expect" for name, _ in scope["headers"])  # it sends a body once it is asked for it

        async def received() -> Message:
            nonlocal deadline, waits
            waits = False
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                return {"type": "http.disconnect"}
            except asyncio.CancelledError:
                deadline = None  # the server ends, and no longer waits for what is still to come
                raise
            if not message.get("more_body"):
                deadline = None  # it has all come, and what is awaited from here on is that the caller hangs up
            return message

        async def sent(message: Message) -> None:
            while deadline is not None and not waits and (await received())["type"] == "http.request":
                pass
            await send(message)

        await app(scope, received, sent)

    return timely


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
