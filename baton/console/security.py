"""Who may see and do what: sessions, proxies, roles, Host and Origin, forgery tokens, headers, rates.

What is not checked here: that a proxy really authenticated the person whom it names. Declare only proxies that
overwrite the identity headers of their callers.
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
"""The name of the form field that holds the forgery token."""

MOST_FORM_BYTES = 1024 * 1024
_SESSION_SECONDS = 12 * 3600
_MOST_SESSIONS = 1_000
_MOST_BUCKETS = 10_000
_SAFE = ("GET", "HEAD")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OPEN_PATHS = ("/static/", "/enter", "/healthz")
"""What is answered to a caller without a session: nothing that a run says."""

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
"""The headers of every answer; an answer's own win."""


class Role(IntEnum):
    """What a person may do; each role may do what those below it may."""

    VIEWER = 1
    """Look at runs and records."""
    DECIDER = 2
    """Decide approvals and handoffs that wait."""
    OPERATOR = 3
    """Start, cancel, roll back and fork runs, and open personal data."""

    @classmethod
    def named(cls, name: str) -> "Role":
        """Return the role of a name."""
        return cls[name.upper()]


@dataclass(frozen=True)
class Viewer:
    """The person who looks."""

    name: str  # the authenticated name, which is recorded
    role: Role  # what they may do
    session: str  # what their forgery tokens are bound to

    def may(self, role: str) -> bool:
        """Return whether they may do what a role may, by its name."""
        return self.role >= Role.named(role)


@dataclass(frozen=True)
class Proxy:
    """The networks of the proxies that authenticate people, and how they name them; headers of others mean nothing."""

    addresses: Sequence[IPv4Network | IPv6Network]
    user_header: str = "x-forwarded-user"  # the header with the person's name
    groups_header: str = "x-forwarded-groups"  # the header with their groups, separated by commas
    # the role of each group; `*` stands for everybody who is authenticated
    roles: Mapping[str, Role] = field(default_factory=lambda: {"*": Role.VIEWER})

    @classmethod
    def at(cls, addresses: Sequence[str], user: str, groups: str, roles: Mapping[str, Role]) -> "Proxy":
        """Return the proxies of some addresses or networks.

        Raises:
            BatonError: An address is not one.
        """
        try:
            networks = [ip_network(one) for one in addresses]
        except ValueError as error:
            raise BatonError(f"{error}; name a proxy by its address or network, such as 10.0.0.0/24") from error
        return cls(networks, user.lower(), groups.lower(), roles)

    def viewer(self, request: Request) -> Viewer | None:
        """Return the person whom a declared proxy names, with the highest role of their groups; else None."""
        peer = ip_address(request.client.host) if request.client else None
        if peer is None or not any(peer in one for one in self.addresses if one.version == peer.version):
            return None
        names = request.headers.getlist(self.user_header)
        if len(names) != 1 or not names[0].strip() or not names[0].isprintable():  # twice: one is somebody else's
            return None
        told = ",".join(request.headers.getlist(self.groups_header)).split(",")
        groups = {"*", *(one.strip() for one in told if one.strip())}
        role = max((role for group, role in self.roles.items() if group in groups), default=None)
        name = names[0].strip()
        return None if role is None else Viewer(name, role, f"proxy:{name}")


class Links:
    """One-time links that become sessions of the person of this machine, under one name and role."""

    def __init__(self, name: str, role: Role = Role.OPERATOR, *, used: Callable[[str], None] = lambda _: None) -> None:
        self.name = name
        self.role = role
        self._used = used
        self._key = secrets.token_urlsafe(24)
        self._sessions: OrderedDict[str, float] = OrderedDict()

    @property
    def path(self) -> str:
        """The path of the link that works now; once it was used, another one does."""
        return f"/enter?key={self._key}"

    def take(self, key: str) -> str | None:
        """Return a new session for the key of the link, or None; the key works once."""
        if not hmac.compare_digest(key.encode(), self._key.encode()):
            return None
        self._key = secrets.token_urlsafe(24)
        session = secrets.token_urlsafe(24)
        self._sessions[_digest(session)] = time.monotonic() + _SESSION_SECONDS
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        self._used(self.path)
        return session

    def viewer(self, request: Request) -> Viewer | None:
        """Return the person of this machine, if the request has a session of theirs."""
        session = _digest(request.cookies.get(_cookie(request), ""))
        until = self._sessions.get(session)
        if until is None or until < time.monotonic():
            self._sessions.pop(session, None)
            return None
        return Viewer(self.name, self.role, session)


@dataclass(frozen=True)
class Rate:
    """How often something may be done: so many at once, and so many a second after that."""

    burst: float
    each_second: float


ENTERING, UNKNOWN, READING, WRITING = Rate(10, 0.2), Rate(60, 5), Rate(120, 20), Rate(20, 1)


class Rates:
    """Buckets that fill with time, one for each caller and kind."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, Rate], tuple[float, float]] = OrderedDict()

    def take(self, who: str, rate: Rate) -> bool:
        """Take one, and return whether there was one."""
        now = self._clock()
        left, at = self._buckets.pop((who, rate), (rate.burst, now))
        left = min(rate.burst, left + (now - at) * rate.each_second)
        self._buckets[who, rate] = (left - 1 if left >= 1 else left, now)
        while len(self._buckets) > _MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return left >= 1


class Access:
    """Everything that decides whether a request is answered: one-time links, or proxies that authenticate."""

    def __init__(self, *, links: Links | None = None, proxy: Proxy | None = None, url: str | None = None) -> None:
        if (links is None) is (proxy is None):
            raise ValueError("people come by one-time links or through a proxy: give one of both")
        self.links = links
        self.proxy = proxy
        self.rates = Rates()
        self._url = urlsplit(url) if url else None
        self._secret = secrets.token_bytes(32)

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the console by TLS."""
        return self._url is not None and self._url.scheme == "https"

    def origin(self, request: Request) -> str | None:
        """Return the origin that a request came to, or None where its `Host` is not the console's."""
        host = request.headers.get("host", "")
        if self._url is not None and host.lower() == self._url.netloc.lower():
            return f"{self._url.scheme}://{host}"
        if self.proxy is None and _host_name(host) in _LOOPBACK:
            return f"http://{host}"
        return None

    def viewer(self, request: Request) -> Viewer | None:
        """Return who looks, or None."""
        return self.proxy.viewer(request) if self.proxy else self.links.viewer(request) if self.links else None

    def token(self, viewer: Viewer) -> str:
        """Return a forgery token for a form; a new one each time, so that compression tells nothing of it."""
        nonce = secrets.token_hex(16)
        return f"{nonce}{self._proof(viewer, nonce)}"

    def is_token(self, viewer: Viewer, token: str) -> bool:
        """Return whether a token was made for this person's session."""
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
    """Return the name of the session's cookie: a browser sends a cookie to every port of a host."""
    return f"{_COOKIE}_{request.url.port or request.url.scheme}"


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()


class Guard:
    """The middleware before every page: who calls, from where, how often; and the headers of the answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on with its viewer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                more = {name: value for name, value in HEADERS.items() if name.encode() not in own}
                message["headers"] = [*message["headers"], *((name.encode(), more[name].encode()) for name in more)]
            await send(message)

        request = Request(scope)
        refusal = self._refusal(request)
        await (self._app if refusal is None else refusal)(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Return why a request is not answered; else note its viewer."""
        access, path = self._access, request.url.path
        origin = access.origin(request)
        if origin is None and path != "/healthz":
            return PlainTextResponse("this console is not served under that name (Host)", status_code=421)
        address = request.client.host if request.client else "?"
        if request.method not in _SAFE and not _is_own(request, origin):
            return PlainTextResponse("this came from another site (Origin); nothing was done", status_code=403)
        if path.startswith(_OPEN_PATHS):
            return None
        viewer = access.viewer(request)
        if viewer is None:
            if not access.rates.take(address, UNKNOWN):
                return _too_many()
            return PlainTextResponse(
                "You are not signed in, or your groups have no role here."
                if access.proxy
                else "You are not signed in: open the link that `baton console` or `baton dev` printed last.",
                status_code=403 if access.proxy else 401,
            )
        if not access.rates.take(viewer.session, READING if request.method in _SAFE else WRITING):
            return _too_many()
        request.state.viewer = viewer
        return None


def _is_own(request: Request, origin: str | None) -> bool:
    """Return whether a request that changes something comes from a page of the console."""
    told = request.headers.get("origin")
    if told is not None:
        return told == origin
    return request.headers.get("sec-fetch-site") == "same-origin"


def _too_many() -> Response:
    return PlainTextResponse("too many requests; try again in a moment", status_code=429, headers={"retry-after": "5"})


def viewer_of(request: Request) -> Viewer:
    """Return who looks."""
    viewer: Viewer = request.state.viewer
    return viewer


Endpoint = Callable[[Request], Awaitable[Response]]
FormEndpoint = Callable[[Request, Mapping[str, str]], Awaitable[Response]]


def page(path: str, endpoint: Endpoint, role: Role = Role.VIEWER) -> Route:
    """Return the route of a page that people of a role may look at."""

    async def answer(request: Request) -> Response:
        _require(request, role)
        return await endpoint(request)

    return Route(path, answer, methods=["GET"])


def action(path: str, endpoint: FormEndpoint, role: Role = Role.DECIDER) -> Route:
    """Return the route of a form that people of a role may send; its forgery token is checked, its fields are texts."""

    async def answer(request: Request) -> Response:
        _require(request, role)
        body = await read_body(request, MOST_FORM_BYTES)
        if body is None:
            raise HTTPException(413, "the form is too large; nothing was done")
        try:
            fields = dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body)))
        except ValueError:
            raise HTTPException(400, "the form cannot be read; nothing was done") from None
        access: Access = request.app.state.access
        if not access.is_token(viewer_of(request), fields.pop(CSRF, "")):
            raise HTTPException(403, "the page is older than your session; nothing was done. Load it again")
        return await endpoint(request, fields)

    return Route(path, answer, methods=["POST"])


def _require(request: Request, role: Role) -> None:
    viewer = viewer_of(request)
    if viewer.role < role:
        raise HTTPException(403, f"this is for the role {role.name.lower()}; yours is {viewer.role.name.lower()}")


async def enter(request: Request) -> Response:
    """Turn a one-time link into a session."""
    access: Access = request.app.state.access
    if request.method == "HEAD":  # whatever looks ahead shall not use up the link
        return PlainTextResponse("")
    session = access.links.take(request.query_params.get("key", "")) if access.links else None
    if session is None:
        if not access.rates.take(
            request.client.host if request.client else "?", ENTERING
        ):  # the right key always works
            return _too_many()
        text = "This link was used, or is not of this console; `baton console` printed another one."
        return PlainTextResponse(text, status_code=401)
    answer = RedirectResponse("/", status_code=303)
    answer.set_cookie(
        _cookie(request),
        session,
        max_age=_SESSION_SECONDS,
        httponly=True,
        samesite="lax",
        secure=access.is_secure,
        path="/",
    )
    return answer
