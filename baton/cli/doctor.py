"""`baton doctor`: check the installation, server, workers and runs, and suggest remedies."""

import asyncio
import os
import platform
import shlex
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from typing import Annotated, Any

import typer
from rich.text import Text
from temporalio.api.enums.v1 import IndexedValueType, PendingActivityState
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueResponse,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from baton.artifacts.store import open_store
from baton.cli.options import ExitCode
from baton.cli.output import format_time, make_table, plain
from baton.cli.session import Session, command
from baton.cli.storage_checks import (
    Finding,
    Mark,
    check_artifacts,
    check_keys,
    check_ledger,
    check_ledger_records,
    check_store,
)
from baton.cli.supervision import installed_version
from baton.errors import HistoryError, ServerError, UnreadableRunError
from baton.keys.store_keyring import KeyringError
from baton.runs.client_clock import clock_fault, clock_skew
from baton.runs.client_connection import DEFAULT_TASK_QUEUE
from baton.runs.client_events import decode_payloads
from baton.runs.client_executions import PAUSED, Execution, describe, history, list_executions
from baton.runs.client_inbox import ASKING_RUNS, OUTSIDE_RUNS, WAITING_RUNS, WaitingQuestion, inbox
from baton.runs.client_list import SUSPENDED, RunFilter, list_runs, query_pinned_elsewhere
from baton.runs.client_reader import read_run
from baton.runs.client_waiting import (
    describe_queue,
    failure_reason,
    find_unchosen,
    lacking,
    pinned_build,
    polling_builds,
    recent_identities,
)
from baton.wire.names import SEARCH_ATTRIBUTES
from baton.wire.text import host_of, is_loopback, quantity
from baton.worker import unknown_settings

_TIMEOUT_SECONDS = 10.0
_SERVER_REMEDY = "check the server's log, and the free space of its disk or database"
_STYLES = {Mark.OK: "green", Mark.WARN: "yellow", Mark.FAIL: "bold red"}
_MAX_DESCRIBED_RUNS, _MAX_LISTED_RUNS, _MAX_QUEUES = 50, 1_000, 20
_OPEN_RUNS = "ExecutionStatus = 'Running'"
_SCHEDULED = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
_MAX_CONCURRENT_CALLS = 8
_MIN_SUSPICIOUS_ATTEMPTS = 3  # a killed worker costs one attempt, and a second one killed at the same time another
_MAX_READ_RUNS = 5
_MALFORMED_REMEDY = "somebody started it with records that Baton does not write; find out who may start workflows here"


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
            [{"check": f.check, "mark": f.mark.value, "found": f.found, "remedy": f.remedy} for f in findings]
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
    yield await check_ledger()
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
    checks = _server_checks(client, task_queue, fix=fix)
    for check, pending_finding in [*checks, ("artifacts", check_artifacts(client, session.artifacts))]:
        yield await _await_finding(check, pending_finding)


def _server_checks(client: Client, task_queue: str, *, fix: bool) -> list[tuple[str, Awaitable[Finding]]]:
    return [
        ("namespace", check_namespace(client)),
        ("clock", check_clock(client)),
        ("search attributes", check_search_attributes(client, fix=fix)),
        ("workers", check_workers(client, task_queue)),
        ("other task queues", check_other_queues(client, task_queue)),
        ("suspended runs", check_suspended_runs(client)),
        ("blocked runs", check_blocked_runs(client)),
        ("waiting for you", check_waiting_runs(client)),
        ("runs", check_payloads(client)),
        ("ledger records", check_ledger_records(client)),
    ]


async def _await_finding(check: str, pending_finding: Awaitable[Finding]) -> Finding:
    """Return the finding, or one for a timeout or an error of the server."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            return await pending_finding
    except TimeoutError:
        return Finding(check, Mark.FAIL, f"no answer within {_TIMEOUT_SECONDS:.0f} s", _SERVER_REMEDY)
    except RPCError as error:
        caller_errors = RPCStatusCode.NOT_FOUND, RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED
        caller_remedy = "check the namespace's name and your permissions in it"
        return Finding(
            check, Mark.FAIL, error.message, caller_remedy if error.status in caller_errors else _SERVER_REMEDY
        )


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


async def check_namespace(client: Client) -> Finding:
    """Check that the namespace exists, and report its retention of closed runs."""
    request = DescribeNamespaceRequest(namespace=client.namespace)
    response = await client.workflow_service.describe_namespace(request, retry=True)
    retention = response.config.workflow_execution_retention_ttl.ToTimedelta()
    days = retention.days or round(retention.total_seconds() / 86400, 1)
    found = f"{client.namespace!r} keeps closed runs for {days} day{'' if days == 1 else 's'}"
    return Finding("namespace", Mark.OK, found)


async def check_clock(client: Client) -> Finding:
    """Check that this machine's clock agrees with the server's; each worker checks its own."""
    skew = await clock_skew(client)
    if fault := clock_fault(skew):
        return Finding("clock", Mark.FAIL, fault, "no worker with safeguards starts here until its clock is set")
    return Finding("clock", Mark.OK, "not compared: the server does not tell" if skew is None else "as the server's")


async def check_search_attributes(client: Client, *, fix: bool) -> Finding:
    """Check that the namespace has Baton's search attributes, or with ``fix`` add missing ones."""
    check = "search attributes"
    try:
        missing, mistyped = await _find_search_attribute_faults(client)
        if mistyped:
            wanted = ", ".join(f"{name} is to be {SEARCH_ATTRIBUTES[name]}" for name in mistyped)
            remedy = "remove them (`temporal operator search-attribute remove`), then baton doctor --fix adds them"
            return Finding(check, Mark.FAIL, f"of another type: {wanted}", remedy)
        if not missing:
            return Finding(check, Mark.OK, ", ".join(SEARCH_ATTRIBUTES))
        if fix:
            await _add_search_attributes(client, missing)
            return Finding(check, Mark.OK, f"added {', '.join(missing)}")
    except RPCError as error:
        wanted = ", ".join(f"{name} ({kind})" for name, kind in SEARCH_ATTRIBUTES.items())
        remedy = f"make sure that the namespace has {wanted}"
        return Finding(check, Mark.WARN, f"the server does not list them: {error.message}", remedy)
    return Finding(
        check,
        Mark.FAIL,
        f"the namespace lacks {', '.join(missing)}",
        "baton doctor --fix adds them; or BATON_SEARCHABLE=0",
    )


async def _find_search_attribute_faults(client: Client) -> tuple[list[str], list[str]]:
    """Return the names that the namespace lacks, and those that it has with another type."""
    request = ListSearchAttributesRequest(namespace=client.namespace)
    found = (await client.operator_service.list_search_attributes(request, retry=True)).custom_attributes
    missing = [name for name in SEARCH_ATTRIBUTES if name not in found]
    return missing, [name for name in SEARCH_ATTRIBUTES if found.get(name, _value_type(name)) != _value_type(name)]


def _value_type(name: str) -> IndexedValueType.ValueType:
    return IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{SEARCH_ATTRIBUTES[name].upper()}")


async def _add_search_attributes(client: Client, names: Sequence[str]) -> None:
    """Add each search attribute in its own call, since the server skips all if one exists."""
    for name in names:
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace=client.namespace,
                search_attributes={name: _value_type(name)},
            ),
            retry=True,
        )


async def check_workers(client: Client, task_queue: str) -> Finding:
    """Check that workers poll the task queue, and that the server routes runs to their builds."""
    queue = await describe_queue(client, task_queue)
    if finding := _check_routing(queue, task_queue) or await _check_pinned_runs(client, task_queue):
        return finding
    if pollers := recent_identities(queue):
        return Finding("workers", Mark.OK, f"{quantity(len(pollers), 'worker')} recently polled {task_queue!r}")
    found = f"no worker polls task queue {task_queue!r}"
    quoted = task_queue.replace("'", "''")
    open_runs = await count(client, f"TaskQueue = '{quoted}' AND ExecutionStatus = 'Running'")
    if not open_runs:
        return Finding("workers", Mark.WARN, found, "start one; `baton dev` does")
    found = f"{found}, and {quantity(open_runs, 'open run')} cannot continue"
    return Finding("workers", Mark.FAIL, found, "start one, and see in the log of the last one why it exited")


async def check_other_queues(client: Client, task_queue: str) -> Finding:
    """Check that workers poll the other task queues that open runs need, for pipelines or for stages."""
    check = "other task queues"
    needed: dict[tuple[str, bool], str] = {}  # with a run that needs it
    open_runs = [run async for run in list_executions(client, _OPEN_RUNS, most=_MAX_LISTED_RUNS)]
    for run in open_runs:
        needed.setdefault((run.task_queue, False), run.id)
    for run in open_runs[:_MAX_DESCRIBED_RUNS]:
        for name in await _stage_queues(client, run):
            needed.setdefault((name, True), run.id)
    needed.pop((task_queue, False), None)
    unserved = []
    for (name, stages), run_id in [*needed.items()][:_MAX_QUEUES]:
        if not recent_identities(await describe_queue(client, name, stages=stages)):
            unserved.append(
                f"{name!r} {'has no worker for stages' if stages else 'has no worker'}, which {run_id!r} needs"
            )
    if unserved:
        remedy = "start a worker with BATON_TASK_QUEUE set to it, or in a program Worker(task_queue=…)"
        return Finding(check, Mark.FAIL, "; ".join(unserved), remedy)
    return Finding(check, Mark.OK, f"{quantity(len(needed), 'queue')} of open runs polled" if needed else "none in use")


async def _stage_queues(client: Client, run: Execution) -> set[str]:
    """Return the task queues on which stages of a run wait for a worker."""
    try:
        details = (await describe(client, run.id, run.run_id)).details
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return set()
        raise
    waiting = [activity for activity in details.pending_activities if activity.state == _SCHEDULED]
    return {name for activity in waiting if (name := activity.activity_options.task_queue.name)}


async def check_routing(client: Client, task_queue: str) -> Finding | None:
    """Return a finding if the server routes no runs to the builds that poll the task queue."""
    return _check_routing(await describe_queue(client, task_queue), task_queue)


def _check_routing(queue: DescribeTaskQueueResponse, task_queue: str) -> Finding | None:
    pollers = recent_identities(queue)
    unchosen = find_unchosen(queue)
    if unchosen is None:
        return None
    found = f"{quantity(len(pollers), 'worker')} recently polled {task_queue!r}, but runs do not go to their builds"
    if unchosen.current is None:
        return Finding("workers", Mark.WARN, found, unchosen.remedy)
    return Finding(
        "workers",
        Mark.WARN,
        f"{found}: they go to build {unchosen.current!r}, which has no workers",
        f"start workers of build {unchosen.current!r}, or {unchosen.remedy}",
    )


async def _check_pinned_runs(client: Client, task_queue: str) -> Finding | None:
    """Return a finding if runs are pinned to builds without workers."""
    builds = await polling_builds(client, task_queue)
    query = query_pinned_elsewhere(task_queue, [build for build in builds if build])
    count = (await client.count_workflows(query)).count
    async for run in list_executions(client, query, most=1):
        build = pinned_build(await describe(client, run.id, run.run_id))
        if build is None or build in builds:  # moved since the count
            return None
        found = f"{quantity(count, 'run')} {'is' if count == 1 else 'are'} pinned to builds without workers"
        return Finding(
            "workers",
            Mark.WARN,
            f"{found}, such as {run.id!r} to {build.id!r}: they cannot continue",
            f"start workers of such a build; if it is lost, `baton rollback {shlex.quote(run.id)} --to 1 --why '…'` "
            f"begins a run again on the current build, and `baton show {shlex.quote(run.id)}` says how to move it",
        )
    return None


async def check_payloads(client: Client) -> Finding:
    """Check that this machine can decode the payloads of the newest run, and that the newest few are well-formed."""
    newest = await list_runs(client, RunFilter(children=True), _MAX_READ_RUNS)
    if not newest:
        return Finding("runs", Mark.OK, "none yet")
    run = newest[0]
    _, events = await history(client, run.workflow_id, run.run_id)
    try:
        await decode_payloads(events, client.data_converter)
    except HistoryError as error:
        remedy = "set BATON_KEYS and BATON_ARTIFACTS to the workers' keys and store"
        return Finding("runs", Mark.FAIL, f"run {run.workflow_id!r}: {error}", remedy)
    for listed in newest:
        try:
            await read_run(client, listed.workflow_id, listed.run_id)
        except UnreadableRunError as error:
            return Finding("runs", Mark.WARN, str(error), _MALFORMED_REMEDY)
        except HistoryError:  # of other keys, or of no pipeline
            continue
    return Finding("runs", Mark.OK, f"the payloads of {run.workflow_id!r} can be read")


async def count(client: Client, query: str) -> int:
    """Return how many runs match a query; 0 if the server does not know its search attributes."""
    try:
        return (await client.count_workflows(query)).count
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            return 0
        raise


async def check_suspended_runs(client: Client) -> Finding:
    """Check that no run is suspended."""
    check = "suspended runs"
    run_filter = RunFilter(status=SUSPENDED, children=True, every=True)
    number = await count(client, run_filter.query()) or await count(client, run_filter.query(labelled=False))
    if not number:
        return Finding(check, Mark.OK, "none")
    return Finding(
        check,
        Mark.FAIL,
        f"{quantity(number, 'run')}: the workers' code fails on them, or lacks what a stage needs",
        "baton list --all --status suspended; `baton show RUN` says why, `baton replay` checks new code",
    )


async def check_blocked_runs(client: Client) -> Finding:
    """Check that steps of the newest open runs do not fail repeatedly, and that workers answer."""
    check, limiter = "blocked runs", asyncio.Semaphore(_MAX_CONCURRENT_CALLS)
    newest = [run async for run in list_executions(client, _OPEN_RUNS, most=_MAX_DESCRIBED_RUNS)]

    async def find_reason(run: Execution) -> str | None:
        async with limiter:
            try:
                return _blocking_reason(await describe(client, run.id, run.run_id))
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return None
                raise

    reasons = await asyncio.gather(*map(find_reason, newest))
    blocked = [(run, reason) for run, reason in zip(newest, reasons, strict=True) if reason]
    if not blocked:
        all_read = len(newest) < _MAX_DESCRIBED_RUNS
        return Finding(check, Mark.OK, "none" if all_read else f"none of the newest {len(newest)}")
    run, reason = blocked[0]
    found = f"{len(blocked)} of the newest {quantity(len(newest), 'open run')}, such as {run.id!r}: {reason}"
    return Finding(check, Mark.FAIL, found, f"baton show {shlex.quote(run.id)}")


def _blocking_reason(run: Execution) -> str | None:
    """Return why a run makes no progress, or None."""
    if text := lacking(run):
        return f"its stage cannot run: {text[:400]}"
    for activity in run.details.pending_activities:
        if activity.attempt >= _MIN_SUSPICIOUS_ATTEMPTS and activity.HasField("last_failure"):
            reason = failure_reason(activity.last_failure).partition("\n")[0][:200]
            state = "runs" if activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED else "waits for"
            return f"{activity.activity_type.name} failed, {state} attempt {activity.attempt}: {reason}"
    attempts = run.details.pending_workflow_task.attempt
    return (
        f"{attempts} workflow tasks failed, or got no answer from a worker"
        if attempts >= _MIN_SUSPICIOUS_ATTEMPTS
        else None
    )


async def check_waiting_runs(client: Client) -> Finding:
    """Report how many runs wait for a person: for a decision, an answer, or to be unpaused."""
    check = "waiting for you"
    handoffs, approvals = await count(client, WAITING_RUNS), await count(client, ASKING_RUNS)
    outside = await count(client, OUTSIDE_RUNS)
    paused = await count(client, RunFilter(status=PAUSED, children=True, every=True).query(labelled=False))
    rows: Sequence[tuple[int, str, str]] = (
        (handoffs, f"{quantity(handoffs, 'run')} with a handoff that waits for a person", "baton inbox"),
        (approvals, f"{quantity(approvals, 'run')} waiting for an approval", "baton inbox"),
        (outside, f"{quantity(outside, 'run')} waiting for an agent outside", "baton list --all --status waiting"),
        (paused, quantity(paused, "paused run"), "baton list --all --status paused"),
    )
    texts = [text for number, text, _ in rows if number]
    remedies = dict.fromkeys(remedy for number, _, remedy in rows if number)
    if not texts:
        return Finding(check, Mark.OK, "nothing")
    if handoffs or approvals:
        texts += [f"the nearest deadline is {format_time(entry.deadline)}" for entry in await _read_nearest(client)]
    return Finding(check, Mark.WARN, ", ".join(texts), "; ".join(remedies))


async def _read_nearest(client: Client) -> list[WaitingQuestion]:
    return [entry for entry in (await inbox(client, limit=1)).entries[:1] if entry.deadline]
