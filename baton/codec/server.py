"""A codec server, with which the Temporal UI and CLI show encoded payloads.

`serving` runs any ASGI application inside an event loop, without touching signals or log settings.
"""

import asyncio
import contextlib
import hmac
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import ClassVar

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
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import H11Protocol

_STOP_SECONDS = 2
_MAX_PORT = 65535
_IDLE_SECONDS = 5
_MAX_HEAD_BYTES = 64 * 1024
_MAX_DROPPED_BYTES = 64 * 1024 * 1024

MAX_CONNECTIONS = 256
"""The maximum number of requests in progress, and of connections without one; event streams count as neither.

Each takes a file descriptor of this process, which can be the worker.
"""
HEAD_SECONDS = 5.0
"""How long the head of a request may take to arrive."""


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, service: str, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve an application while the context is open; at its end, running requests have two seconds to finish."""
    with _listen(service, host, port) as listener:
        config = uvicorn.Config(
            _limited(app),
            lifespan="off",
            http=_Connection,
            ws="none",
            proxy_headers=False,  # otherwise a client could forge its address
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
            timeout_keep_alive=_IDLE_SECONDS,
            h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        )
        server = _Server(config)
        serve = asyncio.create_task(server.serve(sockets=[listener]))
        name, bound = listener.getsockname()[:2]
        try:
            # The socket already listens, so a request before the task's start waits.
            yield f"http://[{name}]:{bound}" if ":" in name else f"http://{name}:{bound}"
        finally:
            server.should_exit = True
            await serve


def has_bearer_token(request: Request, token: str) -> bool:
    """Return whether a request has the header `Authorization: Bearer <token>` (RFC 9110)."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    matches = hmac.compare_digest(credentials.strip().encode(), token.encode())
    return matches and bool(token) and scheme.lower() == "bearer"


async def read_body(request: Request, limit: int) -> bytes | None:
    """Return a request's body, or None if it exceeds ``limit`` bytes; no more than that is held in memory."""
    body, dropped = bytearray(), 0
    async for chunk in request.stream():
        if not dropped and len(body) + len(chunk) <= limit:
            body += chunk
        elif (dropped := dropped + len(chunk)) > _MAX_DROPPED_BYTES:
            break
    return None if dropped else bytes(body)


class _Connection(H11Protocol):
    """A connection with a deadline for the head of each request; too many that wait for one close the oldest."""

    _waiting: ClassVar[dict["_Connection", asyncio.TimerHandle]] = {}  # the oldest first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take bytes; wait on if they end no head."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._cease()
        elif self not in self._waiting:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._cease()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting[self] = self.loop.call_later(HEAD_SECONDS, self._give_up)
        if len(self._waiting) > MAX_CONNECTIONS:
            next(iter(self._waiting))._give_up()

    def _cease(self) -> None:
        if (deadline := self._waiting.pop(self, None)) is not None:
            deadline.cancel()

    def _give_up(self) -> None:
        self._cease()
        self.transport.close()


def _limited(app: ASGIApp) -> ASGIApp:
    """Return an application that refuses requests beyond those it answers at once; event streams do not count."""
    answering: set[object] = set()

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        if len(answering) >= MAX_CONNECTIONS:
            await PlainTextResponse("too many requests at once", 503, headers={"retry-after": "1"})(
                scope, receive, send
            )
            return
        request = object()

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                kinds = [value for name, value in message["headers"] if name.lower() == b"content-type"]
                if any(value.startswith(b"text/event-stream") for value in kinds):
                    answering.discard(request)
            await send(message)

        answering.add(request)
        try:
            await app(scope, receive, send_on)
        finally:
            answering.discard(request)

    return limited


class _Server(uvicorn.Server):
    """uvicorn without signal handlers, so that Ctrl-C stays with the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _listen(service: str, host: str, port: int) -> Iterator[socket.socket]:
    if not 0 <= port <= _MAX_PORT:
        raise ServerError(f"{service} cannot listen on port {port}; choose 1 to {_MAX_PORT}, or 0 for a free one")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ServerError(
            f"{service} cannot listen on {host!r} port {port}: {error.strerror or error}; "
            "choose another port, or 0 for a free one"
        ) from error
    with listener:
        yield listener


MAX_BODY_BYTES = 8 * 1024 * 1024
"""The maximum size of a request's body: twice the limit of a gRPC message."""

_ALLOWED_HEADERS = ("content-type", "x-namespace", "authorization", "authorization-extras")
_log = logging.getLogger(__name__)

_Transform = Callable[[Sequence[Payload]], Awaitable[list[Payload]]]


def codecs_for(keyring: Keyring | None) -> list[PayloadCodec]:
    """Return the codecs of a codec server for payloads of Baton's data converter."""
    compression: list[PayloadCodec] = [CompressionCodec()]
    return compression if keyring is None else [*compression, EncryptionCodec(keyring)]


def codec_app(codecs: Sequence[PayloadCodec], *, origins: Sequence[str], token: str | None = None) -> Starlette:
    """Return the ASGI application with `POST /decode` and `POST /encode`."""
    if "*" in origins:
        raise ValueError("origins contains '*'; name the exact origins of your UIs, e.g. 'http://localhost:8233'")

    # A page requests dozens of payloads; log each reason once.
    warn = lru_cache(maxsize=64)(partial(_log.warning, "the codec server cannot show payloads: %s"))

    def endpoint(transform: _Transform) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            # After DNS rebinding, the browser of a hostile page considers this server its origin.
            origin = request.headers.get("origin")
            if origin is not None and origin not in origins:
                return PlainTextResponse(_origin_refusal(origin, origins), status_code=403)
            if token is not None and not has_bearer_token(request, token):
                return PlainTextResponse("expected 'Authorization: Bearer <the token>'", status_code=401)
            return await _transform_body(request, transform, warn)

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
            Route("/decode", endpoint(_chain([codec.decode for codec in reversed(codecs)])), methods=["POST"]),
            Route("/encode", endpoint(_chain([codec.encode for codec in codecs])), methods=["POST"]),
        ],
        middleware=[cors],
        exception_handlers={ClientDisconnect: _handle_disconnect},
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


def _chain(steps: Sequence[_Transform]) -> _Transform:
    async def transform(payloads: Sequence[Payload]) -> list[Payload]:
        results: list[Payload] = []
        size = 0
        for payload in payloads:  # one by one, because a short request can decode to a lot of memory
            outputs = [payload]
            for step in steps:
                outputs = await step(outputs)
            results += outputs
            size += sum(len(output.data) for output in outputs)
            if size > MAX_DECODED_BYTES:
                raise PayloadError(f"the payloads exceed {MAX_DECODED_BYTES} bytes; request fewer at once")
        return results

    return transform


def _origin_refusal(origin: str, origins: Sequence[str]) -> str:
    allowed = ", ".join(origins) or "none"
    return f"the origin {origin[:200]!r} is not allowed; allowed are: {allowed}"


async def _handle_disconnect(_: Request, __: Exception) -> Response:
    """Answer a request whose client disconnected; nobody reads the answer."""
    return PlainTextResponse("the body is incomplete", status_code=400)


async def _transform_body(request: Request, transform: _Transform, warn: Callable[[str], None]) -> Response:
    body = await read_body(request, MAX_BODY_BYTES)
    if body is None:
        return PlainTextResponse(f"the body is larger than {MAX_BODY_BYTES} bytes", status_code=413)
    try:
        message = json_format.Parse(body, Payloads())
    except (json_format.ParseError, ValueError, RecursionError):
        return PlainTextResponse("the body is not temporal.api.common.v1.Payloads as JSON", status_code=400)
    try:
        result = await transform(message.payloads)
    except PayloadError as error:
        warn(str(error))
        return PlainTextResponse(str(error), status_code=400)
    except Exception as error:  # from a user's codec; the browser needs an answer with CORS headers
        _log.exception("a payload codec failed at %s", request.url.path)
        kind = type(error).__name__
        return PlainTextResponse(f"a codec raised {kind}; see the codec server's log", status_code=400)
    text = json_format.MessageToJson(Payloads(payloads=result), indent=None)
    return Response(text, media_type="application/json")
