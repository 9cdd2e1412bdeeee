"""A run: how it stands, its relay, its baton and artifacts; two points of it side by side."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from temporalio.service import RPCError, RPCStatusCode

from baton import ArtifactRef, BatonError
from baton.client import RunRecord, RunStatus, describe
from baton.console.comparison import baton_at, compare
from baton.console.content import MOST_CHARACTERS, content_of, picture_type, value_content
from baton.console.live import Change, cursor_of, stream
from baton.console.relay import relay
from baton.console.rendering import render, run_path
from baton.console.security import page
from baton.console.sources import Sources
from baton.console.stages import works
from baton.console.standing import standing

_LOOKS_EVERY = 0.2
_MOST_HANDOFFS = 500  # steps: of longer runs the page does not look through all messages
_MOST_SHOWN_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class _Asked:
    """The run that an address names."""

    id: str
    run_id: str | None

    @classmethod
    def of(cls, request: Request) -> "_Asked":
        workflow_id = request.query_params.get("id", "")
        if not workflow_id:
            raise HTTPException(404, "the address names no run")
        return cls(workflow_id, request.query_params.get("run") or None)


def sources_of(request: Request) -> Sources:
    """Return what all pages read from."""
    sources: Sources = request.app.state.sources
    return sources


async def run_of(request: Request) -> RunRecord:
    """Return the run that the address names."""
    asked = _Asked.of(request)
    return await sources_of(request).run(asked.id, asked.run_id)


def ui_link(sources: Sources, run: RunRecord) -> str | None:
    """Return the address of a run in the Temporal UI."""
    places = sources.places
    if places.ui is None:
        return None
    parts = (places.namespace, run.workflow_id, run.run_id)
    namespace, workflow_id, run_id = (quote(one, safe="") for one in parts)
    return f"{places.ui.rstrip('/')}/namespaces/{namespace}/workflows/{workflow_id}/{run_id}/history"


async def run_values(sources: Sources, run: RunRecord, first: int | None, most: int = 100) -> dict[str, Any]:
    """Return what the page of a run shows; the report shows the same."""
    waits = await sources.waits(run)
    handed = {given.handoff_id for given in run.inputs}
    handoffs = await sources.handoffs(run) if len(run.steps) <= _MOST_HANDOFFS else None
    output = run.result.output if run.result else None
    return {
        "run": run,
        "waits": waits,
        "standing": standing(run, waits),
        "relay": relay(run, first, most),
        "baton_fields": [(name, value) for name, value in run.baton.to_json_object().items() if value],
        "output": None if output is None else value_content(output),
        "sent": [one for id, one in handoffs.messages.items() if id not in handed] if handoffs else [],
        "ui": ui_link(sources, run),
    }


async def show(request: Request) -> Response:
    """Show a run."""
    run, sources = await run_of(request), sources_of(request)
    given = request.query_params.get("from", "")
    first = int(given) if given.isdecimal() and given.isascii() and len(given) < 7 else None
    values = await run_values(sources, run, first)
    is_newest = request.query_params.get("run") is None
    cursor = await _mark(request, _Asked(run.workflow_id, None if is_newest else run.run_id))
    under = run_path(run.workflow_id, None if is_newest else run.run_id, "/events", cursor=cursor)
    live = run.status is RunStatus.RUNNING
    return render(request, "run.html", {**values, "events": under if live else "", "page_size": 100})


async def step(request: Request) -> Response:
    """Show a step, opened."""
    run, sources = await run_of(request), sources_of(request)
    found = run.step(request.query_params.get("step", ""))
    handoffs = await sources.handoffs(run)
    entries = [entry for entry in run.state.entries if entry.seq == found.seq]
    before = run.baton_before(found)
    is_done = any(entry.seq == found.seq for entry in run.state.entries)
    after = run.baton_after(found) if is_done else None
    values = {
        "run": run,
        "step": found,
        "works": works(run, found, handoffs.messages),
        "entries": entries,
        "fields": [one for one in compare(before, after) if one.differs] if after else [],
        "leg": next(one for one in relay(run, run.steps.index(found), 1).legs),
        "records": await sources.records_of(run, {given.handoff_id for given in run.inputs if given.seq == found.seq}),
        "ui": ui_link(sources, run),
    }
    return render(request, "step.html", values)


async def difference(request: Request) -> Response:
    """Show two points side by side, of one run or of two."""
    run, asked = await run_of(request), request.query_params
    other_id = asked.get("other", "").strip()
    other = await sources_of(request).run(other_id, asked.get("other_run") or None) if other_id else run
    left_title, left = baton_at(run, asked.get("a", "start"))
    right_title, right = baton_at(other, asked.get("b", "now"))
    values = {
        "run": run,
        "other": other,
        "left": left_title,
        "right": right_title,
        "fields": compare(left, right),
        "a": asked.get("a", "start"),
        "b": asked.get("b", "now"),
    }
    return render(request, "compare.html", values)


def _artifact_of(run: RunRecord, request: Request) -> ArtifactRef:
    """Return the artifact that an address names, by id and hash: a run may have had it and dropped it."""
    asked = request.query_params.get("artifact", "")
    known = {ref.id: ref for _, baton in run.history for ref in baton.artifacts} if run.steps else {}
    known |= {ref.id: ref for ref in run.state.initial.artifacts}
    if asked not in known:
        raise HTTPException(404, "the run has no artifact of this id")
    return known[asked]


async def artifact(request: Request) -> Response:
    """Show an artifact."""
    run = await run_of(request)
    ref = _artifact_of(run, request)
    data = await sources_of(request).artifact(ref.hash)
    large = len(data) > _MOST_SHOWN_BYTES
    content = None if large else content_of(data, type=ref.type, path=ref.path)
    return render(request, "artifact.html", {"run": run, "ref": ref, "content": content, "most": MOST_CHARACTERS})


async def raw(request: Request) -> Response:
    """Return an artifact's bytes: a picture to be shown, anything else to be saved and never opened here."""
    run = await run_of(request)
    ref = _artifact_of(run, request)
    data = await sources_of(request).artifact(ref.hash)
    picture = picture_type(data) if request.query_params.get("show") else None
    name = quote((ref.path or ref.id).rpartition("/")[2] or "artifact", safe="")
    headers = {"content-security-policy": "default-src 'none'; sandbox"}
    if picture is None:
        headers["content-disposition"] = f"attachment; filename*=UTF-8''{name}"
    return Response(data, media_type=picture or "application/octet-stream", headers=headers)


async def from_ui(request: Request) -> Response:
    """Lead from an address of the Temporal UI, whose host was replaced by the console's, to the run's page."""
    found = request.path_params
    return RedirectResponse(run_path(found["workflow_id"], found["run_id"]), status_code=303)


async def events(request: Request) -> Response:
    """Tell a run's page whenever it changes."""
    return stream(_changes(request, _Asked.of(request)))


async def _mark(request: Request, asked: _Asked) -> str:
    """Return what changes whenever something happens to a run: its newest event, a retry, a pause, a newer run."""
    found = await describe(await sources_of(request).client(), asked.id, asked.run_id)
    tries = sum(one.attempt for one in found.details.pending_activities)
    pending = found.details.pending_workflow_task.attempt
    return f"{found.run_id}:{found.info.history_length}:{tries}:{pending}:{found.status}"


async def _changes(request: Request, asked: _Asked) -> AsyncIterator[Change]:
    told, lost = cursor_of(request) or "", False
    while True:
        try:
            mark = await _mark(request, asked)
        except (RPCError, BatonError) as error:
            if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND and not lost:
                return
            if not lost:
                yield Change("lost", told, getattr(error, "message", None) or str(error))
            lost = True
        else:
            over = mark.rpartition(":")[2] not in ("RUNNING", "PAUSED")
            if lost or mark != told or over:
                yield Change("ended" if over else "changed", mark)
            if over:
                return
            told, lost = mark, False
        await asyncio.sleep(_LOOKS_EVERY)


ROUTES = [
    page("/run", show),
    page("/run/step", step),
    page("/run/compare", difference),
    page("/run/artifact", artifact),
    page("/run/artifact/raw", raw),
    page("/run/events", events),
    page("/namespaces/{namespace}/workflows/{workflow_id}/{run_id}/{rest:path}", from_ui),
    page("/namespaces/{namespace}/workflows/{workflow_id}/{run_id}", from_ui),
]
