"""Template rendering with escaping by default, and the event streams that keep pages up to date."""

import asyncio
import base64
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.datastructures import URL
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from temporalio.service import RPCError, RPCStatusCode

from baton import ArtifactRef, __version__
from baton.console.content import FILTERS, Content, finalize, image_type, make_content, size
from baton.console.security import CSRF, Access, Viewer, get_viewer
from baton.console.sources import Sources
from baton.errors import BatonError

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
"""The folder of stylesheets and scripts."""
_MAX_DIGITS = 8  # of a number in an address


def make_environment() -> Environment:
    """Return the environment of the console's templates."""
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.filters["trusted"] = Markup  # only for the stylesheet
    environment.globals.update(asset=asset, version=__version__, csrf_name=CSRF)
    return environment


def run_path(workflow_id: str, run_id: str | None = None, under: str = "", **more: object) -> str:
    """Return the path of a run's page or one below it. Ids may have any characters, so they are query parameters."""
    query = {"id": workflow_id, "run": run_id, **more}
    return f"/run{under}?{urlencode({name: value for name, value in query.items() if value is not None})}"


def asset(name: str) -> str:
    """Return the path of a static file with its digest, so that browsers can cache it forever."""
    digest = sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{digest}"


def with_query(url: URL, **changes: Any) -> str:
    """Return a page's path with changed query parameters; None removes one."""
    updated = url.include_query_params(**{name: value for name, value in changes.items() if value is not None})
    cleaned = updated.remove_query_params([name for name, value in changes.items() if value is None])
    return f"{cleaned.path}?{cleaned.query}" if cleaned.query else cleaned.path


def render(request: Request, template: str, values: Mapping[str, Any], *, status: int = 200) -> HTMLResponse:
    """Render a template, with the viewer, their CSRF token and the menu as further values."""
    environment: Environment = request.app.state.templates
    access: Access = request.app.state.access
    viewer: Viewer | None = getattr(request.state, "viewer", None)
    text = environment.get_template(template).render(
        **values,
        viewer=viewer,
        csrf=access.token(viewer) if viewer else "",
        menu=request.app.state.menu,
        path=request.url.path,
        url=request.url,
        with_query=with_query,
        run_path=run_path,
        now=request.app.state.sources.now,
        sign_out=access.sign_out if viewer else "",
        leaves_here=access.links is not None,
    )
    return HTMLResponse(text, status_code=status)


def get_sources(request: Request) -> Sources:
    """Return the sources that all pages share."""
    sources: Sources = request.app.state.sources
    return sources


def query_param(request: Request, name: str) -> str:
    """Return a required query parameter."""
    value = request.query_params.get(name, "")
    if not value.strip():
        raise HTTPException(404, f"the address has no parameter {name!r}")
    return value


DefaultT = TypeVar("DefaultT", int, None)


def number_param(
    request: Request, name: str, default: DefaultT, *, least: int = 1, most: int = 10**_MAX_DIGITS
) -> int | DefaultT:
    """Return a whole number from the address, within bounds; the default if there is none."""
    text = request.query_params.get(name, "")
    is_number = text.isdecimal() and text.isascii() and len(text) <= _MAX_DIGITS
    return max(least, min(int(text), most)) if is_number else default


def file_response(data: bytes, name: str, *, media: str = "application/octet-stream", inline: bool = False) -> Response:
    """Return bytes as a download, or inline in a sandbox, which is for images only."""
    headers = {"content-security-policy": "default-src 'none'; sandbox"}
    if not inline:
        headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(name or 'file', safe='')}"
    return Response(data, media_type=media, headers=headers)


@dataclass(frozen=True)
class ArtifactView:
    """An artifact prepared for display, or the reason why it cannot be shown."""

    ref: ArtifactRef
    data: bytes = b""
    content: Content | None = None
    trouble: str = ""

    @property
    def inline(self) -> str:
        """An image as a `data:` URL."""
        media = self.content.media if self.content else ""
        return f"data:{media};base64,{base64.b64encode(self.data).decode()}"


async def load_artifact(sources: Sources, ref: ArtifactRef, max_bytes: int = 1024 * 1024) -> ArtifactView:
    """Load an artifact and prepare it for display, unless it is too large."""
    try:
        data = await sources.artifact(ref.hash)
    except BatonError as error:
        return ArtifactView(ref, trouble=str(error))
    if len(data) > max_bytes:
        return ArtifactView(ref, trouble=f"It is too large to show here: {size(len(data))}.")
    return ArtifactView(ref, data, make_content(data, type=ref.type, path=ref.path))


def artifact_file(request: Request, ref: ArtifactRef, data: bytes) -> Response:
    """Return an artifact as a download, or inline if the address asks for it and it is an image."""
    picture = image_type(data) if request.query_params.get("show") else None
    name = (ref.path or ref.id).rpartition("/")[2]
    return file_response(data, name, media=picture or "application/octet-stream", inline=picture is not None)


MAX_STREAMS = 32
"""How many pages one session may follow at once."""
HEARTBEAT_SECONDS = 10.0
"""The interval of comments on a silent stream."""


@dataclass(frozen=True)
class Change:
    """One event of a stream."""

    kind: str  # `changed`: the page has changed; `lost`: the server is unreachable; `ended`: no more changes follow
    cursor: str  # the position after it; a browser sends the last one when it reconnects
    data: Any = None  # JSON data

    def lines(self) -> bytes:
        """Return the event in the format of server-sent events."""
        cursor = "".join(char for char in self.cursor if char.isprintable())
        return f"id: {cursor}\nevent: {self.kind}\ndata: {json.dumps(self.data)}\n\n".encode()


def stream_changes(
    request: Request,
    mark: Callable[[], Awaitable[str]],
    *,
    every: float,
    has_ended: Callable[[str], bool] = lambda _: False,
) -> Response:
    """Return the event stream of a page; it resumes at the browser's cursor, and ends with the viewer's session.

    A session has so many at once.
    """
    access: Access = request.app.state.access
    streams: Counter[str] = request.app.state.streams
    session = get_viewer(request).session
    if streams[session] >= MAX_STREAMS:
        return PlainTextResponse(
            f"{MAX_STREAMS} pages of this session are followed already; close some", status_code=429
        )
    cursor = request.headers.get("last-event-id") or request.query_params.get("cursor") or ""

    def is_over() -> bool:
        return access.viewer(request) is None

    stream = _counted(_with_heartbeat(changes(cursor, mark, every, has_ended, is_over)), streams, session)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def _counted(stream: AsyncGenerator[bytes, None], streams: Counter[str], session: str) -> AsyncIterator[bytes]:
    """Count a stream while it is open."""
    streams[session] += 1
    try:
        async with contextlib.aclosing(stream):
            async for part in stream:
                yield part
    finally:
        streams[session] -= 1
        streams += Counter()  # drops sessions without any


async def changes(
    cursor: str,
    mark: Callable[[], Awaitable[str]],
    every: float,
    has_ended: Callable[[str], bool] = lambda _: False,
    is_over: Callable[[], bool] = lambda: False,
) -> AsyncIterator[Change]:
    """Yield a change whenever the mark differs; stop if the run no longer exists, or once it is over for the viewer."""
    current, lost = cursor, False
    while not is_over():
        try:
            new = await mark()
        except (RPCError, BatonError, HTTPException) as error:
            if is_missing(error) and not lost:
                return
            if not lost:
                yield Change("lost", current, getattr(error, "message", None) or str(error))
            lost = True
        else:
            over = has_ended(new)
            if lost or new != current or over:
                yield Change("ended" if over else "changed", new)
            if over:
                return
            current, lost = new, False
        await asyncio.sleep(every)


def is_missing(error: Exception) -> bool:
    """Return whether a run does not exist. A missing namespace does not count: the server reports it while starting."""
    if isinstance(error, RPCError):
        return error.status is RPCStatusCode.NOT_FOUND and not error.message.startswith("Namespace")
    return isinstance(error, HTTPException)


async def _with_heartbeat(changes: AsyncIterator[Change]) -> AsyncGenerator[bytes, None]:
    yield b"retry: 1000\n\n"
    pending = asyncio.ensure_future(anext(changes, None))
    try:
        while True:
            done, _ = await asyncio.wait((pending,), timeout=HEARTBEAT_SECONDS)
            if not done:
                yield b": alive\n\n"
                continue
            change = pending.result()
            if change is None:
                return
            yield change.lines()
            pending = asyncio.ensure_future(anext(changes, None))
    finally:
        pending.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await pending
