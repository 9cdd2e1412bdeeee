"""Task 9: new code for runs that wait under the old."""

import asyncio
from typing import Any
from uuid import uuid4

from baton import PipelineInput, PipelineResult
from baton.client import Answer, decide
from baton.testing import assert_replays, run_pipeline


async def start_and_leave(old: Any, baton_worker: Any, queue: str) -> str:
    """Start a run of the old code, and stop its worker once it waits for its manager; return its id."""
    asked, workflow_id = asyncio.Event(), f"test-{uuid4()}"

    def keep_waiting(_: Any) -> None:
        asked.set()

    start = PipelineInput(goal="Pay", params={"amount": 40})
    async with baton_worker([old.invoice], [old.read, old.pay], task_queue=queue) as worker:
        running = asyncio.create_task(
            run_pipeline(worker, old.invoice, start, id=workflow_id, decisions={"manager": keep_waiting})
        )
        await asyncio.wait({running, asyncio.create_task(asked.wait())}, return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        await asyncio.wait({running})
    return workflow_id


async def test_runs_that_wait_end_under_the_new_code(load: Any, baton_worker: Any, baton_client: Any) -> None:
    queue = f"test-{uuid4()}"
    workflow_id = await start_and_leave(load("invoice"), baton_worker, queue)
    handle = baton_client.get_workflow_handle(workflow_id, result_type=PipelineResult)
    new = load("invoice", "task09")
    await assert_replays(handle, [new.invoice])
    async with baton_worker([new.invoice], [new.read, new.check, new.pay, new.archive], task_queue=queue):
        await decide(baton_client, workflow_id, Answer(choice="approve", who="ann"))
        result = await handle.result()
    assert result.output == {"paid": "paid", "archived": "A-40"}
    assert result.final_baton().decision_log == ["Read", "Paid", "Archived"]


async def run(load: Any, baton_worker: Any, params: dict[str, Any]) -> tuple[Any, Any]:
    new = load("invoice", "task09")
    seen: list[Any] = []

    def decision(question: Any) -> bool:
        seen.append(question)
        return True

    async with baton_worker([new.invoice], [new.read, new.check, new.pay, new.archive]) as worker:
        start = PipelineInput(goal="Pay", params=params)
        ended = await run_pipeline(worker, new.invoice, start, decisions={"manager": decision})
    return ended, {shown.title: shown.text for shown in seen[0].shows}


async def test_new_runs_are_checked_first(load: Any, baton_worker: Any) -> None:
    ended, shown = await run(load, baton_worker, {"amount": 2_000, "checks": True})
    assert ended.baton.decision_log == ["Read the invoice", "Checked", "Paid", "Archived"]
    assert ended.result.output == {"paid": "paid", "archived": "A-2000"}
    assert ended.step_names == ["read", "check", "manager", "pay", "archive"]
    assert shown["within the limit"].lower() == "false"
    assert "2000" in shown["invoice"]


async def test_runs_without_the_parameter_go_the_old_way(load: Any, baton_worker: Any) -> None:
    ended, shown = await run(load, baton_worker, {"amount": 40})
    assert ended.baton.decision_log == ["Read the invoice", "Paid", "Archived"]
    assert list(shown) == ["invoice"]
