"""A run: how it stands, its relay, its steps, its baton and artifacts; two points of it side by side."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from baton import ArtifactRef, Baton, StepKind
from baton.client import RunRecord, RunStatus, Step, compare, describe, for_display, remarks, standing
from baton.console.content import value_content
from baton.console.relay import Message, relay, sent_by_step, works
from baton.console.rendering import artifact_file, enclosed, file, follow, named, render, run_path, sources_of
from baton.console.security import page
from baton.console.sources import Sources

_LOOKS_EVERY = 0.2
_MOST_HANDOFFS = 500  # steps: of longer runs the page does not look through all messages
_MOST_SHOWN_BYTES = 4 * 1024 * 1024
_MOST_ENCLOSED = 20


def asked_run(request: Request) -> tuple[str, str | None]:
    """Return the ids that the address names: of the workflow, and of one of its runs if it is not the newest."""
    return named(request, "id"), request.query_params.get("run") or None


async def run_of(request: Request) -> RunRecord:
    """Return the run that the address names."""
    return await sources_of(request).run(*asked_run(request))


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
    is_short = len(run.steps) <= _MOST_HANDOFFS
    sent = sent_by_step(run, (await sources.handoffs(run)).messages) if is_short else {}
    output = run.result.output if run.result else None
    return {
        "run": run,
        "waits": waits,
        "standing": standing(run, waits),
        "relay": relay(run, first, most, sent),
        "baton_fields": shown_fields(run.baton),
        "output": None if output is None else value_content(output),
        "sent": sent.get(0, []),
        "unread": not is_short,
        "ui": ui_link(sources, run),
    }


def shown_fields(baton: Baton) -> list[tuple[str, Any]]:
    """Return the fields of a baton that have something to show."""
    return [(name, value) for name, value in for_display(baton).to_json_object().items() if value]


async def show(request: Request) -> Response:
    """Show a run."""
    run, sources = await run_of(request), sources_of(request)
    given = request.query_params.get("from", "")
    first = int(given) if given.isdecimal() and given.isascii() and len(given) < 7 else None
    values = await run_values(sources, run, first)
    is_newest = request.query_params.get("run") is None
    cursor = await mark_of(sources, run.workflow_id, None if is_newest else run.run_id)
    under = run_path(run.workflow_id, None if is_newest else run.run_id, "/events", cursor=cursor)
    live = run.status is RunStatus.RUNNING
    return render(request, "run.html", {**values, "events": under if live else "", "page_size": 100})


async def step(request: Request) -> Response:
    """Show a step, opened."""
    run, sources = await run_of(request), sources_of(request)
    found = run.step(request.query_params.get("step", ""))
    messages = (await sources.handoffs(run)).messages
    [leg] = relay(run, run.steps.index(found), 1, sent_by_step(run, messages)).legs
    ids = {given.handoff_id for given in run.inputs if given.seq == found.seq}
    before, after = run.around.get(found.seq, (run.baton, None))
    made = _made(before, after)
    values = {
        **step_values(run, found, messages, before, after),
        "run": run,
        "leg": leg,
        "artifacts": [await enclosed(sources, ref) for ref in made[:_MOST_ENCLOSED]],
        "more_artifacts": len(made[_MOST_ENCLOSED:]),
        "records": await sources.records_of(run, {*ids, *(str(one["handoffId"]) for one in leg.handoffs)}),
    }
    return render(request, "step.html", values)


def step_values(
    run: RunRecord, step: Step, messages: Mapping[str, Message], before: Baton, after: Baton | None
) -> dict[str, Any]:
    """Return what a step shows, with the batons around it; the report shows the same."""
    done = works(run, step, messages)
    value = next((one.value for one in run.state.outcomes if one.seq == step.seq), None)
    is_alone = not done and step.kind is StepKind.STAGE and value is not None
    return {
        "step": step,
        "works": done,
        "answer": value_content(value) if is_alone else None,
        "remarks": [
            one
            for entry in run.state.entries
            if entry.seq == step.seq and entry.kind is not StepKind.EDIT
            for one in remarks(entry)
        ],
        "fields": compare(before, after) if after else [],
    }


def _made(before: Baton, after: Baton | None) -> list[ArtifactRef]:
    """Return the artifacts that a step made."""
    known = {(ref.id, ref.hash) for ref in before.artifacts}
    return [ref for ref in after.artifacts if (ref.id, ref.hash) not in known] if after else []


async def output(request: Request) -> Response:
    """Return what a run, or a stage of one of its steps, returned."""
    run, asked = await run_of(request), request.query_params
    value: Any = run.result.output if run.result else None
    name = run.workflow_id
    if seq := asked.get("step"):
        found = run.step(seq)
        outputs = {one.stage: one.output for _, one in run.accepted if one.seq == found.seq}
        value, name = outputs.get(asked.get("stage", "")), f"{run.workflow_id}-{found.seq}"
    if value is None:
        raise HTTPException(404, "there is no such output")
    is_text = isinstance(value, str)
    text = value if is_text else json.dumps(value, ensure_ascii=False, indent=2)
    return file(text.encode(), f"{name}.{'txt' if is_text else 'json'}")


async def difference(request: Request) -> Response:
    """Show two points side by side, of one run or of two."""
    run, asked = await run_of(request), request.query_params
    other_id = asked.get("other", "").strip()
    other = await sources_of(request).run(other_id, asked.get("other_run") or None) if other_id else run
    a, b = asked.get("a") or "start", asked.get("b") or "now"
    (left_title, left), (right_title, right) = run.point(a), other.point(b)
    fields = compare(left, right)
    differing = {one.name for one in fields}
    values = {
        "run": run,
        "other": other,
        "left": left_title,
        "right": right_title,
        "fields": fields,
        "alike": [one for one in shown_fields(left) if one[0] not in differing],
        "a": a,
        "b": b,
    }
    return render(request, "compare.html", values)


def _artifact_of(run: RunRecord, request: Request) -> ArtifactRef:
    """Return the artifact that an address names by id and hash, the newest without one; it may be dropped by now."""
    asked, sha256 = named(request, "artifact"), request.query_params.get("hash")
    batons = [run.state.initial, *(baton for _, baton in run.history)]
    known = [ref for baton in batons for ref in baton.artifacts if ref.id == asked and sha256 in (None, ref.hash)]
    if not known:
        raise HTTPException(404, "the run has no such artifact")
    return known[-1]


async def artifact(request: Request) -> Response:
    """Show an artifact."""
    run = await run_of(request)
    one = await enclosed(sources_of(request), _artifact_of(run, request), _MOST_SHOWN_BYTES)
    return render(request, "artifact.html", {"run": run, "one": one})


async def raw(request: Request) -> Response:
    """Return an artifact's bytes."""
    ref = _artifact_of(await run_of(request), request)
    return artifact_file(request, ref, await sources_of(request).artifact(ref.hash))


async def from_ui(request: Request) -> Response:
    """Lead from an address of the Temporal UI, whose host was replaced by the console's, to the run's page."""
    found = request.path_params
    return RedirectResponse(run_path(found["workflow_id"], found["run_id"]), status_code=303)


async def events(request: Request) -> Response:
    """Tell a run's page whenever it changes."""
    sources, asked = sources_of(request), asked_run(request)

    async def mark() -> str:
        return await sources.shared.read(("mark", *asked), _LOOKS_EVERY / 2, lambda: mark_of(sources, *asked))

    return follow(request, mark, every=_LOOKS_EVERY, is_over=is_over)


def is_over(mark: str) -> bool:
    """Return whether a run of this mark has ended."""
    return mark.rpartition(":")[2] not in ("RUNNING", "PAUSED")


async def mark_of(sources: Sources, workflow_id: str, run_id: str | None) -> str:
    """Return what changes whenever something happens to a run: its newest event, a retry, a pause, a newer run."""
    found = await describe(await sources.client(), workflow_id, run_id)
    tries = sum(one.attempt for one in found.details.pending_activities)
    pending = found.details.pending_workflow_task.attempt
    return f"{found.run_id}:{found.info.history_length}:{tries}:{pending}:{found.status}"


ROUTES = [
    page("/run", show),
    page("/run/step", step),
    page("/run/output", output),
    page("/run/compare", difference),
    page("/run/artifact", artifact),
    page("/run/artifact/raw", raw),
    page("/run/events", events),
    page("/namespaces/{namespace}/workflows/{workflow_id}/{run_id}/{rest:path}", from_ui),
    page("/namespaces/{namespace}/workflows/{workflow_id}/{run_id}", from_ui),
]
