"""`baton doctor`: whether everything is as it should be, and what to do where it is not."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable
from typing import Annotated

import typer
from rich.text import Text
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from baton.artifacts.store import open_store
from baton.cli import doctor_checks as checks
from baton.cli.doctor_checks import Finding, Mark
from baton.cli.options import ExitCode
from baton.cli.output import make_table, plain
from baton.cli.session import Session, command
from baton.errors import ServerError
from baton.runs.client_connection import DEFAULT_TASK_QUEUE
from baton.wire.text import quantity

_PATIENCE_SECONDS = 10.0
_SERVERS_OWN = "look at the server's log, and whether its disk or database has room"
_STYLES = {Mark.OK: "green", Mark.WARN: "yellow", Mark.FAIL: "bold red"}


@command
async def doctor(
    session: Session,
    fix: Annotated[bool, typer.Option("--fix", help="Add the search attributes that the namespace lacks.")] = False,
    task_queue: Annotated[
        str,
        typer.Option(metavar="NAME", envvar="BATON_TASK_QUEUE", help="The task queue whose workers are looked for."),
    ] = DEFAULT_TASK_QUEUE,
) -> None:
    """Check the installation, keys and ledger, the server, the workers and the runs.

    Each line says what was found, and the command that helps where one does. The exit code is 1 if a check fails,
    and 3 if no server answers; warnings do not count.
    """
    findings: list[Finding] = []
    has_server = True
    with session.progress("looking"):
        async for one in _everything(session, task_queue, fix=fix):
            findings.append(one)
            has_server = has_server and (one.check, one.mark) != ("server", Mark.FAIL)
    if session.json:
        session.write_json(
            [{"check": f.check, "mark": f.mark.value, "found": f.found, "remedy": f.remedy} for f in findings]
        )
    else:
        _print(session, findings)
    if not has_server:
        raise typer.Exit(ExitCode.UNREACHABLE)
    if any(one.mark is Mark.FAIL for one in findings):
        raise typer.Exit(ExitCode.NO)


async def _everything(session: Session, task_queue: str, *, fix: bool) -> AsyncIterator[Finding]:
    """Yield what every check finds; without a server those that need one are left out."""
    for finding in checks.installation():
        yield finding
    yield await checks.codec()
    yield await checks.store(session.options.store, open_store)
    yield checks.keys(os.environ)
    yield await checks.ledger()
    yield Finding("settings", Mark.OK, checks.settings_in_use())
    try:
        settings = session.connection.settings()
        client = await session.client()
    except ServerError as error:
        yield Finding("server", Mark.FAIL, str(error))
        return
    yield Finding("server", Mark.OK, f"{settings['target_host']} answers")
    yield checks.trust(settings)
    for check, asking in _of_the_server(client, task_queue, fix=fix):
        yield await _in_time(check, asking)


def _of_the_server(client: Client, task_queue: str, *, fix: bool) -> list[tuple[str, Awaitable[Finding]]]:
    """Return the checks that ask the server."""
    return [
        ("namespace", checks.namespace(client)),
        ("search attributes", checks.search_attributes(client, fix=fix)),
        ("workers", _workers(client, task_queue)),
        ("suspended runs", checks.suspended(client)),
        ("blocked runs", checks.blocked(client)),
        ("waiting for you", checks.waiting(client)),
        ("runs", checks.runs(client)),
        ("ledger records", checks.records(client)),
        ("clock", checks.clock(client)),
    ]


async def _workers(client: Client, task_queue: str) -> Finding:
    """Return what is found of the workers, by how many runs need them."""
    return await checks.workers(client, task_queue, await checks.open_on(client, task_queue))


async def _in_time(check: str, asking: Awaitable[Finding]) -> Finding:
    """Return what a check finds; that the server does not answer it is a finding, too."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await asking
    except TimeoutError:
        return Finding(check, Mark.FAIL, f"no answer within {_PATIENCE_SECONDS:.0f} s", _SERVERS_OWN)
    except RPCError as error:
        ours = error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED)
        remedy = "check the namespace's name and your rights in it" if ours else _SERVERS_OWN
        return Finding(check, Mark.FAIL, error.message, remedy)


def _print(session: Session, findings: list[Finding]) -> None:
    """Write the table, and the sum."""
    table = make_table("", "", "", whole=("",))
    table.columns[2].no_wrap, table.columns[2].overflow = False, "fold"
    for one in findings:
        found = plain(one.found)
        if one.remedy:
            found = Text.assemble(found, "\n", plain(f"→ {one.remedy}", "bold"))
        table.add_row(Text(one.mark.value, _STYLES[one.mark]), plain(one.check, "bold"), found)
    session.show(table, "")
    counts = {mark: sum(one.mark is mark for one in findings) for mark in Mark}
    failed, warned = quantity(counts[Mark.FAIL], "check"), quantity(counts[Mark.WARN], "warning")
    session.show(plain(f"{failed} failed, {warned}, {counts[Mark.OK]} ok"))
