"""Helpers for runs with costs: start them, and read what they and their stages report."""

import contextlib
from typing import Any
from uuid import uuid4

from temporalio.client import WorkflowFailureError
from temporalio.worker import Worker

from baton import Budget, PipelineInput
from baton.client import RunRecord, read_run
from baton.plugin import BatonPlugin
from baton.testing import assert_replays
from tests.budget.paying_pipelines import PIPELINES, Takes
from tests.budget.paying_stages import BILLS
from tests.support import LIMIT, Handle

BUDGET = Budget(initial_micro_usd=1_000_000)


async def ended(worker: Worker, handle: Handle) -> RunRecord:
    """Return the newest run of a workflow after its end; its history replays."""
    newest = worker.client.get_workflow_handle(handle.id)
    with contextlib.suppress(WorkflowFailureError):
        await newest.result()
    [plugin] = worker.client.config()["plugins"]
    assert isinstance(plugin, BatonPlugin)
    await assert_replays(newest, PIPELINES, plugin=plugin)
    return await read_run(worker.client, handle.id)


async def taken(
    worker: Worker, steps: list[Any], does: dict[str, Any] | None = None, budget: Budget | None = BUDGET, **params: Any
) -> RunRecord:
    """Return a run that took these steps, with what its stages did by name; by default they spend 1,000 each."""
    handle = await worker.client.start_workflow(
        Takes.run,
        PipelineInput(goal="Pay", budget=budget, params={"steps": steps, "does": does or {}, **params}),
        id=f"takes-{uuid4()}",
        task_queue=worker.task_queue,
        execution_timeout=LIMIT,
    )
    return await ended(worker, handle)


def paid(run: RunRecord) -> int:
    """Return what the stages of a run have paid, children included."""
    return sum(amount for id, amount in BILLS.items() if id == run.workflow_id or id.startswith(f"{run.workflow_id}."))


def told(run: RunRecord) -> int:
    assert run.result is not None, run.failure
    return (run.result.billed or run.result.spend).micro_usd
