"""A run as one self-contained HTML file."""

import base64
import hashlib
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from baton.client import RunRecord
from baton.console.pages_run import requested_ids, run_values, step_values
from baton.console.relay import handoffs_by_step, make_relay
from baton.console.rendering import STATIC, file_response, get_sources, load_artifact, make_environment, run_path
from baton.console.security import page
from baton.console.sources import Sources

_MAX_STEPS = 300
"""The maximum number of steps shown in detail; the relay lists all."""


async def report(sources: Sources, workflow_id: str, run_id: str | None = None) -> str:
    """Return a run as one self-contained HTML file.

    Args:
        sources: Where to read the run from.
        workflow_id: The workflow's id.
        run_id: The run's id; the newest run by default.

    Raises:
        HistoryError: The workflow is not a pipeline.
        temporalio.service.RPCError: There is no such run, or the server is unreachable.
    """
    run = await sources.run(workflow_id, run_id)
    style = (STATIC / "console.css").read_text(encoding="utf-8")
    values = {
        **await run_values(sources, run, 0, len(run.steps) or 1),
        "ui": None,
        "style": style,
        "style_hash": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        "opened": await _step_details(sources, run),
        "most": _MAX_STEPS,
        "enclosed": [await load_artifact(sources, ref) for ref in run.baton.artifacts],
        "made": datetime.now(UTC),
        "run_path": run_path,
    }
    return make_environment().get_template("report.html").render(values)


async def _step_details(sources: Sources, run: RunRecord) -> list[dict[str, Any]]:
    """Return the template values of a run's steps."""
    messages = (await sources.handoffs(run)).messages
    hops = make_relay(run, 0, _MAX_STEPS, handoffs_by_step(run, messages)).hops
    around = run.around
    return [
        {"hop": hop, **step_values(run, hop.step, messages, *around.get(hop.step.seq, (run.baton, None)))}
        for hop in hops
    ]


async def download(request: Request) -> Response:
    """Return the report as a download."""
    workflow_id, run_id = requested_ids(request)
    text = await report(get_sources(request), workflow_id, run_id)
    return file_response(text.encode(), f"{workflow_id}.html", media="text/html")


ROUTES = [page("/run/report", download)]
