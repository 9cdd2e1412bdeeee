"""A journey that can be undone."""

from datetime import timedelta
from typing import Any

from baton import (
    ApprovalDeniedError,
    Baton,
    BatonPatch,
    Compensations,
    Pipeline,
    Retries,
    StageContext,
    StageFailedError,
    StageResult,
    pipeline,
    stage,
)


@stage
async def book_flight(context: StageContext[Baton]) -> StageResult:
    """Book a flight."""
    number = f"F-{context.params['trip']}"
    return StageResult(baton_patch=BatonPatch(decision_log=[f"Booked {number}"]), output=number)


@stage
async def book_hotel(context: StageContext[Baton]) -> StageResult:
    """Book a hotel."""
    number = f"H-{context.params['trip']}"
    return StageResult(baton_patch=BatonPatch(decision_log=[f"Booked {number}"]), output=number)


@stage(retries=Retries(never=("ValueError",)))
async def pay(context: StageContext[Baton]) -> BatonPatch:
    """Pay what was approved."""
    amount: Any = context.params["amount"]
    if amount > 1_000:
        raise ValueError("the card was declined")
    return BatonPatch(decision_log=[f"Paid {amount}"])


@stage
async def cancel(context: StageContext[Baton]) -> BatonPatch:
    """Cancel one booking."""
    return BatonPatch(decision_log=[f"Cancelled {context.input('booking', str)}"])


@pipeline
async def travel(p: Pipeline) -> object:
    """Book, ask, pay; or cancel."""
    payment = {"trip": p.params["trip"], "amount": p.params["amount"]}
    try:
        async with Compensations(p) as undo:
            for book in (book_flight, book_hotel):
                undo.later(cancel, inputs={"booking": await p.stage(book)})
            asks = f"Pay for {payment['trip']}?"
            await p.approve("treasurer", within=timedelta(days=1), asks=asks, then=(pay, payment))
            await p.stage(pay, params=payment)
    except (ApprovalDeniedError, StageFailedError):
        return {"paid": False, "log": p.baton.decision_log}
    return {"paid": True, "log": p.baton.decision_log}
