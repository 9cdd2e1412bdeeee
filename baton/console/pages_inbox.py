"""The inbox: everything that waits for a person, of all runs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from temporalio.client import Client

from baton.client import PendingHandoff, RunFilter, Waiting, WaitingHandoff, inbox, list_runs, open_approvals
from baton.console.rendering import follow, render, sources_of
from baton.console.security import page
from baton.wire.json_values import digest

MENU = ("/inbox", "Inbox")

_MOST = 200
_FRESH_SECONDS = 1.0
_NEEDS_INPUT = ("SCHEMA_INVALID", "INCOMPLETE_CONTEXT")
_FATES = {"dead_letter": "dead letter", "top_up": "budget exhausted", "escalate": "escalation", "reroute": "escalation"}


@dataclass(frozen=True)
class Entry:
    """One thing that waits for a person."""

    path: str  # the page on which it is decided
    workflow_id: str  # the run
    kind: str  # what waits, such as `approval` or `dead letter`
    title: str  # which one: the approval's name, or who hands on to whom
    text: str = ""  # the question, or why it waits
    whom: str = ""  # who may decide; empty for anybody
    since: datetime | None = None  # since when
    until: datetime | None = None  # later no decision counts
    approved: Sequence[str] = ()  # of a quorum: who has approved
    needs: int = 1  # of a quorum: how many have to


@dataclass(frozen=True)
class Listed:
    """The inbox as it was read."""

    entries: Sequence[Entry]  # what waits, the oldest first
    silent: Sequence[str]  # the runs that wait for a decision, and whose workers do not answer
    mark: str  # changes whenever the page does


async def _read(request: Request) -> Listed:
    """Return the inbox as it was a second ago at most, read for all viewers at once."""
    sources = sources_of(request)
    client = await sources.client()
    return await sources.shared.read("inbox", _FRESH_SECONDS, lambda: _listed(client))


def approval_path(workflow_id: str, question: str, under: str = "", **more: object) -> str:
    """Return the path of the page on which an approval is decided, or of what is under it."""
    return f"/approval{under}?{urlencode({'run': workflow_id, 'question': question, **more})}"


def handoff_path(workflow_id: str, handoff_id: str) -> str:
    """Return the path of the page on which a handoff that waits is decided."""
    return f"/handoff?{urlencode({'run': workflow_id, 'handoff': handoff_id})}"


def kind_of(pending: PendingHandoff) -> str:
    """Return what a handoff that waits is to a person."""
    if pending.reason is not None and pending.reason.value in _NEEDS_INPUT:
        return "needs input"
    return _FATES.get(pending.fate.value, pending.fate.value)


async def _listed(client: Client) -> Listed:
    waiting, handoffs, asking = await asyncio.gather(
        open_approvals(client, limit=_MOST),
        inbox(client, limit=_MOST),
        list_runs(client, RunFilter(status="WAITING"), _MOST),
    )
    entries = [*(_approval(id, one) for id, one in waiting), *(_handoff(one) for one in handoffs)]
    answered = {id for id, _ in waiting}
    silent = sorted(
        {one.workflow_id for one in asking} - answered | {one.workflow_id for one in handoffs if not one.answered}
    )
    entries.sort(key=lambda one: (one.since is not None, one.since))
    return Listed(entries, silent, digest([[str(vars(one)) for one in entries], silent])[7:23])


def _approval(workflow_id: str, one: Waiting) -> Entry:
    return Entry(
        path=approval_path(workflow_id, one.question or ""),
        workflow_id=workflow_id,
        kind="approval",
        title=one.name,
        text=one.asks or "",
        whom=", ".join(one.who),
        since=one.since,
        until=one.until,
        approved=[vote.who for vote in one.votes],
        needs=one.needs,
    )


def _handoff(one: WaitingHandoff) -> Entry:
    pending = one.handoff
    if pending is None:
        return Entry(handoff_path(one.workflow_id, ""), one.workflow_id, "handoff", one.stage or "?", one.trouble or "")
    return Entry(
        path=handoff_path(one.workflow_id, pending.handoff_id),
        workflow_id=one.workflow_id,
        kind=kind_of(pending),
        title=f"{pending.sender} → {pending.receiver}",
        text=pending.details,
        since=pending.since,
        until=pending.until,
    )


async def show(request: Request) -> Response:
    """Show the inbox."""
    listed = await _read(request)
    return render(request, "inbox.html", {"listed": listed, "events": f"/inbox/events?cursor={listed.mark}"})


async def events(request: Request) -> Response:
    """Tell the page whenever the inbox changes."""

    async def mark() -> str:
        return (await _read(request)).mark

    return follow(request, mark, every=_FRESH_SECONDS)


ROUTES = [page("/inbox", show), page("/inbox/events", events)]
