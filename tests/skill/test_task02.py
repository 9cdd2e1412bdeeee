"""Task 2: one stage for many items, of which some fail."""

from typing import Any

import pytest

from baton import PipelineInput
from baton.testing import run_pipeline

GOOD: list[dict[str, Any]] = [
    {"number": "A-1", "amount": 40},
    {"number": "A-2", "amount": 2},
    {"number": "A-4", "amount": 0},
]


@pytest.fixture
def invoices(load: Any) -> Any:
    return load("invoices", "task02")


async def run(invoices: Any, baton_worker: Any, listed: list[dict[str, Any]]) -> Any:
    start = PipelineInput(goal="Check the invoices", params={"invoices": listed})
    async with baton_worker([invoices.check_invoices], [invoices.check]) as worker:
        return await run_pipeline(worker, invoices.check_invoices, start)


async def test_good_ones_count(invoices: Any, baton_worker: Any) -> None:
    ended = await run(invoices, baton_worker, GOOD)
    assert ended.result.output == {"total": 42, "rejected": []}
    assert ended.baton.decision_log == ["Accepted A-1", "Accepted A-2", "Accepted A-4"]
    assert ended.step_names == ["check invoice"]


async def test_bad_ones_do_not_stop_the_others(invoices: Any, baton_worker: Any) -> None:
    listed = [GOOD[0], {"number": "B-1"}, GOOD[1], {"number": "B-2", "amount": -1}, GOOD[2]]
    ended = await run(invoices, baton_worker, listed)
    assert ended.result.output == {"total": 42, "rejected": ["B-1", "B-2"]}
    assert ended.baton.decision_log == ["Accepted A-1", "Accepted A-2", "Accepted A-4"]


async def test_a_bad_one_is_tried_once(invoices: Any, baton_worker: Any) -> None:
    ended = await run(invoices, baton_worker, [{"number": "B-1"}])
    history = await ended.handle.fetch_history()
    tries = [event.activity_task_started_event_attributes.attempt for event in history.events]
    assert max(tries) == 1
