"""The console as an ASGI application: its pages, behind the guard."""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from types import ModuleType

from baton.lazy import needs_extra

with needs_extra("console", __name__):
    import jinja2  # noqa: F401 - needed by the templates
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.gzip import GZipMiddleware
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import BaseRoute, Mount, Route
    from starlette.staticfiles import StaticFiles

from temporalio.service import RPCError, RPCStatusCode

from baton.client import Role
from baton.client.faces import UNREACHABLE_STATUSES
from baton.codec.server import serving
from baton.console import (
    pages_audit,
    pages_batch,
    pages_decide,
    pages_inbox,
    pages_lab,
    pages_operate,
    pages_provenance,
    pages_run,
    pages_runs,
    report,
)
from baton.console.rendering import STATIC, get_sources, is_missing, make_environment, render
from baton.console.security import LEAVE, Access, Guard, action, enter, leave
from baton.console.sources import Sources
from baton.errors import BatonError, ServerError

DEFAULT_PORT = 8234
"""The port of the console, beside the Temporal UI's."""
PAGES: Sequence[ModuleType] = (
    pages_runs,
    pages_inbox,
    pages_decide,
    pages_batch,
    pages_run,
    pages_provenance,
    report,
    pages_lab,
    pages_audit,
    pages_operate,
)
"""The page modules in menu order. Each has `ROUTES`, and `MENU` (path and name) if the menu lists it."""

_RETRY_AFTER_SECONDS = "5"
_CACHE_FOREVER = "public, max-age=31536000, immutable"


class _ImmutableFiles(StaticFiles):
    """Static files, whose URLs contain their digest."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        """Return a file with a cache header that never expires."""
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["cache-control"] = _CACHE_FOREVER
        return response


def console_app(sources: Sources, access: Access) -> Starlette:
    """Return the application that serves every page of the console.

    Args:
        sources: What the pages read.
        access: Who may see and do what.
    """
    routes: list[BaseRoute] = [
        Route("/enter", enter),
        action(LEAVE, leave, Role.VIEWER),
        Route("/healthz", _health),
        Mount("/static", _ImmutableFiles(directory=STATIC)),
        *(route for module in PAGES for route in module.ROUTES),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, access=access, refusal=_message), Middleware(GZipMiddleware, minimum_size=1_000)],
        exception_handlers={HTTPException: _http_error, BatonError: _baton_error, RPCError: _rpc_error},
    )
    app.router.redirect_slashes = False
    app.state.sources, app.state.access, app.state.templates = sources, access, make_environment()
    app.state.streams = Counter()
    app.state.run_table = pages_runs.RunTable(sources)
    app.state.menu = [module.MENU for module in PAGES if hasattr(module, "MENU")]
    return app


@contextlib.asynccontextmanager
async def serve_console(
    sources: Sources, access: Access, *, host: str = "127.0.0.1", port: int = DEFAULT_PORT
) -> AsyncIterator[str]:
    """Serve the console while the context is open, and yield its address.

    Args:
        sources: What the pages read.
        access: Who may see and do what.
        host: The address to listen on.
        port: The port; 0 for a free one.
    """
    async with serving(console_app(sources, access), "the console", host=host, port=port) as url:
        yield url


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok")


def _message(request: Request, status: int, title: str, text: str) -> Response:
    """Return a page that says why the requested one is not shown."""
    values = {"title": title, "text": text, "again": status == 503}
    response = render(request, "message.html", values, status=status)
    if status == 503:
        response.headers["refresh"] = response.headers["retry-after"] = _RETRY_AFTER_SECONDS
    return response


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for these
    titles = {404: "Not found", 403: "Not allowed", 405: "Not allowed", 413: "Too large"}
    return _message(request, error.status_code, titles.get(error.status_code, "Refused"), error.detail)


async def _baton_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ServerError):
        return _message(request, 503, error.title, str(error))
    return _message(request, 409, "That cannot be done", str(error))


async def _rpc_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RPCError)  # noqa: S101 - registered for these
    if is_missing(error):
        return _message(request, 404, "There is no such run", f"{error.message}; it may have reached its retention")
    if error.status in UNREACHABLE_STATUSES or error.status is RPCStatusCode.NOT_FOUND:
        fault = get_sources(request).server_error(error)
        return _message(request, 503, fault.title, str(fault))
    return _message(request, 502, "The Temporal server refused the request", error.message)
