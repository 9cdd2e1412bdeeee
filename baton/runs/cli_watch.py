"""`baton watch`: a run while it happens."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

import typer
from rich.live import Live
from temporalio.client import Client

from baton.cli.session import Session, command
from baton.cli.targets import RunArgument, Target
from baton.client import RunRecord, RunStatus
from baton.runs.cli_pages import Page, news_lines
from baton.runs.client_follow import Cursor, Followed, follow

_REFRESH_PER_SECOND = 4


@command
async def watch(
    session: Session,
    run: RunArgument,
    cursor: Annotated[
        str | None,
        typer.Option("--from", metavar="CURSOR", help="Resume after the line of --json that has this cursor."),
    ] = None,
) -> None:
    """Follow a run while it happens, to its end.

    On a terminal it is a page that keeps itself up to date, otherwise a line for each thing that happens. It
    waits for a server that restarts, and follows the newer run after a roll-back or a continue-as-new.

    With --json each line is an object; to resume where it was interrupted, give the last line's `cursor` to --from.
    The exit code is 1 if the run does not complete.
    """
    try:
        since = Cursor.parse(cursor) if cursor else None
    except ValueError as error:
        raise typer.BadParameter(f"{cursor!r} is not the `cursor` of a line of --json", param_hint="--from") from error
    client = await session.client()
    await follow_to_the_end(session, client, Target.of(run), since)


async def follow_to_the_end(session: Session, client: Client, target: Target, since: Cursor | None = None) -> None:
    """Follow a run to its end, in the form that suits the output."""
    updates = follow(client, target.workflow_id, target.run_id, cursor=since)
    if session.json:
        last = await _as_json(session, updates)
    elif session.out.is_terminal:
        last = await _as_page(session, client, updates)
    else:
        last = await _as_lines(session, updates)
    if last is None or last.status is not RunStatus.COMPLETED:
        raise typer.Exit(1)


async def _as_json(session: Session, updates: AsyncIterator[Followed]) -> RunRecord | None:
    """Write an object for each piece of news; those of one moment in one piece, so that none is lost halfway."""
    run: RunRecord | None = None
    async for update in updates:
        run = update.run or run
        if run is not None and update.news:
            place = {"event": run.last_event, "workflow_id": run.workflow_id, "run_id": run.run_id}
            told = zip(update.cursors(), update.news, strict=True)
            session.write_json_lines([{"cursor": str(at), **place, **one.to_json_object()} for at, one in told])
    return run


async def _as_lines(session: Session, updates: AsyncIterator[Followed]) -> RunRecord | None:
    """Write a line for each piece of news."""
    run: RunRecord | None = None
    is_lost = False
    async for update in updates:
        if update.lost and not is_lost:
            session.note(f"the server is out of reach ({update.lost}); waiting for it")
        is_lost = update.lost is not None
        run = update.run or run
        if run is not None:
            for line in news_lines(update.news, run):
                session.out.print(line, soft_wrap=True)
    return run


async def _as_page(session: Session, client: Client, updates: AsyncIterator[Followed]) -> RunRecord | None:
    """Keep a page up to date, and leave it there, whole, at the end."""
    page = Page(session.out)
    with Live(page, console=session.out, refresh_per_second=_REFRESH_PER_SECOND, transient=True):
        looking = asyncio.create_task(page.look(client))
        try:
            async for update in updates:
                page.take(update)
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
    session.show(page.whole())
    return page.run
