"""Pages from templates that escape by default, and the streams that keep them up to date."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.datastructures import URL
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from temporalio.service import RPCError, RPCStatusCode

from baton import ArtifactRef, __version__
from baton.console.content import FILTERS, Content, content_of, picture_type, shown, size
from baton.console.security import CSRF, Access, Viewer
from baton.console.sources import Sources
from baton.errors import BatonError

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
"""Where the stylesheet and the script are."""


def make_environment() -> Environment:
    """Return the environment of the console's templates."""
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.filters["trusted"] = Markup  # the stylesheet alone: nothing that anybody else wrote
    environment.globals.update(asset=asset, version=__version__, csrf_name=CSRF)
    return environment


def run_path(workflow_id: str, run_id: str | None = None, under: str = "", **more: object) -> str:
    """Return the address of a run's page, or of one under it; ids may hold any sign, so they are in the query."""
    query = {"id": workflow_id, "run": run_id, **more}
    return f"/run{under}?{urlencode({name: value for name, value in query.items() if value is not None})}"


def asset(name: str) -> str:
    """Return the path of a static file, with its digest, so that a browser may keep it."""
    digest = sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{digest}"


def with_query(url: URL, **changes: Any) -> str:
    """Return a page's own address with other parameters; None takes a parameter away."""
    kept = url.include_query_params(**{name: value for name, value in changes.items() if value is not None})
    gone = kept.remove_query_params([name for name, value in changes.items() if value is None])
    return f"{gone.path}?{gone.query}" if gone.query else gone.path


def render(request: Request, template: str, values: Mapping[str, Any], *, status: int = 200) -> HTMLResponse:
    """Return a page; templates also find the viewer, their forgery token, and the pages that the menu leads to."""
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
    )
    return HTMLResponse(text, status_code=status)


def sources_of(request: Request) -> Sources:
    """Return what all pages read from."""
    sources: Sources = request.app.state.sources
    return sources


def named(request: Request, name: str) -> str:
    """Return a parameter that the address must have."""
    value = request.query_params.get(name, "")
    if not value.strip():
        raise HTTPException(404, f"the address names no {name}")
    return value


def file(data: bytes, name: str, *, media: str = "application/octet-stream", is_shown: bool = False) -> Response:
    """Return bytes to be saved and never opened here; a picture may be shown, in a sandbox."""
    headers = {"content-security-policy": "default-src 'none'; sandbox"}
    if not is_shown:
        headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(name or 'file', safe='')}"
    return Response(data, media_type=media, headers=headers)


@dataclass(frozen=True)
class Enclosed:
    """An artifact, made readable; without content where there is trouble."""

    ref: ArtifactRef
    data: bytes = b""
    content: Content | None = None
    trouble: str = ""

    @property
    def inline(self) -> str:
        """A picture as a `data:` address."""
        media = self.content.media if self.content else ""
        return f"data:{media};base64,{base64.b64encode(self.data).decode()}"


async def enclosed(sources: Sources, ref: ArtifactRef, most: int = 1024 * 1024) -> Enclosed:
    """Return an artifact of at most so many bytes, made readable."""
    try:
        data = await sources.artifact(ref.hash)
    except BatonError as error:
        return Enclosed(ref, trouble=str(error))
    if len(data) > most:
        return Enclosed(ref, trouble=f"It is too large to be shown here: {size(len(data))}.")
    return Enclosed(ref, data, content_of(data, type=ref.type, path=ref.path))


def artifact_file(request: Request, ref: ArtifactRef, data: bytes) -> Response:
    """Return an artifact to be saved; where the address says so and it is a picture, to be shown."""
    picture = picture_type(data) if request.query_params.get("show") else None
    name = (ref.path or ref.id).rpartition("/")[2]
    return file(data, name, media=picture or "application/octet-stream", is_shown=picture is not None)


HEARTBEAT_SECONDS = 10.0
"""So often a silent stream says that it is alive."""


@dataclass(frozen=True)
class Change:
    """One event of a stream."""

    kind: str  # `changed`: the page has something new; `lost`: the server is out of reach; `ended`: nothing will follow
    cursor: str  # where the stream is after it; the browser gives the last one back when it connects again
    data: Any = None  # what happened, as JSON

    def lines(self) -> bytes:
        """Return it in the format of the stream; JSON has no line breaks of its own."""
        cursor = "".join(sign for sign in self.cursor if sign.isprintable())
        return f"id: {cursor}\nevent: {self.kind}\ndata: {json.dumps(self.data)}\n\n".encode()


def follow(
    request: Request,
    mark: Callable[[], Awaitable[str]],
    *,
    every: float,
    is_over: Callable[[str], bool] = lambda _: False,
) -> Response:
    """Return the stream of changes of a page: after a lost connection from where the browser was."""
    cursor = request.headers.get("last-event-id") or request.query_params.get("cursor") or ""
    beating = _beating(changes(cursor, mark, every, is_over))
    return StreamingResponse(beating, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def changes(
    cursor: str, mark: Callable[[], Awaitable[str]], every: float, is_over: Callable[[str], bool] = lambda _: False
) -> AsyncIterator[Change]:
    """Yield a change whenever the mark is another one; what is gone has none any more."""
    told, lost = cursor, False
    while True:
        try:
            now = await mark()
        except (RPCError, BatonError, HTTPException) as error:
            if is_gone(error) and not lost:
                return
            if not lost:
                yield Change("lost", told, getattr(error, "message", None) or str(error))
            lost = True
        else:
            over = is_over(now)
            if lost or now != told or over:
                yield Change("ended" if over else "changed", now)
            if over:
                return
            told, lost = now, False
        await asyncio.sleep(every)


def is_gone(error: Exception) -> bool:
    """Return whether an error says that a run is not there; of a namespace the server says so while it starts."""
    if isinstance(error, RPCError):
        return error.status is RPCStatusCode.NOT_FOUND and not error.message.startswith("Namespace")
    return isinstance(error, HTTPException)


async def _beating(changes: AsyncIterator[Change]) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    coming = asyncio.ensure_future(anext(changes, None))
    try:
        while True:
            done, _ = await asyncio.wait((coming,), timeout=HEARTBEAT_SECONDS)
            if not done:
                yield b": alive\n\n"
                continue
            change = coming.result()
            if change is None:
                return
            yield change.lines()
            coming = asyncio.ensure_future(anext(changes, None))
    finally:
        coming.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await coming
