"""Pipelines that compensate external effects, in their own module because the sandbox reloads it."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow

from baton import (
    ApprovalDeniedError,
    Baton,
    BatonPatch,
    Compensations,
    ContinueAfter,
    Pipeline,
    PipelineInput,
    PipelineResult,
    Retries,
    Spend,
    StageContext,
    StageResult,
    stage,
)


@stage
async def book(baton: Baton) -> BatonPatch:
    """Book."""
    return BatonPatch(decision_log=["Booked"])


@stage(reserve_micro_usd=1_000)
async def pay(baton: Baton) -> StageResult:
    """Pay."""
    return StageResult(spend=Spend(micro_usd=900))


@stage(retries=Retries(attempts=1))
async def breaks(baton: Baton) -> BatonPatch:
    """Fail."""
    raise RuntimeError("the model is down")


@stage
async def call_off(context: StageContext[Baton]) -> BatonPatch:
    """Cancel the booking slowly."""
    seconds: Any = context.params.get("seconds", 0)
    await asyncio.sleep(seconds)
    return BatonPatch(decision_log=["Called off"])


@stage
async def tell(baton: Baton) -> BatonPatch:
    """Withdraw the announcement."""
    return BatonPatch(decision_log=["Told"])


@stage(reserve_micro_usd=500)
async def refund(baton: Baton) -> BatonPatch:
    """Refund the payment, for more money than is left."""
    return BatonPatch(decision_log=["Refunded"])


@workflow.defn
class Books:
    """Books, then fails, pays till no money is left, or sleeps, as `then` says; undone by `tell` and `call_off`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        events: Any = start.params.get("events", 3_200)
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=events))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        async with Compensations(self.pipeline) as undo:
            await self.pipeline.stage(book)
            undo.later(tell)
            undo.later(call_off)
            match self.pipeline.params["then"]:
                case "pay":
                    undo.later(refund)
                    while True:
                        await self.pipeline.stage(pay)
                case "sleep":
                    await self.pipeline.sleep(timedelta(days=1))
                case _:
                    await self.pipeline.stage(breaks)
        return self.pipeline.result()


@workflow.defn
class AsksFirst:
    """Books, asks, and fails; one of the two compensations is bound to other parameters by the approval."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Book, ask and fail, or return how it was denied."""
        within = timedelta(milliseconds=1) if self.pipeline.params["late"] else timedelta(minutes=2)
        async with Compensations(self.pipeline) as undo:
            await self.pipeline.stage(book)
            undo.later(tell)
            undo.later(call_off, params={"seconds": 0})
            try:
                await self.pipeline.approve("release manager", within=within, then=(call_off, {"seconds": 1}))
            except ApprovalDeniedError as denied:
                decided = denied.decided
                return self.pipeline.result([decided.via, decided.who, decided.why, decided.approved])
            await self.pipeline.stage(breaks)
        return self.pipeline.result()


@stage
async def reserve(baton: Baton) -> StageResult:
    """Reserve seats."""
    return StageResult(baton_patch=BatonPatch(decision_log=["Reserved"]), output={"seats": [4, 5]})


@stage
async def release(context: StageContext[Baton]) -> StageResult:
    """Release the seats of an input."""
    seats = context.input("booking", dict[str, list[int]])["seats"]
    return StageResult(baton_patch=BatonPatch(decision_log=[f"Released {seats} {context.input('why')}"]))


@workflow.defn
class Reserves:
    """Reserves, then fails; what undoes it is given what was reserved, as it was then."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Reserve and fail."""
        async with Compensations(self.pipeline) as undo:
            booking = {"seats": [4, 5]}
            reserved = await self.pipeline.stage(reserve)
            undo.later(release, inputs={"booking": reserved, "why": "by output"})
            undo.later(release, inputs={"booking": booking, "why": "by value"})
            booking["seats"].clear()
            await self.pipeline.stage(breaks)
        return self.pipeline.result()


@workflow.defn
class HasItBooked:
    """Runs a child that books and sleeps, and fails meanwhile on a signal."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await asyncio.gather(
            self.pipeline.child(Books.run, "Book", params={"then": "sleep"}),
            self._breaks(),
        )
        return self.pipeline.result()

    async def _breaks(self) -> None:
        await self.pipeline.approve("go on", within=timedelta(minutes=1))
        await self.pipeline.stage(breaks)


_STUMBLED: set[str] = set()


@stage(retries=Retries(attempts=1))
async def stumbles_once(context: StageContext[Baton]) -> BatonPatch:
    """Fail once in a workflow."""
    if (task := context.given.task_id) not in _STUMBLED:
        _STUMBLED.add(task)
        raise RuntimeError("the model is down")
    return BatonPatch(decision_log=["Stumbled once"])


@workflow.defn
class IsAsked:
    """Waits for an approval."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.approve("the half", within=timedelta(minutes=2))
        return self.pipeline.result()


@workflow.defn
class WorksBesideItsChild:
    """Books, then has a child ask a person, while it stumbles itself."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(book)
        await asyncio.gather(self.pipeline.child(IsAsked.run, "Ask", name="asks"), self._stumbles())
        return self.pipeline.result()

    async def _stumbles(self) -> None:
        await self.pipeline.stage(tell)
        await self.pipeline.stage(stumbles_once)


PIPELINES: list[type] = [AsksFirst, Books, Reserves, HasItBooked, IsAsked, WorksBesideItsChild]
STAGES: list[Callable[..., Any]] = [book, pay, breaks, call_off, tell, refund, stumbles_once, reserve, release]
