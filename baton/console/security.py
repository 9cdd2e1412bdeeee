"""Access control: sessions, proxies, roles, Host and Origin checks, CSRF tokens, headers, rate limits.

Not checked here: that a proxy really authenticated the person whom it names. Declare only proxies that overwrite the
identity headers of their callers.
"""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import parse_qsl, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from baton.codec.server import read_body
from baton.errors import BatonError

_COOKIE = "baton_console"
CSRF = "csrf"
"""The name of the form field of the CSRF token."""

MAX_FORM_BYTES = 1024 * 1024
_SESSION_SECONDS = 12 * 3600
_MAX_SESSIONS = 1_000
_MAX_BUCKETS = 10_000
_SAFE = ("GET", "HEAD")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PUBLIC_PATHS = ("/static/", "/enter", "/healthz")
"""The paths that need no session. None shows data of a run."""

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
"""The headers of every response, unless the response sets its own."""


class Role(IntEnum):
    """What a person may do. Each role includes those below it."""

    VIEWER = 1
    """Look at runs and records."""
    DECIDER = 2
    """Decide approvals and handoffs that wait."""
    OPERATOR = 3
    """Start, cancel, roll back and fork runs, and open personal data."""

    @classmethod
    def named(cls, name: str) -> "Role":
        """Return the role with a name, in any case."""
        return cls[name.upper()]


@dataclass(frozen=True)
class Viewer:
    """The authenticated user."""

    name: str  # recorded with each decision
    role: Role
    session: str  # their CSRF tokens are bound to it

    def may(self, role: str) -> bool:
        """Return whether the user's role includes the named role."""
        return self.role >= Role.named(role)


@dataclass(frozen=True)
class Proxy:
    """The networks and headers of the proxies that authenticate people. Headers from other addresses are ignored."""

    addresses: Sequence[IPv4Network | IPv6Network]
    user_header: str = "x-forwarded-user"  # the person's name
    groups_header: str = "x-forwarded-groups"  # their groups, separated by commas
    # the role of each group; `*` is everybody who is authenticated
    roles: Mapping[str, Role] = field(default_factory=lambda: {"*": Role.VIEWER})

    @classmethod
    def at(cls, addresses: Sequence[str], user: str, groups: str, roles: Mapping[str, Role]) -> "Proxy":
        """Return a proxy with some addresses or networks.

        Raises:
            BatonError: An address is invalid.
        """
        try:
            networks = [ip_network(address) for address in addresses]
        except ValueError as error:
            raise BatonError(f"{error}; name a proxy by its address or network, such as 10.0.0.0/24") from error
        return cls(networks, user.lower(), groups.lower(), roles)

    def viewer(self, request: Request) -> Viewer | None:
        """Return the person whom a declared proxy names, with the highest role of their groups, or None."""
        peer = ip_address(request.client.host) if request.client else None
        if peer is None or not any(peer in network for network in self.addresses if network.version == peer.version):
            return None
        names = request.headers.getlist(self.user_header)
        if len(names) != 1 or not names[0].strip() or not names[0].isprintable():  # a second one is not from the proxy
            return None
        group_names = ",".join(request.headers.getlist(self.groups_header)).split(",")
        groups = {"*", *(group_name.strip() for group_name in group_names if group_name.strip())}
        role = max((role for group, role in self.roles.items() if group in groups), default=None)
        name = names[0].strip()
        return None if role is None else Viewer(name, role, f"proxy:{name}")


class Links:
    """One-time links that sign in this machine's user, with one name and role."""

    def __init__(self, name: str, role: Role = Role.OPERATOR, *, used: Callable[[str], None] = lambda _: None) -> None:
        self.name = name
        self.role = role
        self._used = used
        self._key = secrets.token_urlsafe(24)
        self._sessions: OrderedDict[str, float] = OrderedDict()

    @property
    def path(self) -> str:
        """The path of the current link. A link changes once it is used."""
        return f"/enter?key={self._key}"

    def take(self, key: str) -> str | None:
        """Return a new session for a link's key, or None. A key works once."""
        if not hmac.compare_digest(key.encode(), self._key.encode()):
            return None
        self._key = secrets.token_urlsafe(24)
        session = secrets.token_urlsafe(24)
        self._sessions[_digest(session)] = time.monotonic() + _SESSION_SECONDS
        while len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        self._used(self.path)
        return session

    def viewer(self, request: Request) -> Viewer | None:
        """Return this machine's user if the request has a valid session."""
        session = _digest(request.cookies.get(_cookie(request), ""))
        expires = self._sessions.get(session)
        if expires is None or expires < time.monotonic():
            self._sessions.pop(session, None)
            return None
        return Viewer(self.name, self.role, session)


@dataclass(frozen=True)
class Rate:
    """A rate limit: the size of a burst, and how many per second after it."""

    burst: float
    per_second: float


ENTERING, UNKNOWN, READING, WRITING = Rate(10, 0.2), Rate(60, 5), Rate(120, 20), Rate(20, 1)


class Rates:
    """Token buckets, one for each caller and rate."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, Rate], tuple[float, float]] = OrderedDict()

    def take(self, who: str, rate: Rate) -> bool:
        """Take a token; return False if the bucket is empty."""
        now = self._clock()
        tokens, updated = self._buckets.pop((who, rate), (rate.burst, now))
        tokens = min(rate.burst, tokens + (now - updated) * rate.per_second)
        self._buckets[who, rate] = (tokens - 1 if tokens >= 1 else tokens, now)
        while len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return tokens >= 1


class Access:
    """Decides who may access the console: by one-time links, or through proxies that authenticate."""

    def __init__(self, *, links: Links | None = None, proxy: Proxy | None = None, url: str | None = None) -> None:
        if (links is None) is (proxy is None):
            raise ValueError("pass either links or a proxy")
        self.links = links
        self.proxy = proxy
        self.rates = Rates()
        self._url = urlsplit(url) if url else None
        self._secret = secrets.token_bytes(32)

    @property
    def is_secure(self) -> bool:
        """Whether browsers use TLS."""
        return self._url is not None and self._url.scheme == "https"

    def origin(self, request: Request) -> str | None:
        """Return the origin of the request's `Host`, or None if the console is not served under that name."""
        host = request.headers.get("host", "")
        if self._url is not None and host.lower() == self._url.netloc.lower():
            return f"{self._url.scheme}://{host}"
        if self.proxy is None and _host_name(host) in _LOOPBACK:
            return f"http://{host}"
        return None

    def viewer(self, request: Request) -> Viewer | None:
        """Return the authenticated user, or None."""
        return self.proxy.viewer(request) if self.proxy else self.links.viewer(request) if self.links else None

    def token(self, viewer: Viewer) -> str:
        """Return a CSRF token. It differs each time, so that compression does not leak it (BREACH)."""
        nonce = secrets.token_hex(16)
        return f"{nonce}{self._proof(viewer, nonce)}"

    def is_valid_token(self, viewer: Viewer, token: str) -> bool:
        """Return whether a CSRF token belongs to the user's session."""
        nonce, proof = token[:32], token[32:]
        return hmac.compare_digest(self._proof(viewer, nonce).encode(), proof.encode())

    def _proof(self, viewer: Viewer, nonce: str) -> str:
        return hmac.new(self._secret, f"{nonce}:{viewer.session}".encode(), hashlib.sha256).hexdigest()


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _cookie(request: Request) -> str:
    """Return the session cookie's name. It contains the port, since browsers share cookies between ports."""
    return f"{_COOKIE}_{request.url.port or request.url.scheme}"


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()


class Guard:
    """Middleware that authenticates, checks Host and Origin, limits rates and sets the response headers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on with its viewer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                missing = {name: value for name, value in HEADERS.items() if name.encode() not in own}
                message["headers"] = [
                    *message["headers"],
                    *((name.encode(), missing[name].encode()) for name in missing),
                ]
            await send(message)

        request = Request(scope)
        refusal = self._check(request)
        await (self._app if refusal is None else refusal)(scope, receive, send_with_headers)

    def _check(self, request: Request) -> Response | None:
        """Return a refusal, or store the request's viewer and return None."""
        access, path = self._access, request.url.path
        origin = access.origin(request)
        if origin is None and path != "/healthz":
            return PlainTextResponse("the console is not served under this name (Host)", status_code=421)
        address = request.client.host if request.client else "?"
        if request.method not in _SAFE and not _is_same_origin(request, origin):
            return PlainTextResponse("the request came from another site (Origin); nothing was done", status_code=403)
        if path.startswith(_PUBLIC_PATHS):
            return None
        viewer = access.viewer(request)
        if viewer is None:
            if not access.rates.take(address, UNKNOWN):
                return _too_many_requests()
            return PlainTextResponse(
                "You are not signed in, or your groups have no role here."
                if access.proxy
                else "You are not signed in: open the link that `baton console` or `baton dev` printed last.",
                status_code=403 if access.proxy else 401,
            )
        if not access.rates.take(viewer.session, READING if request.method in _SAFE else WRITING):
            return _too_many_requests()
        request.state.viewer = viewer
        return None


def _is_same_origin(request: Request, origin: str | None) -> bool:
    """Return whether a request that changes state comes from a page of the console."""
    sent_origin = request.headers.get("origin")
    if sent_origin is not None:
        return sent_origin == origin
    return request.headers.get("sec-fetch-site") == "same-origin"


def _too_many_requests() -> Response:
    return PlainTextResponse("too many requests; try again in a moment", status_code=429, headers={"retry-after": "5"})


def get_viewer(request: Request) -> Viewer:
    """Return the request's user."""
    viewer: Viewer = request.state.viewer
    return viewer


Endpoint = Callable[[Request], Awaitable[Response]]
FormEndpoint = Callable[[Request, Mapping[str, str]], Awaitable[Response]]


def page(path: str, endpoint: Endpoint, role: Role = Role.VIEWER) -> Route:
    """Return the route of a page for a role."""

    async def handle(request: Request) -> Response:
        _require(request, role)
        return await endpoint(request)

    return Route(path, handle, methods=["GET"])


def action(path: str, endpoint: FormEndpoint, role: Role = Role.DECIDER) -> Route:
    """Return the route of a form for a role. Its CSRF token is checked before the endpoint gets its fields."""

    async def handle(request: Request) -> Response:
        _require(request, role)
        body = await read_body(request, MAX_FORM_BYTES)
        if body is None:
            raise HTTPException(413, "the form is too large; nothing was done")
        try:
            fields = dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body)))
        except ValueError:
            raise HTTPException(400, "the form is malformed; nothing was done") from None
        access: Access = request.app.state.access
        if not access.is_valid_token(get_viewer(request), fields.pop(CSRF, "")):
            raise HTTPException(403, "the page is older than your session; nothing was done. Reload it")
        return await endpoint(request, fields)

    return Route(path, handle, methods=["POST"])


def _require(request: Request, role: Role) -> None:
    viewer = get_viewer(request)
    if viewer.role < role:
        raise HTTPException(403, f"this requires the role {role.name.lower()}; yours is {viewer.role.name.lower()}")


async def enter(request: Request) -> Response:
    """Exchange a one-time link for a session."""
    access: Access = request.app.state.access
    if request.method == "HEAD":  # a preview must not use up the link
        return PlainTextResponse("")
    session = access.links.take(request.query_params.get("key", "")) if access.links else None
    if session is None:
        if not access.rates.take(
            request.client.host if request.client else "?", ENTERING
        ):  # the right key always works
            return _too_many_requests()
        text = "This link was used, or belongs to another console; open the link that `baton console` printed last."
        return PlainTextResponse(text, status_code=401)
    response = RedirectResponse("/", status_code=303)
    response.set_cookie(
        _cookie(request),
        session,
        max_age=_SESSION_SECONDS,
        httponly=True,
        samesite="lax",
        secure=access.is_secure,
        path="/",
    )
    return response
