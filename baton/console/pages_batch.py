"""The page that decides several questions at once that are alike, each bound to what was shown of it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from temporalio.client import Client
from temporalio.service import RPCError

from baton.client import Decide, HandoffAction, Question, Role, RunRecord, RunStatus, WaitingQuestion
from baton.client.faces import APPROVE, DENY, Decided, InboxPage, QuestionKind, cost_of, decide_several, inbox_page
from baton.console.forms import NO_SUBMISSION, FormResult, SchemaForm, Submission, check_reason
from baton.console.pages_decide import parse_action
from baton.console.pages_inbox import inbox_filter, question_path, together_path
from baton.console.rendering import get_sources, render
from baton.console.security import action, get_viewer, page
from baton.console.sources import Sources
from baton.errors import BatonError

_MOST = 50  # runs on the page


@dataclass(frozen=True)
class Item:
    """One of the questions, whole."""

    workflow_id: str
    question: Question
    goal: str
    costs: Sequence[str]
    has_worker: bool

    @property
    def key(self) -> str:
        """What its fields are called after."""
        return f"{self.question.id} {self.workflow_id}"

    @property
    def mark(self) -> str:
        """What a decision is bound to."""
        return Decide.mark_of(self.question)

    @property
    def path(self) -> str:
        """The page that decides it alone."""
        return question_path(self.workflow_id, self.question)


@dataclass(frozen=True)
class Together:
    """The questions of a page, which have the same choices and the same form."""

    items: Sequence[Item]
    others: int  # how many that look alike have other choices, another form, or cannot be decided here
    found: InboxPage

    @property
    def actions(self) -> list[HandoffAction]:
        """What can be done about each handoff; a patch is for one baton only."""
        handoffs = [item.question.handoff for item in self.items]
        allowed = [handoff.actions for handoff in handoffs if handoff]
        return [one for one in HandoffAction if one is not HandoffAction.EDIT and all(one in each for each in allowed)]

    @property
    def form(self) -> SchemaForm | None:
        """The form of the answer."""
        schema = self.items[0].question.form if self.items else None
        return SchemaForm(schema, "answer") if schema is not None else None


async def _read(request: Request, inputs: Mapping[str, str]) -> Together:
    """Return the questions that the address names, the nearest deadlines first: those like the ones that are chosen."""
    sources, wanted = get_sources(request), inbox_filter(request)
    if wanted.kind in (None, QuestionKind.UNREADABLE) or wanted.title is None:
        raise HTTPException(404, "the address names no kind of question, or no title")
    found = await inbox_page(await sources.client(), wanted, limit=_MOST)
    read = await asyncio.gather(*(_read_item(sources, entry) for entry in found.entries))
    items = [item for item in read if item is not None]
    like = next((item for item in items if f"pick {item.key}" in inputs), items[0] if items else None)
    fitting = [item for item in items if like is not None and item.question.forms == like.question.forms]
    return Together(fitting, len(found.entries) - len(fitting), found)


async def _read_item(sources: Sources, entry: WaitingQuestion) -> Item | None:
    """Return a question with whole texts; None if it is no longer open, or is decided elsewhere with a key."""
    run = await _read_run(sources, entry.workflow_id)
    asked = _question_in(run, entry.question.id) if run and entry.question else None
    if run is None or asked is None or asked.proof or run.status is not RunStatus.RUNNING:
        return None
    return Item(entry.workflow_id, asked, run.baton.goal, cost_of(run, asked).clauses, entry.has_worker)


async def _read_run(sources: Sources, workflow_id: str) -> RunRecord | None:
    """Return a run; None if it cannot be read."""
    try:
        async with sources.turn:
            return await sources.run(workflow_id)
    except (RPCError, BatonError):
        return None


def _question_in(run: RunRecord, id: str) -> Question | None:
    return next((asked for asked in run.questions if asked.id == id), None)


async def _together_page(
    request: Request, submission: Submission = NO_SUBMISSION, decided: Sequence[Decided] = ()
) -> Response:
    inputs, wanted = submission.inputs, inbox_filter(request)
    shown = await _read(request, inputs)
    form = shown.form if wanted.kind is QuestionKind.APPROVAL else None
    values = {
        "shown": shown,
        "wanted": wanted,
        "is_approval": wanted.kind is QuestionKind.APPROVAL,
        "fields": form.fields(inputs, submission.faults) if form else [],
        **vars(submission),
        "inputs": {"action": "", "why": "", "usd": "", **inputs},
        "picked": [item.key for item in shown.items if not inputs or f"pick {item.key}" in inputs],
        "decided": decided,
        "action": together_path(wanted.pipeline or "", wanted.kind or QuestionKind.APPROVAL, wanted.title or ""),
    }
    return render(request, "together.html", values, status=submission.status)


async def together(request: Request) -> Response:
    """Show questions that are alike, and the form that decides them."""
    return await _together_page(request)


async def decide_together(request: Request, fields: Mapping[str, str]) -> Response:
    """Decide each question that was picked, if it is as it was shown. Sending the same again has no effect."""
    kind, client = inbox_filter(request).kind, await get_sources(request).client()
    picked = [name.removeprefix("pick ") for name in fields if name.startswith("pick ")]
    if kind is QuestionKind.APPROVAL:
        operation, faults = _parse_approval(client, fields)
    else:
        operation, faults = parse_action(Decide(client, "", HandoffAction.ABANDON), fields)
        if operation.choice is HandoffAction.EDIT:
            faults["action"] = "a patch is for one baton only: edit each by itself"
    if not picked:
        faults["picked"] = "choose at least one"
    operations = [
        replace(operation, workflow_id=id, question=asked) for asked, _, id in (key.partition(" ") for key in picked)
    ]
    if operation.choice == APPROVE:
        filled = await asyncio.gather(*(_fill_in(get_sources(request), one, fields) for one in operations))
        operations = [replace(one, data=answer.value) for one, answer in zip(operations, filled, strict=True)]
        faults |= {name: fault for answer in filled for name, fault in answer.faults.items()}
    if faults:
        return await _together_page(request, Submission(fields, faults))
    shown = [(one, fields.get(f"mark {key}", "")) for one, key in zip(operations, picked, strict=True)]
    decided = await decide_several(shown, by=get_viewer(request).name, why=fields["why"].strip())
    return await _together_page(request, decided=decided)


def _parse_approval(client: Client, fields: Mapping[str, str]) -> tuple[Decide, dict[str, str]]:
    """Return the operation that is chosen for approvals, without an answer, and the form's errors."""
    faults = {"why": fault} if (fault := check_reason(fields.get("why", ""))) else {}
    if fields.get("approved") not in ("yes", "no"):
        faults["approved"] = "approve or deny"
    return Decide(client, "", APPROVE if fields.get("approved") == "yes" else DENY), faults


async def _fill_in(sources: Sources, operation: Decide, fields: Mapping[str, str]) -> FormResult:
    """Return what the fields say by the question's own form, whatever else is asked by now."""
    run, id = await _read_run(sources, operation.workflow_id), operation.question or ""
    if run is None:
        return FormResult(None, {"picked": f"{operation.workflow_id} cannot be read now; try again, or leave it out"})
    asked = _question_in(run, id)
    if asked is None:  # the form of a decided question is gone
        settled = run.answer_to(id)
        return FormResult(settled.data if settled else None, {})
    return FormResult(None, {}) if asked.form is None else SchemaForm(asked.form, "answer").parse(fields)


ROUTES = [page("/inbox/together", together), action("/inbox/together", decide_together, Role.DECIDER)]
