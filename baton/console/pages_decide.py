"""Pages for decisions: an approval, bound to what is shown, and a handoff that waits for a person."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from temporalio.client import Client

from baton import Exhibit, PatchError, PipelineError, Settled
from baton.client import (
    Decide,
    DecidePreview,
    HandoffAction,
    Question,
    Role,
    RunHandoffs,
    RunRecord,
    StepStatus,
    WaitingQuestion,
    inbox,
    read_handoffs,
)
from baton.client.faces import (
    APPROVE,
    DENY,
    cost_of,
    decision_commands,
    kind_of,
    refused_patch,
    text_at,
    without_envelope,
)
from baton.console.content import Content, artifact_command, text_content
from baton.console.forms import NO_SUBMISSION, SchemaForm, Submission, check_reason, parse_json
from baton.console.pages_inbox import approval_path, handoff_path
from baton.console.rendering import (
    ArtifactView,
    artifact_file,
    file_response,
    get_sources,
    load_artifact,
    query_param,
    render,
    stream_changes,
)
from baton.console.security import action, get_viewer, page
from baton.console.sources import Sources
from baton.wire.json_values import digest
from baton.wire.money import parse_amount

_POLL_SECONDS = 1.0
_LEFT = (
    "The decision was sent, but no worker has answered yet. The server holds it, and it counts once a worker takes it "
    "up, if nothing has changed until then. This page follows by itself; sending it again does no harm."
)


@dataclass(frozen=True)
class ApprovalView:
    """The state of an approval."""

    name: str
    run: RunRecord
    preview: DecidePreview | None = None  # None if it cannot be decided now
    trouble: str = ""  # why it cannot
    since: datetime | None = None  # when it began to wait

    @property
    def open(self) -> Question | None:
        """The approval, while it is open and can be decided."""
        return self.preview.open if self.preview else None

    @property
    def decided(self) -> Settled | None:
        """How it was decided."""
        return self.preview.settled if self.preview else None

    @property
    def mark(self) -> str:
        """A digest that changes whenever the page does."""
        preview = self.preview
        votes = _vote_times(preview.open) if preview and preview.open else []
        shown = [preview.mark, preview.has_worker, preview.settled is not None] if preview else []
        return digest([self.trouble, shown, votes])[7:23]


def _vote_times(question: Question) -> list[str]:
    return [vote.at.isoformat() for vote in question.votes]


async def read_approval(sources: Sources, workflow_id: str, question: str) -> ApprovalView:
    """Return the state of an approval: open, decided or impossible to decide now."""
    run = await sources.run(workflow_id)
    operation = Decide(await sources.client(), workflow_id, APPROVE, question)
    try:
        preview = await operation.preview_in(run)
    except PipelineError as error:
        seq = question.partition(":")[0]
        step = next((step for step in run.steps if str(step.seq) == seq), None)
        if step is None:
            raise HTTPException(404, f"{workflow_id!r} has not asked question {question!r}") from None
        since = step.began if step.status is StepStatus.RUNNING else None
        return ApprovalView(step.name, run, trouble=str(error), since=since)
    return ApprovalView(str(preview.basis["title"]), run, preview)


@dataclass(frozen=True)
class ExhibitView:
    """An exhibit of an approval, prepared for display: a text or an artifact."""

    exhibit: Exhibit
    path: str
    content: Content | None = None
    artifact: ArtifactView | None = None
    command: str = ""


async def _exhibit_views(sources: Sources, workflow_id: str, question: str, waiting: Question) -> list[ExhibitView]:
    """Return the exhibits of an approval, with the commands that print them in full."""
    views = []
    for number, exhibit in enumerate(waiting.shows, start=1):
        path = approval_path(workflow_id, question, "/exhibit", place=number)
        if exhibit.artifact is None:
            command = f"baton show {shlex.quote(workflow_id)} --asked"
            views.append(ExhibitView(exhibit, path, text_content(exhibit.text, exhibit.form), command=command))
        else:
            command = artifact_command(workflow_id, exhibit.artifact.id)
            artifact = await load_artifact(sources, exhibit.artifact)
            views.append(ExhibitView(exhibit, path, artifact=artifact, command=command))
    return views


async def exhibit(request: Request) -> Response:
    """Return an exhibit of an open approval as a download; an image may be displayed."""
    view = await read_approval(get_sources(request), query_param(request, "run"), query_param(request, "question"))
    place = request.query_params.get("place", "")
    shows = {str(number): item for number, item in enumerate(view.open.shows, start=1)} if view.open else {}
    if place not in shows:
        raise HTTPException(404, "the approval has no such exhibit, or is no longer open")
    exhibit = shows[place]
    if exhibit.artifact is None:
        return file_response(exhibit.text.encode(), f"{exhibit.title}.txt")
    return artifact_file(request, exhibit.artifact, await get_sources(request).artifact(exhibit.artifact.hash))


def answer_form(waiting: Question) -> SchemaForm | None:
    """Return the form of an approval's answer; in a quorum it starts with the answer that leads."""
    if waiting.form is None:
        return None
    earlier = waiting.leading.data if waiting.leading else None
    return SchemaForm(waiting.form, "answer", earlier) if earlier else SchemaForm(waiting.form, "answer")


async def _approval_page(
    request: Request, workflow_id: str, question: str, view: ApprovalView, submission: Submission = NO_SUBMISSION
) -> Response:
    """Render an approval, with a submission that was rejected or not sent."""
    waiting = view.open
    form = answer_form(waiting) if waiting else None
    seen, mark = submission.inputs.get("mark", ""), view.preview.mark if view.preview else ""
    values = {
        "workflow_id": workflow_id,
        "question": question,
        "view": view,
        "waiting": waiting,
        "goal": view.run.baton.goal,
        "costs": cost_of(view.run, waiting).clauses if waiting else [],
        "baton": view.run.baton.to_json_object(),
        "exhibits": await _exhibit_views(get_sources(request), workflow_id, question, waiting) if waiting else [],
        "commands_to_sign": decision_commands(workflow_id, waiting.title, waiting) if waiting and waiting.proof else [],
        "fields": form.fields(submission.inputs, submission.faults) if form else [],
        **vars(submission),
        "why": submission.inputs.get("why", ""),
        "mark": mark,
        "changed": bool(waiting and seen and seen != mark),
        "mine": bool(waiting and waiting.has_vote_of(get_viewer(request).name)),
        "action": approval_path(workflow_id, question),
        "events": f"{approval_path(workflow_id, question).replace('?', '/events?')}&cursor={view.mark}",
    }
    return render(request, "approval.html", values, status=submission.status)


async def approval(request: Request) -> Response:
    """Show an approval."""
    workflow_id, question = query_param(request, "run"), query_param(request, "question")
    view = await read_approval(get_sources(request), workflow_id, question)
    return await _approval_page(request, workflow_id, question, view)


async def decide_approval(request: Request, fields: Mapping[str, str]) -> Response:
    """Decide an approval. Sending the same decision again has no effect."""
    workflow_id, question = query_param(request, "run"), query_param(request, "question")
    sources, viewer = get_sources(request), get_viewer(request)
    view = await read_approval(sources, workflow_id, question)
    if view.preview is None:
        return await _approval_page(request, workflow_id, question, view, Submission(fields, unsent=view.trouble))
    approved = fields.get("approved") == "yes"
    faults = {"why": fault} if (fault := check_reason(fields.get("why", ""))) else {}
    answer: Any = view.decided.data if view.decided else None  # the form of a decided question is gone
    if approved and view.open and (form := answer_form(view.open)) is not None:
        filled = form.parse(fields)
        answer, faults = filled.value, {**faults, **filled.faults}
    if fields.get("approved") not in ("yes", "no"):
        faults["approved"] = "approve or deny"
    if faults:
        return await _approval_page(request, workflow_id, question, view, Submission(fields, faults=faults))
    choice = APPROVE if approved else DENY
    operation = Decide(await sources.client(), workflow_id, choice, question, answer)
    try:
        reply = await operation.commit(fields.get("mark", ""), by=viewer.name, why=fields["why"].strip())
    except PipelineError as error:
        view = await read_approval(sources, workflow_id, question)
        form = answer_form(view.open) if view.open else None
        faults, refused = form.faults_in(str(error)) if form else ({}, str(error))
        return await _approval_page(request, workflow_id, question, view, Submission(fields, faults, refused))
    if reply is None:
        return await _approval_page(request, workflow_id, question, view, Submission(fields, unsent=_LEFT))
    return RedirectResponse(approval_path(workflow_id, question), status_code=303)


async def approval_events(request: Request) -> Response:
    """Stream an event whenever the approval or its reachability changes."""
    workflow_id, question = query_param(request, "run"), query_param(request, "question")

    async def mark() -> str:
        return (await read_approval(get_sources(request), workflow_id, question)).mark

    return stream_changes(request, mark, every=_POLL_SECONDS)


@dataclass(frozen=True)
class HandoffView:
    """The state of a handoff that waits, or waited, for a person."""

    waiting: WaitingQuestion | None  # None if it does not wait now
    handoffs: RunHandoffs  # all handoffs in the run's history
    settled: list[Settled] = field(default_factory=list)

    @property
    def question(self) -> Question | None:
        """The question about it, while it waits."""
        return self.waiting.question if self.waiting else None

    @property
    def mark(self) -> str:
        """A digest that changes whenever the page does."""
        question = self.question
        shown = [question.id, _vote_times(question)] if question else []
        return digest([shown, bool(self.waiting and self.waiting.has_worker), len(self.settled)])[7:23]


async def read_handoff_view(client: Client, workflow_id: str, handoff_id: str) -> HandoffView:
    """Return the state of a handoff."""
    entries = [entry async for entry in inbox(client, workflow_id)]
    handoffs = await read_handoffs(client, workflow_id)
    waiting = next((entry for entry in entries if entry.handoff and entry.handoff.handoff_id == handoff_id), None)
    settled = [settled for settled in handoffs.run.handoff_decisions if settled.handoff_id == handoff_id]
    if waiting is None and not settled and handoff_id not in handoffs.messages:
        raise HTTPException(404, f"{workflow_id!r} has no handoff {handoff_id!r} that waits for a person")
    return HandoffView(waiting, handoffs, settled)


def _handoff_page(
    request: Request, workflow_id: str, handoff_id: str, view: HandoffView, submission: Submission = NO_SUBMISSION
) -> Response:
    """Render a handoff, with a submission that was rejected or not sent."""
    fields, question = submission.inputs, view.question
    pending = question.handoff if question else None
    message = view.handoffs.messages.get(handoff_id)
    findings = [
        (finding, text_at(message, finding.at) if message and finding.at else None)
        for finding in (pending.findings if pending else [])
    ]
    mark = Decide.mark_of(question) if question else ""
    values = {
        "workflow_id": workflow_id,
        "view": view,
        "question": question,
        "pending": pending,
        "mine": bool(question and question.has_vote_of(get_viewer(request).name)),
        "kind": kind_of(question).words,
        "goal": view.handoffs.run.baton.goal,
        "costs": cost_of(view.handoffs.run, question).clauses if question else [],
        "findings": findings,
        "message": without_envelope(message or {}),
        "message_sent": message,
        "baton": view.handoffs.run.baton.to_json_object(),
        "actions": [*pending.actions] if pending else [],
        "commands_to_sign": [f"baton inbox show {shlex.quote(workflow_id)}"],
        **vars(submission),
        "inputs": {"action": "", "why": "", "usd": "", "patch": "{\n}", **fields},
        "mark": mark,
        "changed": bool(question and fields.get("mark") and fields["mark"] != mark),
        "action": handoff_path(workflow_id, handoff_id),
        "check": handoff_path(workflow_id, handoff_id).replace("?", "/check?"),
        "events": f"{handoff_path(workflow_id, handoff_id).replace('?', '/events?')}&cursor={view.mark}",
    }
    return render(request, "handoff.html", values, status=submission.status)


async def handoff(request: Request) -> Response:
    """Show a handoff."""
    workflow_id, handoff_id = query_param(request, "run"), request.query_params.get("handoff", "")
    view = await read_handoff_view(await get_sources(request).client(), workflow_id, handoff_id)
    return _handoff_page(request, workflow_id, handoff_id, view)


async def decide_handoff(request: Request, fields: Mapping[str, str]) -> Response:
    """Decide a handoff. Sending the same decision again has no effect."""
    workflow_id, handoff_id = query_param(request, "run"), request.query_params.get("handoff", "")
    client = await get_sources(request).client()
    view = await read_handoff_view(client, workflow_id, handoff_id)
    operation, faults = parse_action(Decide(client, workflow_id, HandoffAction.ABANDON, handoff_id), fields)
    if faults:
        return _handoff_page(request, workflow_id, handoff_id, view, Submission(fields, faults=faults))
    who, why = get_viewer(request).name, fields["why"].strip()
    try:
        reply = await operation.commit(fields.get("mark", ""), by=who, why=why)
    except PatchError as error:
        return _handoff_page(request, workflow_id, handoff_id, view, Submission(fields, {"patch": str(error)}))
    except PipelineError as error:
        view = await read_handoff_view(client, workflow_id, handoff_id)
        return _handoff_page(request, workflow_id, handoff_id, view, Submission(fields, refused=str(error)))
    if reply is None:
        return _handoff_page(request, workflow_id, handoff_id, view, Submission(fields, unsent=_LEFT))
    return RedirectResponse(handoff_path(workflow_id, handoff_id), status_code=303)


def parse_action(operation: Decide, fields: Mapping[str, str]) -> tuple[Decide, dict[str, str]]:
    """Return the operation with what a form says, and the form's errors."""
    faults: dict[str, str] = {}
    action_name = fields.get("action", "")
    if action_name not in [member.value for member in HandoffAction]:
        return operation, {"action": "choose what to do"}
    operation = replace(operation, choice=HandoffAction(action_name))
    if fault := check_reason(fields.get("why", "").strip()):
        faults["why"] = fault
    try:
        if operation.choice is HandoffAction.EDIT:
            operation = replace(operation, data={"patch": _parse_patch(fields.get("patch", ""))})
    except ValueError as error:
        faults["patch"] = str(error)
    try:
        if operation.choice is HandoffAction.TOP_UP:
            operation = replace(operation, data={"micro_usd": parse_amount(fields.get("usd", ""))})
    except ValueError as error:
        faults["usd"] = str(error)
    return operation, faults


def _parse_patch(text: str) -> dict[str, Any]:
    patch = parse_json(text)
    if not isinstance(patch, dict):
        raise ValueError('a patch is a JSON object, such as {"constraints": ["No new service"]}')
    if not patch:
        raise ValueError("the patch changes nothing")
    return patch


async def check_patch(request: Request, fields: Mapping[str, str]) -> Response:
    """Return why a patch would be rejected, while a person types it."""
    workflow_id, at = query_param(request, "run"), request.query_params.get("at")
    try:
        patch = _parse_patch(fields.get("patch", ""))
    except ValueError as error:
        return JSONResponse({"findings": [str(error)]})
    run = await get_sources(request).run(workflow_id)
    return JSONResponse({"findings": refused_patch(run, patch, run.step(at) if at else None)})


async def handoff_events(request: Request) -> Response:
    """Stream an event whenever the handoff or its reachability changes."""
    workflow_id, handoff_id = query_param(request, "run"), request.query_params.get("handoff", "")
    client = await get_sources(request).client()

    async def mark() -> str:
        return (await read_handoff_view(client, workflow_id, handoff_id)).mark

    return stream_changes(request, mark, every=_POLL_SECONDS)


ROUTES = [
    page("/approval", approval),
    page("/approval/exhibit", exhibit),
    page("/approval/events", approval_events),
    action("/approval", decide_approval, Role.DECIDER),
    page("/handoff", handoff),
    page("/handoff/events", handoff_events),
    action("/handoff/check", check_patch, Role.DECIDER),
    action("/handoff", decide_handoff, Role.DECIDER),
]
