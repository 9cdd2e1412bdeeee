"""Starting a run: a form made from the schema of a pipeline's input.

The pipelines are those that the namespace has run; the newest run of each tells its task queue and what parameters it
takes. Another one can be named.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from baton import BatonError, PipelineInput
from baton.client import ListedRun, RunFilter, RunRecord, describe, list_runs
from baton.console.forms import SchemaForm
from baton.console.rendering import render, run_path
from baton.console.security import Role, action, page, viewer_of
from baton.console.sources import Sources
from baton.wire.money import amount_of
from baton.wire.text import mismatch

MENU = ("/start", "Start")

_MOST_RUNS = 500
_DEFAULT_TASK_QUEUE = "baton"
_MEMBERS_OF_A_BATON = ("constraints", "work_scope", "acceptance", "open_questions")
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)


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


async def _page(
    request: Request,
    *,
    given: Mapping[str, str] | None = None,
    faults: Mapping[str, str] | None = None,
    refused: str = "",
) -> Response:
    sources: Sources = request.app.state.sources
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
        "fields": form.fields(given, faults),
        "given": {"id": new_id, "budget": "", "task_queue": queue, **(given or {})},
        "faults": faults or {},
        "refused": refused,
        "action": start_path(pipeline),
    }
    return render(request, "start.html", values, status=409 if refused or faults else 200)


def _form(like: RunRecord | None) -> SchemaForm:
    return SchemaForm(input_schema(like.start if like else None), "input")


async def do_start(request: Request, given: Mapping[str, str]) -> Response:
    """Start a run; the same form sent again leads to the run that it started."""
    sources: Sources = request.app.state.sources
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
            members["budget"] = {"initial_micro_usd": amount_of(given["budget"])}
        except ValueError as error:
            faults["budget"] = str(error)
    if faults:
        return await _page(request, given=given, faults=faults)
    try:
        made = PipelineInput.model_validate(members)
        made.first_baton()
    except ValidationError as error:
        return await _page(request, given=given, refused=mismatch(error))
    async with _turns[workflow_id]:
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
                return await _page(request, given=given, faults={"id": "another run has this id"})
    return RedirectResponse(run_path(workflow_id), status_code=303)


def _slug(pipeline: str) -> str:
    """Return a pipeline's name as the beginning of a workflow id."""
    signs = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in pipeline.lower())
    return signs.strip("-")[:80] or "run"


ROUTES = [page("/start", start, Role.OPERATOR), action("/start", do_start, Role.OPERATOR)]
