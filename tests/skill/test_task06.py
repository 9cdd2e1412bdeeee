"""Task 6: effects that are undone, and an approval of exactly one payment."""

from typing import Any

import pytest

from baton import PipelineInput
from baton.testing import assert_replays, run_pipeline

BOOKED = ["Booked F-Rome", "Booked H-Rome"]
CANCELLED = ["Cancelled H-Rome", "Cancelled F-Rome"]


@pytest.fixture
def travel(load: Any) -> Any:
    return load("travel", "task06")


async def run(travel: Any, baton_worker: Any, decision: Any, amount: int = 900) -> Any:
    stages = [travel.book_flight, travel.book_hotel, travel.pay, travel.cancel]
    async with baton_worker([travel.travel], stages) as worker:
        start = PipelineInput(goal="Go to Rome", params={"trip": "Rome", "amount": amount})
        return await run_pipeline(worker, travel.travel, start, decisions={"treasurer": decision})


async def test_what_is_approved_is_paid(travel: Any, baton_worker: Any) -> None:
    ended = await run(travel, baton_worker, True)
    assert ended.result.output == {"paid": True, "log": [*BOOKED, "Paid 900"]}
    assert ended.baton.decision_log == [*BOOKED, "Paid 900"]
    await assert_replays(ended.handle, [travel.travel])


async def test_a_failed_payment_undoes_the_bookings(travel: Any, baton_worker: Any) -> None:
    ended = await run(travel, baton_worker, True, 2_000)
    assert ended.result.output == {"paid": False, "log": [*BOOKED, *CANCELLED]}
    assert ended.step_names[-2:] == ["cancel", "cancel"]
    history = await ended.handle.fetch_history()
    assert max(event.activity_task_started_event_attributes.attempt for event in history.events) == 1


async def test_a_no_undoes_the_bookings(travel: Any, baton_worker: Any) -> None:
    ended = await run(travel, baton_worker, False)
    assert ended.result.output == {"paid": False, "log": [*BOOKED, *CANCELLED]}


async def test_the_yes_is_for_this_payment_only(travel: Any, baton_worker: Any) -> None:
    seen: list[Any] = []

    def decide(question: Any) -> bool:
        seen.append(question)
        return True

    await run(travel, baton_worker, decide)
    [question] = seen
    assert question.asks == "Pay for Rome?"
    assert (question.until - question.since).days == 1
    bound = [shown.text for shown in question.shows if "pay" in f"{shown.title} {shown.text}"]
    assert any("900" in text for text in bound), question.shows
