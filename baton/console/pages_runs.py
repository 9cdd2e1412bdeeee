"""The list of runs: at once from the server's index, with details from histories as they are read."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from time import monotonic

from starlette.requests import Request
from starlette.responses import Response
from temporalio.service import RPCError

from baton import Spend
from baton.client import STATUSES, ListedRun, RunFilter, Standing, list_runs, standing
from baton.client.faces import describe
from baton.console.rendering import get_sources, render, stream_changes
from baton.console.security import page
from baton.console.sources import Sources
from baton.errors import BatonError

MENU = ("/", "Runs")

_DEFAULT_LIMIT, _MAX_LIMIT = 50, 1_000
_DEFAULT_DEPTH, _MAX_DEPTH = 500, 5_000
_POLL_SECONDS = 1.0
_MAX_QUERY_LENGTH = 200
NEEDS_YOU = ("PENDING_HANDOFF", "WAITING", "SUSPENDED", "PAUSED")
"""The statuses in which a run waits for a person, in the order of the list."""

_MAX_CONCURRENT_READS = 8
_WAIT_SECONDS = 0.12
_CACHE_SECONDS = 2.0
_MAX_CACHED = 5_000
_MASK = 2**64 - 1
_SEARCHED_FIELDS = ("workflow_id", "pipeline", "task_id", "stage")


@dataclass(frozen=True)
class RunDetails:
    """Details of a run from its history, beyond the index."""

    goal: str
    standing: Standing | None = None
    spent: Spend = field(default_factory=Spend)
    ceiling: int | None = None  # the budget, if it has one


@dataclass(frozen=True)
class RunRow:
    """A run in the list."""

    run: ListedRun
    details: RunDetails | None = None  # None while its history is being read

    @property
    def needs_you(self) -> bool:
        """Whether it needs a person."""
        current = self.details.standing if self.details else None
        return self.run.ended is None and (current.needs_you if current else self.run.status in NEEDS_YOU)

    @property
    def status(self) -> str:
        """Its current status: from the history while it is open, else from the index."""
        current = self.details.standing if self.details else None
        return current.status if current and self.run.ended is None else self.run.status


@dataclass(frozen=True)
class Listing:
    """A page of the list."""

    rows: list[RunRow]
    more: bool  # whether more runs match than the limit
    unread: int  # the number of histories still being read
    beyond: bool = False  # whether some runs' goals were not searched

    @property
    def mark(self) -> str:
        """A hash that changes whenever the page does."""
        return f"{hash(tuple((row.run, row.details) for row in self.rows)) & _MASK:x}"


class RunTable:
    """Reads the list and caches details; those of ended runs do not expire."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._limiter = asyncio.Semaphore(_MAX_CONCURRENT_READS)
        self._details: OrderedDict[str, tuple[float, ListedRun, RunDetails]] = OrderedDict()
        self._goals: OrderedDict[str, str] = OrderedDict()
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def listing(self, run_filter: RunFilter, text: str, limit: int, depth: int) -> Listing:
        """Return the runs that match a filter and a text, those that need a person first."""
        matches = await self._list(run_filter, depth + 1 if text else limit + 1)
        unread, beyond = 0, bool(text) and len(matches) > depth
        if text:
            matches = matches[:depth]
            unread = await self._read([run for run in matches if run.run_id not in self._goals], self._read_goal)
            matches = [run for run in matches if text.casefold() in self._search_text(run)]
            known_ids = {run.workflow_id for run in matches}
            prefix_matches = await self._list(replace(run_filter, id_prefix=text), limit + 1) if beyond else []
            matches += [run for run in prefix_matches if run.workflow_id not in known_ids]
        page = matches[:limit]
        unread += await self._read([run for run in page if self._is_due(run)], self._read_history)
        rows = [RunRow(run, self._cached_details(run)) for run in page]
        rows.sort(key=lambda row: not row.needs_you)
        return Listing(rows, len(matches) > limit, unread, beyond)

    async def _list(self, run_filter: RunFilter, limit: int) -> list[ListedRun]:
        """Return the runs of a filter from the index, those that wait for a person first."""
        client = await self._sources.client()
        filters = [run_filter]
        if run_filter.status is None:
            filters = [*(replace(run_filter, status=status) for status in NEEDS_YOU), run_filter]

        async def page_of(item: RunFilter) -> list[ListedRun]:
            return [run async for run in list_runs(client, item, limit=limit)]

        pages = await asyncio.gather(*map(page_of, filters))
        runs: dict[str, ListedRun] = {}
        for run in chain.from_iterable(pages):
            runs.setdefault(run.workflow_id, run)
        return [*runs.values()][:limit]

    def _search_text(self, run: ListedRun) -> str:
        """Return the text that a search looks through."""
        own = [str(getattr(run, name) or "") for name in _SEARCHED_FIELDS]
        return "\n".join([*own, self._goals.get(run.run_id, "")]).casefold()

    def _cached_details(self, run: ListedRun) -> RunDetails | None:
        cached = self._details.get(run.run_id)
        return cached[2] if cached else None

    def _is_due(self, run: ListedRun) -> bool:
        """Return whether a run's history must be read, or read again."""
        cached = self._details.get(run.run_id)
        if cached is None or cached[1] != run:
            return True
        return run.ended is None and monotonic() - cached[0] > _CACHE_SECONDS

    async def _read(self, runs: Sequence[ListedRun], read: Callable[[ListedRun], Awaitable[None]]) -> int:
        """Start reads, wait for them briefly, and return how many are unfinished."""
        tasks = [self._task(run, read) for run in runs]
        if not tasks:
            return 0
        _, unread = await asyncio.wait(tasks, timeout=_WAIT_SECONDS)
        return len(unread)

    def _task(self, run: ListedRun, read: Callable[[ListedRun], Awaitable[None]]) -> asyncio.Task[None]:
        key = (run.run_id, read.__name__)
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(self._read_limited(run, read))
            task.add_done_callback(lambda _: self._tasks.pop(key, None))
        return task

    async def _read_limited(self, run: ListedRun, read: Callable[[ListedRun], Awaitable[None]]) -> None:
        async with self._limiter:
            with contextlib.suppress(RPCError, BatonError):  # deleted, or not a pipeline: the index is all there is
                await read(run)

    async def _read_goal(self, run: ListedRun) -> None:
        """Cache a run's goal, from the summary that its client set, if any."""
        client = await self._sources.client()
        execution = await describe(client, run.workflow_id, run.run_id)
        summary = execution.details.execution_config.user_metadata.summary
        decoded = await client.data_converter.decode([summary]) if summary.data else []
        self._goals[run.run_id] = str(decoded[0]) if decoded else ""
        while len(self._goals) > _MAX_CACHED:
            self._goals.popitem(last=False)

    async def _read_history(self, run: ListedRun) -> None:
        """Cache the details of a run from its history."""
        record = await self._sources.run(run.workflow_id, run.run_id)
        waits = await self._sources.waits(record)
        spent, ceiling = record.billed, record.ceiling_micro_usd
        details = RunDetails(record.baton.goal, standing(record, waits), spent, ceiling)
        self._details.pop(run.run_id, None)
        self._details[run.run_id] = (monotonic(), run, details)
        while len(self._details) > _MAX_CACHED:
            self._details.popitem(last=False)


def _number(text: str, default: int, maximum: int) -> int:
    """Parse a number from the address, within bounds."""
    number = int(text) if text.isdecimal() and text.isascii() and len(text) < 5 else default
    return max(1, min(number, maximum))


def _filter(request: Request) -> tuple[RunFilter, str, int, int]:
    """Return the filter, the search text, the limit and the search depth from the address."""
    params = request.query_params
    status = params.get("status", "").upper()
    run_filter = RunFilter(
        pipeline=params.get("pipeline") or None,
        status=status if status in STATUSES else None,
        stage=params.get("stage") or None,
        task=params.get("task") or None,
        children=params.get("children") == "1",
    )
    limit = _number(params.get("limit", ""), _DEFAULT_LIMIT, _MAX_LIMIT)
    depth = _number(params.get("searched", ""), _DEFAULT_DEPTH, _MAX_DEPTH)
    return run_filter, params.get("q", "").strip()[:_MAX_QUERY_LENGTH], limit, depth


async def runs(request: Request) -> Response:
    """Show the list of runs."""
    run_filter, text, limit, depth = _filter(request)
    listing = await request.app.state.run_table.listing(run_filter, text, limit, depth)
    values = {
        "listing": listing,
        "needs": [row for row in listing.rows if row.needs_you],
        "others": [row for row in listing.rows if not row.needs_you],
        "run_filter": run_filter,
        "text": text,
        "limit": limit,
        "most": _MAX_LIMIT,
        "depth": depth,
        "further": min(depth * 4, _MAX_DEPTH) if listing.beyond and depth < _MAX_DEPTH else None,
        "statuses": STATUSES,
        "filtered": bool(request.query_params),
        "events": f"/runs/events?{request.url.include_query_params(cursor=listing.mark).query}",
    }
    return render(request, "runs.html", values)


async def events(request: Request) -> Response:
    """Stream an event whenever the list changes."""
    arguments, table, shared = _filter(request), request.app.state.run_table, get_sources(request).shared

    async def mark() -> str:
        listing: Listing = await shared.read(arguments, _POLL_SECONDS, lambda: table.listing(*arguments))
        return listing.mark

    return stream_changes(request, mark, every=_POLL_SECONDS)


ROUTES = [page("/", runs), page("/runs/events", events)]
