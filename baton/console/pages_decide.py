"""Deciding: an approval, on exactly what is shown; and a handoff that waits for a person."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from temporalio.client import Client

from baton import Decided, Decision, Exhibit, PipelineError
from baton.client import (
    HandoffAction,
    HandoffDecision,
    NoAnswerError,
    OpenApproval,
    PendingHandoff,
    RunHandoffs,
    StepStatus,
    Waiting,
    WaitingHandoff,
    answer_of,
    decide,
    decided_question,
    must_be_answerable,
    open_approvals_of,
    read_handoffs,
    refused_patch,
    resolve_handoff,
    run_inbox,
    text_at,
    without_envelope,
)
from baton.console.content import Content, artifact_command, text_content
from baton.console.forms import NOTHING_SENT, SchemaForm, Sent, fault_of_reason, parsed_json
from baton.console.pages_inbox import approval_path, handoff_path, kind_of
from baton.console.rendering import Enclosed, artifact_file, enclosed, file, follow, named, render, sources_of
from baton.console.security import Role, action, page, viewer_of
from baton.console.sources import Sources
from baton.wire.json_values import digest
from baton.wire.money import parse_amount

_LOOKS_EVERY = 1.0
_READ_SECONDS = 5.0  # a page says sooner than a decision that no worker answers, and follows once one does


@dataclass(frozen=True)
class Question:
    """An approval as its page shows it."""

    name: str  # its name
    open: OpenApproval | None = None  # what is asked and shown; None if it is settled, or no worker answers
    decided: Decided | None = None  # how it was settled
    trouble: str = ""  # why nothing can be decided now
    since: datetime | None = None  # since when it waits, as the history tells

    @property
    def mark(self) -> str:
        """Changes whenever the page does."""
        waiting = self.open.waiting if self.open else None
        votes = [vote.who for vote in waiting.votes] if waiting else []
        return digest([self.trouble, waiting.digest if waiting else "", votes, self.decided is not None])[7:23]


async def read_question(sources: Sources, workflow_id: str, question: str) -> Question:
    """Return an approval as it stands: open, settled by somebody, or out of reach."""
    client = await sources.client()
    try:
        await must_be_answerable(client, workflow_id)
        approvals = await answer_of(client, workflow_id, open_approvals_of(client, workflow_id), within=_READ_SECONDS)
    except PipelineError as error:
        trouble, found = str(error), None
    else:
        trouble, found = "", next((one for one in approvals if one.waiting.question == question), None)
    if found is not None:
        return Question(found.waiting.name, found)
    run = await sources.run(workflow_id)
    decided = decided_question(run, question)
    if decided is not None:
        return Question(decided.approval, decided=decided)
    seq = question.partition(":")[0]
    step = next((one for one in run.steps if str(one.seq) == seq), None)
    if trouble and step is not None and step.status is StepStatus.RUNNING:
        return Question(step.name, trouble=trouble, since=step.began)
    if step is None:
        raise HTTPException(404, f"{workflow_id!r} has not asked question {question!r}")
    asked_again = "It was withdrawn: the run was rolled back, or its code went on without it."
    return Question(step.name, trouble=asked_again)


@dataclass(frozen=True)
class Shown:
    """One thing that an approval shows, as its page has it: a text, or an artifact."""

    exhibit: Exhibit
    path: str
    content: Content | None = None
    artifact: Enclosed | None = None
    command: str = ""


async def _shown(sources: Sources, workflow_id: str, question: str, waiting: Waiting) -> list[Shown]:
    """Return all that an approval shows, made readable; with the commands that show the whole elsewhere."""
    shown = []
    for place, one in enumerate(waiting.shows, start=1):
        path = approval_path(workflow_id, question, "/exhibit", place=place)
        if one.artifact is None:
            command = f"baton show {shlex.quote(workflow_id)} --asked"
            shown.append(Shown(one, path, text_content(one.text, one.form), command=command))
        else:
            command = artifact_command(workflow_id, one.artifact.id)
            shown.append(Shown(one, path, artifact=await enclosed(sources, one.artifact), command=command))
    return shown


def _commands(workflow_id: str, waiting: Waiting) -> list[str]:
    """Return the commands that decide with a key: keys do not go into a browser."""
    target = f"{shlex.quote(workflow_id)} {shlex.quote(waiting.name)} --key KEY_FILE --why '…'"
    form = _form_of(waiting)
    required = [one.name.split("/") for one in form.fields() if one.required] if form else []
    names = dict.fromkeys(path[1] for path in required if len(path) > 1)
    sets = "".join(f" --set {shlex.quote(f'{name}=…')}" for name in names)
    return [f"baton approve {target}{sets}", f"baton deny {target}"]


async def exhibit(request: Request) -> Response:
    """Return one thing that an open approval shows, to be saved; a picture may be shown."""
    asked = await read_question(sources_of(request), named(request, "run"), named(request, "question"))
    place = request.query_params.get("place", "")
    shows = {str(number): one for number, one in enumerate(asked.open.waiting.shows, start=1)} if asked.open else {}
    if place not in shows:
        raise HTTPException(404, "the approval shows no such thing, or is not open any more")
    one = shows[place]
    if one.artifact is None:
        return file(one.text.encode(), f"{one.title}.txt")
    return artifact_file(request, one.artifact, await sources_of(request).artifact(one.artifact.hash))


def _form_of(waiting: Waiting) -> SchemaForm | None:
    """Return the form that a yes fills in; in a quorum it holds the answer that the others gave."""
    if waiting.answer is None:
        return None
    earlier = waiting.votes[0].answer if waiting.votes else None
    return SchemaForm(waiting.answer, "answer", earlier) if earlier else SchemaForm(waiting.answer, "answer")


async def _question_page(
    request: Request,
    workflow_id: str,
    question: str,
    asked: Question,
    sent: Sent = NOTHING_SENT,
) -> Response:
    """Show an approval: with what was typed, and why that did not count, or could not be sent."""
    waiting = asked.open.waiting if asked.open else None
    form = _form_of(waiting) if waiting else None
    seen = sent.given.get("digest", "")
    values = {
        "workflow_id": workflow_id,
        "question": question,
        "asked": asked,
        "waiting": waiting,
        "baton": asked.open.baton if asked.open else None,
        "exhibits": await _shown(sources_of(request), workflow_id, question, waiting) if waiting else [],
        "commands_to_sign": _commands(workflow_id, waiting) if waiting and waiting.proof else [],
        "fields": form.fields(sent.given, sent.faults) if form else [],
        **vars(sent),
        "why": sent.given.get("why", ""),
        "changed": bool(waiting and seen and seen != waiting.digest),
        "mine": _mine(viewer_of(request).name, waiting),
        "action": approval_path(workflow_id, question),
        "events": f"{approval_path(workflow_id, question).replace('?', '/events?')}&cursor={asked.mark}",
    }
    return render(request, "approval.html", values, status=sent.status)


def _mine(name: str, waiting: Waiting | None) -> bool:
    """Return whether a person has approved already."""
    return waiting is not None and name.casefold() in {vote.who.casefold() for vote in waiting.votes}


async def approval(request: Request) -> Response:
    """Show an approval."""
    workflow_id, question = named(request, "run"), named(request, "question")
    asked = await read_question(sources_of(request), workflow_id, question)
    return await _question_page(request, workflow_id, question, asked)


async def decide_approval(request: Request, given: Mapping[str, str]) -> Response:
    """Decide about an approval; the same decision sent again gets the same page."""
    workflow_id, question = named(request, "run"), named(request, "question")
    sources, viewer = sources_of(request), viewer_of(request)
    asked = await read_question(sources, workflow_id, question)
    done = RedirectResponse(approval_path(workflow_id, question), status_code=303)
    if asked.open is None:
        if asked.decided:
            return done
        return await _question_page(request, workflow_id, question, asked, Sent(given, unsent=asked.trouble))
    waiting, approved = asked.open.waiting, given.get("approved") == "yes"
    faults = {"why": fault} if (fault := fault_of_reason(given.get("why", ""))) else {}
    answer: Any = None
    if approved and (form := _form_of(waiting)) is not None:
        filled = form.filled(given)
        answer, faults = filled.value, {**faults, **filled.faults}
    if given.get("approved") not in ("yes", "no"):
        faults["approved"] = "approve or deny"
    if faults:
        return await _question_page(request, workflow_id, question, asked, Sent(given, faults=faults))
    decision = Decision(
        approval=waiting.name,
        question=question,
        digest=given.get("digest"),
        approved=approved,
        who=viewer.name,
        why=given["why"].strip(),
        answer=answer,
    )
    client = await sources.client()
    try:
        await answer_of(client, workflow_id, decide(client, workflow_id, decision))
    except NoAnswerError as error:
        return await _question_page(request, workflow_id, question, asked, Sent(given, unsent=str(error)))
    except PipelineError as error:
        asked = await read_question(sources, workflow_id, question)
        return await _question_page(request, workflow_id, question, asked, Sent(given, refused=str(error)))
    return done


async def approval_events(request: Request) -> Response:
    """Tell the page when the approval changes, is settled, or its worker goes or comes."""
    workflow_id, question, sources = named(request, "run"), named(request, "question"), sources_of(request)

    async def mark() -> str:
        return (await read_question(sources, workflow_id, question)).mark

    return follow(request, mark, every=_LOOKS_EVERY)


@dataclass(frozen=True)
class Held:
    """A handoff that waits, or waited, for a person."""

    one: WaitingHandoff | None  # the handoff with its run; None if it does not wait now
    read: RunHandoffs  # what the run's history tells of its handoffs
    settled: list[tuple[datetime, HandoffDecision]] = field(default_factory=list)

    @property
    def pending(self) -> PendingHandoff | None:
        """The handoff itself."""
        return self.one.handoff if self.one else None

    @property
    def mark(self) -> str:
        """Changes whenever the page does."""
        pending = self.pending
        since = pending.since.isoformat() if pending else ""
        return digest([since, bool(self.one and self.one.answered), len(self.settled)])[7:23]


async def read_held(client: Client, workflow_id: str, handoff_id: str) -> Held:
    """Return a handoff as it stands; without an id the only one of the run that waits."""
    waiting = await run_inbox(client, workflow_id)
    read = await read_handoffs(client, workflow_id)
    one = next((one for one in waiting if one.handoff and one.handoff.handoff_id == handoff_id), None)
    settled = [(at, told) for at, told in read.run.decided if told.handoff_id == handoff_id]
    if one is None and not settled and handoff_id not in read.messages:
        raise HTTPException(404, f"{workflow_id!r} has no handoff {handoff_id!r} that waits for a person")
    return Held(one, read, settled)


def _held_page(
    request: Request,
    workflow_id: str,
    handoff_id: str,
    held: Held,
    sent: Sent = NOTHING_SENT,
) -> Response:
    """Show a handoff: with what was typed, and why that did not count, or could not be sent."""
    given, pending = sent.given, held.pending
    message = held.read.messages.get(handoff_id)
    found = (
        [(one, text_at(message, one.at) if message and one.at else None) for one in pending.findings] if pending else []
    )
    since = pending.since.isoformat() if pending else ""
    values = {
        "workflow_id": workflow_id,
        "held": held,
        "pending": pending,
        "kind": kind_of(pending) if pending else "handoff",
        "findings": found,
        "message": without_envelope(message or {}),
        "message_sent": message,
        "baton": held.read.run.baton.to_json_object(),
        "left": held.read.run.left_micro_usd,
        "ceiling": held.read.run.ceiling_micro_usd,
        "actions": [*pending.actions] if pending else [],
        **vars(sent),
        "given": {"action": "", "why": "", "usd": "", "patch": "{\n}", **given},
        "since": since,
        "changed": bool(given.get("since") and given.get("since") != since),
        "action": handoff_path(workflow_id, handoff_id),
        "check": handoff_path(workflow_id, handoff_id).replace("?", "/check?"),
        "events": f"{handoff_path(workflow_id, handoff_id).replace('?', '/events?')}&cursor={held.mark}",
    }
    return render(request, "handoff.html", values, status=sent.status)


async def handoff(request: Request) -> Response:
    """Show a handoff that waits."""
    workflow_id, handoff_id = named(request, "run"), request.query_params.get("handoff", "")
    held = await read_held(await sources_of(request).client(), workflow_id, handoff_id)
    return _held_page(request, workflow_id, handoff_id, held)


async def decide_handoff(request: Request, given: Mapping[str, str]) -> Response:
    """Decide about a handoff; the same decision sent again gets the same page."""
    workflow_id, handoff_id = named(request, "run"), request.query_params.get("handoff", "")
    client = await sources_of(request).client()
    held = await read_held(client, workflow_id, handoff_id)
    done = RedirectResponse(handoff_path(workflow_id, handoff_id), status_code=303)
    if held.one is None:
        return done
    decision, faults = _decision(handoff_id, viewer_of(request).name, given)
    if decision is None:
        return _held_page(request, workflow_id, handoff_id, held, Sent(given, faults=faults))
    try:
        await must_be_answerable(client, workflow_id)
        await answer_of(client, workflow_id, resolve_handoff(client, workflow_id, decision, held.one.run_id))
    except NoAnswerError as error:
        return _held_page(request, workflow_id, handoff_id, held, Sent(given, unsent=str(error)))
    except PipelineError as error:
        held = await read_held(client, workflow_id, handoff_id)
        return _held_page(request, workflow_id, handoff_id, held, Sent(given, refused=str(error)))
    return done


def _decision(handoff_id: str, who: str, given: Mapping[str, str]) -> tuple[HandoffDecision | None, Mapping[str, str]]:
    """Return what a person decided, or what is wrong with the form."""
    faults: dict[str, str] = {}
    chosen, why = given.get("action", ""), given.get("why", "").strip()
    if chosen not in [one.value for one in HandoffAction]:
        faults["action"] = "choose what to do"
    if fault := fault_of_reason(why):
        faults["why"] = fault
    edit, micro_usd = None, 0
    if chosen == HandoffAction.EDIT.value:
        try:
            edit = _patch(given.get("patch", ""))
        except ValueError as error:
            faults["patch"] = str(error)
    if chosen == HandoffAction.TOP_UP.value:
        try:
            micro_usd = parse_amount(given.get("usd", ""))
        except ValueError as error:
            faults["usd"] = str(error)
    if faults:
        return None, faults
    members = {"handoff_id": handoff_id, "action": chosen, "who": who, "why": why, "micro_usd": micro_usd}
    try:
        return HandoffDecision.model_validate({**members, "edit": edit, "since": given.get("since") or None}), {}
    except ValidationError:
        return None, {"action": "the form is not one of this page; load it again"}


def _patch(text: str) -> dict[str, Any]:
    """Return the patch that a person wrote."""
    patch = parsed_json(text)
    if not isinstance(patch, dict):
        raise ValueError('a patch is a JSON object, such as {"constraints": ["No new service"]}')
    if not patch:
        raise ValueError("the patch changes nothing")
    return patch


async def check_patch(request: Request, given: Mapping[str, str]) -> Response:
    """Return why a patch would be refused, as somebody types it."""
    workflow_id, at = named(request, "run"), request.query_params.get("at")
    try:
        patch = _patch(given.get("patch", ""))
    except ValueError as error:
        return JSONResponse({"findings": [str(error)]})
    sources = sources_of(request)
    run = await sources.run(workflow_id)
    findings = await refused_patch(await sources.client(), run, patch, run.step(at) if at else None)
    return JSONResponse({"findings": findings})


async def handoff_events(request: Request) -> Response:
    """Tell the page when the handoff is settled, waits again, or its worker goes or comes."""
    workflow_id, handoff_id = named(request, "run"), request.query_params.get("handoff", "")
    client = await sources_of(request).client()

    async def mark() -> str:
        return (await read_held(client, workflow_id, handoff_id)).mark

    return follow(request, mark, every=_LOOKS_EVERY)


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
