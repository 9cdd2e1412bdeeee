"""A codec server: lets the Temporal UI and CLI show what a payload codec made unreadable.

It, like any ASGI application, is served inside a running event loop as a guest: it takes neither signals nor log
settings (`serving`).
"""

import asyncio
import contextlib
import hmac
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import lru_cache, partial

from google.protobuf import json_format
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import PayloadCodec

from baton.codec.encryption import MAX_DECODED_BYTES, CompressionCodec, EncryptionCodec
from baton.errors import PayloadError, ServerError
from baton.keys.store_keyring import Keyring
from baton.lazy import needs_extra

with needs_extra("codec", __name__):
    import uvicorn
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp

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


MAX_BODY_BYTES = 8 * 1024 * 1024
"""A request's body may not be larger: twice what one gRPC message can carry."""

_ALLOWED_HEADERS = ("content-type", "x-namespace", "authorization", "authorization-extras")
_log = logging.getLogger(__name__)

_Transform = Callable[[Sequence[Payload]], Awaitable[list[Payload]]]


def codecs_for(keyring: Keyring | None) -> list[PayloadCodec]:
    """Return the codecs of a codec server, for the payloads of Baton's own data converter."""
    compression: list[PayloadCodec] = [CompressionCodec()]
    return compression if keyring is None else [*compression, EncryptionCodec(keyring)]


def codec_app(codecs: Sequence[PayloadCodec], *, origins: Sequence[str], token: str | None = None) -> Starlette:
    """Return the ASGI application that answers `POST /decode` and `POST /encode`."""
    if "*" in origins:
        raise ValueError("origins has '*'; name the exact origins of your UIs, e.g. 'http://localhost:8233'")

    # One page asks for dozens of payloads, and its operator needs the reason once.
    warn = lru_cache(maxsize=64)(partial(_log.warning, "the codec server cannot show payloads: %s"))

    def endpoint(transform: _Transform) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            # A page whose name was made to lead here (DNS rebinding) may read any answer: to its browser both are one.
            origin = request.headers.get("origin")
            if origin is not None and origin not in origins:
                return PlainTextResponse(_foreign(origin, origins), status_code=403)
            if token is not None and not has_bearer_token(request, token):
                return PlainTextResponse("expected 'Authorization: Bearer <the token>'", status_code=401)
            return await _answer(request, transform, warn)

        return answer

    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=("POST",),
        allow_headers=_ALLOWED_HEADERS,
        allow_credentials=True,
    )
    return Starlette(
        routes=[
            Route("/decode", endpoint(_through([codec.decode for codec in reversed(codecs)])), methods=["POST"]),
            Route("/encode", endpoint(_through([codec.encode for codec in codecs])), methods=["POST"]),
        ],
        middleware=[cors],
        exception_handlers={ClientDisconnect: _gone},
    )


@contextlib.asynccontextmanager
async def serve_codec(
    codecs: Sequence[PayloadCodec],
    *,
    origins: Sequence[str],
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
) -> AsyncIterator[str]:
    """Serve `codec_app` inside the running event loop while the context is open."""
    app = codec_app(codecs, origins=origins, token=token)
    async with serving(app, "the codec server", host=host, port=port) as url:
        yield url


def _through(steps: Sequence[_Transform]) -> _Transform:
    async def transform(payloads: Sequence[Payload]) -> list[Payload]:
        done: list[Payload] = []
        size = 0
        for payload in payloads:  # one after the other: a short request must not fill the memory
            made = [payload]
            for step in steps:
                made = await step(made)
            done += made
            size += sum(len(one.data) for one in made)
            if size > MAX_DECODED_BYTES:
                raise PayloadError(f"the payloads hold more than {MAX_DECODED_BYTES} bytes; ask for fewer at once")
        return done

    return transform


def _foreign(origin: str, origins: Sequence[str]) -> str:
    known = ", ".join(origins) or "none"
    return f"pages of {origin[:200]!r} are not answered; of these they are: {known}"


async def _gone(_: Request, __: Exception) -> Response:
    """Let go of a request whose sender hung up while sending it; the answer is not read."""
    return PlainTextResponse("the body ended too soon", status_code=400)


async def _answer(request: Request, transform: _Transform, warn: Callable[[str], None]) -> Response:
    body = await read_body(request, MAX_BODY_BYTES)
    if body is None:
        return PlainTextResponse(f"the body is larger than {MAX_BODY_BYTES} bytes", status_code=413)
    try:
        given = json_format.Parse(body, Payloads())
    except (json_format.ParseError, ValueError, RecursionError):
        return PlainTextResponse("the body is not temporal.api.common.v1.Payloads as JSON", status_code=400)
    try:
        result = await transform(given.payloads)
    except PayloadError as error:
        warn(str(error))
        return PlainTextResponse(str(error), status_code=400)
    except Exception as error:  # codecs are the user's own code, and the browser needs an answer with CORS headers
        _log.exception("a payload codec failed at %s", request.url.path)
        kind = type(error).__name__
        return PlainTextResponse(f"a codec raised {kind}; the codec server's log says more", status_code=400)
    text = json_format.MessageToJson(Payloads(payloads=result), indent=None)
    return Response(text, media_type="application/json")
