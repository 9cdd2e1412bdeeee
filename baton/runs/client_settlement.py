"""What a reset left behind, as the server tells it: who rolled the run back, and what the abandoned part had spent."""

import asyncio

from temporalio import activity
from temporalio.client import Client

from baton.core.history import Spend
from baton.core.messages import RollBacks, RolledBack
from baton.errors import HistoryError
from baton.runs.client_executions import describe, list_executions
from baton.runs.client_reader import read_run
from baton.runs.client_record import Reset, RunRecord
from baton.wire.names import ROLLED_BACK

_PAUSE = 0.2
_LOOKS = 25  # so many pauses are five seconds for the children to end that a roll-back terminates

_MOST_BETWEEN = 20


@activity.defn(name=ROLLED_BACK)
async def rolled_back(told: int) -> RollBacks:
    """Return the resets of the run that asks, from the ``told``-th on, with the bills of what each left.

    All of it is read from histories, which only the server writes. Who rolled the run back and why is what they said.

    Args:
        told: How many of its resets the run knows already.
    """
    info, client = activity.info(), activity.client()
    assert info.workflow_id is not None  # noqa: S101 - a pipeline has scheduled it
    run = await read_run(client, info.workflow_id, info.workflow_run_id)
    return RollBacks(made=[await _settled(client, run, reset) for reset in run.resets[told:]])


async def _settled(client: Client, run: RunRecord, reset: Reset) -> RolledBack:
    """Return what one reset left."""
    base = await read_run(client, run.workflow_id, reset.base_run_id)
    newest, known = await _newest(client, base, run.run_id), base.billed_by(reset.event)
    # Each of them has settled what was left before it, or has spent nothing.
    newest = max([newest, *await _between(client, base, run.run_id)], key=lambda one: _size(one.billed))
    left, stopped = newest.billed.beyond(known), []
    shares = newest is base or any(one.base_run_id == base.run_id for one in newest.resets)
    after = reset.event if shares else 0
    for child, child_run, initiated in newest.children:
        if initiated <= after:
            continue
        status = await _ended(client, child, child_run)
        if status == "TERMINATED":
            stopped.append(child)
        if initiated not in newest.ended_children:
            left += await _billed(client, child)
    return RolledBack.of_reason(reset.reason, from_run_id=newest.run_id, stopped_children=stopped, left=left)


async def _between(client: Client, base: RunRecord, run_id: str) -> list[RunRecord]:
    """Return the runs that came between one and that which was reset from it: the server links none of them."""
    first, mine = [(await describe(client, base.workflow_id, one)).start_time for one in (base.run_id, run_id)]
    name = base.workflow_id.replace("'", "''")
    query = f"WorkflowId = '{name}' AND ExecutionStatus != 'ContinuedAsNew'"
    found = [one async for one in list_executions(client, query, most=_MOST_BETWEEN)]
    ids = [one.run_id for one in found if first < one.start_time < mine]
    return [await read_run(client, base.workflow_id, one) for one in ids]


async def _newest(client: Client, base: RunRecord, run_id: str) -> RunRecord:
    """Return the last run of the part that was left: it may have continued as new, and been reset, several times."""
    newest = base
    while True:
        following = newest.next_run_id or ""
        if newest is not base:
            execution = await describe(client, newest.workflow_id, newest.run_id)
            following = execution.details.workflow_extended_info.reset_run_id or following
        if following in ("", run_id):
            return newest
        newest = await read_run(client, newest.workflow_id, following)


def _size(spend: Spend) -> tuple[int, int]:
    return spend.micro_usd, spend.prompt_tokens + spend.completion_tokens


async def _ended(client: Client, workflow_id: str, run_id: str) -> str:
    """Return the status of a child, once it has ended: who rolls back terminates it right after the reset."""
    for _ in range(_LOOKS):
        status = (await describe(client, workflow_id, run_id)).status
        if status != "RUNNING":
            break
        await asyncio.sleep(_PAUSE)
    return status


async def _billed(client: Client, workflow_id: str) -> Spend:
    """Return what a child was charged; nothing if it is not a pipeline."""
    try:
        return (await read_run(client, workflow_id)).billed
    except HistoryError:
        return Spend()
