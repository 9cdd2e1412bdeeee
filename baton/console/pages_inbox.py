"""The inbox: everything that waits for a person, of all runs."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from temporalio.client import Client
from temporalio.service import RPCError

from baton.client import PendingHandoff, RunFilter, Waiting, WaitingHandoff, inbox, list_runs, open_approvals
from baton.console.live import Change, cursor_of, stream
from baton.console.rendering import render
from baton.console.security import page
from baton.console.sources import Sources
from baton.errors import BatonError
from baton.wire.json_values import digest

MENU = ("/inbox", "Inbox")

_MOST = 200
_FRESH_SECONDS = 1.0
_NEEDS_INPUT = ("SCHEMA_INVALID", "INCOMPLETE_CONTEXT")
_FATES = {"dead_letter": "dead letter", "top_up": "budget exhausted", "escalate": "escalation", "reroute": "escalation"}


@dataclass(frozen=True)
class Entry:
    """One thing that waits for a person.

    Attributes:
        path: The page on which it is decided.
        workflow_id: The run.
        kind: What waits, such as `approval` or `dead letter`.
        title: Which one: the approval's name, or who hands on to whom.
        text: The question, or why it waits.
        whom: Who may decide; empty for anybody.
        since: Since when.
        until: When nobody's word counts any more.
        approved: Of a quorum: who has approved.
        needs: Of a quorum: how many have to.
    """

    path: str
    workflow_id: str
    kind: str
    title: str
    text: str = ""
    whom: str = ""
    since: datetime | None = None
    until: datetime | None = None
    approved: Sequence[str] = ()
    needs: int = 1


@dataclass(frozen=True)
class Listed:
    """The inbox as it was read.

    Attributes:
        entries: What waits, the oldest first.
        silent: The runs that wait for a decision, and whose workers do not answer.
        mark: Changes whenever the page does.
    """

    entries: Sequence[Entry]
    silent: Sequence[str]
    mark: str


@dataclass
class Reader:
    """Reads the inbox for all viewers at once: at most once a second."""

    sources: Sources
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _read: tuple[float, Listed] | None = None

    async def read(self) -> Listed:
        """Return the inbox as it was a second ago at most."""
        async with self._turn:
            if self._read is None or time.monotonic() - self._read[0] > _FRESH_SECONDS:
                listed = await _listed(await self.sources.client())
                self._read = time.monotonic(), listed
            return self._read[1]


def approval_path(workflow_id: str, question: str) -> str:
    """Return the path of the page on which an approval is decided."""
    return f"/approval?{urlencode({'run': workflow_id, 'question': question})}"


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


def _reader(request: Request) -> Reader:
    state = request.app.state
    if not hasattr(state, "inbox"):
        state.inbox = Reader(state.sources)
    reader: Reader = state.inbox
    return reader


async def show(request: Request) -> Response:
    """Show the inbox."""
    listed = await _reader(request).read()
    return render(request, "inbox.html", {"listed": listed, "events": f"/inbox/events?cursor={listed.mark}"})


async def events(request: Request) -> Response:
    """Tell the page whenever the inbox changes."""
    return stream(_changes(request))


async def _changes(request: Request) -> AsyncIterator[Change]:
    reader, told, lost = _reader(request), cursor_of(request) or "", False
    while True:
        try:
            listed = await reader.read()
        except (RPCError, BatonError) as error:
            if not lost:
                yield Change("lost", told, str(error))
            lost = True
        else:
            if lost or listed.mark != told:
                yield Change("changed", listed.mark)
            told, lost = listed.mark, False
        await asyncio.sleep(_FRESH_SECONDS)


ROUTES = [page("/inbox", show), page("/inbox/events", events)]
