"""Deciding: an approval, on exactly what is shown; and a handoff that waits for a person."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from temporalio.client import Client
from temporalio.service import RPCError

from baton import Decided, Decision, PipelineError
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
)
from baton.console.forms import SchemaForm, parsed_json
from baton.console.live import Change, cursor_of, stream
from baton.console.pages_inbox import approval_path, handoff_path, kind_of
from baton.console.rendering import render
from baton.console.security import Role, action, page, viewer_of
from baton.console.sources import Sources
from baton.errors import BatonError
from baton.wire.json_values import digest
from baton.wire.money import amount_of

_LOOKS_EVERY = 1.0
_READ_SECONDS = 5.0  # a page says sooner than a decision that no worker answers, and follows once one does
_ENVELOPE = frozenset(
    {"schemaVersion", "handoffId", "taskId", "fromAgent", "toAgent", "timestamp", "traceparent", "parentHandoffId"}
    | {"signature", "keyId", "audience", "expiresAt", "trail", "step", "personalDataPayload"}
)

MEANINGS = {
    HandoffAction.RELEASE: ("Release", "The finding is a false alarm: send it under my name; it is audited again."),
    HandoffAction.TOP_UP: ("Top up", "Put money into the budget and send it."),
    HandoffAction.REQUEUE: ("Requeue", "Send it again as it is."),
    HandoffAction.EDIT: ("Edit", "Change the baton by a patch, and send what follows from it."),
    HandoffAction.ABANDON: ("Abandon", "Give it up: the stage fails."),
}
"""What each decision about a handoff is called, and what it does."""


@dataclass(frozen=True)
class Question:
    """An approval as its page shows it.

    Attributes:
        name: Its name.
        open: What is asked and shown; None if it is settled, or no worker answers.
        decided: How it was settled.
        trouble: Why nothing can be decided now.
        since: Since when it waits, as the history tells.
        mark: Changes whenever the page does.
    """

    name: str
    open: OpenApproval | None = None
    decided: Decided | None = None
    trouble: str = ""
    since: datetime | None = None

    @property
    def mark(self) -> str:
        """Changes whenever the page does."""
        waiting = self.open.waiting if self.open else None
        votes = [vote.who for vote in waiting.votes] if waiting else []
        return digest([self.trouble, waiting.digest if waiting else "", votes, self.decided is not None])[7:23]


async def read_question(sources: Sources, workflow_id: str, question: str) -> Question:
    """Return an approval as it stands: open, settled by somebody, or out of reach.

    Raises:
        PipelineError: The run has not asked this.
    """
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


def _form_of(waiting: Waiting) -> SchemaForm | None:
    """Return the form that a yes fills in; in a quorum it holds the answer that the others gave."""
    if waiting.answer is None:
        return None
    earlier = waiting.votes[0].answer if waiting.votes else None
    return SchemaForm(waiting.answer, "answer", earlier) if earlier else SchemaForm(waiting.answer, "answer")


def _question_page(
    request: Request,
    workflow_id: str,
    question: str,
    asked: Question,
    *,
    given: Mapping[str, str] | None = None,
    faults: Mapping[str, str] | None = None,
    refused: str = "",
    unsent: str = "",
) -> Response:
    """Show an approval: with what was typed, and why that did not count, or could not be sent."""
    waiting = asked.open.waiting if asked.open else None
    form = _form_of(waiting) if waiting else None
    seen = (given or {}).get("digest", "")
    values = {
        "workflow_id": workflow_id,
        "question": question,
        "asked": asked,
        "waiting": waiting,
        "baton": asked.open.baton if asked.open else None,
        "fields": form.fields(given, faults) if form else [],
        "why": (given or {}).get("why", ""),
        "faults": faults or {},
        "refused": refused,
        "unsent": unsent,
        "given": given or {},
        "changed": bool(waiting and seen and seen != waiting.digest),
        "mine": _mine(viewer_of(request).name, waiting),
        "action": approval_path(workflow_id, question),
        "events": f"{approval_path(workflow_id, question).replace('?', '/events?')}&cursor={asked.mark}",
    }
    return render(request, "approval.html", values, status=_status(unsent, refused or faults))


def _status(unsent: str, refused: object) -> int:
    """Return 503 for a form that can be sent again as it is, 409 for one that did not count."""
    return 503 if unsent else 409 if refused else 200


def _mine(name: str, waiting: Waiting | None) -> bool:
    """Return whether a person has approved already."""
    return waiting is not None and name.casefold() in {vote.who.casefold() for vote in waiting.votes}


async def approval(request: Request) -> Response:
    """Show an approval."""
    workflow_id, question = _of(request, "run"), _of(request, "question")
    return _question_page(request, workflow_id, question, await read_question(_sources(request), workflow_id, question))


async def decide_approval(request: Request, given: Mapping[str, str]) -> Response:
    """Decide about an approval; the same decision sent again gets the same page."""
    workflow_id, question = _of(request, "run"), _of(request, "question")
    sources, viewer = _sources(request), viewer_of(request)
    asked = await read_question(sources, workflow_id, question)
    done = RedirectResponse(approval_path(workflow_id, question), status_code=303)
    if asked.open is None:
        if asked.decided:
            return done
        return _question_page(request, workflow_id, question, asked, given=given, unsent=asked.trouble)
    waiting, approved = asked.open.waiting, given.get("approved") == "yes"
    faults: dict[str, str] = {} if given.get("why", "").strip() else {"why": "say why; the reason is recorded"}
    answer: Any = None
    if approved and (form := _form_of(waiting)) is not None:
        filled = form.filled(given)
        answer, faults = filled.value, {**faults, **filled.faults}
    if given.get("approved") not in ("yes", "no"):
        faults["approved"] = "approve or deny"
    if faults:
        return _question_page(request, workflow_id, question, asked, given=given, faults=faults)
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
        return _question_page(request, workflow_id, question, asked, given=given, unsent=str(error))
    except PipelineError as error:
        asked = await read_question(sources, workflow_id, question)
        return _question_page(request, workflow_id, question, asked, given=given, refused=str(error))
    return done


async def approval_events(request: Request) -> Response:
    """Tell the page when the approval changes, is settled, or its worker goes or comes."""
    workflow_id, question, sources = _of(request, "run"), _of(request, "question"), _sources(request)

    async def mark() -> str:
        return (await read_question(sources, workflow_id, question)).mark

    return stream(_changes(request, mark))


async def _changes(request: Request, mark: Any) -> AsyncIterator[Change]:
    """Yield a change whenever what is shown has another mark."""
    told, lost = cursor_of(request) or "", False
    while True:
        try:
            now = await mark()
        except (RPCError, BatonError, HTTPException) as error:
            if not lost:
                yield Change("lost", told, str(error))
            lost = True
        else:
            if lost or now != told:
                yield Change("changed", now)
            told, lost = now, False
        await asyncio.sleep(_LOOKS_EVERY)


@dataclass(frozen=True)
class Held:
    """A handoff that waits, or waited, for a person.

    Attributes:
        one: The handoff with its run; None if it does not wait now.
        read: What the run's history tells of its handoffs.
        settled: What people decided about it, with the time, the newest last.
    """

    one: WaitingHandoff | None
    read: RunHandoffs
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
    """Return a handoff as it stands; without an id the only one of the run that waits.

    Raises:
        PipelineError: The run has no such handoff.
    """
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
    *,
    given: Mapping[str, str] | None = None,
    faults: Mapping[str, str] | None = None,
    refused: str = "",
    unsent: str = "",
) -> Response:
    """Show a handoff: with what was typed, and why that did not count, or could not be sent."""
    given, pending = given or {}, held.pending
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
        "message": {name: value for name, value in (message or {}).items() if name not in _ENVELOPE and value},
        "was_sent": message is not None,
        "baton": held.read.run.baton.to_json_object(),
        "left": held.read.run.left_micro_usd,
        "ceiling": held.read.run.ceiling_micro_usd,
        "actions": [(one.value, *MEANINGS[one]) for one in pending.actions] if pending else [],
        "given": {"action": "", "why": "", "usd": "", "patch": "{\n}", **given},
        "faults": faults or {},
        "refused": refused,
        "unsent": unsent,
        "since": since,
        "changed": bool(given.get("since") and given.get("since") != since),
        "action": handoff_path(workflow_id, handoff_id),
        "check": handoff_path(workflow_id, handoff_id).replace("?", "/check?"),
        "events": f"{handoff_path(workflow_id, handoff_id).replace('?', '/events?')}&cursor={held.mark}",
    }
    return render(request, "handoff.html", values, status=_status(unsent, refused or faults))


async def handoff(request: Request) -> Response:
    """Show a handoff that waits."""
    workflow_id, handoff_id = _of(request, "run"), _of(request, "handoff", needed=False)
    held = await read_held(await _sources(request).client(), workflow_id, handoff_id)
    return _held_page(request, workflow_id, handoff_id, held)


async def decide_handoff(request: Request, given: Mapping[str, str]) -> Response:
    """Decide about a handoff; the same decision sent again gets the same page."""
    workflow_id, handoff_id = _of(request, "run"), _of(request, "handoff", needed=False)
    client = await _sources(request).client()
    held = await read_held(client, workflow_id, handoff_id)
    done = RedirectResponse(handoff_path(workflow_id, handoff_id), status_code=303)
    if held.one is None:
        return done
    decision, faults = _decision(handoff_id, viewer_of(request).name, given)
    if decision is None:
        return _held_page(request, workflow_id, handoff_id, held, given=given, faults=faults)
    try:
        await must_be_answerable(client, workflow_id)
        await answer_of(client, workflow_id, resolve_handoff(client, workflow_id, decision, held.one.run_id))
    except NoAnswerError as error:
        return _held_page(request, workflow_id, handoff_id, held, given=given, unsent=str(error))
    except PipelineError as error:
        held = await read_held(client, workflow_id, handoff_id)
        return _held_page(request, workflow_id, handoff_id, held, given=given, refused=str(error))
    return done


def _decision(handoff_id: str, who: str, given: Mapping[str, str]) -> tuple[HandoffDecision | None, Mapping[str, str]]:
    """Return what a person decided, or what is wrong with the form."""
    faults: dict[str, str] = {}
    chosen, why = given.get("action", ""), given.get("why", "").strip()
    if chosen not in [one.value for one in HandoffAction]:
        faults["action"] = "choose what to do"
    if not why:
        faults["why"] = "say why; the reason is recorded"
    edit, micro_usd = None, 0
    if chosen == HandoffAction.EDIT.value:
        try:
            edit = _patch(given.get("patch", ""))
        except ValueError as error:
            faults["patch"] = str(error)
    if chosen == HandoffAction.TOP_UP.value:
        try:
            micro_usd = amount_of(given.get("usd", ""))
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
    """Return the patch that a person wrote.

    Raises:
        ValueError: It is not a JSON object, or changes nothing.
    """
    patch = parsed_json(text)
    if not isinstance(patch, dict):
        raise ValueError('a patch is a JSON object, such as {"constraints": ["No new service"]}')
    if not patch:
        raise ValueError("the patch changes nothing")
    return patch


async def check_patch(request: Request, given: Mapping[str, str]) -> Response:
    """Return why a patch would be refused, as somebody types it."""
    workflow_id, at = _of(request, "run"), request.query_params.get("at")
    try:
        patch = _patch(given.get("patch", ""))
    except ValueError as error:
        return JSONResponse({"findings": [str(error)]})
    sources = _sources(request)
    run = await sources.run(workflow_id)
    findings = await refused_patch(await sources.client(), run, patch, run.step(at) if at else None)
    return JSONResponse({"findings": findings})


async def handoff_events(request: Request) -> Response:
    """Tell the page when the handoff is settled, waits again, or its worker goes or comes."""
    workflow_id, handoff_id = _of(request, "run"), _of(request, "handoff", needed=False)
    client = await _sources(request).client()

    async def mark() -> str:
        return (await read_held(client, workflow_id, handoff_id)).mark

    return stream(_changes(request, mark))


def _sources(request: Request) -> Sources:
    sources: Sources = request.app.state.sources
    return sources


def _of(request: Request, name: str, *, needed: bool = True) -> str:
    """Return a parameter of the address."""
    value = request.query_params.get(name, "")
    if needed and not value:
        raise HTTPException(404, f"the address names no {name}")
    return value


ROUTES = [
    page("/approval", approval),
    page("/approval/events", approval_events),
    action("/approval", decide_approval, Role.DECIDER),
    page("/handoff", handoff),
    page("/handoff/events", handoff_events),
    action("/handoff/check", check_patch, Role.DECIDER),
    action("/handoff", decide_handoff, Role.DECIDER),
]
