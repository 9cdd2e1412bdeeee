"""`service`: one HTTP application for the protocols that others know, behind one guard."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from urllib.parse import SplitResult, urlsplit

from baton.codec.server import read_body, serving
from baton.doors.client_access import UNKNOWN, Access, Caller, served_origin
from baton.doors.client_runs import ServiceParts
from baton.errors import BatonError
from baton.lazy import needs_extra

with needs_extra("codec", __name__):
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import BaseRoute, Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SERVE_PORT = 8235
"""The port of `baton serve`, beside the console's."""
MAX_BODY_BYTES = 1024 * 1024
"""The maximum size of a request's body; what it starts has to fit into a workflow's history."""
BODY_SECONDS = 20.0
"""How long a request's body may take to arrive."""
MAX_STREAMS = 32
"""The maximum number of event streams of one caller."""
MAX_CALLS = 64
"""The maximum number of calls of one caller in progress, event streams among them: some wait for the end of a run."""
_HEALTH = "/healthz"
_HEADERS = {b"x-content-type-options": b"nosniff", b"cache-control": b"no-store", b"referrer-policy": b"no-referrer"}
_DOORS = {"A2A": ("client_a2a", "a2a"), "MCP": ("client_mcp", "mcp"), "AG-UI": ("client_ag_ui", "ag_ui")}
"""The module of each protocol's door, and the package that it needs."""


@dataclass(frozen=True)
class Door:
    """One protocol of a service.

    Attributes:
        routes: Its routes.
        run: What has to run while the service does.
        public: The paths that need no token; none shows data of a run.
    """

    routes: Sequence[BaseRoute]
    run: Callable[[], AbstractAsyncContextManager[object]] | None = None
    public: frozenset[str] = frozenset()


def caller_of(request: Request) -> Caller:
    """Return a request's caller, whom the guard has authenticated."""
    caller: Caller = request.scope["baton.caller"]
    return caller


def service(parts: ServiceParts, *, doors: Sequence[Door] | None = None) -> Starlette:
    """Return the service as an ASGI application, to serve or to mount in another.

    The guard refuses other hosts and origins, calls without a token, large bodies, too many calls and streams. An
    application that mounts this runs its lifespan: `lifespan=app.router.lifespan_context`.

    Args:
        parts: What it offers, who may call, and its public address.
        doors: The protocols; by default every one whose extra is installed.

    Raises:
        BatonError: No extra of a protocol is installed, or two pipelines would be one tool of MCP.

    Example:
        ```python
        offers = {"article": Offer("article", description="Writes an article.")}
        access = Access(tokens=Tokens({Caller("ann"): token}))
        app = service(ServiceParts(client, offers, access, "https://agents.example.com"))
        ```
    """
    if doors is None:
        modules = [_DOORS[protocol][0] for protocol in installed_protocols()]
        doors = [import_module(f"baton.doors.{module}").door(parts) for module in modules]
    if not doors:
        raise BatonError("no protocol to serve: pip install 'temporal-baton[mcp]', a2a or ag-ui")

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for door in doors:
                if door.run is not None:
                    await stack.enter_async_context(door.run())
            yield

    public = frozenset({_HEALTH, *(path for door in doors for path in door.public)})
    guard = Middleware(_Guard, access=parts.access, url=urlsplit(parts.url), public=public)
    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(parts.access.origins),
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=("*",),
    )
    app = Starlette(
        routes=[Route(_HEALTH, _health), *(route for door in doors for route in door.routes)],
        middleware=[*([cors] if parts.access.origins else []), guard],
        exception_handlers={ClientDisconnect: _on_disconnect},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # behind a proxy, a redirect would lose its TLS or path
    return app


def installed_protocols() -> list[str]:
    """Return the protocols whose extra is installed."""
    return [protocol for protocol, (_, package) in _DOORS.items() if find_spec(package) is not None]


@contextlib.asynccontextmanager
async def serve_service(app: Starlette, *, host: str = "127.0.0.1", port: int = SERVE_PORT) -> AsyncIterator[str]:
    """Serve a service while the context is open, and yield its local address.

    Args:
        app: What `service` returned.
        host: The address to listen on; by default only this machine can reach it.
        port: The port; 0 for a free one.

    Raises:
        ServerError: The port is taken, or the address is not this machine's.
    """
    async with app.router.lifespan_context(app), serving(app, "the service", host=host, port=port) as url:
        yield url


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok")


def refusal(status: int, text: str, **headers: str) -> Response:
    """Return the response to a call that no door sees."""
    return JSONResponse({"error": text}, status_code=status, headers=headers)


async def _on_disconnect(_: Request, __: Exception) -> Response:
    return refusal(400, "the body ended too soon")  # nobody reads it


class _TooManyStreamsError(Exception):
    """Ends a stream that was not opened."""


class _Guard:
    """Middleware before all doors: Host, Origin, caller, rate, body, streams."""

    def __init__(self, app: ASGIApp, access: Access, url: SplitResult, public: frozenset[str]) -> None:
        self._app = app
        self._access = access
        self._url = url
        self._public = public
        self._calls: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on with its caller and its whole body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        refused = self._check(request)
        if refused is not None:
            await refused(scope, receive, send)
            return
        caller: Caller | None = scope.get("baton.caller")
        if caller is None:  # a public path; nobody may hold its connection with a body
            await self._pass(scope, _replay(b"", receive), send)
            return
        if self._calls[caller.name] >= MAX_CALLS:
            await _too_many(f"you have {MAX_CALLS} calls in progress")(scope, receive, send)
            return
        self._calls[caller.name] += 1
        try:
            await self._take(request, scope, receive, send)
        finally:
            self._calls.subtract([caller.name])
            self._calls += Counter()  # drops callers without any

    async def _take(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body of a request, and pass it on."""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await read_body(request, MAX_BODY_BYTES)
        except TimeoutError:
            await refusal(408, "the body took too long", connection="close")(scope, receive, send)
            return
        except ClientDisconnect:
            return
        if body is None:
            text = f"the body is larger than {MAX_BODY_BYTES:,} bytes"
            await refusal(413, text, connection="close")(scope, receive, send)
            return
        await self._pass(scope, _replay(body, receive), send)

    def _check(self, request: Request) -> Response | None:
        """Return a refusal, or store the request's caller and return None."""
        access, scope = self._access, request.scope
        own = served_origin(request, self._url, loopback=access.proxy is None)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if own is None and path != _HEALTH:
            return refusal(421, "the service is not served under this name (Host)")
        origin = request.headers.get("origin")
        if origin is not None and origin not in (own, *access.origins):
            return refusal(403, "the request came from another site (Origin); nothing was done")
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            return refusal(415, "send the body without Content-Encoding")
        address = request.client.host if request.client else "?"
        caller = access.caller(request)
        if caller is None:
            if not access.rates.take(address, UNKNOWN):
                return _too_many("too many calls")
            if path in self._public:
                return None
            asks = {} if access.tokens is None else {"www-authenticate": "Bearer"}
            return refusal(401, "expected 'Authorization: Bearer <your token>'" if asks else "unknown person", **asks)
        if not access.rates.take(caller.name, access.rate):
            return _too_many("too many calls")
        scope["baton.caller"] = caller
        return None

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; an event stream beyond the caller's is refused as it opens."""
        caller = scope.get("baton.caller")
        counted: list[str] = []

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = dict(message["headers"])
                if headers.get(b"content-type", b"").startswith(b"text/event-stream") and caller is not None:
                    if self._streams[caller.name] >= MAX_STREAMS:
                        raise _TooManyStreamsError
                    self._streams[caller.name] += 1
                    counted.append(caller.name)
                message["headers"] = [*message["headers"], *((k, v) for k, v in _HEADERS.items() if k not in headers)]
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except* _TooManyStreamsError:
            await _too_many(f"you have {MAX_STREAMS} streams open")(scope, receive, send)
        finally:
            self._streams.subtract(counted)
            self._streams += Counter()


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a channel with a body that was read, and then what comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def _too_many(text: str) -> Response:
    return refusal(429, f"{text}; try again in a moment", **{"retry-after": "5"})
