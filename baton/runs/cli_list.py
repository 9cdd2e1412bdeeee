"""`baton list`: which runs there are."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from baton.cli.output import STATUS_STYLES, ago, between, length, make_table, plain, without_breaks
from baton.cli.session import Session, command
from baton.runs.client_list import STATUSES, ListedRun, RunFilter, list_runs, with_details


def parse_status(given: str) -> str:
    """Return a status in its official spelling."""
    status = given.upper().replace("-", "_")
    if status not in STATUSES:
        raise typer.BadParameter(f"{given!r} is not a status; the statuses are {', '.join(STATUSES)}")
    return status


@command
async def list_(
    session: Session,
    pipeline: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this pipeline.")] = None,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS",
            callback=lambda given: given and parse_status(given),
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

    After them come the latest to end; of each workflow its newest run is listed. The server's index may lag
    behind by a moment. A terminal that is too narrow for it all is shown the first columns.
    """
    client = await session.client()
    with session.progress("asking for runs"):
        runs = await list_runs(client, RunFilter(pipeline, status, stage, task, children, every), limit)
        runs = await with_details(client, runs)
    if session.json:
        session.write_json(runs)
        return
    if not runs:
        session.note("no such run" if every else "no such run; --all looks at every workflow of the namespace")
        return
    _print(session, runs)
    if len(runs) == limit:
        session.note(f"the first {limit}; --limit shows more")


def _print(session: Session, runs: list[ListedRun]) -> None:
    """Write the table."""
    now = datetime.now(UTC)
    longest = max(len(run.workflow_id) for run in runs)
    whole = ("status", "started", "took")
    table = make_table("run", "pipeline", "status", "at", "started", "took", "run id", whole=whole, leading=longest)
    for run in runs:
        table.add_row(
            plain(run.workflow_id, "bold"),
            plain(run.pipeline),
            plain(run.status, STATUS_STYLES.get(run.status, "")),
            plain(run.stage or ""),
            ago(run.began, now),
            length(between(run.began, run.ended or now)),
            plain(run.run_id, "dim"),
        )
    session.show(without_breaks(table, session.out, keep=3))
