"""The list of runs: at once from the server's index, with details from histories as they are read."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from temporalio.service import RPCError

from baton.client import STATUSES, ListedRun, RunFilter
from baton.client.faces import (
    ALL_SORTS,
    NEEDS_YOU,
    OTHERS,
    SEARCHED,
    TROUBLE,
    RunDetails,
    RunPage,
    RunSearch,
    count_statuses,
    details_of,
    list_page,
    needs_details,
    parse_moment,
    read_goal,
    sort_by_details,
    urgent_page,
)
from baton.console.rendering import get_sources, number_param, render, stream_changes
from baton.console.security import page
from baton.console.sources import Sources
from baton.errors import BatonError
from baton.wire.money import parse_amount

MENU = ("/", "Runs")

_DEFAULT_LIMIT, _MAX_LIMIT = 50, 500
_MAX_FIRST = 20  # runs that need somebody, and that failed, on the first page
_POLL_SECONDS = 1.0
_MAX_QUERY_LENGTH = 200
GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"NEEDS_YOU": NEEDS_YOU, "FAILED_OR_SUSPENDED": TROUBLE, "OTHERS": OTHERS}
)
"""The statuses of the parts of the first page, by their names in the address."""
COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "status": "Status",
        "pipeline": "Pipeline",
        "stage": "Stage",
        "task": "Task",
        "waits": "Waits for",
        "deadline": "Deadline",
        "age": "Age",
        "spend": "Spend",
        "took": "Took",
        "ended": "Ended",
    }
)
"""The columns besides the run, and their titles."""
_DEFAULT_COLUMNS = ("status", "pipeline", "stage", "waits", "deadline", "age", "spend")
SORTS: Mapping[str, str] = MappingProxyType(
    {
        "deadline": "nearest deadline",
        "waits": "waiting longest",
        "-spent": "most spent",
        "-began": "newest",
        "began": "oldest",
        "-ended": "ended last",
        "-took": "took longest",
    }
)
"""The orders that the page offers."""

_WAIT_SECONDS = 0.12
_CACHE_SECONDS = 2.0
_COUNTING_SHARE = 20  # counts are read again after so many times as long as reading them took
_MAX_CACHED, _MAX_COUNTS = 5_000, 100
_MASK = 2**64 - 1


@dataclass(frozen=True)
class RunRow:
    """A run in the list."""

    run: ListedRun
    details: RunDetails | None = None  # None while its history is being read

    @property
    def status(self) -> str:
        """Its current status: from the history while it is open, else from the index."""
        current = self.details.standing if self.details else None
        return current.status if current and self.run.ended is None else self.run.status

    @property
    def part(self) -> str:
        """The part of the first page in which it stands."""
        current = self.details.standing if self.details else None
        if self.status in TROUBLE:
            return "FAILED_OR_SUSPENDED"
        needs_you = current.needs_you if current else self.status in NEEDS_YOU
        return "NEEDS_YOU" if needs_you and self.run.ended is None else "OTHERS"

    @property
    def until(self) -> datetime | None:
        """Its deadline, if it has one."""
        current = self.details.standing if self.details and self.run.ended is None else None
        return current.until if current and current.until else self.run.until


@dataclass(frozen=True)
class RunQuery:
    """What an address asks for."""

    run_filter: RunFilter
    search: RunSearch
    sort: str | None = None
    after: str | None = None
    limit: int = _DEFAULT_LIMIT

    @property
    def is_overview(self) -> bool:
        """Whether the list stands in parts, those that need somebody first."""
        return not (self.run_filter.statuses or self.after or self.sort or self.is_searched)

    @property
    def is_searched(self) -> bool:
        """Whether details of runs are looked through, so many a page."""
        return self.search != RunSearch() or needs_details(self.sort)


@dataclass(frozen=True)
class Part:
    """Runs of the list under one title."""

    name: str  # of `GROUPS`, or empty for the whole list
    rows: list[RunRow]
    total: int | None = None  # how many there are in all, if that is known
    more: bool = False  # whether there are more than these


@dataclass(frozen=True)
class Listing:
    """A page of the list."""

    parts: list[Part]
    counts: Mapping[str, int] | None  # by status; None while the server counts
    total: int | None  # of the runs that match, before the search
    next: str | None  # what the next page begins after
    searched: int  # how many runs were searched or sorted; 0 if it is the server's list
    unread: int  # the number of histories still being read

    @property
    def mark(self) -> str:
        """A hash that changes whenever the page does."""
        rows = tuple((row.run, row.details) for part in self.parts for row in part.rows)
        counts = tuple(sorted((self.counts or {}).items()))
        return f"{hash((rows, counts, self.unread)) & _MASK:x}"


class RunTable:
    """Reads the list and caches details and counts; details of ended runs do not expire."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._details: OrderedDict[str, tuple[float, ListedRun, RunDetails]] = OrderedDict()
        self._goals: OrderedDict[str, str] = OrderedDict()
        self._counts: OrderedDict[RunFilter, tuple[float, dict[str, int]]] = OrderedDict()
        self._tasks: dict[object, asyncio.Task[None]] = {}

    async def listing(self, query: RunQuery) -> Listing:
        """Return the page of an address."""
        counting = asyncio.create_task(self._count(replace(query.run_filter, status=None)))  # beside the list
        if query.is_overview:
            return await self._overview(query, counting)
        name, statuses = "", query.run_filter.statuses
        if query.after and not (statuses or query.is_searched or query.sort):
            name, statuses = "OTHERS", OTHERS  # the first page's last part continues
        if query.is_searched:
            found, rows, unread = await self._search(query)
        else:
            run_filter = replace(query.run_filter, status=statuses or None)
            found = await self._page(run_filter, query.limit, query.after, query.sort)
            rows, unread = await self._rows(found.runs)
        counts = await counting
        total = _sum_counts(counts, statuses)
        part = Part(name, rows, total, found.next is not None)
        return Listing([part], counts, total, found.next, found.searched, unread)

    async def _overview(self, query: RunQuery, counting: Awaitable[Mapping[str, int] | None]) -> Listing:
        """Return the first page: what needs somebody, what failed or is suspended, the others."""
        needs_you, trouble, others = (replace(query.run_filter, status=statuses) for statuses in GROUPS.values())
        pages = await asyncio.gather(
            urgent_page(await self._sources.client(), needs_you, limit=_MAX_FIRST),
            self._page(trouble, _MAX_FIRST),
            self._page(others, query.limit),
        )
        known: dict[str, ListedRun] = {}
        for run in (run for found in pages for run in found.runs):
            known.setdefault(run.workflow_id, run)  # it may have moved between two of the questions
        rows, unread = await self._rows([*known.values()])
        parts, counts = [], await counting
        for (name, statuses), found in zip(GROUPS.items(), pages, strict=True):
            own = [row for row in rows if row.part == name]
            counted = _sum_counts(counts, statuses)
            total = None if counted is None else max(len(own), counted + len(own) - len(found.runs))
            more = found.next is not None and (total is None or total > len(own))
            parts.append(Part(name, _by_urgency(own) if name == "NEEDS_YOU" else own, total, more))
        return Listing(parts, counts, _sum_counts(counts), pages[-1].next, 0, unread)

    async def _search(self, query: RunQuery) -> tuple[RunPage, list[RunRow], int]:
        """Return the page that was searched, the runs of it that match, and how many histories are still unread."""
        search, by_details = query.search, needs_details(query.sort)
        found = await self._page(query.run_filter, SEARCHED, query.after, None if by_details else query.sort)
        found = replace(found, searched=len(found.runs))
        unread, runs = 0, found.runs
        if search.text:
            unread += await self._read([run for run in runs if run.run_id not in self._goals], self._read_goal)
        if search.reads_histories or by_details:
            unread += await self._read([run for run in runs if self._is_due(run)], self._read_history)
        details = {run.run_id: one for run in runs if (one := self._cached_details(run)) is not None}
        runs = [run for run in runs if search.matches(run, self._goals.get(run.run_id, ""), details.get(run.run_id))]
        if search.text and not search.reads_histories and query.after is None and found.next is not None:
            prefix = await self._page(replace(query.run_filter, id_prefix=search.text), query.limit)
            known = {run.workflow_id for run in runs}
            runs += [run for run in prefix.runs if run.workflow_id not in known]
        if by_details:
            runs = sort_by_details(runs, details, query.sort or "")
        unread += await self._read([run for run in runs[: query.limit] if self._is_due(run)], self._read_history)
        return found, self._make_rows(runs), unread

    async def _page(
        self, run_filter: RunFilter, limit: int, after: str | None = None, sort: str | None = None
    ) -> RunPage:
        return await list_page(await self._sources.client(), run_filter, limit=limit, after=after, sort=sort)

    async def _rows(self, runs: Sequence[ListedRun]) -> tuple[list[RunRow], int]:
        """Return the rows of runs, and how many of their histories are still unread."""
        unread = await self._read([run for run in runs if self._is_due(run)], self._read_history)
        return self._make_rows(runs), unread

    def _make_rows(self, runs: Iterable[ListedRun]) -> list[RunRow]:
        return [RunRow(run, self._cached_details(run)) for run in runs]

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
        tasks = [self._task((run.run_id, read.__name__), partial(self._read_limited, run, read)) for run in runs]
        if not tasks:
            return 0
        _, unread = await asyncio.wait(tasks, timeout=_WAIT_SECONDS)
        return len(unread)

    def _task(self, key: object, read: Callable[[], Any]) -> asyncio.Task[None]:
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(read())
            task.add_done_callback(lambda _: self._tasks.pop(key, None))
        return task

    async def _read_limited(self, run: ListedRun, read: Callable[[ListedRun], Awaitable[None]]) -> None:
        async with self._sources.turn:
            with contextlib.suppress(RPCError, BatonError):  # deleted, or not a pipeline: the index is all there is
                await read(run)

    async def _count(self, run_filter: RunFilter) -> dict[str, int] | None:
        """Return how many runs there are by status, as counted lately; None while the server counts."""
        cached = self._counts.get(run_filter)
        if cached is None or cached[0] < monotonic():
            task = self._task(run_filter, partial(self._read_counts, run_filter))
            await asyncio.wait([task], timeout=_WAIT_SECONDS)
            cached = self._counts.get(run_filter)
        return cached[1] if cached else None

    async def _read_counts(self, run_filter: RunFilter) -> None:
        """Count, and keep the counts the longer, the longer the server took."""
        with contextlib.suppress(RPCError, BatonError):  # the list says what is wrong
            started = monotonic()
            counts = await count_statuses(await self._sources.client(), run_filter)
            took = monotonic() - started
            self._counts.pop(run_filter, None)
            self._counts[run_filter] = (monotonic() + max(_POLL_SECONDS, took * _COUNTING_SHARE), counts)
            while len(self._counts) > _MAX_COUNTS:
                self._counts.popitem(last=False)

    async def _read_goal(self, run: ListedRun) -> None:
        """Cache a run's goal, from the summary that its client set, if any."""
        self._goals[run.run_id] = await read_goal(await self._sources.client(), run)
        while len(self._goals) > _MAX_CACHED:
            self._goals.popitem(last=False)

    async def _read_history(self, run: ListedRun) -> None:
        """Cache the details of a run from its history."""
        record = await self._sources.run(run.workflow_id, run.run_id)
        details = details_of(record, await self._sources.waits(record))
        self._details.pop(run.run_id, None)
        self._details[run.run_id] = (monotonic(), run, details)
        while len(self._details) > _MAX_CACHED:
            self._details.popitem(last=False)


def _sum_counts(counts: Mapping[str, int] | None, statuses: Sequence[str] = ()) -> int | None:
    """Return how many runs have one of some statuses, any by default; None while the server counts."""
    return None if counts is None else sum(counts.get(status, 0) for status in statuses or counts)


def _by_urgency(rows: list[RunRow]) -> list[RunRow]:
    """Return runs by their deadline, the nearest first, then by how long they wait."""
    far = datetime.max.replace(tzinfo=UTC)

    def order(row: RunRow) -> tuple[datetime, datetime]:
        since = row.details.since if row.details else None
        return row.until or far, since or row.run.began

    return sorted(rows, key=order)


def _read_query(request: Request) -> tuple[RunQuery, dict[str, str]]:
    """Return what the address asks for, and what is wrong with it by parameter."""
    params, faults = request.query_params, dict[str, str]()

    def read(name: str, parse: Callable[[str], Any]) -> Any:
        text = params.get(name, "").strip()[:_MAX_QUERY_LENGTH]
        try:
            return parse(text) if text else None
        except ValueError as error:
            faults[name] = str(error)
            return None

    now = get_sources(request).now.replace(second=0, microsecond=0)
    status = params.get("status", "").upper()
    sort = params.get("sort", "")
    run_filter = RunFilter(
        pipeline=params.get("pipeline") or None,
        status=GROUPS.get(status) or (status if status in STATUSES else None),
        stage=params.get("stage") or None,
        task=params.get("task") or None,
        children=params.get("children") == "1",
        since=read("since", lambda text: parse_moment(text, now)),
        before=read("before", lambda text: parse_moment(text, now)),
    )
    search = RunSearch(
        params.get("q", "").strip()[:_MAX_QUERY_LENGTH],
        params.get("person", "").strip()[:_MAX_QUERY_LENGTH],
        read("spend", parse_amount) or 0,
    )
    limit = number_param(request, "limit", _DEFAULT_LIMIT, most=_MAX_LIMIT)
    known_sort = sort if sort.removeprefix("-") in ALL_SORTS else None
    return RunQuery(run_filter, search, known_sort, params.get("after") or None, limit), faults


async def runs(request: Request) -> Response:
    """Show the list of runs."""
    params = request.query_params
    given = [(name, value) for name, value in params.multi_items() if value.strip()]
    if len(given) < len(params.multi_items()):  # a form sends its empty fields too; an address is to be shared
        return RedirectResponse(f"/?{urlencode(given)}" if given else "/", status_code=303)
    query, faults = _read_query(request)
    listing: Listing = await request.app.state.run_table.listing(query)
    chosen = [name for name in COLUMNS if name in params.getlist("col")] or [*_DEFAULT_COLUMNS]
    values = {
        "listing": listing,
        "query": query,
        "faults": faults,
        "params": params,
        "columns": {name: COLUMNS[name] for name in chosen},
        "all_columns": COLUMNS,
        "sorts": SORTS,
        "statuses": [*GROUPS][:2] + [status for status in STATUSES if status != "CONTINUED_AS_NEW"],
        "filtered": bool({*params} - {"col", "after", "limit"}),
        "events": f"/runs/events?{request.url.include_query_params(cursor=listing.mark).query}",
    }
    return render(request, "runs.html", values)


async def events(request: Request) -> Response:
    """Stream an event whenever the list changes."""
    (query, _), table, shared = _read_query(request), request.app.state.run_table, get_sources(request).shared

    async def mark() -> str:
        listing: Listing = await shared.read(query, _POLL_SECONDS, lambda: table.listing(query))
        return listing.mark

    return stream_changes(request, mark, every=_POLL_SECONDS)


ROUTES = [page("/", runs), page("/runs/events", events)]
