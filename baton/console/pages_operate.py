"""Starting, rolling back and forking runs, after a preview of what follows."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4
from weakref import WeakValueDictionary

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from baton import BatonError, HistoryError, PatchError, PipelineError, PipelineInput, StepKind
from baton.client import (
    ListedRun,
    RollbackPoint,
    RunFilter,
    RunRecord,
    Step,
    StepStatus,
    describe,
    find_point,
    fork,
    forked_input,
    list_runs,
    roll_back,
)
from baton.console.forms import NOTHING_SENT, SchemaForm, Sent, fault_of_reason, parsed_json
from baton.console.rendering import named, render, run_path, sources_of
from baton.console.security import Role, action, page, viewer_of
from baton.console.sources import Sources
from baton.wire.json_values import digest
from baton.wire.money import parse_amount
from baton.wire.text import describe_faults

MENU = ("/start", "Start")

_MOST_RUNS = 500
_DEFAULT_TASK_QUEUE = "baton"
_MEMBERS_OF_A_BATON = ("constraints", "work_scope", "acceptance", "open_questions")
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


def _turn(form: str) -> asyncio.Lock:
    """Return the lock of a form: sent twice at once, it is done once."""
    return _turns.setdefault(form, asyncio.Lock())


def rollback_path(workflow_id: str, to: int | None = None) -> str:
    """Return the path of the page on which a run is rolled back."""
    return f"/rollback?{urlencode({'run': workflow_id} | ({'to': to} if to else {}))}"


def fork_path(workflow_id: str, at: int | None = None) -> str:
    """Return the path of the page on which a run is forked."""
    return f"/fork?{urlencode({'run': workflow_id} | ({'at': at} if at else {}))}"


def undone_approvals(point: RollbackPoint) -> list[Step]:
    """Return the decisions that a roll-back undoes: they are asked for again."""
    return [one for one in point.again if one.kind is StepKind.APPROVAL and one.approved is not None]


def preview_mark(point: RollbackPoint) -> str:
    """Return what a roll-back is bound to: the run that ends, where it goes back to, what it stops and undoes.

    Steps that only went on meanwhile do not change it, or a busy run could never be rolled back.
    """
    undone = [one.seq for one in undone_approvals(point)]
    return digest([point.newest.run_id, point.run.run_id, point.event, point.children, undone])[7:39]


async def _run(request: Request) -> RunRecord:
    return await sources_of(request).run(named(request, "run"))


async def rollback(request: Request) -> Response:
    """Show what a roll-back would do; without a step, which there are."""
    return await _rollback_page(request, await _run(request))


async def _rollback_page(request: Request, run: RunRecord, sent: Sent = NOTHING_SENT) -> Response:
    to, given = request.query_params.get("to", ""), sent.given
    point, impossible = None, ""
    if to:
        try:
            point = await find_point(await sources_of(request).client(), run.workflow_id, to)
        except HistoryError as error:
            impossible = str(error)
    mark = preview_mark(point) if point else ""
    values: dict[str, Any] = {
        "run": run,
        "point": point,
        "step": to,
        "impossible": impossible,
        "undone": undone_approvals(point) if point else [],
        "mark": mark,
        **vars(sent),
        "why": given.get("why", ""),
        "changed": bool(given.get("mark") and given.get("mark") != mark),
        "action": rollback_path(run.workflow_id, point.step.seq if point else None),
        "fork_path": fork_path,
    }
    return render(request, "rollback.html", values, status=sent.status)


async def do_rollback(request: Request, given: Mapping[str, str]) -> Response:
    """Roll back, if what was shown is still what it does."""
    run, client, who = await _run(request), await sources_of(request).client(), viewer_of(request).name
    to, why = request.query_params.get("to", ""), given.get("why", "").strip()
    if not to:
        raise HTTPException(400, "the address names no step")
    if fault := fault_of_reason(why):
        return await _rollback_page(request, run, Sent(given, {"why": fault}))
    async with _turn(f"rollback {run.workflow_id}"):
        try:
            point = await find_point(client, run.workflow_id, to)
            if preview_mark(point) != given.get("mark"):
                told = _already(point)
                return await _rollback_page(request, run, Sent(given, refused=told))
            done = await roll_back(client, run.workflow_id, to, by=who, why=why)
        except (PipelineError, HistoryError) as error:
            return await _rollback_page(request, run, Sent(given, refused=str(error)))
    return RedirectResponse(run_path(run.workflow_id, done.run_id), status_code=303)


def _already(point: RollbackPoint) -> str:
    """Return that a preview is out of date, and what happened meanwhile if that is known."""
    meanwhile = f" ({point.newest.notes[-1].text})" if point.newest.resets else ""
    return f"the run has changed since you looked{meanwhile}; nothing was rolled back. See what it would do now"


async def fork_page(request: Request) -> Response:
    """Show what a fork would take over; without a step, which there are."""
    return await _fork_page(request, await _run(request))


async def _fork_page(request: Request, run: RunRecord, sent: Sent = NOTHING_SENT) -> Response:
    at, step, impossible, kept = request.query_params.get("at", ""), None, "", []
    if at:
        try:
            step = run.step(at)
            forked_input(run, step, patch=None, by="", why="")
            kept = [one for one in run.steps if one.seq < step.seq]
        except HistoryError as error:
            impossible = str(error)
    new_id = f"{run.workflow_id}-fork-{uuid4().hex[:8]}"
    values: dict[str, Any] = {
        "run": run,
        "step": step if not impossible else None,
        "at": at,
        "kept": kept,
        "approvals": [one for one in kept if one.kind is StepKind.APPROVAL and one.approved is not None],
        "again": [one for one in run.steps if step is not None and one.seq >= step.seq],
        "baton": run.baton_before(step).to_json_object() if step is not None and not impossible else {},
        "impossible": impossible,
        **vars(sent),
        "given": {"why": "", "patch": "", "id": new_id, **sent.given},
        "action": fork_path(run.workflow_id, step.seq if step else None),
        "check": f"/handoff/check?{urlencode({'run': run.workflow_id, 'at': step.seq if step else ''})}",
        "running": StepStatus.RUNNING,
    }
    return render(request, "fork.html", values, status=sent.status)


async def do_fork(request: Request, given: Mapping[str, str]) -> Response:
    """Fork; the same form sent again leads to the run that it started."""
    run, client, who = await _run(request), await sources_of(request).client(), viewer_of(request).name
    at, why, new_id = request.query_params.get("at", ""), given.get("why", "").strip(), given.get("id", "").strip()
    faults = {"why": fault} if (fault := fault_of_reason(why)) else {}
    if not new_id:
        faults["id"] = "give the new run an id"
    patch = None
    if given.get("patch", "").strip():
        try:
            patch = parsed_json(given["patch"])
            if not isinstance(patch, dict):
                faults["patch"] = "a patch is a JSON object"
        except ValueError as error:
            faults["patch"] = str(error)
    if faults:
        return await _fork_page(request, run, Sent(given, faults=faults))
    async with _turn(f"fork {new_id}"):
        if await is_started(client, new_id):
            return await _fork_there(request, client, run, new_id, given)
        try:
            await fork(client, run.workflow_id, at, by=who, why=why, patch=patch or None, new_id=new_id)
        except WorkflowAlreadyStartedError:
            return await _fork_there(request, client, run, new_id, given)
        except (PatchError, PipelineError, HistoryError) as error:
            return await _fork_page(request, run, Sent(given, refused=str(error)))
    return RedirectResponse(run_path(new_id), status_code=303)


async def _fork_there(
    request: Request, client: Client, run: RunRecord, new_id: str, given: Mapping[str, str]
) -> Response:
    """Lead to the run that has the id, if it is a fork of this one; else say that the id is taken."""
    there: RunRecord = await sources_of(request).run(new_id)
    if there.start.origin is not None and there.start.origin.workflow_id == run.workflow_id:
        return RedirectResponse(run_path(new_id), status_code=303)
    return await _fork_page(request, run, Sent(given, faults={"id": "another run has this id"}))


async def is_started(client: Client, workflow_id: str) -> bool:
    """Return whether there is a run of an id."""
    try:
        await describe(client, workflow_id)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


def start_path(pipeline: str) -> str:
    """Return the path of the page on which a pipeline is started."""
    return f"/start?{urlencode({'pipeline': pipeline})}"


async def known_pipelines(client: Client) -> dict[str, ListedRun]:
    """Return the pipelines of the namespace's newest runs, each with its newest run."""
    runs = await list_runs(client, RunFilter(children=True), _MOST_RUNS)
    found: dict[str, ListedRun] = {}
    for run in sorted(runs, key=lambda one: one.began, reverse=True):
        found.setdefault(run.pipeline, run)
    return dict(sorted(found.items()))


def input_schema(like: PipelineInput | None) -> dict[str, Any]:
    """Return the schema of a form for a pipeline's input, with the parameters and inputs of a run that had some.

    It has the members that people set: the others belong to the protocol.
    """
    whole = PipelineInput.model_json_schema()["properties"]
    params = _members(like.params if like else {}, "Parameters", whole["params"])
    inputs = _members(like.inputs if like else {}, "Inputs", whole["inputs"])
    lines = {"type": "array", "items": {"type": "string"}}
    baton = {name: {**lines, "title": name.replace("_", " ").capitalize()} for name in _MEMBERS_OF_A_BATON}
    return {
        "properties": {
            "goal": {**whole["goal"], "description": "The objective, in one sentence."},
            "params": params,
            "inputs": inputs,
            "baton": {"properties": baton, "title": "Baton"},
        },
        "required": ["goal"],
    }


def _members(seen: Mapping[str, Any], title: str, general: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of named values as they were seen; of none, any JSON."""
    if not seen:
        return {**general, "title": title, "description": "A JSON object, by name."}
    members: dict[str, Any] = {}
    for name, value in seen.items():
        kind = _TYPES.get(type(value))
        if kind is None and isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            members[name] = {"type": "array", "items": {"type": "string"}, "title": name}
        else:
            members[name] = {"title": name, **({"type": kind} if kind else {})}
        if isinstance(value, str) and ("\n" in value or len(value) > 80):
            members[name]["maxLength"] = 1_000_000
    return {"properties": members, "title": title}


async def start(request: Request) -> Response:
    """Show the pipelines, or the form of one."""
    return await _page(request)


async def _like(sources: Sources, known: Mapping[str, ListedRun], pipeline: str) -> RunRecord | None:
    """Return the newest run of a pipeline, if it can be read."""
    run = known.get(pipeline)
    if run is None:
        return None
    try:
        return await sources.run(run.workflow_id, run.run_id)
    except BatonError:
        return None


async def _page(request: Request, sent: Sent = NOTHING_SENT) -> Response:
    sources = sources_of(request)
    client = await sources.client()
    pipeline = request.query_params.get("pipeline", "").strip()
    known = await known_pipelines(client)
    like = await _like(sources, known, pipeline)
    form = _form(like)
    queue = (await describe(client, like.workflow_id, like.run_id)).task_queue if like else _DEFAULT_TASK_QUEUE
    new_id = f"{_slug(pipeline)}-{uuid4().hex[:8]}"
    values = {
        "known": known,
        "pipeline": pipeline,
        "like": like,
        "fields": form.fields(sent.given, sent.faults),
        **vars(sent),
        "given": {"id": new_id, "budget": "", "task_queue": queue, **sent.given},
        "action": start_path(pipeline),
    }
    return render(request, "start.html", values, status=sent.status)


def _form(like: RunRecord | None) -> SchemaForm:
    return SchemaForm(input_schema(like.start if like else None), "input")


async def do_start(request: Request, given: Mapping[str, str]) -> Response:
    """Start a run; the same form sent again leads to the run that it started."""
    sources = sources_of(request)
    client = await sources.client()
    pipeline = request.query_params.get("pipeline", "").strip()
    like = await _like(sources, await known_pipelines(client), pipeline)
    filled = _form(like).filled(given)
    faults = dict(filled.faults)
    workflow_id, queue = given.get("id", "").strip(), given.get("task_queue", "").strip()
    for name, value in (("id", workflow_id), ("task_queue", queue), ("pipeline", pipeline)):
        if not value:
            faults[name] = "fill this in"
    members = dict(filled.value)
    if given.get("budget", "").strip():
        try:
            members["budget"] = {"initial_micro_usd": parse_amount(given["budget"])}
        except ValueError as error:
            faults["budget"] = str(error)
    if faults:
        return await _page(request, Sent(given, faults=faults))
    try:
        made = PipelineInput.model_validate(members)
        made.first_baton()
    except ValidationError as error:
        return await _page(request, Sent(given, refused=describe_faults(error)))
    async with _turn(f"start {workflow_id}"):
        try:
            await client.start_workflow(
                pipeline,
                made,
                id=workflow_id,
                task_queue=queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                static_summary=f"started in the console by {viewer_of(request).name}"[:200],
            )
        except WorkflowAlreadyStartedError:
            there = await sources.run(workflow_id)
            if there.pipeline != pipeline or there.start.goal != made.goal or there.start.params != made.params:
                return await _page(request, Sent(given, faults={"id": "another run has this id"}))
    return RedirectResponse(run_path(workflow_id), status_code=303)


def _slug(pipeline: str) -> str:
    """Return a pipeline's name as the beginning of a workflow id."""
    signs = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in pipeline.lower())
    return signs.strip("-")[:80] or "run"


ROUTES = [
    page("/start", start, Role.OPERATOR),
    action("/start", do_start, Role.OPERATOR),
    page("/rollback", rollback),
    action("/rollback", do_rollback, Role.OPERATOR),
    page("/fork", fork_page),
    action("/fork", do_fork, Role.OPERATOR),
]
