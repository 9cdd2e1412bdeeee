"""Access control: sessions, proxies, Host and Origin checks, CSRF tokens, headers, rate limits."""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from baton.client import Role
from baton.client.faces import UNKNOWN, Proxy, Rate, Rates, served_origin
from baton.codec.server import read_body
from baton.keys.store_keyring import Keyring

_COOKIE = "baton_console"
CSRF = "csrf"
"""The name of the form field of the CSRF token."""

MAX_FORM_BYTES = 1024 * 1024
_SESSION_SECONDS = 12 * 3600
_MAX_SESSIONS = 1_000
_SAFE = ("GET", "HEAD")
LEAVE = "/leave"
"""The path that ends a session."""
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


@dataclass(frozen=True)
class Viewer:
    """The authenticated user."""

    name: str  # recorded with each decision
    role: Role
    session: str  # their CSRF tokens are bound to it

    def may(self, role: str) -> bool:
        """Return whether the user's role includes the named role."""
        return self.role >= Role.named(role)


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

    def end(self, session: str) -> None:
        """End a session, that of a `Viewer`; its cookie is worth nothing from now on."""
        self._sessions.pop(session, None)

    def viewer(self, request: Request) -> Viewer | None:
        """Return this machine's user if the request has a valid session."""
        session = _digest(request.cookies.get(_cookie(request), ""))
        expires = self._sessions.get(session)
        if expires is None or expires < time.monotonic():
            self._sessions.pop(session, None)
            return None
        return Viewer(self.name, self.role, session)


ENTERING, READING, WRITING = Rate(10, 0.2), Rate(120, 20), Rate(20, 1)


def form_secret(keyring: Keyring | None) -> bytes | None:
    """Return what the consoles of a deployment bind their forms to; None without keys: each console to its own."""
    return None if keyring is None else keyring.derive("baton/console-forms/v1")


class Access:
    """Decides who may access the console: by one-time links, or through proxies that authenticate."""

    def __init__(
        self,
        *,
        links: Links | None = None,
        proxy: Proxy | None = None,
        url: str | None = None,
        secret: bytes | None = None,  # of CSRF tokens: the same for consoles that stand for each other behind a proxy
    ) -> None:
        if (links is None) is (proxy is None):
            raise ValueError("pass either links or a proxy")
        self.links = links
        self.proxy = proxy
        self.rates = Rates()
        self._url = urlsplit(url) if url else None
        self._secret = secret or secrets.token_bytes(32)

    @property
    def is_secure(self) -> bool:
        """Whether browsers use TLS."""
        return self._url is not None and self._url.scheme == "https"

    def origin(self, request: Request) -> str | None:
        """Return the origin of the request's `Host`, or None if the console is not served under that name."""
        return served_origin(request, self._url, loopback=self.proxy is None)

    def viewer(self, request: Request) -> Viewer | None:
        """Return the authenticated user, or None."""
        if self.proxy is not None:
            caller = self.proxy.caller(request)
            return None if caller is None else Viewer(caller.name, caller.role, f"proxy:{caller.name}")
        return self.links.viewer(request) if self.links else None

    @property
    def sign_out(self) -> str:
        """Where a person signs out: here by a form, or at the proxy by a link; empty if the proxy has named none."""
        return self.proxy.sign_out if self.proxy else LEAVE

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


def _cookie(request: Request) -> str:
    """Return the session cookie's name. It contains the port, since browsers share cookies between ports."""
    return f"{_COOKIE}_{request.url.port or request.url.scheme}"


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()


Refusal = Callable[[Request, int, str, str], Response]
"""Makes the response of a refusal: the request, the status, a title and a text."""


def refuse(_: Request, status: int, title: str, text: str) -> Response:
    """Refuse in plain text."""
    return PlainTextResponse(f"{title}. {text}", status_code=status)


class Guard:
    """Middleware that authenticates, checks Host and Origin, limits rates and sets the response headers."""

    def __init__(self, app: ASGIApp, access: Access, refusal: Refusal = refuse) -> None:
        self._app = app
        self._access = access
        self._refusal = refusal

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
            if access.proxy:
                return self._refusal(request, 403, "You are not signed in", "Or your groups have no role here.")
            text = "To sign in, open the link that “baton console” or “baton dev” printed last."
            return self._refusal(request, 401, "You are signed out", text)
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


async def leave(request: Request, _: Mapping[str, str]) -> Response:
    """End the viewer's session."""
    access: Access = request.app.state.access
    response = RedirectResponse(access.sign_out if access.proxy and access.sign_out else "/", status_code=303)
    if access.links:
        access.links.end(get_viewer(request).session)
        response.delete_cookie(_cookie(request), path="/", httponly=True, samesite="lax", secure=access.is_secure)
    return response


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
