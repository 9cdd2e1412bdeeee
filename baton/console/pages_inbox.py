"""The inbox: everything in any run that waits for a person."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from temporalio.client import Client

from baton.client import PendingHandoff, WaitingQuestion
from baton.client.faces import inbox_page
from baton.console.rendering import get_sources, render, stream_changes
from baton.console.security import page
from baton.wire.json_values import digest

MENU = ("/inbox", "Inbox")

_PAGE = 100  # runs
_CACHE_SECONDS = 1.0
_MAX_DIGITS = 8
_NEEDS_INPUT = ("SCHEMA_INVALID", "INCOMPLETE_CONTEXT")
_KINDS = {"dead_letter": "dead letter", "top_up": "budget exhausted", "escalate": "escalation", "reroute": "escalation"}


@dataclass(frozen=True)
class Entry:
    """An approval or a handoff that waits for a person."""

    path: str  # the page that decides it
    workflow_id: str
    kind: str  # such as `approval` or `dead letter`
    title: str  # the approval's name, or the handoff's sender and receiver
    text: str = ""  # the question, or why it waits
    whom: str = ""  # who may decide; empty for anybody
    since: datetime | None = None
    until: datetime | None = None  # the deadline
    agreed: Sequence[str] = ()  # who has given the answer that most people gave
    needs: int = 1  # how many must give it


@dataclass(frozen=True)
class Inbox:
    """The entries of the inbox."""

    entries: Sequence[Entry]  # the nearest deadline first
    unserved: Sequence[str]  # runs without a worker: what is decided takes effect once one polls
    number: int  # of the page, from 1
    first: int  # the place of the page's first run
    last: int  # and of its last
    total: int  # how many runs ask something
    mark: str  # a digest that changes whenever the page does


async def _read(request: Request) -> Inbox:
    """Return a page of the inbox, at most a second old and shared by all viewers."""
    sources, number = get_sources(request), _page_number(request)
    client = await sources.client()
    return await sources.shared.read(("inbox", number), _CACHE_SECONDS, lambda: _read_inbox(client, number))


def _page_number(request: Request) -> int:
    text = request.query_params.get("page", "1")
    return max(1, int(text)) if text.isdecimal() and len(text) < _MAX_DIGITS else 1


def approval_path(workflow_id: str, question: str, under: str = "", **more: object) -> str:
    """Return the path of an approval's page, or of one below it."""
    return f"/approval{under}?{urlencode({'run': workflow_id, 'question': question, **more})}"


def handoff_path(workflow_id: str, handoff_id: str) -> str:
    """Return the path of a handoff's page."""
    return f"/handoff?{urlencode({'run': workflow_id, 'handoff': handoff_id})}"


def pending_label(pending: PendingHandoff) -> str:
    """Return the label of a waiting handoff."""
    if pending.reason is not None and pending.reason.value in _NEEDS_INPUT:
        return "needs input"
    return _KINDS.get(pending.fate.value, pending.fate.value)


async def _read_inbox(client: Client, number: int) -> Inbox:
    found = await inbox_page(client, limit=_PAGE, skip=(number - 1) * _PAGE)
    entries = [*map(_entry, found.entries)]
    unserved = sorted({entry.workflow_id for entry in found.entries if not entry.has_worker})
    mark = digest([[str(vars(entry)) for entry in entries], unserved, found.total])[7:23]
    return Inbox(entries, unserved, number, found.skipped + 1, found.skipped + found.runs, found.total, mark)


def _entry(waiting: WaitingQuestion) -> Entry:
    question = waiting.question
    if question is None:
        return Entry(
            handoff_path(waiting.workflow_id, ""),
            waiting.workflow_id,
            "unreadable",
            waiting.stage or "?",
            waiting.trouble or "",
            until=waiting.deadline,
        )
    handoff = question.handoff
    return Entry(
        path=handoff_path(waiting.workflow_id, handoff.handoff_id)
        if handoff
        else approval_path(waiting.workflow_id, question.id),
        workflow_id=waiting.workflow_id,
        kind=pending_label(handoff) if handoff else "approval",
        title=question.title,
        text=question.text,
        whom=", ".join(question.who),
        since=question.since,
        until=question.until,
        agreed=[vote.who for vote in question.agreed],
        needs=question.needs,
    )


async def show(request: Request) -> Response:
    """Show the inbox."""
    page_inbox = await _read(request)
    events = f"/inbox/events?page={page_inbox.number}&cursor={page_inbox.mark}"
    return render(request, "inbox.html", {"inbox": page_inbox, "events": events})


async def events(request: Request) -> Response:
    """Stream an event whenever the inbox changes."""

    async def mark() -> str:
        return (await _read(request)).mark

    return stream_changes(request, mark, every=_CACHE_SECONDS)


ROUTES = [page("/inbox", show), page("/inbox/events", events)]
