"""The inbox: everything in any run that waits for a person."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from temporalio.service import RPCError

from baton.client import Question, RunRecord, WaitingQuestion
from baton.client.faces import InboxFilter, InboxPage, QuestionKind, cost_of, inbox_page
from baton.console.rendering import get_sources, number_param, render, stream_changes, with_query
from baton.console.security import get_viewer, page
from baton.console.sources import Sources
from baton.errors import BatonError
from baton.wire.json_values import digest

MENU = ("/inbox", "Inbox")

_PAGE = 100  # runs
_CACHE_SECONDS, _SEARCH_SECONDS = 1.0, 3.0
_COST_SECONDS = 15.0  # how old the costs of a waiting run may be
_WAIT_SECONDS = 0.15  # for costs, which are in histories; those that take longer come with the next change
_DEPTH, _MAX_DEPTH = 1_000, 16_000  # runs to search for what the server does not index
_MAX_QUERY_LENGTH = 300


@dataclass(frozen=True)
class Entry:
    """An approval or a handoff that waits for a person."""

    path: str  # the page that decides it
    workflow_id: str
    pipeline: str
    kind: QuestionKind
    title: str  # the approval's name, or the handoff's sender and receiver
    text: str = ""  # the question, or why it waits
    whom: str = ""  # who may decide; empty for anybody
    since: datetime | None = None
    until: datetime | None = None  # the deadline
    agreed: Sequence[str] = ()  # who has given the answer that most people gave
    needs: int = 1  # how many must give it
    costs: Sequence[str] = ()  # what the run has cost and an answer would, as far as known


@dataclass(frozen=True)
class Alike:
    """Questions of a page that can be decided together."""

    pipeline: str
    kind: QuestionKind
    title: str
    count: int

    @property
    def path(self) -> str:
        """The page that decides them."""
        return together_path(self.pipeline, self.kind, self.title)


@dataclass(frozen=True)
class Inbox:
    """A page of the inbox."""

    entries: Sequence[Entry]  # the nearest deadline first
    alike: Sequence[Alike]  # the most first
    unserved: Sequence[str]  # runs without a worker: what is decided takes effect once one polls
    found: InboxPage
    unread: int  # how many runs' costs are still being read

    @property
    def mark(self) -> str:
        """A digest that changes whenever the page does."""
        counts = [self.found.total, self.found.soon, self.found.unsearched, self.unread]
        return digest([[str(vars(entry)) for entry in self.entries], [*self.unserved], counts])[7:23]


def approval_path(workflow_id: str, question: str, under: str = "", **more: object) -> str:
    """Return the path of an approval's page, or of one below it."""
    return f"/approval{under}?{urlencode({'run': workflow_id, 'question': question, **more})}"


def handoff_path(workflow_id: str, handoff_id: str) -> str:
    """Return the path of a handoff's page."""
    return f"/handoff?{urlencode({'run': workflow_id, 'handoff': handoff_id})}"


def question_path(workflow_id: str, question: Question) -> str:
    """Return the path of the page that decides a question."""
    handoff = question.handoff
    return handoff_path(workflow_id, handoff.handoff_id) if handoff else approval_path(workflow_id, question.id)


def together_path(pipeline: str, kind: QuestionKind, title: str) -> str:
    """Return the path of the page that decides all questions that are alike."""
    return f"/inbox/together?{urlencode({'pipeline': pipeline, 'kind': kind.value, 'title': title})}"


def inbox_filter(request: Request) -> InboxFilter:
    """Return the filter in the address."""
    params = request.query_params
    kind = params.get("kind")
    return InboxFilter(
        pipeline=params.get("pipeline", "").strip()[:_MAX_QUERY_LENGTH] or None,
        kind=QuestionKind(kind) if kind in [member.value for member in QuestionKind] else None,
        who=get_viewer(request).name if params.get("mine") == "1" else None,
        title=params.get("title", "")[:_MAX_QUERY_LENGTH] or None,
    )


async def _read(request: Request) -> Inbox:
    """Return a page of the inbox, a few seconds old at most and shared by all viewers."""
    sources, wanted = get_sources(request), inbox_filter(request)
    number = number_param(request, "page", 1)
    depth = number_param(request, "searched", _DEPTH, most=_MAX_DEPTH)
    key, seconds = ("inbox", wanted, number, depth), _SEARCH_SECONDS if wanted.reads else _CACHE_SECONDS
    return await sources.shared.read(key, seconds, lambda: _read_inbox(sources, wanted, number, depth))


async def _read_inbox(sources: Sources, wanted: InboxFilter, number: int, depth: int) -> Inbox:
    client = await sources.client()
    found = await inbox_page(client, wanted, limit=_PAGE, skip=(number - 1) * _PAGE, depth=depth)
    asking = {entry.workflow_id: entry.run_id for entry in found.entries if entry.question}
    runs, unread = await _read_runs(sources, asking)
    entries = [_entry(entry, runs.get(entry.workflow_id)) for entry in found.entries]
    unserved = sorted({entry.workflow_id for entry in found.entries if not entry.has_worker})
    decidable = [entry for entry in found.entries if entry.question and not entry.question.proof]
    counts = Counter((entry.pipeline, entry.kind, entry.question.title) for entry in decidable if entry.question)
    alike = [Alike(*key, count) for key, count in counts.most_common() if count > 1]
    return Inbox(entries, alike, unserved, found, unread)


async def _read_runs(sources: Sources, asking: Mapping[str, str]) -> tuple[dict[str, RunRecord], int]:
    """Return the runs that could be read soon, by workflow id, and how many are still being read."""

    async def read(workflow_id: str, run_id: str) -> RunRecord | None:
        async def read_in_turn() -> RunRecord:
            async with sources.turn:
                return await sources.run(workflow_id, run_id)

        with contextlib.suppress(RPCError, BatonError):  # it has ended, or cannot be read: the card does without
            return await sources.shared.read(("asking", run_id), _COST_SECONDS, read_in_turn)
        return None

    tasks = {id: asyncio.create_task(read(id, run_id)) for id, run_id in asking.items()}
    if not tasks:
        return {}, 0
    _, unread = await asyncio.wait(tasks.values(), timeout=_WAIT_SECONDS)
    runs = {id: task.result() for id, task in tasks.items() if task.done()}
    return {id: run for id, run in runs.items() if run is not None}, len(unread)


def _entry(waiting: WaitingQuestion, run: RunRecord | None) -> Entry:
    question = waiting.question
    if question is None:
        return Entry(
            handoff_path(waiting.workflow_id, ""),
            waiting.workflow_id,
            waiting.pipeline,
            waiting.kind,
            waiting.stage or "?",
            waiting.trouble or "",
            until=waiting.deadline,
        )
    return Entry(
        path=question_path(waiting.workflow_id, question),
        workflow_id=waiting.workflow_id,
        pipeline=waiting.pipeline,
        kind=waiting.kind,
        title=question.title,
        text=question.text or (run.baton.goal if run else ""),
        whom=", ".join(question.who),
        since=question.since,
        until=question.until,
        agreed=[vote.who for vote in question.agreed],
        needs=question.needs,
        costs=cost_of(run, question).clauses if run else (),
    )


async def show(request: Request) -> Response:
    """Show the inbox."""
    shown, number = await _read(request), number_param(request, "page", 1)
    depth = number_param(request, "searched", _DEPTH, most=_MAX_DEPTH)
    found, url = shown.found, request.url
    values = {
        "inbox": shown,
        "found": found,
        "wanted": inbox_filter(request),
        "kinds": [*QuestionKind],
        "nearer": with_query(url, page=number - 1 if number > 2 else None) if number > 1 else "",
        "later": with_query(url, page=number + 1) if found.remaining else "",
        "further": with_query(url, searched=min(depth * 4, _MAX_DEPTH)) if depth < _MAX_DEPTH else "",
        "events": f"/inbox/events?{url.include_query_params(cursor=shown.mark).query}",
    }
    return render(request, "inbox.html", values)


async def events(request: Request) -> Response:
    """Stream an event whenever the inbox changes."""

    async def mark() -> str:
        return (await _read(request)).mark

    return stream_changes(request, mark, every=_CACHE_SECONDS)


ROUTES = [page("/inbox", show), page("/inbox/events", events)]
