"""A run as one file that reads without a server, prints well, and loads nothing."""

import base64
import hashlib
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from baton.client import RunRecord
from baton.console.pages_run import asked_run, run_values, step_values
from baton.console.relay import relay, sent_by_step
from baton.console.rendering import STATIC, enclosed, file, make_environment, run_path, sources_of
from baton.console.security import page
from baton.console.sources import Sources

_MOST_OPENED = 300
"""So many steps are opened in a report; the relay has all of them."""


async def report(sources: Sources, workflow_id: str, run_id: str | None = None) -> str:
    """Return a run as one self-contained HTML file.

    Args:
        sources: What it is read from.
        workflow_id: The workflow.
        run_id: One of its runs; the newest by default.

    Raises:
        HistoryError: The workflow is not a pipeline.
        temporalio.service.RPCError: There is no such run, or the server cannot be asked.
    """
    run = await sources.run(workflow_id, run_id)
    style = (STATIC / "console.css").read_text(encoding="utf-8")
    values = {
        **await run_values(sources, run, 0, len(run.steps) or 1),
        "ui": None,
        "style": style,
        "style_hash": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        "opened": await _opened(sources, run),
        "most": _MOST_OPENED,
        "enclosed": [await enclosed(sources, ref) for ref in run.baton.artifacts],
        "made": datetime.now(UTC),
        "run_path": run_path,
    }
    return make_environment().get_template("report.html").render(values)


async def _opened(sources: Sources, run: RunRecord) -> list[dict[str, Any]]:
    """Return the steps of a run, opened."""
    messages = (await sources.handoffs(run)).messages
    legs = relay(run, 0, _MOST_OPENED, sent_by_step(run, messages)).legs
    around = run.around
    return [
        {"leg": leg, **step_values(run, leg.step, messages, *around.get(leg.step.seq, (run.baton, None)))}
        for leg in legs
    ]


async def saved(request: Request) -> Response:
    """Return a run as one file to save."""
    workflow_id, run_id = asked_run(request)
    text = await report(sources_of(request), workflow_id, run_id)
    return file(text.encode(), f"{workflow_id}.html", media="text/html")


ROUTES = [page("/run/report", saved)]
