"""A run as one self-contained HTML file."""

import asyncio
import base64
import hashlib
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from temporalio.service import RPCError

from baton.client import RunRecord, standing
from baton.console.pages_lab import cases_of
from baton.console.pages_run import read_layout, requested_ids, run_values, step_values
from baton.console.relay import Node, Relay, handoffs_by_step, make_relay
from baton.console.rendering import STATIC, file_response, get_sources, load_artifact, make_environment, run_path
from baton.console.security import page
from baton.console.sources import Sources
from baton.errors import BatonError

_MAX_STEPS = 300
"""The maximum number of steps shown in detail; the relay lists all."""
_MAX_LEGS = 500
_MAX_INSIDE, _MAX_INSIDE_STEPS, _MAX_DEPTH = 30, 50, 3  # runs inside the run, their steps, how deep they are nested


async def report(sources: Sources, workflow_id: str, run_id: str | None = None) -> str:
    """Return a run as one self-contained HTML file.

    Args:
        sources: Where to read the run from.
        workflow_id: The workflow's id.
        run_id: The run's id; the newest run by default.

    Raises:
        HistoryError: The workflow is not a pipeline.
        temporalio.service.RPCError: The run does not exist, or the server is unreachable.
    """
    run = await sources.run(workflow_id, run_id)
    style = (STATIC / "console.css").read_text(encoding="utf-8")
    values = await run_values(sources, run, 0, len(run.steps) or 1)
    values = {
        **values,
        "max_legs": _MAX_LEGS,
        "nodes": await _read_inside(sources, values["relay"], [_MAX_INSIDE]),
        "ui": None,
        "style": style,
        "style_hash": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        "opened": await _step_details(sources, run),
        "most": _MAX_STEPS,
        "enclosed": [await load_artifact(sources, ref) for ref in run.baton.artifacts],
        "made": datetime.now(UTC),
        "lab": await asyncio.to_thread(cases_of, sources.lab, workflow_id),
        "run_path": run_path,
    }
    return make_environment().get_template("report.html").render(values)


async def _read_inside(sources: Sources, relay: Relay, left: list[int], depth: int = 1) -> dict[str, Node]:
    """Return the runs inside a run by workflow id, as many as are left; those that the server lost are left out."""
    inside: list[tuple[str, str | None]] = [child for hop in relay.hops for child in hop.children]
    inside += [(str(sent["audience"]), None) for hop in relay.hops for sent in hop.handoffs if sent.get("audience")]
    nodes: dict[str, Node] = {}
    for workflow_id, run_id in inside:
        if left[0] <= 0 or depth > _MAX_DEPTH:
            break
        left[0] -= 1
        try:
            run = await sources.run(workflow_id, run_id)
        except (RPCError, BatonError):
            continue
        own = make_relay(read_layout(sources, run), limit=_MAX_INSIDE_STEPS)
        below = await _read_inside(sources, own, left, depth + 1)
        nodes[workflow_id] = Node(run, standing(run, await sources.waits(run)), own, below)
    return nodes


async def _step_details(sources: Sources, run: RunRecord) -> list[dict[str, Any]]:
    """Return the template values of a run's steps."""
    messages = (await sources.handoffs(run)).messages
    layout = read_layout(sources, run)
    hops = make_relay(layout, 0, _MAX_STEPS, handoffs_by_step(run, messages)).hops
    around = run.around
    return [
        {"hop": hop, **step_values(layout, hop.step, messages, *around.get(hop.step.seq, (run.baton, None)))}
        for hop in hops
    ]


async def download(request: Request) -> Response:
    """Return the report as a download."""
    workflow_id, run_id = requested_ids(request)
    text = await report(get_sources(request), workflow_id, run_id)
    return file_response(text.encode(), f"{workflow_id}.html", media="text/html")


ROUTES = [page("/run/report", download)]
