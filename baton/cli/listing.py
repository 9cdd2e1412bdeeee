"""`baton list` and `baton bill`: the runs, and their total cost."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from baton import Spend
from baton.cli.options import ExitCode
from baton.cli.output import STATUS_STYLES, fit_columns, format_age, make_table, plain
from baton.cli.session import Session, command
from baton.client import STATUSES, GroupBy, ListedRun, RunFilter, list_runs, read_charges, sum_charges
from baton.client.faces import PairedSum, pair_sums, read_export, server_now, with_details
from baton.errors import HistoryError, UnreadableRunError
from baton.wire.money import format_cost, format_usd
from baton.wire.text import elapsed, format_duration


def parse_status(value: str) -> str:
    """Return a status in its official spelling."""
    status = value.upper().replace("-", "_")
    if status not in STATUSES:
        raise typer.BadParameter(f"{value!r} is not a status; the statuses are {', '.join(STATUSES)}")
    return status


@command
async def list_(
    session: Session,
    pipeline: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this pipeline.")] = None,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS",
            callback=lambda value: value and parse_status(value),
            help=f"Only runs with this status: {', '.join(STATUSES)}.",
        ),
    ] = None,
    stage: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs at this stage or approval.")] = None,
    task: Annotated[str | None, typer.Option(metavar="ID", help="Only runs of this task, forks included.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 20,
    children: Annotated[bool, typer.Option("--children", help="Also runs that another run started.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Also workflows without Baton's search attributes, or of other software.")
    ] = False,
) -> None:
    """List runs, open ones first.

    After them come the runs that ended last. Each workflow is listed with its newest run. The server's index may lag
    behind by a moment. A narrow terminal shows the first columns only.
    """
    client = await session.client()
    with session.progress("asking for runs"):
        runs = [
            run
            async for run in list_runs(client, RunFilter(pipeline, status, stage, task, children, every), limit=limit)
        ]
        runs = await with_details(client, runs)
    if session.json:
        session.write_json(runs)
        return
    if not runs:
        found = "no such run" if any((pipeline, status, stage, task)) else "no runs yet"
        session.note(found if every else f"{found}; --all looks at every workflow of the namespace")
        return
    _print_runs(session, runs, await server_now(client))
    if len(runs) == limit:
        session.note(f"the first {limit}; --limit shows more")


def _print_runs(session: Session, runs: list[ListedRun], now: datetime) -> None:
    longest = max(len(run.workflow_id) for run in runs)
    unshortened = ("status", "started", "took")
    table = make_table(
        "run", "pipeline", "status", "at", "started", "took", "run id", whole=unshortened, leading=longest
    )
    for run in runs:
        table.add_row(
            plain(run.workflow_id, "bold"),
            plain(run.pipeline),
            plain(run.status, STATUS_STYLES.get(run.status, "")),
            plain(run.stage or ""),
            format_age(run.began, now),
            format_duration(elapsed(run.began, run.ended or now)),
            plain(run.run_id, "dim"),
        )
    session.show(fit_columns(table, session.out, keep=3))


_RIGHT_ALIGNED = ("cost", "read", "written", "provider", "difference")


def _parse_since(value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError as error:
        raise typer.BadParameter(f"{value!r} is not a date or time, such as 2026-11-27 or 2026-11-27T08:00") from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


@command
async def bill(
    session: Session,
    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="Only charges since then, such as 2026-11-27 (UTC).")
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
    start = _parse_since(since)
    by = group_by or (GroupBy.PIPELINE if reconcile is None else GroupBy.MODEL)
    if reconcile is not None and by not in (GroupBy.MODEL, GroupBy.DAY):
        raise typer.BadParameter("a provider's export only has models and days", param_hint="--group-by")
    provider_sums = None if reconcile is None else read_export(reconcile, by)
    client = await session.client()
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


def _tokens(spend: Spend) -> int:
    return spend.prompt_tokens + spend.completion_tokens


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
        table.add_row(plain(name, style), plain(format_cost(spend.micro_usd, _tokens(spend)), style), *tokens)
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
        tokens = _tokens(recorded) - _tokens(provider)
        sign = "-" if delta < 0 else "+" if delta else ""
        style = "" if row.agrees else "red"
        costs = [format_cost(spend.micro_usd, _tokens(spend)) for spend in (recorded, provider)]
        table.add_row(plain(row.name, style), *costs, plain(f"{sign}{format_usd(abs(delta))}", style), f"{tokens:+,}")
    session.show(table)
