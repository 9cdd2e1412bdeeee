"""Pages from templates that escape by default, in which text of agents is text."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import HTMLResponse

from baton import __version__
from baton.console.security import CSRF, Access, Viewer
from baton.console.words import FILTERS, shown

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
"""Where the stylesheet and the script are."""


def make_environment() -> Environment:
    """Return the environment of the console's templates."""
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
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
