"""The list of runs: what the server's index has at once, and what histories tell as they are read."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from time import monotonic

from starlette.requests import Request
from starlette.responses import Response
from temporalio.service import RPCError

from baton.client import STATUSES, ListedRun, RunFilter, Standing, describe, list_runs, standing
from baton.console.rendering import follow, render, sources_of
from baton.console.security import page
from baton.console.sources import Sources
from baton.errors import BatonError

MENU = ("/", "Runs")

_USUAL, _MOST = 50, 1_000
_SEARCHED, _MOST_SEARCHED = 500, 5_000
_LOOKS_EVERY = 1.0
_LONGEST_TEXT = 200
NEEDS_YOU = ("PENDING_HANDOFF", "WAITING", "SUSPENDED", "PAUSED")
"""The statuses in which a run waits for a person, in the order in which the list has them."""

_AT_ONCE = 8
_PATIENCE_SECONDS = 0.12
_FRESH_SECONDS = 2.0
_MOST_TOLD = 5_000
_MASK = 2**64 - 1
_WORDS = ("workflow_id", "pipeline", "task_id", "stage")


@dataclass(frozen=True)
class Told:
    """What the history of a run tells beyond the index."""

    goal: str  # its goal
    standing: Standing | None = None  # how it stands
    spent: int = 0  # what it was charged, in millionths of a US dollar
    ceiling: int | None = None  # its budget; None without one


@dataclass(frozen=True)
class Line:
    """A run in the list."""

    run: ListedRun  # what the index has of it
    told: Told | None = None  # what its history tells; None while that is being read

    @property
    def needs_you(self) -> bool:
        """Whether it needs a person."""
        known = self.told.standing if self.told else None
        return self.run.status in NEEDS_YOU or (self.run.ended is None and known is not None and known.needs_you)

    @property
    def status(self) -> str:
        """How it stands, in one word."""
        known = self.told.standing if self.told else None
        return known.status if known and self.run.ended is None else self.run.status


@dataclass(frozen=True)
class Listing:
    """A page of the list."""

    lines: list[Line]  # the runs
    more: bool  # whether there are more than were asked for
    unread: int  # how many histories are still being read
    beyond: bool = False  # whether there are runs whose goals were not searched

    @property
    def mark(self) -> str:
        """What changes whenever the page would."""
        return f"{hash(tuple((one.run, one.told) for one in self.lines)) & _MASK:x}"


class Board:
    """Reads the list; what histories told is kept, of ended runs for good."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._told: OrderedDict[str, tuple[float, ListedRun, Told]] = OrderedDict()
        self._goals: OrderedDict[str, str] = OrderedDict()
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def listing(self, wanted: RunFilter, text: str, limit: int, depth: int) -> Listing:
        """Return the runs of a filter in which a text is found, those that need a person first."""
        found = await self._found(wanted, depth + 1 if text else limit + 1)
        unread, beyond = 0, bool(text) and len(found) > depth
        if text:
            found = found[:depth]
            unread = await self._read([one for one in found if one.run_id not in self._goals], self._read_goal)
            found = [one for one in found if text.casefold() in self._words(one)]
            known = {one.workflow_id for one in found}
            named = await self._found(replace(wanted, id_prefix=text), limit + 1) if beyond else []
            found += [one for one in named if one.workflow_id not in known]
        page = found[:limit]
        unread += await self._read([one for one in page if self._is_due(one)], self._read_history)
        lines = [Line(one, self._known(one)) for one in page]
        lines.sort(key=lambda one: not one.needs_you)
        return Listing(lines, len(found) > limit, unread, beyond)

    async def _found(self, wanted: RunFilter, limit: int) -> list[ListedRun]:
        """Return the runs that the index finds, those that wait for a person first."""
        client = await self._sources.client()
        filters = [wanted]
        if wanted.status is None:
            filters = [*(replace(wanted, status=one) for one in NEEDS_YOU), wanted]
        found = await asyncio.gather(*(list_runs(client, one, limit) for one in filters))
        runs: dict[str, ListedRun] = {}
        for run in chain.from_iterable(found):
            runs.setdefault(run.workflow_id, run)
        return [*runs.values()][:limit]

    def _words(self, run: ListedRun) -> str:
        """Return all that a run is searched by."""
        own = [str(getattr(run, name) or "") for name in _WORDS]
        return "\n".join([*own, self._goals.get(run.run_id, "")]).casefold()

    def _known(self, run: ListedRun) -> Told | None:
        kept = self._told.get(run.run_id)
        return kept[2] if kept else None

    def _is_due(self, run: ListedRun) -> bool:
        """Return whether a history is to be read, or read again."""
        kept = self._told.get(run.run_id)
        if kept is None or kept[1] != run:
            return True
        return run.ended is None and monotonic() - kept[0] > _FRESH_SECONDS

    async def _read(self, runs: Sequence[ListedRun], read: Callable[[ListedRun], Awaitable[None]]) -> int:
        """Have something read of runs; wait a moment for it, and return of how many it is still being read."""
        tasks = [self._task(run, read) for run in runs]
        if not tasks:
            return 0
        _, unread = await asyncio.wait(tasks, timeout=_PATIENCE_SECONDS)
        return len(unread)

    def _task(self, run: ListedRun, read: Callable[[ListedRun], Awaitable[None]]) -> asyncio.Task[None]:
        key = (run.run_id, read.__name__)
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(self._in_turn(run, read))
            task.add_done_callback(lambda _: self._tasks.pop(key, None))
        return task

    async def _in_turn(self, run: ListedRun, read: Callable[[ListedRun], Awaitable[None]]) -> None:
        async with self._turn:
            with contextlib.suppress(RPCError, BatonError):  # it is gone, or has no pipeline's history: the index stays
                await read(run)

    async def _read_goal(self, run: ListedRun) -> None:
        """Keep the goal of a run; a client that gave it no summary leaves it empty."""
        client = await self._sources.client()
        found = await describe(client, run.workflow_id, run.run_id)
        summary = found.details.execution_config.user_metadata.summary
        told = await client.data_converter.decode([summary]) if summary.data else []
        self._goals[run.run_id] = str(told[0]) if told else ""
        while len(self._goals) > _MOST_TOLD:
            self._goals.popitem(last=False)

    async def _read_history(self, run: ListedRun) -> None:
        """Keep what the history of a run tells."""
        record = await self._sources.run(run.workflow_id, run.run_id)
        waits = await self._sources.waits(record)
        told = Told(record.baton.goal, standing(record, waits), record.billed.micro_usd, record.ceiling_micro_usd)
        self._told.pop(run.run_id, None)
        self._told[run.run_id] = (monotonic(), run, told)
        while len(self._told) > _MOST_TOLD:
            self._told.popitem(last=False)


def _number(given: str, usual: int, most: int) -> int:
    """Return a number of an address, within bounds."""
    number = int(given) if given.isdecimal() and given.isascii() and len(given) < 5 else usual
    return max(1, min(number, most))


def _filter(request: Request) -> tuple[RunFilter, str, int, int]:
    """Return what the address asks for: a filter, a text, how many runs, and how many to search."""
    asked = request.query_params
    status = asked.get("status", "").upper()
    wanted = RunFilter(
        pipeline=asked.get("pipeline") or None,
        status=status if status in STATUSES else None,
        stage=asked.get("stage") or None,
        task=asked.get("task") or None,
        children=asked.get("children") == "1",
    )
    limit = _number(asked.get("limit", ""), _USUAL, _MOST)
    depth = _number(asked.get("searched", ""), _SEARCHED, _MOST_SEARCHED)
    return wanted, asked.get("q", "").strip()[:_LONGEST_TEXT], limit, depth


async def runs(request: Request) -> Response:
    """Show the list."""
    wanted, text, limit, depth = _filter(request)
    listing = await request.app.state.board.listing(wanted, text, limit, depth)
    values = {
        "listing": listing,
        "needs": [one for one in listing.lines if one.needs_you],
        "others": [one for one in listing.lines if not one.needs_you],
        "wanted": wanted,
        "text": text,
        "limit": limit,
        "most": _MOST,
        "depth": depth,
        "further": min(depth * 4, _MOST_SEARCHED) if listing.beyond and depth < _MOST_SEARCHED else None,
        "statuses": STATUSES,
        "filtered": bool(request.query_params),
        "events": f"/runs/events?{request.url.include_query_params(cursor=listing.mark).query}",
    }
    return render(request, "runs.html", values)


async def events(request: Request) -> Response:
    """Tell the list whenever it changes."""
    asked, board, shared = _filter(request), request.app.state.board, sources_of(request).shared

    async def mark() -> str:
        listing: Listing = await shared.read(asked, _LOOKS_EVERY, lambda: board.listing(*asked))
        return listing.mark

    return follow(request, mark, every=_LOOKS_EVERY)


ROUTES = [page("/", runs), page("/runs/events", events)]
