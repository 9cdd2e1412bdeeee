"""Pages that start, roll back and fork runs, with a preview."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4
from weakref import WeakValueDictionary

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from temporalio.client import Client
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from baton import BatonError, HistoryError, PatchError, PipelineError, PipelineInput
from baton.client import (
    DEFAULT_TASK_QUEUE,
    Cancel,
    Fork,
    ListedRun,
    Operation,
    Pause,
    Preview,
    Role,
    RollBack,
    RunFilter,
    RunRecord,
    Start,
    Steer,
    Unpause,
    list_runs,
)
from baton.client.faces import describe
from baton.console.forms import NO_SUBMISSION, SchemaForm, Submission, check_reason, parse_json
from baton.console.rendering import get_sources, query_param, render, run_path
from baton.console.security import action, get_viewer, page
from baton.wire.json_values import as_json
from baton.wire.money import parse_amount, to_usd
from baton.wire.text import describe_faults

MENU = ("/start", "Start")

_MAX_RUNS = 500
_BATON_FIELDS = ("constraints", "work_scope", "acceptance", "open_questions")
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_form_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


def _form_lock(key: str) -> asyncio.Lock:
    """Return the lock of a form, so that sending it twice at once acts once."""
    return _form_locks.setdefault(key, asyncio.Lock())


def rollback_path(workflow_id: str, to: int | None = None) -> str:
    """Return the path of a run's rollback page."""
    return f"/rollback?{urlencode({'run': workflow_id} | ({'to': to} if to else {}))}"


def fork_path(workflow_id: str, at: int | None = None) -> str:
    """Return the path of a run's fork page."""
    return f"/fork?{urlencode({'run': workflow_id} | ({'at': at} if at else {}))}"


async def _run(request: Request) -> RunRecord:
    return await get_sources(request).run(query_param(request, "run"))


async def rollback(request: Request) -> Response:
    """Show the preview of a roll-back, or a choice of steps."""
    return await _rollback_page(request, await _run(request))


async def _rollback_page(request: Request, run: RunRecord, submission: Submission = NO_SUBMISSION) -> Response:
    to, preview, impossible = request.query_params.get("to", ""), None, ""
    if to:
        try:
            preview = await RollBack(await get_sources(request).client(), run.workflow_id, to).preview()
        except HistoryError as error:
            impossible = str(error)
    step = preview.point.step if preview else None
    values: dict[str, Any] = {
        "impossible": impossible,
        "step": step,
        "step_name": "to",
        "step_label": "Back to before",
        "verb": "Roll back",
        "you": "You roll back",
        "action": rollback_path(run.workflow_id, step.seq if step else None),
        "fork_path": fork_path,
    }
    return _render_operation(request, "rollback.html", run, preview, submission, values)


def _render_operation(
    request: Request,
    template: str,
    run: RunRecord,
    preview: Preview | None,
    submission: Submission,
    values: Mapping[str, Any],
) -> Response:
    """Return the page of an operation on a run: what would follow, and the form that does it."""
    mark = submission.inputs.get("mark")
    members: dict[str, Any] = {
        "run": run,
        "preview": preview,
        "step": None,
        "step_name": "",
        **vars(submission),
        "inputs": {"why": "", **submission.inputs},
        "changed": bool(mark and mark != (preview.mark if preview else "")),
        **values,
    }
    return render(request, template, members, status=submission.status)


async def do_rollback(request: Request, fields: Mapping[str, str]) -> Response:
    """Roll back, unless the preview has changed."""
    run, client, who = await _run(request), await get_sources(request).client(), get_viewer(request).name
    to, why = request.query_params.get("to", ""), fields.get("why", "").strip()
    if not to:
        raise HTTPException(400, "the address names no step")
    if fault := check_reason(why):
        return await _rollback_page(request, run, Submission(fields, {"why": fault}))
    async with _form_lock(f"rollback {run.workflow_id}"):
        try:
            operation = RollBack(client, run.workflow_id, to)
            result = await operation.commit(fields.get("mark", ""), by=who, why=why)
        except (PipelineError, HistoryError) as error:
            return await _rollback_page(request, run, Submission(fields, refused=str(error)))
    return RedirectResponse(run_path(run.workflow_id, result.run_id), status_code=303)


_OPERATIONS = {"cancel": ("Cancel", Cancel), "pause": ("Pause", Pause), "unpause": ("Unpause", Unpause)}


def _operation(request: Request, client: Client, run: RunRecord) -> tuple[str, Operation[Preview, str]]:
    """Return the verb of a page's address, and the operation."""
    verb, kind = _OPERATIONS[request.url.path.strip("/")]
    operation: Any = kind(client, run.workflow_id)
    return verb, operation


async def operate(request: Request) -> Response:
    """Show the preview of an operation that needs no more than a reason."""
    return await _operation_page(request, await _run(request))


async def _operation_page(request: Request, run: RunRecord, submission: Submission = NO_SUBMISSION) -> Response:
    verb, operation = _operation(request, await get_sources(request).client(), run)
    preview, impossible = None, ""
    try:
        preview = await operation.preview()
    except PipelineError as error:
        impossible = str(error)
    values: dict[str, Any] = {
        "impossible": "" if submission.refused else impossible,
        "verb": verb,
        "you": "You do this",
        "action": f"{request.url.path}?{urlencode({'run': run.workflow_id})}",
    }
    return _render_operation(request, "operation.html", run, preview, submission, values)


async def do_operate(request: Request, fields: Mapping[str, str]) -> Response:
    """Do what the page showed, unless that has changed."""
    run, why = await _run(request), fields.get("why", "").strip()
    if fault := check_reason(why):
        return await _operation_page(request, run, Submission(fields, {"why": fault}))
    _, operation = _operation(request, await get_sources(request).client(), run)
    async with _form_lock(f"{request.url.path} {run.workflow_id}"):
        try:
            run_id = await operation.commit(fields.get("mark", ""), by=get_viewer(request).name, why=why)
        except PipelineError as error:
            return await _operation_page(request, run, Submission(fields, refused=str(error)))
        except RPCError as error:
            refused = f"the server refused: {error.message}"
            return await _operation_page(request, run, Submission(fields, refused=refused))
    return RedirectResponse(run_path(run.workflow_id, run_id), status_code=303)


def steer_path(workflow_id: str, step: str = "") -> str:
    """Return the path of the page that sends an agent at work a note."""
    return f"/steer?{urlencode({'run': workflow_id} | ({'step': step} if step else {}))}"


async def steer(request: Request) -> Response:
    """Show which agent would get a note, and the form for it."""
    return await _steer_page(request, await _run(request))


async def _steer_page(request: Request, run: RunRecord, submission: Submission = NO_SUBMISSION) -> Response:
    step, preview, impossible = request.query_params.get("step") or None, None, ""
    try:
        preview = await Steer(await get_sources(request).client(), run.workflow_id, "-", step).preview()
    except PipelineError as error:
        impossible = str(error)
    values: dict[str, Any] = {
        "impossible": "" if submission.refused else impossible,
        "taking": [sent for sent in run.at_work if sent.steer],
        "verb": "Send a note",
        "you": "You send it",
        "inputs": {"text": "", **submission.inputs},
        "action": steer_path(run.workflow_id, preview.target.title if preview else ""),
        "steer_path": steer_path,
    }
    return _render_operation(request, "steer.html", run, preview, submission, values)


async def do_steer(request: Request, fields: Mapping[str, str]) -> Response:
    """Send a note to the agent that the page showed, if it is still at work."""
    run, text = await _run(request), fields.get("text", "").strip()
    if not text:
        return await _steer_page(request, run, Submission(fields, {"text": "write the note"}))
    step, client = request.query_params.get("step") or None, await get_sources(request).client()
    try:
        operation = Steer(client, run.workflow_id, text, step)
        await operation.commit(fields.get("mark", ""), by=get_viewer(request).name)
    except PipelineError as error:
        return await _steer_page(request, run, Submission(fields, refused=str(error)))
    return RedirectResponse(run_path(run.workflow_id, run.run_id), status_code=303)


async def fork_page(request: Request) -> Response:
    """Show the preview of a fork, or a choice of steps."""
    return await _fork_page(request, await _run(request))


async def _fork_page(request: Request, run: RunRecord, submission: Submission = NO_SUBMISSION) -> Response:
    at, preview, impossible = request.query_params.get("at", ""), None, ""
    if at:
        try:
            preview = await Fork(await get_sources(request).client(), run.workflow_id, at).preview()
        except HistoryError as error:
            impossible = str(error)
    new_id = f"{run.workflow_id}-fork-{uuid4().hex[:8]}"
    step = preview.step if preview else None
    values: dict[str, Any] = {
        "baton": preview.run.baton_before(preview.step).to_json_object() if preview else {},
        "impossible": impossible,
        "step": step,
        "step_name": "at",
        "step_label": "From",
        "verb": "Fork",
        "you": "You fork",
        "inputs": {"why": "", "patch": "", "id": new_id, **submission.inputs},
        "action": fork_path(run.workflow_id, step.seq if step else None),
        "check": f"/handoff/check?{urlencode({'run': run.workflow_id, 'at': step.seq if step else ''})}",
    }
    return _render_operation(request, "fork.html", run, preview, submission, values)


async def do_fork(request: Request, fields: Mapping[str, str]) -> Response:
    """Fork a run. Sending the same form again leads to the same new run."""
    run, client, who = await _run(request), await get_sources(request).client(), get_viewer(request).name
    at, why, new_id = request.query_params.get("at", ""), fields.get("why", "").strip(), fields.get("id", "").strip()
    faults = {"why": fault} if (fault := check_reason(why)) else {}
    if not new_id:
        faults["id"] = "give the new run an id"
    patch = None
    if fields.get("patch", "").strip():
        try:
            patch = parse_json(fields["patch"])
            if not isinstance(patch, dict):
                faults["patch"] = "a patch is a JSON object"
        except ValueError as error:
            faults["patch"] = str(error)
    if faults:
        return await _fork_page(request, run, Submission(fields, faults=faults))
    async with _form_lock(f"fork {new_id}"):
        if await is_started(client, new_id):
            return await _existing_fork(request, client, run, new_id, fields)
        try:
            operation = Fork(client, run.workflow_id, at, patch or None, new_id)
            await operation.commit(fields.get("mark", ""), by=who, why=why)
        except WorkflowAlreadyStartedError:
            return await _existing_fork(request, client, run, new_id, fields)
        except (PatchError, PipelineError, HistoryError) as error:
            return await _fork_page(request, run, Submission(fields, refused=str(error)))
    return RedirectResponse(run_path(new_id), status_code=303)


async def _existing_fork(
    request: Request, client: Client, run: RunRecord, new_id: str, fields: Mapping[str, str]
) -> Response:
    """Redirect to the run with this id if it is a fork of this run; otherwise show that the id is taken."""
    existing: RunRecord = await get_sources(request).run(new_id)
    if existing.start.origin is not None and existing.start.origin.workflow_id == run.workflow_id:
        return RedirectResponse(run_path(new_id), status_code=303)
    return await _fork_page(request, run, Submission(fields, faults={"id": "another run has this id"}))


async def is_started(client: Client, workflow_id: str) -> bool:
    """Return whether a workflow with this id exists."""
    try:
        await describe(client, workflow_id)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


def start_path(pipeline: str, like: str = "") -> str:
    """Return the path of a pipeline's start page, with the values of an earlier run if one is named."""
    return f"/start?{urlencode({'pipeline': pipeline} | ({'like': like} if like else {}))}"


async def list_pipelines(client: Client) -> dict[str, ListedRun]:
    """Return the pipelines of the namespace's newest runs, with the newest run of each."""
    runs = [run async for run in list_runs(client, RunFilter(children=True), limit=_MAX_RUNS)]
    newest: dict[str, ListedRun] = {}
    for run in sorted(runs, key=lambda listed: listed.began, reverse=True):
        newest.setdefault(run.pipeline, run)
    return dict(sorted(newest.items()))


def input_schema(like: PipelineInput | None) -> dict[str, Any]:
    """Return the schema of a start form, with parameters and inputs named as in an earlier run.

    It has only the members that people set.
    """
    properties = PipelineInput.model_json_schema()["properties"]
    params = _properties(like.params if like else {}, "Parameters", properties["params"])
    inputs = _properties(like.inputs if like else {}, "Inputs", properties["inputs"])
    lines = {"type": "array", "items": {"type": "string"}}
    others = {name: value for name, value in (like.baton if like else {}).items() if name not in _BATON_FIELDS}
    baton = {name: {**lines, "title": name.replace("_", " ").capitalize()} for name in _BATON_FIELDS}
    baton |= _members(others)
    return {
        "properties": {
            "goal": {**properties["goal"], "description": "The objective, in one sentence."},
            "params": params,
            "inputs": inputs,
            "baton": {"properties": baton, "title": "Baton"},
        },
        "required": ["goal"],
    }


def _properties(examples: Mapping[str, Any], title: str, default_schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema inferred from example values, or for any JSON object if there are none."""
    if not examples:
        return {**default_schema, "title": title, "description": "A JSON object, by name."}
    return {"properties": _members(examples), "title": title}


def _members(examples: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of each member, inferred from an example value."""
    members: dict[str, Any] = {}
    for name, value in examples.items():
        kind = _TYPES.get(type(value))
        if kind is None and isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            members[name] = {"type": "array", "items": {"type": "string"}, "title": name}
        else:
            members[name] = {"title": name, **({"type": kind} if kind else {})}
        if isinstance(value, str) and ("\n" in value or len(value) > 80):
            members[name]["maxLength"] = 1_000_000
    return members


async def start(request: Request) -> Response:
    """Show the pipelines, or the start form of one."""
    return await _start_page(request)


@dataclass(frozen=True)
class _Example:
    """The run whose input shapes a start form."""

    run: RunRecord | None = None  # the pipeline's newest, or the one that the address names
    gives_values: bool = False  # whether its values are the form's too

    @property
    def form(self) -> SchemaForm:
        """The form."""
        start = self.run.start if self.run else None
        if start is None or not self.gives_values:
            return SchemaForm(input_schema(start), "input")
        values = {"goal": start.goal, "params": start.params, "inputs": start.inputs, "baton": start.baton}
        return SchemaForm(input_schema(start), "input", as_json({name: one for name, one in values.items() if one}))

    @property
    def inputs(self) -> dict[str, str]:
        """The values of the form's other fields."""
        budget = self.run.start.budget if self.run and self.gives_values else None
        return {"budget": f"{to_usd(budget.initial_micro_usd):f}" if budget and budget.initial_micro_usd else ""}

    @property
    def left_out(self) -> list[str]:
        """What its input has that a form does not give to another run."""
        start = self.run.start if self.run and self.gives_values else None
        kinds = {"personal data": start.personal_data, "a session of another tool": start.session} if start else {}
        return [name for name, value in kinds.items() if value]


async def _find_example(request: Request, known: Mapping[str, ListedRun], pipeline: str) -> _Example:
    """Return the run that the address names, or else the newest of the pipeline that can be read."""
    sources, like = get_sources(request), request.query_params.get("like", "").strip()
    if like:
        return _Example(await sources.run(like), gives_values=True)
    run = known.get(pipeline)
    if run is None:
        return _Example()
    try:
        return _Example(await sources.run(run.workflow_id, run.run_id))
    except BatonError:
        return _Example()


async def _start_page(request: Request, submission: Submission = NO_SUBMISSION) -> Response:
    client = await get_sources(request).client()
    pipeline, like = (request.query_params.get(name, "").strip() for name in ("pipeline", "like"))
    known = await list_pipelines(client)
    example = await _find_example(request, known, pipeline)
    run = example.run
    queue = (await describe(client, run.workflow_id, run.run_id)).task_queue if run else DEFAULT_TASK_QUEUE
    new_id = f"{_slug(pipeline)}-{uuid4().hex[:8]}"
    values = {
        "known": known,
        "pipeline": pipeline,
        "example": example,
        "fields": example.form.fields(submission.inputs, submission.faults),
        **vars(submission),
        "inputs": {"id": new_id, "task_queue": queue, **example.inputs, **submission.inputs},
        "action": start_path(pipeline, like),
    }
    return render(request, "start.html", values, status=submission.status)


async def do_start(request: Request, fields: Mapping[str, str]) -> Response:
    """Start a run. Sending the same form again leads to the same run."""
    sources = get_sources(request)
    client = await sources.client()
    pipeline = request.query_params.get("pipeline", "").strip()
    filled = (await _find_example(request, await list_pipelines(client), pipeline)).form.parse(fields)
    faults = dict(filled.faults)
    workflow_id, queue = fields.get("id", "").strip(), fields.get("task_queue", "").strip()
    for name, value in (("id", workflow_id), ("task_queue", queue), ("pipeline", pipeline)):
        if not value:
            faults[name] = "fill this in"
    members = dict(filled.value)
    if fields.get("budget", "").strip():
        try:
            members["budget"] = {"initial_micro_usd": parse_amount(fields["budget"])}
        except ValueError as error:
            faults["budget"] = str(error)
    if faults:
        return await _start_page(request, Submission(fields, faults=faults))
    try:
        pipeline_input = PipelineInput.model_validate(members)
        pipeline_input.first_baton()
    except ValidationError as error:
        return await _start_page(request, Submission(fields, refused=describe_faults(error)))
    async with _form_lock(f"start {workflow_id}"):
        try:
            operation = Start(client, pipeline, pipeline_input, workflow_id, queue)
            await operation.commit(by=get_viewer(request).name)
        except WorkflowAlreadyStartedError:
            existing = await sources.run(workflow_id)
            if (
                existing.pipeline != pipeline
                or existing.start.goal != pipeline_input.goal
                or existing.start.params != pipeline_input.params
            ):
                return await _start_page(request, Submission(fields, faults={"id": "another run has this id"}))
    return RedirectResponse(run_path(workflow_id), status_code=303)


def _slug(pipeline: str) -> str:
    """Return a pipeline's name as a prefix for workflow ids."""
    slug = "".join(char if char.isascii() and char.isalnum() else "-" for char in pipeline.lower())
    return slug.strip("-")[:80] or "run"


ROUTES = [
    page("/start", start, Role.OPERATOR),
    action("/start", do_start, Role.OPERATOR),
    page("/rollback", rollback),
    action("/rollback", do_rollback, Role.OPERATOR),
    page("/steer", steer),
    action("/steer", do_steer, Role.OPERATOR),
    page("/fork", fork_page),
    action("/fork", do_fork, Role.OPERATOR),
    *(page(f"/{name}", operate) for name in _OPERATIONS),
    *(action(f"/{name}", do_operate, Role.OPERATOR) for name in _OPERATIONS),
]
