"""What `baton doctor` looks at of open runs: whether they move, and what stops those that do not."""

import asyncio
import shlex
from collections.abc import Sequence

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from baton.cli.doctor_checks import Finding, Mark
from baton.handoff.client_inbox import WAITING_RUNS
from baton.runs.client_executions import PAUSED, Execution, describe, list_executions
from baton.runs.client_list import SUSPENDED, RunFilter
from baton.runs.client_waiting import failure_reason
from baton.wire.text import counted

_MOST_DESCRIBED = 50
_AT_ONCE = 8
_UNUSUAL_TRIES = 3  # a worker that is killed costs one, another that takes over in the same second one more


async def count(client: Client, query: str) -> int:
    """Return how many runs a query finds; none where the server does not index what it asks for."""
    try:
        return (await client.count_workflows(query)).count
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            return 0
        raise


async def suspended(client: Client) -> Finding:
    """Check that the workers' code can continue the open runs."""
    check = "suspended runs"
    query = RunFilter(status=SUSPENDED, children=True, every=True).query(labelled=False)
    if not (found := await count(client, query)):
        return Finding(check, Mark.OK, "none")
    return Finding(
        check,
        Mark.FAIL,
        f"{counted(found, 'run')}: the workers' code fails whenever it is given one",
        "baton list --all --status suspended; `baton show RUN` says why, `baton replay` checks new code",
    )


async def blocked(client: Client) -> Finding:
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
    found = f"{len(stopped)} of the newest {counted(len(newest), 'open run')}, such as {run.id!r}: {why}"
    return Finding(check, Mark.FAIL, found, f"baton show {shlex.quote(run.id)}")


def _reason(run: Execution) -> str | None:
    """Return why a run does not move, or None."""
    for activity in run.details.pending_activities:
        if activity.attempt >= _UNUSUAL_TRIES and activity.HasField("last_failure"):
            why = failure_reason(activity.last_failure).partition("\n")[0][:200]
            state = "runs" if activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED else "waits for"
            return f"{activity.activity_type.name} failed, {state} attempt {activity.attempt}: {why}"
    tries = run.details.pending_workflow_task.attempt
    return f"a worker was given it {tries} times without an answer" if tries >= _UNUSUAL_TRIES else None


async def waiting(client: Client) -> Finding:
    """Say how many runs wait for an operator: handoffs that wait for a person, and paused runs."""
    check = "waiting for you"
    handoffs = await count(client, WAITING_RUNS)
    paused = await count(client, RunFilter(status=PAUSED, children=True, every=True).query(labelled=False))
    parts: Sequence[tuple[int, str, str]] = (
        (handoffs, f"{counted(handoffs, 'run')} with a handoff that waits for a person", "baton inbox"),
        (paused, counted(paused, "paused run"), "baton list --all --status paused"),
    )
    there = [(found, remedy) for number, found, remedy in parts if number]
    if not there:
        return Finding(check, Mark.OK, "nothing")
    return Finding(check, Mark.WARN, ", ".join(one for one, _ in there), "; ".join(one for _, one in there))


async def open_on(client: Client, task_queue: str) -> int:
    """Return how many open runs need workers of a task queue."""
    quoted = task_queue.replace("'", "''")
    return await count(client, f"TaskQueue = '{quoted}' AND ExecutionStatus = 'Running'")
