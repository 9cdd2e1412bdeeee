"""`baton list` and `baton bill`: the runs, and their total cost."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.text import Text
from temporalio.client import Client
from temporalio.service import RPCError

from baton import Spend
from baton.cli.inbox_pages import deadline_text
from baton.cli.options import ExitCode, OptionGroup
from baton.cli.output import STATUS_STYLES, fit_columns, format_age, make_table, plain
from baton.cli.session import Session, command
from baton.client import STATUSES, GroupBy, ListedRun, RunFilter, read_charges, sum_charges
from baton.client.faces import (
    ALL_SORTS,
    BEGINNING,
    NEEDS_YOU,
    OTHERS,
    SEARCHED,
    TROUBLE,
    PairedSum,
    RunDetails,
    RunPage,
    RunSearch,
    count_statuses,
    list_page,
    map_concurrently,
    needs_details,
    pair_sums,
    parse_moment,
    read_details,
    read_export,
    read_goal,
    server_now,
    sort_by_details,
    urgent_page,
    with_details,
)
from baton.errors import BatonError, HistoryError, UnreadableRunError
from baton.wire.money import format_cost, format_usd, parse_amount
from baton.wire.text import elapsed, format_duration, format_rough_duration

ReadT = TypeVar("ReadT")


def parse_status(value: str) -> str:
    """Return a status in its official spelling."""
    status = value.upper().replace("-", "_")
    if status not in STATUSES:
        raise typer.BadParameter(f"{value!r} is not a status; the statuses are {', '.join(STATUSES)}")
    return status


_DEFAULT_COLUMNS = ("pipeline", "status", "at", "waits", "deadline", "started", "took", "spent", "run id")
_COLUMNS = (*_DEFAULT_COLUMNS, "ended", "task", "goal")
_OF_HISTORIES = frozenset({"waits", "spent", "goal"})
_ORDERS = ", ".join(ALL_SORTS)


def _parse_columns(text: str | None) -> tuple[str, ...]:
    names = _DEFAULT_COLUMNS if text is None else tuple(name.strip().replace("-", " ") for name in text.split(","))
    if unknown := [name for name in names if name not in _COLUMNS]:
        raise typer.BadParameter(f"{unknown[0]!r} is not a column; the columns are {', '.join(_COLUMNS)}")
    return names


def _parse_sort(value: str | None) -> str | None:
    if value is not None and value.removeprefix("-") not in ALL_SORTS:
        raise typer.BadParameter(f"{value!r} is not an order; the orders are {_ORDERS}, with a minus for the reverse")
    return value


def _parse_time(value: str | None, now: datetime, option: str) -> datetime | None:
    try:
        return None if value is None else parse_moment(value, now)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


@dataclass(frozen=True)
class _Which(OptionGroup):
    """Which runs are listed."""

    pipeline: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this pipeline.")] = None
    status: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATUS",
            callback=lambda values: values and [parse_status(value) for value in values],
            help=f"Only runs with this status, or one of several: {', '.join(STATUSES)}.",
        ),
    ] = None
    stage: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs at this stage or approval.")] = None
    task: Annotated[str | None, typer.Option(metavar="ID", help="Only runs of this task, forks included.")] = None
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not those that ended before: 24h, 7d or a time (UTC).")
    ] = None
    before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not those that began then or later, likewise.")
    ] = None
    text: Annotated[
        str, typer.Option(metavar="TEXT", help="Only runs with this in their id, task, pipeline, stage or goal.")
    ] = ""
    person: Annotated[
        str,
        typer.Option(metavar="NAME", help="Only runs that ask or asked this person or group, or that they decided."),
    ] = ""
    min_spend: Annotated[
        str | None, typer.Option(metavar="DOLLARS", help="Only runs that have cost so much at least.")
    ] = None
    children: Annotated[bool, typer.Option("--children", help="Also runs that another run started.")] = False
    every: Annotated[
        bool, typer.Option("--all", help="Also workflows without Baton's search attributes, or of other software.")
    ] = False

    def run_filter(self, now: datetime) -> RunFilter:
        """Return what the server looks for."""
        return RunFilter(
            self.pipeline,
            tuple(self.status) if self.status else None,
            self.stage,
            self.task,
            self.children,
            self.every,
            since=_parse_time(self.since, now, "--since"),
            before=_parse_time(self.before, now, "--before"),
        )

    @property
    def search(self) -> RunSearch:
        """What is looked for in the runs themselves."""
        return RunSearch(self.text, self.person, _parse_dollars(self.min_spend))


@dataclass(frozen=True)
class _Shown(OptionGroup):
    """How runs are listed."""

    sort: Annotated[
        str | None,
        typer.Option(
            metavar="ORDER", callback=_parse_sort, help=f"By {_ORDERS}; with a minus the largest first (-spent)."
        ),
    ] = None
    columns: Annotated[
        str | None, typer.Option(metavar="NAMES", help=f"What to show of each, with commas: {', '.join(_COLUMNS)}.")
    ] = None
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 20
    after: Annotated[str | None, typer.Option(metavar="PLACE", help="The next page: what the one before named.")] = None


@command
async def list_(session: Session, which: _Which, shown: _Shown) -> None:
    """List runs: those that need you, those that failed or are suspended, then the others.

    Of the others, open ones come first, then the last to end. Each workflow is listed with its newest run. The
    server's index may lag behind by a moment. --text, --person, --min-spend and the orders spent and waits read the
    runs themselves, 500 a page. A narrow terminal shows the first columns only.
    """
    names, search, client = _parse_columns(shown.columns), which.search, await session.client()
    now = await server_now(client)
    run_filter = which.run_filter(now)
    with session.progress("asking for runs"):
        reads = bool(_OF_HISTORIES & {*names}) and not session.json
        lister = _Lister(client, run_filter, search, shown.sort, shown.limit, reads)
        parts, end = await lister.parts(shown.after)
        counts = await count_statuses(client, run_filter)
    found = sum(len(part.runs) for part in parts)
    if session.json:
        session.write_json([run for part in parts for run in part.runs])
    elif found:
        _print_parts(session, [part for part in parts if part.runs], lister.details, names, now, counts)
        session.say(", ".join(f"{count:,} {_word(status)}" for status, count in counts.items()), "dim")
    else:
        is_all = run_filter == RunFilter(every=which.every) and not lister.is_searched
        none = "no more runs" if shown.after else "no runs yet" if is_all else "no such run"
        session.note(none if which.every or end else f"{none}; --all looks at every workflow of the namespace")
    if end is not None:
        total = sum(counts.get(status, 0) for status in run_filter.statuses or counts)
        what = f"{found:,} of {total:,} runs"
        what = f"{found:,} found among {SEARCHED:,} of {total:,} runs" if lister.is_searched else what
        session.note(f"{what}; the next page: --after {end}")


def _word(status: str) -> str:
    return status.lower().replace("_", " ")


def _parse_dollars(text: str | None) -> int:
    try:
        return parse_amount(text) if text else 0
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--min-spend") from None


@dataclass(frozen=True)
class _Part:
    title: str
    runs: list[ListedRun]
    statuses: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Lister:
    """Reads a page of the list, and the details of its runs."""

    client: Client
    run_filter: RunFilter
    search: RunSearch
    sort: str | None
    limit: int
    reads: bool  # whether details are shown
    details: dict[str, RunDetails] = field(default_factory=dict)

    @property
    def by_details(self) -> bool:
        """Whether the order needs details."""
        return needs_details(self.sort)

    @property
    def is_searched(self) -> bool:
        """Whether runs are read to find or to sort them."""
        return self.by_details or self.search != RunSearch()

    async def parts(self, after: str | None) -> tuple[list[_Part], str | None]:
        """Return the parts of a page, and where the next one begins."""
        if self.is_searched:
            found = await self._page(self.run_filter, SEARCHED, after, None if self.by_details else self.sort)
            return [_Part("", await self._select(found.runs))], found.next
        if self.run_filter.statuses or self.sort or self.run_filter.every:
            found = await self._page(self.run_filter, self.limit, after, self.sort)
            return [_Part("", await self._finish(found.runs))], found.next
        groups = {} if after else {"Needs you": NEEDS_YOU, "Failed and suspended": TROUBLE}
        parts, left = [], self.limit
        for title, statuses in groups.items():
            run_filter, limit = replace(self.run_filter, status=statuses), -(-self.limit // 3)
            is_urgent = statuses is NEEDS_YOU
            read = (
                urgent_page(self.client, run_filter, limit=limit) if is_urgent else self._page(run_filter, limit, None)
            )
            found = await read
            parts.append(_Part(title, await self._finish(found.runs[:left]), statuses))
            left -= len(parts[-1].runs)
        if not left:
            return parts, BEGINNING
        found = await self._page(replace(self.run_filter, status=OTHERS), left, after)
        return [*parts, _Part("Others", await self._finish(found.runs), OTHERS)], found.next

    async def _page(self, run_filter: RunFilter, limit: int, after: str | None, sort: str | None = None) -> RunPage:
        return await list_page(self.client, run_filter, limit=limit, after=after, sort=sort)

    async def _select(self, runs: list[ListedRun]) -> list[ListedRun]:
        """Return the runs that match the search, in its order."""
        goals = dict[str, str]()
        if self.search.reads_histories or self.by_details:
            await self._read(runs)
            goals = {run_id: one.goal for run_id, one in self.details.items()}
        elif self.search.text:
            texts = await self._read_each(read_goal, runs)
            goals = {run.run_id: goal or "" for run, goal in zip(runs, texts, strict=True)}
        matches = [
            run for run in runs if self.search.matches(run, goals.get(run.run_id, ""), self.details.get(run.run_id))
        ]
        return await self._finish(
            sort_by_details(matches, self.details, self.sort or "") if self.by_details else matches
        )

    async def _finish(self, runs: list[ListedRun]) -> list[ListedRun]:
        """Return runs with what the index lacks; read their details if they are shown."""
        if self.reads:
            await self._read([run for run in runs if run.run_id not in self.details])
        return await with_details(self.client, runs)

    async def _read(self, runs: list[ListedRun]) -> None:
        for run, one in zip(runs, await self._read_each(read_details, runs), strict=True):
            if one is not None:
                self.details[run.run_id] = one

    async def _read_each(
        self, read: Callable[[Client, ListedRun], Awaitable[ReadT]], runs: list[ListedRun]
    ) -> list[ReadT | None]:
        async def read_one(run: ListedRun) -> ReadT | None:
            try:
                return await read(self.client, run)
            except (RPCError, BatonError):  # deleted, or not a pipeline: the index is all there is
                return None

        return await map_concurrently(read_one, runs)


def _print_parts(
    session: Session,
    parts: list[_Part],
    details: Mapping[str, RunDetails],
    names: Sequence[str],
    now: datetime,
    counts: Mapping[str, int],
) -> None:
    longest = max(len(run.workflow_id) for part in parts for run in part.runs)
    for part in parts:
        total = max(len(part.runs), sum(counts.get(status, 0) for status in part.statuses))
        if len(parts) > 1 or part.title not in ("", "Others"):
            count = f"{total:,}" if total == len(part.runs) else f"{len(part.runs):,} of {total:,}"
            session.show(plain(f"{part.title} ({count})", "bold"))
        table = make_table("run", *names, whole=_UNSHORTENED, right=("spent",), leading=longest)
        for run in part.runs:
            cells = (_cell(run, details.get(run.run_id), name, now, is_apart=part.title != "Others") for name in names)
            table.add_row(plain(run.workflow_id, "bold"), *cells)
        session.show(fit_columns(table, session.out, keep=3))


_UNSHORTENED = ("status", "deadline", "started", "took", "ended", "spent")


def _cell(run: ListedRun, details: RunDetails | None, name: str, now: datetime, *, is_apart: bool) -> Text:
    match name:
        case "status":
            return plain(run.status, STATUS_STYLES.get(run.status, ""))
        case "deadline":
            return deadline_text(run.until, now)
        case "waits":
            return plain(_waits(run, details, now, is_apart=is_apart))
        case "spent":
            spent = details.spent if details else Spend()
            return plain(format_cost(spent.micro_usd, spent.tokens) if details else "")
        case "goal":
            return plain(details.goal if details else "")
    texts = {
        "pipeline": run.pipeline,
        "at": run.stage or "",
        "started": format_age(run.began, now),
        "took": format_duration(elapsed(run.began, run.ended or now)),
        "ended": format_age(run.ended, now),
        "task": run.task_id or "",
    }
    return plain(run.run_id, "dim") if name == "run id" else plain(texts[name])


def _waits(run: ListedRun, details: RunDetails | None, now: datetime, *, is_apart: bool) -> str:
    """Return what a run waits for, of whom and for how long."""
    current = details.standing if details else None
    if details is None or current is None:
        return ""
    what = current.failure if run.ended else current.waits_for
    of_whom = f" of {current.whom}" if current.whom and not run.ended else ""
    since = details.since if is_apart and (run.ended is None or run.status in TROUBLE) else None
    return f"{what}{of_whom}{f', for {format_rough_duration(now - since)}' if since else ''}"


_RIGHT_ALIGNED = ("cost", "read", "written", "provider", "difference")


@command
async def bill(
    session: Session,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only charges since then: 2026-11-27 (UTC), 24h or 7d.")
    ] = None,
    group_by: Annotated[
        GroupBy | None, typer.Option("--group-by", help="What to group by; the pipeline by default.")
    ] = None,
    reconcile: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="A provider's export of usage to compare with.",
        ),
    ] = None,
) -> None:
    """Sum up the cost of runs, and compare it with a provider's export.

    Retries, refused attempts, children and runs rolled back are included. Reads the history of every run that the
    server still has. With --reconcile, each model (or day, by --group-by day) is compared with a provider's CSV export;
    the exit code is 1 if an amount differs by more than a cent and by more than one percent. Runs that cannot be read
    are named; it is 5 if one has malformed records and all else is well.
    """
    by = group_by or (GroupBy.PIPELINE if reconcile is None else GroupBy.MODEL)
    if reconcile is not None and by not in (GroupBy.MODEL, GroupBy.DAY):
        raise typer.BadParameter("a provider's export only has models and days", param_hint="--group-by")
    provider_sums = None if reconcile is None else read_export(reconcile, by)
    client = await session.client()
    start = _parse_time(since, await server_now(client), "--since")
    with session.progress("reading histories"):
        unread: list[tuple[str, HistoryError]] = []
        run_sums = sum_charges(
            [charge async for charge in read_charges(client, start, unread=lambda *run: unread.append(run))], by
        )
    for workflow_id, error in unread:
        session.note(f"run {workflow_id!r} is not in the bill: {error}")
    malformed = any(isinstance(error, UnreadableRunError) for _, error in unread)
    if provider_sums is None:
        _print_sums(session, by, run_sums)
        if malformed:
            raise typer.Exit(ExitCode.UNREADABLE)
        return
    rows = pair_sums(run_sums, provider_sums)
    _print_pairs(session, by, rows)
    differing = not all(row.agrees for row in rows)
    if differing or malformed:
        raise typer.Exit(ExitCode.FAILURE if differing else ExitCode.UNREADABLE)


def _print_sums(session: Session, by: GroupBy, sums: dict[str, Spend]) -> None:
    total = sum(sums.values(), start=Spend())
    if session.json:
        rows = [{by.value: name, **dict(spend)} for name, spend in sums.items()]
        session.write_json({"group_by": by.value, "rows": rows, "total": dict(total)})
        return
    table = make_table(by.value, "cost", "read", "written", right=_RIGHT_ALIGNED)
    for name, spend in [*sums.items(), ("total", total)]:
        style = "bold" if spend is total else ""
        tokens = (f"{spend.prompt_tokens:,}", f"{spend.completion_tokens:,}")
        table.add_row(plain(name, style), plain(format_cost(spend.micro_usd, spend.tokens), style), *tokens)
    session.show(table)


def _print_pairs(session: Session, by: GroupBy, rows: list[PairedSum]) -> None:
    if session.json:
        json_rows = [
            {by.value: row.name, "runs": dict(row.recorded), "provider": dict(row.provider), "agrees": row.agrees}
            for row in rows
        ]
        session.write_json({"group_by": by.value, "rows": json_rows})
        return
    table = make_table(by.value, "cost", "provider", "difference", "tokens", right=(*_RIGHT_ALIGNED, "tokens"))
    for row in rows:
        recorded, provider = row.recorded, row.provider
        delta = recorded.micro_usd - provider.micro_usd
        tokens = recorded.tokens - provider.tokens
        sign = "-" if delta < 0 else "+" if delta else ""
        style = "" if row.agrees else "red"
        costs = [format_cost(spend.micro_usd, spend.tokens) for spend in (recorded, provider)]
        table.add_row(plain(row.name, style), *costs, plain(f"{sign}{format_usd(abs(delta))}", style), f"{tokens:+,}")
    session.show(table)
