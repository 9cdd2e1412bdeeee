"""`baton doctor`: check the installation, server, workers and runs, and suggest remedies."""

import os
import platform
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from baton import open_store
from baton.cli.options import ExitCode
from baton.cli.output import format_time, make_table, plain
from baton.cli.session import Session, command
from baton.cli.storage_checks import check_keys, check_ledger, check_ledger_records, check_retention, check_store
from baton.cli.supervision import installed_version
from baton.client import DEFAULT_TASK_QUEUE
from baton.client.faces import CheckMark as Mark
from baton.client.faces import CheckResult as Finding
from baton.client.faces import check_artifacts, check_server, run_check
from baton.errors import ServerError
from baton.keys.store_keyring import KeyringError
from baton.wire.text import host_of, is_loopback, quantity
from baton.worker import Settings, unknown_settings

_STYLES = {Mark.OK: "green", Mark.WARN: "yellow", Mark.FAIL: "bold red"}


@command
async def doctor(
    session: Session,
    fix: Annotated[bool, typer.Option("--fix", help="Add missing search attributes to the namespace.")] = False,
    task_queue: Annotated[
        str,
        typer.Option(metavar="NAME", envvar="BATON_TASK_QUEUE", help="The task queue whose workers to check."),
    ] = DEFAULT_TASK_QUEUE,
) -> None:
    """Check the installation, keys and ledger, the server, the workers and the runs.

    Each line shows a finding and, if it is a problem, its remedy. The exit code is 1 if a check fails and 3 if no
    server answers; warnings do not change it.
    """
    with session.progress("checking"):
        findings = [finding async for finding in _run_checks(session, task_queue, fix=fix)]
    if session.json:
        session.write_json(
            [
                {"check": f.check, "mark": f.mark.value, "found": f.found, "remedy": f.remedy, "runs": f.runs}
                for f in findings
            ]
        )
    else:
        _print(session, findings)
    failed_checks = [finding.check for finding in findings if finding.mark is Mark.FAIL]
    if failed_checks:
        raise typer.Exit(ExitCode.UNREACHABLE if "server" in failed_checks else ExitCode.FAILURE)


async def _run_checks(session: Session, task_queue: str, *, fix: bool) -> AsyncIterator[Finding]:
    """Yield the finding of every check. Without a server, those that need it are skipped."""
    for finding in check_installation():
        yield finding
    yield check_settings(os.environ)
    yield await check_store(session.options.store, open_store)
    yield check_keys(os.environ)
    yield await check_ledger(session.connection)
    log_days = 0
    try:
        settings = Settings.of(os.environ)
    except ValueError as error:
        yield Finding("log retention", Mark.FAIL, f"a setting is invalid: {error}", "correct or unset the variable")
    else:
        yield check_retention(settings)
        log_days = settings.log_days
    try:
        connection = session.connection.settings()
        client = await session.client()
    except ServerError as error:
        yield Finding("server", Mark.FAIL, str(error))
        return
    except KeyringError as error:
        yield Finding("encryption", Mark.FAIL, f"the server was not checked, because the keys cannot be used: {error}")
        return
    yield Finding("server", Mark.OK, f"{connection['target_host']} answers")
    yield check_protection(connection)
    async for finding in check_server(client, task_queue, fix=fix, time_format=format_time, log_days=log_days):
        yield finding
    yield await run_check("ledger records", check_ledger_records(client, session.connection))
    yield await run_check("artifacts", check_artifacts(client, session.artifacts))


def _print(session: Session, findings: list[Finding]) -> None:
    """Print a table of the findings, and their counts."""
    table = make_table("", "", "", whole=("",))
    table.columns[2].no_wrap, table.columns[2].overflow = False, "fold"
    for finding in findings:
        text = plain(finding.found)
        if finding.remedy:
            text = Text.assemble(text, "\n", plain(f"→ {finding.remedy}", "bold"))
        table.add_row(Text(finding.mark.value, _STYLES[finding.mark]), plain(finding.check, "bold"), text)
    session.show(table, "")
    counts = {mark: sum(finding.mark is mark for finding in findings) for mark in Mark}
    failed, warned = quantity(counts[Mark.FAIL], "check"), quantity(counts[Mark.WARN], "warning")
    session.show(plain(f"{failed} failed, {warned}, {counts[Mark.OK]} ok"))


def check_installation() -> Iterator[Finding]:
    """Yield the version of Python and of each main package."""
    yield Finding("python", Mark.OK, platform.python_version())
    for name in ("temporal-baton", "temporalio", "pydantic"):
        version = installed_version(name)
        remedy = None if version else f"pip install {name}"
        yield Finding(name, Mark.OK if version else Mark.WARN, version or "not installed as a package", remedy)


def check_settings(environment: Iterable[str]) -> Finding:
    """Check that each `BATON_…` variable is a setting."""
    if unknown := unknown_settings(environment):
        return Finding("settings", Mark.WARN, f"ignored: {', '.join(unknown)}", "unset them, or correct their names")
    return Finding("settings", Mark.OK, "each BATON_… variable is known")


def check_protection(settings: dict[str, Any]) -> Finding:
    """Check that the connection has TLS or an API key, or stays on this machine."""
    host = host_of(settings["target_host"])
    if settings.get("api_key"):
        return Finding("protection", Mark.OK, "TLS, and an API key")
    if settings.get("tls"):
        return Finding("protection", Mark.OK, "TLS")
    if is_loopback(host):
        return Finding("protection", Mark.OK, "neither TLS nor an API key, but on this machine")
    return Finding(
        "protection",
        Mark.WARN,
        f"neither TLS nor an API key for {host}; anyone on that network can read batons and decide",
        "set TEMPORAL_API_KEY or TEMPORAL_TLS, or use a profile of temporal.toml that has them",
    )
