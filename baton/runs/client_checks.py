"""Checks of a server, its workers and its runs, each with a remedy for what it finds."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from temporalio.api.enums.v1 import IndexedValueType, PendingActivityState
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeTaskQueueResponse
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from baton.artifacts.store import ArtifactStore, MemoryArtifactStore, not_found_error
from baton.codec.failures import causes
from baton.errors import ArtifactError, HistoryError, UnreadableRunError
from baton.runs.client_clock import clock_fault, clock_skew
from baton.runs.client_events import decode_payloads, failure_reason
from baton.runs.client_executions import PAUSED, Execution, describe, history, list_executions, map_concurrently
from baton.runs.client_inbox import ASKING_RUNS, OUTSIDE_RUNS, WAITING_RUNS, inbox
from baton.runs.client_list import SUSPENDED, RunFilter, equal, list_runs, query_pinned_elsewhere
from baton.runs.client_reader import read_run
from baton.runs.client_standing import TimeFormat
from baton.runs.client_waiting import (
    describe_queue,
    find_unchosen,
    lacking,
    pinned_build,
    polling_builds,
    recent_identities,
)
from baton.wire.json_values import JsonFields
from baton.wire.names import SEARCH_ATTRIBUTES
from baton.wire.text import format_time, quantity

_TIMEOUT_SECONDS = 10.0
_SERVER_REMEDY = "check the server's log, and the free space of its disk or database"
_MAX_DESCRIBED_RUNS, _MAX_LISTED_RUNS, _MAX_QUEUES = 50, 1_000, 20
_OPEN_RUNS = "ExecutionStatus = 'Running'"
_SCHEDULED = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
_MIN_SUSPICIOUS_ATTEMPTS = 3  # a killed worker costs one attempt, and a second one killed at the same time another
_MAX_READ_RUNS = 5
_MAX_OPEN_RUNS, _MAX_ARTIFACTS = 20, 500
_MALFORMED_REMEDY = "somebody started it with records that Baton does not write; find out who may start workflows here"


class CheckMark(StrEnum):
    """How a check ended: a failure keeps runs or workers from their work, a warning may."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class CheckResult(JsonFields):
    """The result of one check.

    Attributes:
        check: What was checked.
        mark: How it ended.
        found: What was found, on one line.
        remedy: What to do about it, if anything.
        runs: How many runs were found, by what they wait for.
    """

    check: str
    mark: CheckMark
    found: str
    remedy: str | None = None
    runs: Mapping[str, int] = field(default_factory=dict)


async def check_server(
    client: Client, task_queue: str, *, fix: bool = False, time_format: TimeFormat = format_time, log_days: int = 0
) -> AsyncIterator[CheckResult]:
    """Check a namespace, the workers of a task queue, and the newest runs; yield a result for each check.

    A check that the server does not answer within ten seconds, or refuses, fails and says so. Needs no worker.

    Args:
        client: A connected client, with `ClientPlugin` and the workers' keys and store.
        task_queue: The task queue whose workers to check.
        fix: Add missing search attributes to the namespace.
        time_format: Formats the times in what is found.
        log_days: How many days the histories of closed runs have to be kept.

    Example:
        ```python
        async for result in check_server(client, "baton"):
            if result.mark is not CheckMark.OK:
                print(result.check, result.found, result.remedy)
        ```
    """
    checks: list[tuple[str, Awaitable[CheckResult]]] = [
        ("namespace", check_namespace(client, log_days)),
        ("clock", check_clock(client)),
        ("search attributes", check_search_attributes(client, fix=fix)),
        ("workers", check_workers(client, task_queue)),
        ("other task queues", check_other_queues(client, task_queue)),
        ("suspended runs", check_suspended_runs(client)),
        ("blocked runs", check_blocked_runs(client)),
        ("waiting for you", check_waiting_runs(client, time_format)),
        ("runs", check_payloads(client)),
    ]
    for name, checking in checks:
        yield await run_check(name, checking)


async def run_check(check: str, checking: Awaitable[CheckResult]) -> CheckResult:
    """Return the result of a check, or a failure if the server does not answer within ten seconds or refuses.

    Args:
        check: What is checked.
        checking: The check.
    """
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            return await checking
    except TimeoutError:
        return CheckResult(check, CheckMark.FAIL, f"no answer within {_TIMEOUT_SECONDS:.0f} s", _SERVER_REMEDY)
    except RPCError as error:
        caller_errors = RPCStatusCode.NOT_FOUND, RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED
        caller_remedy = "check the namespace's name and your permissions in it"
        return CheckResult(
            check, CheckMark.FAIL, error.message, caller_remedy if error.status in caller_errors else _SERVER_REMEDY
        )


async def check_namespace(client: Client, log_days: int = 0) -> CheckResult:
    """Check that the namespace exists, and that it keeps closed runs as long as logs have to be kept."""
    request = DescribeNamespaceRequest(namespace=client.namespace)
    response = await client.workflow_service.describe_namespace(request, retry=True)
    retention = response.config.workflow_execution_retention_ttl.ToTimedelta()
    days = retention.days or round(retention.total_seconds() / 86400, 1)
    found = f"{client.namespace!r} keeps closed runs for {days} day{'' if days == 1 else 's'}"
    if days < log_days:
        remedy = "raise its retention, or export runs before (`baton export RUN FILE`); the ledger keeps its records"
        return CheckResult("namespace", CheckMark.WARN, f"{found}, and BATON_LOG_DAYS is {log_days}", remedy)
    return CheckResult("namespace", CheckMark.OK, found)


async def check_clock(client: Client) -> CheckResult:
    """Check that this machine's clock agrees with the server's; each worker checks its own."""
    skew = await clock_skew(client)
    if fault := clock_fault(skew):
        return CheckResult(
            "clock", CheckMark.FAIL, fault, "no worker with safeguards starts here until its clock is set"
        )
    return CheckResult(
        "clock", CheckMark.OK, "not compared: the server does not tell" if skew is None else "as the server's"
    )


async def check_search_attributes(client: Client, *, fix: bool) -> CheckResult:
    """Check that the namespace has Baton's search attributes, or with ``fix`` add missing ones."""
    check = "search attributes"
    try:
        missing, mistyped = await _find_search_attribute_faults(client)
        if mistyped:
            wanted = ", ".join(f"{name} is to be {SEARCH_ATTRIBUTES[name]}" for name in mistyped)
            remedy = "remove them (`temporal operator search-attribute remove`), then baton doctor --fix adds them"
            return CheckResult(check, CheckMark.FAIL, f"of another type: {wanted}", remedy)
        if not missing:
            return CheckResult(check, CheckMark.OK, ", ".join(SEARCH_ATTRIBUTES))
        if fix:
            await _add_search_attributes(client, missing)
            return CheckResult(check, CheckMark.OK, f"added {', '.join(missing)}")
    except RPCError as error:
        wanted = ", ".join(f"{name} ({kind})" for name, kind in SEARCH_ATTRIBUTES.items())
        remedy = f"make sure that the namespace has {wanted}"
        return CheckResult(check, CheckMark.WARN, f"the server does not list them: {error.message}", remedy)
    return CheckResult(
        check,
        CheckMark.FAIL,
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


async def check_workers(client: Client, task_queue: str) -> CheckResult:
    """Check that workers poll the task queue, and that the server routes runs to their builds."""
    queue = await describe_queue(client, task_queue)
    if finding := _check_routing(queue, task_queue) or await _check_pinned_runs(client, task_queue):
        return finding
    if pollers := recent_identities(queue):
        return CheckResult(
            "workers", CheckMark.OK, f"{quantity(len(pollers), 'worker')} recently polled {task_queue!r}"
        )
    found = f"no worker polls task queue {task_queue!r}"
    open_runs = await count(client, f"{equal('TaskQueue', task_queue)} AND {equal('ExecutionStatus', 'Running')}")
    if not open_runs:
        return CheckResult("workers", CheckMark.WARN, found, "start one; `baton dev` does")
    found = f"{found}, and {quantity(open_runs, 'open run')} cannot continue"
    return CheckResult("workers", CheckMark.FAIL, found, "start one, and see in the log of the last one why it exited")


async def check_other_queues(client: Client, task_queue: str) -> CheckResult:
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
        return CheckResult(check, CheckMark.FAIL, "; ".join(unserved), remedy)
    return CheckResult(
        check, CheckMark.OK, f"{quantity(len(needed), 'queue')} of open runs polled" if needed else "none in use"
    )


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


async def check_routing(client: Client, task_queue: str) -> CheckResult | None:
    """Return a warning if the server routes no runs to the builds that poll a task queue; None if it routes them.

    Args:
        client: A connected client.
        task_queue: The task queue.
    """
    return _check_routing(await describe_queue(client, task_queue), task_queue)


def _check_routing(queue: DescribeTaskQueueResponse, task_queue: str) -> CheckResult | None:
    pollers = recent_identities(queue)
    unchosen = find_unchosen(queue)
    if unchosen is None:
        return None
    found = f"{quantity(len(pollers), 'worker')} recently polled {task_queue!r}, but runs do not go to their builds"
    if unchosen.current is None:
        return CheckResult("workers", CheckMark.WARN, found, unchosen.remedy)
    return CheckResult(
        "workers",
        CheckMark.WARN,
        f"{found}: they go to build {unchosen.current!r}, which has no workers",
        f"start workers of build {unchosen.current!r}, or {unchosen.remedy}",
    )


async def _check_pinned_runs(client: Client, task_queue: str) -> CheckResult | None:
    """Return a finding if runs are pinned to builds without workers."""
    builds = await polling_builds(client, task_queue)
    query = query_pinned_elsewhere(task_queue, [build for build in builds if build])
    count = (await client.count_workflows(query)).count
    async for run in list_executions(client, query, most=1):
        build = pinned_build(await describe(client, run.id, run.run_id))
        if build is None or build in builds:  # moved since the count
            return None
        found = f"{quantity(count, 'run')} {'is' if count == 1 else 'are'} pinned to builds without workers"
        return CheckResult(
            "workers",
            CheckMark.WARN,
            f"{found}, such as {run.id!r} to {build.id!r}: they cannot continue",
            f"start workers of such a build; if it is lost, `baton rollback {shlex.quote(run.id)} --to 1 --why '…'` "
            f"begins a run again on the current build, and `baton show {shlex.quote(run.id)}` says how to move it",
        )
    return None


async def check_payloads(client: Client) -> CheckResult:
    """Check that this machine can decode the payloads of the newest run, and that the newest few are well-formed."""
    newest = [run async for run in list_runs(client, RunFilter(children=True), limit=_MAX_READ_RUNS)]
    if not newest:
        return CheckResult("runs", CheckMark.OK, "none yet")
    run = newest[0]
    _, events = await history(client, run.workflow_id, run.run_id)
    try:
        await decode_payloads(events, client.data_converter)
    except HistoryError as error:
        remedy = "set BATON_KEYS and BATON_ARTIFACTS to the workers' keys and store"
        return CheckResult("runs", CheckMark.FAIL, f"run {run.workflow_id!r}: {error}", remedy)
    for listed in newest:
        try:
            await read_run(client, listed.workflow_id, listed.run_id)
        except UnreadableRunError as error:
            return CheckResult("runs", CheckMark.WARN, str(error), _MALFORMED_REMEDY)
        except HistoryError:  # of other keys, or of no pipeline
            continue
    return CheckResult("runs", CheckMark.OK, f"the payloads of {run.workflow_id!r} can be read")


async def count(client: Client, query: str) -> int:
    """Return how many runs match a query; 0 if the server does not know its search attributes."""
    try:
        return (await client.count_workflows(query)).count
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            return 0
        raise


async def check_suspended_runs(client: Client) -> CheckResult:
    """Check that no run is suspended."""
    check = "suspended runs"
    run_filter = RunFilter(status=SUSPENDED, children=True, every=True)
    number = await count(client, run_filter.query()) or await count(client, run_filter.query(labelled=False))
    if not number:
        return CheckResult(check, CheckMark.OK, "none")
    return CheckResult(
        check,
        CheckMark.FAIL,
        f"{quantity(number, 'run')}: the workers' code fails on them, or lacks what a stage needs",
        "baton list --all --status suspended; `baton show RUN` says why, `baton replay` checks new code",
        {"suspended": number},
    )


async def check_blocked_runs(client: Client) -> CheckResult:
    """Check that steps of the newest open runs do not fail repeatedly, and that workers answer."""
    check = "blocked runs"
    newest = [run async for run in list_executions(client, _OPEN_RUNS, most=_MAX_DESCRIBED_RUNS)]

    async def find_reason(run: Execution) -> str | None:
        try:
            return _blocking_reason(await describe(client, run.id, run.run_id))
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise

    reasons = await map_concurrently(find_reason, newest)
    blocked = [(run, reason) for run, reason in zip(newest, reasons, strict=True) if reason]
    if not blocked:
        all_read = len(newest) < _MAX_DESCRIBED_RUNS
        return CheckResult(check, CheckMark.OK, "none" if all_read else f"none of the newest {len(newest)}")
    run, reason = blocked[0]
    found = f"{len(blocked)} of the newest {quantity(len(newest), 'open run')}, such as {run.id!r}: {reason}"
    return CheckResult(check, CheckMark.FAIL, found, f"baton show {shlex.quote(run.id)}")


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


async def check_waiting_runs(client: Client, time_format: TimeFormat = format_time) -> CheckResult:
    """Report how many runs wait for a person: for a decision, an answer, or to be unpaused."""
    check = "waiting for you"
    handoffs, approvals = await count(client, WAITING_RUNS), await count(client, ASKING_RUNS)
    outside = await count(client, OUTSIDE_RUNS)
    paused = await count(client, RunFilter(status=PAUSED, children=True, every=True).query(labelled=False))
    rows = {
        "handoff": (handoffs, f"{quantity(handoffs, 'run')} with a handoff that waits for a person", "baton inbox"),
        "approval": (approvals, f"{quantity(approvals, 'run')} waiting for an approval", "baton inbox"),
        "outside": (
            outside,
            f"{quantity(outside, 'run')} waiting for an agent outside",
            "baton list --all --status waiting",
        ),
        "unpause": (paused, quantity(paused, "paused run"), "baton list --all --status paused"),
    }
    numbers = {name: number for name, (number, _, _) in rows.items() if number}
    texts = [rows[name][1] for name in numbers]
    remedies = dict.fromkeys(rows[name][2] for name in numbers)
    if not texts:
        return CheckResult(check, CheckMark.OK, "nothing")
    if handoffs or approvals:
        deadlines = [entry.deadline async for entry in inbox(client, limit=1)]
        texts += [f"the nearest deadline is {time_format(deadline)}" for deadline in deadlines if deadline]
    return CheckResult(check, CheckMark.WARN, ", ".join(texts), "; ".join(remedies), numbers)


async def check_artifacts(client: Client, store: ArtifactStore | None) -> CheckResult:
    """Check that a store has the artifacts of the newest open runs.

    Args:
        client: A connected client, with the workers' keys and store.
        store: The workers' artifact store; None if they have none.
    """
    check, known = "artifacts", set[str]()
    if store is None or isinstance(store, MemoryArtifactStore):
        return CheckResult(check, CheckMark.OK, "not checked: the store is in memory")
    async for run in list_executions(client, _OPEN_RUNS, most=_MAX_OPEN_RUNS):
        try:
            record = await read_run(client, run.id, run.run_id)
            for ref in record.artifacts:
                if ref.hash not in known and len(known) < _MAX_ARTIFACTS and not await store.has(ref.hash):
                    raise not_found_error(ref.hash, f"{ref.id!r} of its baton")
                known.add(ref.hash)
        except (ArtifactError, HistoryError) as error:
            lost = next((cause for cause in causes(error) if isinstance(cause, ArtifactError)), None)
            if lost is None:  # of other keys, or of no pipeline
                continue
            remedy = f"the run waits or fails until then; or give it up: baton cancel {shlex.quote(run.id)} --why '…'"
            return CheckResult(check, CheckMark.FAIL, f"{run.id!r} needs what the store does not have: {lost}", remedy)
    return CheckResult(
        check, CheckMark.OK, f"the store has the {len(known)} that open runs refer to" if known else "none in use"
    )
