"""`baton doctor`: whether everything is as it should be, and what to do where it is not."""

import asyncio
import contextlib
import os
import platform
import shlex
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
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

from baton.artifacts.store import ArtifactStore, LocalArtifactStore, MemoryArtifactStore, open_store
from baton.cli.options import ExitCode
from baton.cli.output import make_table, plain
from baton.cli.session import KEYS_FOLDER, Session, command
from baton.cli.supervision import installed
from baton.errors import ArtifactError, BatonError, HistoryError, ServerError
from baton.handoff.client_inbox import ASKING_RUNS, WAITING_RUNS
from baton.keys.store_keyring import Keyring, KeyringError, Purpose, is_production
from baton.ledger.chain import ChainHead, HeadSigner
from baton.ledger.cli_sources import Keys, ledger_name, ledger_place
from baton.ledger.records import LedgerError, LedgerKeysError
from baton.ledger.store import Ledger, LedgerOptions
from baton.runs.client_connection import DEFAULT_TASK_QUEUE
from baton.runs.client_events import decoded
from baton.runs.client_executions import PAUSED, Execution, describe, history, list_executions
from baton.runs.client_list import SUSPENDED, RunFilter, list_runs, pinned_elsewhere
from baton.runs.client_reader import read_run
from baton.runs.client_waiting import (
    described_queue,
    failure_reason,
    pinned_build,
    polling_builds,
    recent_pollers,
    unchosen_workers,
)
from baton.wire.names import SEARCH_ATTRIBUTES, WAIT_FOR_WORKER
from baton.wire.text import host_of, is_loopback, quantity
from baton.worker import unknown_settings


class Mark(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """What a check found."""

    check: str
    mark: Mark
    found: str
    remedy: str | None = None


_PATIENCE_SECONDS = 10.0
_SERVERS_OWN = "look at the server's log, and whether its disk or database has room"
_STYLES = {Mark.OK: "green", Mark.WARN: "yellow", Mark.FAIL: "bold red"}
_ROOM = 1_000_000  # bytes
_PROBE = b"baton doctor\n"
_MOST_DESCRIBED = 50
_AT_ONCE = 8
_UNUSUAL_TRIES = 3  # a worker that is killed costs one, another that takes over in the same second one more
_LEAST_FREE = 100_000_000  # bytes
_RUNS_READ = 5


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
        raise typer.Exit(ExitCode.FAILURE)


async def _everything(session: Session, task_queue: str, *, fix: bool) -> AsyncIterator[Finding]:
    """Yield what every check finds; without a server those that need one are left out."""
    for finding in installation():
        yield finding
    yield check_settings(os.environ)
    yield await check_store(session.options.store, open_store)
    yield check_keys(os.environ)
    yield await check_ledger()
    try:
        place = session.connection.settings()
        client = await session.client()
    except ServerError as error:
        yield Finding("server", Mark.FAIL, str(error))
        return
    except KeyringError as error:
        yield Finding("encryption", Mark.FAIL, f"the server was not asked, for the keys cannot be used: {error}")
        return
    yield Finding("server", Mark.OK, f"{place['target_host']} answers")
    yield check_protection(place)
    for check, asking in _of_the_server(client, task_queue, fix=fix):
        yield await _in_time(check, asking)


def _of_the_server(client: Client, task_queue: str, *, fix: bool) -> list[tuple[str, Awaitable[Finding]]]:
    """Return the checks that ask the server."""
    return [
        ("namespace", check_namespace(client)),
        ("search attributes", check_search_attributes(client, fix=fix)),
        ("workers", check_workers(client, task_queue)),
        ("suspended runs", check_suspended_runs(client)),
        ("blocked runs", check_blocked_runs(client)),
        ("waiting for you", check_waiting_runs(client)),
        ("runs", check_payloads(client)),
        ("ledger records", check_ledger_records(client)),
    ]


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


def installation() -> Iterator[Finding]:
    """Yield what is installed."""
    yield Finding("python", Mark.OK, platform.python_version())
    for name in ("temporal-baton", "temporalio", "pydantic"):
        version = installed(name)
        missing = None if version else f"pip install {name}"
        yield Finding(name, Mark.OK if version else Mark.WARN, version or "not installed as a package", missing)


def check_settings(environment: Iterable[str]) -> Finding:
    """Check that something reads each `BATON_…` variable."""
    if unknown := unknown_settings(environment):
        return Finding("settings", Mark.WARN, f"ignored: {', '.join(unknown)}", "unset them, or correct their names")
    return Finding("settings", Mark.OK, "each BATON_… variable is known")


async def check_store(where: str, open_store: Callable[[str], ArtifactStore]) -> Finding:
    """Check that the artifact store takes bytes and returns them; a few bytes stay there."""
    try:
        opened = open_store(where)
        if isinstance(opened, LocalArtifactStore) and (full := no_room(opened.root)):
            remedy = "make room; stages that write artifacts fail until there is"
            return Finding("artifact store", Mark.FAIL, full, remedy)
        kept = await opened.put(_PROBE)
        is_whole = await opened.get(kept) == _PROBE
    except (ArtifactError, ValueError, OSError) as error:
        return Finding("artifact store", Mark.FAIL, str(error), "name another with --artifacts or BATON_ARTIFACTS")
    if not is_whole:
        return Finding("artifact store", Mark.FAIL, f"{where} gives back other bytes", "do not use this store")
    if isinstance(opened, MemoryArtifactStore):
        return Finding("artifact store", Mark.WARN, "in memory", "it ends with its process; name a folder or a bucket")
    return Finding("artifact store", Mark.OK, f"{where} can be written and read")


def no_room(folder: Path) -> str | None:
    """Return why nothing can be written into a folder, found out by writing a megabyte; None if it can."""
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=there, prefix=".baton-doctor-") as file:
            file.write(os.urandom(_ROOM))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"nothing can be written in {there}: {error.strerror}"
    return None


def check_protection(settings: dict[str, Any]) -> Finding:
    """Check how the connection is protected."""
    host = host_of(settings["target_host"])
    if settings.get("api_key"):
        return Finding("protection", Mark.OK, "TLS, and an API key")
    if settings.get("tls"):
        return Finding("protection", Mark.OK, "TLS")
    if is_loopback(host):
        return Finding("protection", Mark.OK, "neither TLS nor a key, on this machine")
    return Finding(
        "protection",
        Mark.WARN,
        f"neither TLS nor a key on the way to {host}; anyone on that network can read batons and decide",
        "set TEMPORAL_API_KEY or TEMPORAL_TLS, or use a profile of temporal.toml that has them",
    )


async def check_namespace(client: Client) -> Finding:
    """Check that the namespace is there, and how long it keeps runs that ended."""
    request = DescribeNamespaceRequest(namespace=client.namespace)
    answer = await client.workflow_service.describe_namespace(request, retry=True)
    kept = answer.config.workflow_execution_retention_ttl.ToTimedelta()
    days = kept.days or round(kept.total_seconds() / 86400, 1)
    found = f"{client.namespace!r} keeps runs that ended for {days} day{'' if days == 1 else 's'}"
    return Finding("namespace", Mark.OK, found)


async def check_search_attributes(client: Client, *, fix: bool) -> Finding:
    """Check that the namespace has Baton's search attributes, and with ``fix`` add those it lacks."""
    check = "search attributes"
    try:
        missing = await _missing(client)
        if not missing:
            return Finding(check, Mark.OK, ", ".join(SEARCH_ATTRIBUTES))
        if fix:
            await _add(client, missing)
            return Finding(check, Mark.OK, f"added {', '.join(missing)}")
    except RPCError as error:
        by_hand = ", ".join(SEARCH_ATTRIBUTES)
        return Finding(
            check,
            Mark.WARN,
            f"the server refuses to tell: {error.message}",
            f"see to it that it has {by_hand}, Keyword",
        )
    return Finding(
        check,
        Mark.FAIL,
        f"the namespace lacks {', '.join(missing)}",
        "baton doctor --fix adds them; or BATON_SEARCHABLE=0",
    )


async def _missing(client: Client) -> list[str]:
    """Return the search attributes that the namespace lacks."""
    request = ListSearchAttributesRequest(namespace=client.namespace)
    known = (await client.operator_service.list_search_attributes(request, retry=True)).custom_attributes
    return [name for name in SEARCH_ATTRIBUTES if name not in known]


async def _add(client: Client, names: Sequence[str]) -> None:
    """Add search attributes, one by one: in a call with several, one that is known would hide the others."""
    for name in names:
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace=client.namespace,
                search_attributes={name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD},
            ),
            retry=True,
        )


async def check_workers(client: Client, task_queue: str) -> Finding:
    """Check that workers poll the task queue, and are given runs."""
    answer = await described_queue(client, task_queue)
    if finding := _given_no_runs(answer, task_queue) or await _stranded(client, task_queue):
        return finding
    if seen := recent_pollers(answer):
        return Finding("workers", Mark.OK, f"{len(seen)} asked the task queue {task_queue!r} for work lately")
    found = f"none asks the task queue {task_queue!r} for work"
    quoted = task_queue.replace("'", "''")
    open_runs = await count(client, f"TaskQueue = '{quoted}' AND ExecutionStatus = 'Running'")
    if not open_runs:
        return Finding("workers", Mark.WARN, found, "start one; `baton dev` does")
    found = f"{found}, and {quantity(open_runs, 'open run')} cannot continue"
    return Finding("workers", Mark.FAIL, found, "start one, and see in its log why the last one ended")


async def check_routing(client: Client, task_queue: str) -> Finding | None:
    """Return that no build of the workers is given runs, so that none begins; None where runs do."""
    return _given_no_runs(await described_queue(client, task_queue), task_queue)


def _given_no_runs(answer: DescribeTaskQueueResponse, task_queue: str) -> Finding | None:
    """Return the same of what the server says of the task queue."""
    seen = recent_pollers(answer)
    unchosen = unchosen_workers(answer)
    if unchosen is None:
        return None
    found = f"{len(seen)} asked the task queue {task_queue!r} for work lately, and no run is given to their builds"
    if unchosen.current is None:
        return Finding("workers", Mark.WARN, found, unchosen.remedy)
    return Finding(
        "workers",
        Mark.WARN,
        f"{found}: build {unchosen.current!r} is, and it has no workers",
        f"start workers of build {unchosen.current!r}, or {unchosen.remedy}",
    )


async def _stranded(client: Client, task_queue: str) -> Finding | None:
    """Return a finding if runs are pinned to builds without workers."""
    builds = await polling_builds(client, task_queue)
    query = pinned_elsewhere(task_queue, [build for build in builds if build])
    count = (await client.count_workflows(query)).count
    async for run in list_executions(client, query, most=1):
        build = pinned_build(await describe(client, run.id, run.run_id))
        if build is None or build in builds:  # it was moved a moment ago
            return None
        found = f"{quantity(count, 'run')} {'is' if count == 1 else 'are'} pinned to builds without workers"
        return Finding(
            "workers",
            Mark.WARN,
            f"{found}, such as {run.id!r} to {build.id!r}: they cannot continue",
            f"start workers of such a build again, or move its runs: `baton show {shlex.quote(run.id)}` tells how",
        )
    return None


async def check_payloads(client: Client) -> Finding:
    """Check that the payloads of the newest run, an open one if there is one, can be read here."""
    listed = await list_runs(client, RunFilter(children=True), 1)
    if not listed:
        return Finding("runs", Mark.OK, "none yet")
    [run] = listed
    _, events = await history(client, run.workflow_id, run.run_id)
    try:
        await decoded(events, client.data_converter)
    except HistoryError as error:
        remedy = "BATON_KEYS and BATON_ARTIFACTS name the workers' keys and store"
        return Finding("runs", Mark.FAIL, f"of the run {run.workflow_id!r} {error}", remedy)
    return Finding("runs", Mark.OK, f"the payloads of {run.workflow_id!r} can be read")


async def count(client: Client, query: str) -> int:
    """Return how many runs a query finds; none where the server does not index what it asks for."""
    try:
        return (await client.count_workflows(query)).count
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            return 0
        raise


async def check_suspended_runs(client: Client) -> Finding:
    """Check that workers can continue the open runs."""
    check = "suspended runs"
    wanted = RunFilter(status=SUSPENDED, children=True, every=True)
    found = await count(client, wanted.query()) or await count(client, wanted.query(labelled=False))
    if not found:
        return Finding(check, Mark.OK, "none")
    return Finding(
        check,
        Mark.FAIL,
        f"{quantity(found, 'run')}: the workers' code fails whenever it is given one, or lacks what a stage needs",
        "baton list --all --status suspended; `baton show RUN` says why, `baton replay` checks new code",
    )


async def check_blocked_runs(client: Client) -> Finding:
    """Check that the steps of open runs do not fail again and again, and that workers answer."""
    check, turn = "blocked runs", asyncio.Semaphore(_AT_ONCE)
    open_runs = "ExecutionStatus = 'Running'"
    newest = [one async for one in list_executions(client, open_runs, most=_MOST_DESCRIBED)]

    async def reason(run: Execution) -> str | None:
        async with turn:
            try:
                return _reason(await describe(client, run.id, run.run_id))
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return None
                raise

    reasons = await asyncio.gather(*map(reason, newest))
    stopped = [(run, why) for run, why in zip(newest, reasons, strict=True) if why]
    if not stopped:
        return Finding(check, Mark.OK, "none" if len(newest) < _MOST_DESCRIBED else f"none of the newest {len(newest)}")
    run, why = stopped[0]
    found = f"{len(stopped)} of the newest {quantity(len(newest), 'open run')}, such as {run.id!r}: {why}"
    return Finding(check, Mark.FAIL, found, f"baton show {shlex.quote(run.id)}")


def _reason(run: Execution) -> str | None:
    """Return why a run does not move, or None."""
    for activity in run.details.pending_activities:
        if activity.activity_type.name == WAIT_FOR_WORKER and activity.HasField("last_failure"):
            return f"it waits for a worker that can do it: {activity.last_failure.message.partition(chr(10))[0][:200]}"
        if activity.attempt >= _UNUSUAL_TRIES and activity.HasField("last_failure"):
            why = failure_reason(activity.last_failure).partition("\n")[0][:200]
            state = "runs" if activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED else "waits for"
            return f"{activity.activity_type.name} failed, {state} attempt {activity.attempt}: {why}"
    tries = run.details.pending_workflow_task.attempt
    return f"a worker was given it {tries} times without an answer" if tries >= _UNUSUAL_TRIES else None


async def check_waiting_runs(client: Client) -> Finding:
    """Say how many runs wait for somebody: for a decision about a handoff, for an answer, or while paused."""
    check = "waiting for you"
    handoffs, asking = await count(client, WAITING_RUNS), await count(client, ASKING_RUNS)
    paused = await count(client, RunFilter(status=PAUSED, children=True, every=True).query(labelled=False))
    parts: Sequence[tuple[int, str, str]] = (
        (handoffs, f"{quantity(handoffs, 'run')} with a handoff that waits for a person", "baton inbox"),
        (asking, f"{quantity(asking, 'run')} waiting for an approval or an agent outside", "baton inbox"),
        (paused, quantity(paused, "paused run"), "baton list --all --status paused"),
    )
    there = [(found, remedy) for number, found, remedy in parts if number]
    if not there:
        return Finding(check, Mark.OK, "nothing")
    remedies = dict.fromkeys(remedy for _, remedy in there)
    return Finding(check, Mark.WARN, ", ".join(found for found, _ in there), "; ".join(remedies))


def check_keys(environment: Mapping[str, str]) -> Finding:
    """Check that a worker started here would have a current key for each purpose."""
    try:
        if not (is_production(environment) or Keyring.is_at_hand(environment, KEYS_FOLDER)):
            made = f"a worker with safeguards that is started here makes some in {KEYS_FOLDER}"
            return Finding("keys", Mark.OK, f"none yet; {made}")
        ring = Keyring.find_out(environment, KEYS_FOLDER)
        for purpose in Purpose:
            ring.current(purpose)
    except KeyringError as error:
        return Finding("keys", Mark.FAIL, str(error))
    if ring.is_development:
        return Finding("keys", Mark.OK, "those of a developer's machine; BATON_ENV=production refuses them")
    return Finding("keys", Mark.OK, "a current one for each purpose")


async def check_ledger() -> Finding:
    """Check that the ledger that the environment names can be opened and written, and is of this release."""
    where = ledger_place(None)
    if isinstance(where, Path) and (found := _of_file(where)):
        return found
    try:
        options = LedgerOptions(name=ledger_name(None), signer=_signer(), create=False)
        async with Ledger(where, options) as opened:
            if isinstance(where, str):
                await opened.check_writable()
            return Finding("ledger", Mark.OK, f"{opened.where} can be opened")
    except LedgerKeysError as error:
        return Finding("ledger", Mark.FAIL, str(error), "set BATON_KEYS to the keyring that the other workers have")
    except (LedgerError, ValueError) as error:
        return Finding("ledger", Mark.FAIL, str(error), "runs wait until it can be written; BATON_LEDGER names it")


async def check_ledger_records(client: Client) -> Finding:
    """Check that the ledger has the records for which the newest run on record got receipts."""
    check, where = "ledger records", ledger_place(None)
    for listed in await list_runs(client, RunFilter(children=True), _RUNS_READ):
        try:
            run = await read_run(client, listed.workflow_id, listed.run_id)
        except HistoryError:
            continue
        if not run.anchors or run.task_id is None:
            continue
        last = ChainHead.from_anchor(ledger_name(None), run.task_id, run.anchors[-1])
        remedy = "restore the ledger from its backup, or name the workers' one with BATON_LEDGER"
        if isinstance(where, Path) and not where.exists():
            mark = Mark.FAIL if os.environ.get("BATON_LEDGER") else Mark.WARN
            found = f"there is no {where}, but {listed.workflow_id!r} is on record: it was deleted, or is elsewhere"
            return Finding(check, mark, found, remedy)
        try:
            async with Ledger(where, LedgerOptions(name=ledger_name(None), create=False)) as opened:
                head = await opened.head(run.task_id)
        except (LedgerError, ValueError):
            return Finding(check, Mark.WARN, "not checked: the ledger cannot be opened")
        if head is None or head.sequence < last.sequence:
            has = head.sequence if head else 0
            found = f"of {listed.workflow_id!r} it has {has} of at least {quantity(last.sequence, 'record')}"
            return Finding(check, Mark.FAIL, found, remedy)
        return Finding(check, Mark.OK, f"those of {listed.workflow_id!r} are there")
    return Finding(check, Mark.OK, "no run here is on record")


def _signer() -> HeadSigner | None:
    """Return what a worker started here would sign with; what is wrong with the keys is a finding of its own."""
    with contextlib.suppress(BatonError):
        return Keys.of(None).signer
    return None


def _of_file(file: Path) -> Finding | None:
    """Return what is to be said of a ledger's file, or None where it is there and has room."""
    if not file.exists():
        return Finding("ledger", Mark.OK, f"none yet; a worker with safeguards that is started here makes {file}")
    if shut := next((one for one in (file, file.parent) if not os.access(one, os.W_OK)), None):
        remedy = "give it to the workers' user: a ledger's file is written, and files beside it"
        return Finding("ledger", Mark.FAIL, f"{shut} cannot be written by this user", remedy)
    remedy = "make room, or move old records with `baton audit archive`; runs wait while it cannot be written"
    if full := no_room(file.parent):
        return Finding("ledger", Mark.FAIL, full, remedy)
    free = shutil.disk_usage(file.parent).free
    if free >= _LEAST_FREE:
        return None
    return Finding("ledger", Mark.WARN, f"{file} has {free // 1_000_000} MB left to grow", remedy)
