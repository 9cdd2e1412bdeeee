"""Pages of a run: its relay, steps, baton and artifacts, and the comparison of two points."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from baton import ArtifactRef, Baton, StepKind
from baton.client import RunRecord, RunStatus, Step, standing
from baton.client.faces import compare, describe, for_display, remarks
from baton.console.content import value_content
from baton.console.pages_inbox import question_path
from baton.console.relay import Layout, Message, Node, collect_work, handoffs_by_step, make_layout, make_relay
from baton.console.rendering import (
    artifact_file,
    file_response,
    get_sources,
    load_artifact,
    number_param,
    query_param,
    render,
    run_path,
    stream_changes,
)
from baton.console.security import page
from baton.console.sources import Sources

PAGE_SIZE = 100
"""How many steps a page of a run shows."""
_POLL_SECONDS = 0.2
_MAX_STEPS_WITH_HANDOFFS = 500  # the page of a longer run does not read all messages
_MAX_LEGS, _FEW_LEGS = 100, 10  # of a step, on a page with few or many of them
_MAX_PAGE_LEGS = 1_000
_MAX_SHOWN_BYTES = 4 * 1024 * 1024
_MAX_ARTIFACTS = 20
_MAX_PART_STEPS = 50


def requested_ids(request: Request) -> tuple[str, str | None]:
    """Return the workflow id from the address, and the run id unless it is the newest run."""
    return query_param(request, "id"), request.query_params.get("run") or None


async def read_requested_run(request: Request) -> RunRecord:
    """Return the run that the address names."""
    return await get_sources(request).run(*requested_ids(request))


def ui_link(sources: Sources, run: RunRecord) -> str | None:
    """Return the address of a run in the Temporal UI."""
    ui = sources.temporal_ui
    if ui.address is None:
        return None
    parts = (ui.namespace, run.workflow_id, run.run_id)
    namespace, workflow_id, run_id = (quote(part, safe="") for part in parts)
    return f"{ui.address.rstrip('/')}/namespaces/{namespace}/workflows/{workflow_id}/{run_id}/history"


def read_layout(sources: Sources, run: RunRecord) -> Layout:
    """Return the layout of a run, made once for as long as the run does not change, and each second while it runs."""
    second = None if run.ended else run.now.replace(microsecond=0)
    return sources.keep(("layout", run.run_id), (run.last_event, second), lambda: make_layout(run))


async def run_values(
    sources: Sources, run: RunRecord, first: int | None, limit: int = PAGE_SIZE, *, only_failed: bool = False
) -> dict[str, Any]:
    """Return the template values of a run, for its page and its report."""
    waits = await sources.waits(run)
    is_short = len(run.steps) <= _MAX_STEPS_WITH_HANDOFFS
    sent = handoffs_by_step(run, (await sources.handoffs(run)).messages) if is_short else {}
    output = run.result.output if run.result else None
    relay = make_relay(read_layout(sources, run), first, limit, sent, only_failed=only_failed)
    return {
        "run": run,
        "waits": waits,
        "standing": standing(run, waits),
        "relay": relay,
        "max_legs": _MAX_LEGS if sum(len(hop.legs) for hop in relay.hops) <= _MAX_PAGE_LEGS else _FEW_LEGS,
        "baton_fields": nonempty_fields(run.baton),
        "output": None if output is None else value_content(output),
        "unread": not is_short,
        "ui": ui_link(sources, run),
    }


def nonempty_fields(baton: Baton) -> list[tuple[str, Any]]:
    """Return the non-empty fields of a baton."""
    return [(name, value) for name, value in for_display(baton).to_json_object().items() if value]


async def show(request: Request) -> Response:
    """Show a run; or lead to a step of it, on the page where it is."""
    run, sources, params = await read_requested_run(request), get_sources(request), request.query_params
    if reference := params.get("at", "").strip():
        step = run.step(reference)
        place: dict[str, Any] = {"from": max(0, run.steps.index(step) - PAGE_SIZE // 2)}
        path = run_path(run.workflow_id, params.get("run"), **place)
        return RedirectResponse(f"{path}#step-{step.seq}", status_code=303)
    first = number_param(request, "from", None, least=0)
    only_failed = params.get("only") == "failed"
    values = await run_values(sources, run, first, only_failed=only_failed)
    is_newest = params.get("run") is None
    cursor = await run_mark(sources, run.workflow_id, None if is_newest else run.run_id)
    events_path = run_path(run.workflow_id, None if is_newest else run.run_id, "/events", cursor=cursor)
    live = run.status is RunStatus.RUNNING
    asked = [(question.title, question_path(run.workflow_id, question)) for question in run.questions] if live else []
    more = {"events": events_path if live else "", "page_size": PAGE_SIZE, "only_failed": only_failed, "asked": asked}
    return render(request, "run.html", {**values, **more})


async def part(request: Request) -> Response:
    """Show a run in short, inside the page of the run that started it or handed it work."""
    run, sources = await read_requested_run(request), get_sources(request)
    relay = make_relay(read_layout(sources, run), limit=_MAX_PART_STEPS)
    node = Node(run, standing(run, await sources.waits(run)), relay)
    return render(request, "part.html", {"node": node})


async def step(request: Request) -> Response:
    """Show a step in detail."""
    run, sources = await read_requested_run(request), get_sources(request)
    requested_step = run.step(request.query_params.get("step", ""))
    messages = (await sources.handoffs(run)).messages
    layout = read_layout(sources, run)
    [hop] = make_relay(layout, run.steps.index(requested_step), 1, handoffs_by_step(run, messages)).hops
    ids = {stage_input.handoff_id for stage_input in run.inputs if stage_input.seq == requested_step.seq}
    baton_before, baton_after = run.around.get(requested_step.seq, (run.baton, None))
    new_artifacts = _new_artifacts(baton_before, baton_after)
    values = {
        **step_values(layout, requested_step, messages, baton_before, baton_after),
        "run": run,
        "hop": hop,
        "artifacts": [await load_artifact(sources, ref) for ref in new_artifacts[:_MAX_ARTIFACTS]],
        "more_artifacts": len(new_artifacts[_MAX_ARTIFACTS:]),
        "records": await sources.handoff_records(run, {*ids, *(str(message["handoffId"]) for message in hop.handoffs)}),
    }
    return render(request, "step.html", values)


def step_values(
    layout: Layout, step: Step, messages: Mapping[str, Message], before: Baton, after: Baton | None
) -> dict[str, Any]:
    """Return the template values of a step, given the batons before and after it."""
    run, stage_works = layout.run, collect_work(layout, step, messages)
    value = next((outcome.value for outcome in run.state.outcomes if outcome.seq == step.seq), None)
    is_alone = not stage_works and step.kind is StepKind.STAGE and value is not None
    return {
        "step": step,
        "works": stage_works,
        "answer": value_content(value) if is_alone else None,
        "remarks": [
            remark
            for entry in run.state.entries
            if entry.seq == step.seq and entry.kind is not StepKind.EDIT
            for remark in remarks(entry)
        ],
        "fields": compare(before, after) if after else [],
    }


def _new_artifacts(before: Baton, after: Baton | None) -> list[ArtifactRef]:
    """Return the artifacts that a step added."""
    known_refs = {(ref.id, ref.hash) for ref in before.artifacts}
    return [ref for ref in after.artifacts if (ref.id, ref.hash) not in known_refs] if after else []


async def output(request: Request) -> Response:
    """Return the output of a run, or of a stage, as a download."""
    run, params = await read_requested_run(request), request.query_params
    value: Any = run.result.output if run.result else None
    name = run.workflow_id
    if seq := params.get("step"):
        number = run.step(seq).seq
        outputs = {returned.title: returned.output for _, returned in run.accepted if returned.seq == number}
        value, name = outputs.get(params.get("stage", "")), f"{run.workflow_id}-{number}"
    if value is None:
        raise HTTPException(404, "there is no such output")
    is_text = isinstance(value, str)
    text = value if is_text else json.dumps(value, ensure_ascii=False, indent=2)
    return file_response(text.encode(), f"{name}.{'txt' if is_text else 'json'}")


async def difference(request: Request) -> Response:
    """Show two points of one or two runs side by side."""
    run, params = await read_requested_run(request), request.query_params
    other_id = params.get("other", "").strip()
    other = await get_sources(request).run(other_id, params.get("other_run") or None) if other_id else run
    a, b = params.get("a") or "start", params.get("b") or "now"
    (left_title, left), (right_title, right) = run.point(a), other.point(b)
    fields = compare(left, right)
    differing = {difference.name for difference in fields}
    values = {
        "run": run,
        "other": other,
        "left": left_title,
        "right": right_title,
        "fields": fields,
        "alike": [(name, value) for name, value in nonempty_fields(left) if name not in differing],
        "a": a,
        "b": b,
    }
    return render(request, "compare.html", values)


def _find_artifact(run: RunRecord, request: Request) -> ArtifactRef:
    """Return the artifact named by id and hash, or the newest with the id. A later baton may have dropped it."""
    artifact_id, sha256 = query_param(request, "artifact"), request.query_params.get("hash")
    batons = [run.state.initial, *(baton for _, baton in run.history)]
    known_refs = [*run.artifacts, *(ref for baton in batons for ref in baton.artifacts)]
    refs = [ref for ref in known_refs if ref.id == artifact_id]
    matches = [ref for ref in refs if sha256 in (None, ref.hash)]
    if not matches:
        raise HTTPException(404, "the run has no such artifact")
    return matches[-1]


async def artifact(request: Request) -> Response:
    """Show an artifact."""
    run = await read_requested_run(request)
    view = await load_artifact(get_sources(request), _find_artifact(run, request), _MAX_SHOWN_BYTES)
    return render(request, "artifact.html", {"run": run, "artifact_view": view})


async def raw(request: Request) -> Response:
    """Return an artifact's bytes."""
    ref = _find_artifact(await read_requested_run(request), request)
    return artifact_file(request, ref, await get_sources(request).artifact(ref.hash))


async def redirect_ui_path(request: Request) -> Response:
    """Redirect a path of the Temporal UI to the run's page, so that replacing the host in a link works."""
    params = request.path_params
    return RedirectResponse(run_path(params["workflow_id"], params["run_id"]), status_code=303)


async def events(request: Request) -> Response:
    """Stream an event whenever the run changes."""
    sources, ids = get_sources(request), requested_ids(request)

    async def mark() -> str:
        return await sources.shared.read(("mark", *ids), _POLL_SECONDS / 2, lambda: run_mark(sources, *ids))

    return stream_changes(request, mark, every=_POLL_SECONDS, has_ended=has_ended)


def has_ended(mark: str) -> bool:
    """Return whether the run with this mark has ended."""
    return mark.rpartition(":")[2] not in ("RUNNING", "PAUSED")


async def run_mark(sources: Sources, workflow_id: str, run_id: str | None) -> str:
    """Return a text that changes with every event, retry or pause of a run, and with a newer run."""
    execution = await describe(await sources.client(), workflow_id, run_id)
    attempts = sum(activity.attempt for activity in execution.details.pending_activities)
    pending = execution.details.pending_workflow_task.attempt
    return f"{execution.run_id}:{execution.info.history_length}:{attempts}:{pending}:{execution.status}"


ROUTES = [
    page("/run", show),
    page("/run/part", part),
    page("/run/step", step),
    page("/run/output", output),
    page("/run/compare", difference),
    page("/run/artifact", artifact),
    page("/run/artifact/raw", raw),
    page("/run/events", events),
    page("/namespaces/{namespace}/workflows/{workflow_id}/{run_id}/{rest:path}", redirect_ui_path),
    page("/namespaces/{namespace}/workflows/{workflow_id}/{run_id}", redirect_ui_path),
]
