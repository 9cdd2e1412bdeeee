"""Repairing: roll a run back to before a step, or fork it there, after a preview of what follows."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from temporalio.client import Client
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from baton import HistoryError, PatchError, PipelineError, StepKind
from baton.client import RollbackPoint, RunRecord, Step, StepStatus, describe, find_point, fork, forked_input, roll_back
from baton.console.forms import parsed_json
from baton.console.rendering import render, run_path
from baton.console.security import Role, action, page, viewer_of
from baton.wire.json_values import digest

_SAY_WHY = "say why; the reason is recorded"
_turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # a form that is sent twice at once is done once


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
    workflow_id = request.query_params.get("run", "")
    if not workflow_id:
        raise HTTPException(404, "the address names no run")
    run: RunRecord = await request.app.state.sources.run(workflow_id)
    return run


async def _client(request: Request) -> Client:
    client: Client = await request.app.state.sources.client()
    return client


async def rollback(request: Request) -> Response:
    """Show what a roll-back would do; without a step, which there are."""
    return await _rollback_page(request, await _run(request))


async def _rollback_page(
    request: Request, run: RunRecord, *, given: Mapping[str, str] | None = None, fault: str = "", refused: str = ""
) -> Response:
    to, given = request.query_params.get("to", ""), given or {}
    point, impossible = None, ""
    if to:
        try:
            point = await find_point(await _client(request), run.workflow_id, to)
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
        "why": given.get("why", ""),
        "fault": fault,
        "refused": refused,
        "changed": bool(given.get("mark") and given.get("mark") != mark),
        "action": rollback_path(run.workflow_id, point.step.seq if point else None),
        "fork_path": fork_path,
    }
    return render(request, "rollback.html", values, status=409 if fault or refused else 200)


async def do_rollback(request: Request, given: Mapping[str, str]) -> Response:
    """Roll back, if what was shown is still what it does."""
    run, client, who = await _run(request), await _client(request), viewer_of(request).name
    to, why = request.query_params.get("to", ""), given.get("why", "").strip()
    if not to:
        raise HTTPException(400, "the address names no step")
    if not why:
        return await _rollback_page(request, run, given=given, fault=_SAY_WHY)
    async with _turns[f"rollback {run.workflow_id}"]:
        try:
            point = await find_point(client, run.workflow_id, to)
            if preview_mark(point) != given.get("mark"):
                told = _already(point)
                return await _rollback_page(request, run, given=given, refused=told)
            done = await roll_back(client, run.workflow_id, to, by=who, why=why)
        except (PipelineError, HistoryError) as error:
            return await _rollback_page(request, run, given=given, refused=str(error))
    return RedirectResponse(run_path(run.workflow_id, done.run_id), status_code=303)


def _already(point: RollbackPoint) -> str:
    """Return that a preview is out of date, and what happened meanwhile if that is known."""
    note = next(reversed(point.newest.notes), "") if point.newest.resets else ""
    meanwhile = f" ({note})" if note else ""
    return f"the run has changed since you looked{meanwhile}; nothing was rolled back. See what it would do now"


async def fork_page(request: Request) -> Response:
    """Show what a fork would take over; without a step, which there are."""
    return await _fork_page(request, await _run(request))


async def _fork_page(
    request: Request,
    run: RunRecord,
    *,
    given: Mapping[str, str] | None = None,
    faults: Mapping[str, str] | None = None,
    refused: str = "",
) -> Response:
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
        "given": {"why": "", "patch": "", "id": new_id, **(given or {})},
        "faults": faults or {},
        "refused": refused,
        "action": fork_path(run.workflow_id, step.seq if step else None),
        "check": f"/handoff/check?{urlencode({'run': run.workflow_id, 'at': step.seq if step else ''})}",
        "running": StepStatus.RUNNING,
    }
    return render(request, "fork.html", values, status=409 if faults or refused else 200)


async def do_fork(request: Request, given: Mapping[str, str]) -> Response:
    """Fork; the same form sent again leads to the run that it started."""
    run, client, who = await _run(request), await _client(request), viewer_of(request).name
    at, why, new_id = request.query_params.get("at", ""), given.get("why", "").strip(), given.get("id", "").strip()
    faults: dict[str, str] = {} if why else {"why": _SAY_WHY}
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
        return await _fork_page(request, run, given=given, faults=faults)
    async with _turns[f"fork {new_id}"]:
        if await is_started(client, new_id):
            return await _fork_there(request, client, run, new_id, given)
        try:
            await fork(client, run.workflow_id, at, by=who, why=why, patch=patch or None, new_id=new_id)
        except WorkflowAlreadyStartedError:
            return await _fork_there(request, client, run, new_id, given)
        except (PatchError, PipelineError, HistoryError) as error:
            return await _fork_page(request, run, given=given, refused=str(error))
    return RedirectResponse(run_path(new_id), status_code=303)


async def _fork_there(
    request: Request, client: Client, run: RunRecord, new_id: str, given: Mapping[str, str]
) -> Response:
    """Lead to the run that has the id, if it is a fork of this one; else say that the id is taken."""
    there: RunRecord = await request.app.state.sources.run(new_id)
    if there.start.origin is not None and there.start.origin.workflow_id == run.workflow_id:
        return RedirectResponse(run_path(new_id), status_code=303)
    return await _fork_page(request, run, given=given, faults={"id": "another run has this id"})


async def is_started(client: Client, workflow_id: str) -> bool:
    """Return whether there is a run of an id."""
    try:
        await describe(client, workflow_id)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


ROUTES = [
    page("/rollback", rollback),
    action("/rollback", do_rollback, Role.OPERATOR),
    page("/fork", fork_page),
    action("/fork", do_fork, Role.OPERATOR),
]
