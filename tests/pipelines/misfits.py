"""A pipeline that books and undoes, and wrong deployments of it, each with another way to go on after an error."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow

from baton import Baton, BatonPatch, Compensations, Pipeline, PipelineInput, PipelineResult, stage


@stage
async def book(baton: Baton) -> BatonPatch:
    """Book."""
    return BatonPatch(decision_log=["Booked"])


@stage
async def pay(baton: Baton) -> BatonPatch:
    """Pay."""
    return BatonPatch(decision_log=["Paid"])


@stage
async def ship(baton: Baton) -> BatonPatch:
    """Ship."""
    return BatonPatch(decision_log=["Shipped"])


@stage
async def cancel_booking(baton: Baton) -> BatonPatch:
    """Cancel the booking, which nothing in these pipelines gives a reason for."""
    return BatonPatch(decision_log=["Canceled"])


class _Trip:
    """What they share."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)


@workflow.defn(name="Trip")
class Fits(_Trip):
    """The right code."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        super().__init__(start)

    @workflow.signal
    async def nudge(self) -> None:
        """Do nothing."""

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        async with Compensations(self.pipeline) as undo:
            await self.pipeline.stage(book)
            undo.later(cancel_booking)
            await self.pipeline.stage(pay)
            await self.pipeline.stage(ship)
        return self.pipeline.result()


@workflow.defn(name="Trip")
class Compensates(_Trip):
    """Wrong code in a block of compensations."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        async with Compensations(self.pipeline) as undo:
            await self.pipeline.stage(book)
            undo.later(cancel_booking)
            await self.pipeline.stage(ship)
        return self.pipeline.result()


@workflow.defn(name="Trip")
class CatchesAll(_Trip):
    """Wrong code that takes any exception for a failed stage."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(book)
        try:
            await self.pipeline.stage(ship)
        except Exception:
            await workflow.execute_activity("cancel_booking", start_to_close_timeout=timedelta(seconds=9))
        return self.pipeline.result()


@workflow.defn(name="Trip")
class CleansUp(_Trip):
    """Wrong code that always cleans up."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(book)
        try:
            await self.pipeline.stage(ship)
        finally:
            with suppress(Exception):
                await self.pipeline.stage(cancel_booking)
            await workflow.execute_activity("cancel_booking", start_to_close_timeout=timedelta(seconds=9))
        return self.pipeline.result()


@workflow.defn(name="Trip")
class WorksBeside(_Trip):
    """Wrong code in one branch; another, and the handler of a signal, go on in the same workflow task."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        super().__init__(start)

    @workflow.signal
    async def nudge(self) -> None:
        """Do something by itself."""
        await workflow.execute_activity("cancel_booking", start_to_close_timeout=timedelta(seconds=9))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        async def beside() -> None:
            await asyncio.gather(*(workflow.wait_condition(lambda: True) for _ in range(9)))
            await workflow.execute_activity("cancel_booking", start_to_close_timeout=timedelta(seconds=9))
            await self.pipeline.stage(cancel_booking)

        await self.pipeline.stage(book)
        await asyncio.gather(self.pipeline.stage(ship), beside())
        return self.pipeline.result()


@workflow.defn(name="Trip")
class EndsEarly(_Trip):
    """Wrong code without the last steps."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(book)
        return self.pipeline.result()


@workflow.defn(name="Trip")
class BreaksEarly(_Trip):
    """Wrong code with a slip."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(book)
        raise NameError("name 'pya' is not defined")


@workflow.defn(name="Trip")
class AtOnce(_Trip):
    """Right code for a run that books while it pays."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        super().__init__(start)

    @workflow.signal
    async def nudge(self) -> None:
        """Do nothing."""

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await asyncio.gather(self.pipeline.stage(book), self.pipeline.stage(pay))
        await self.pipeline.stage(ship)
        return self.pipeline.result()


MISFITS: list[type] = [Compensates, CatchesAll, CleansUp, WorksBeside]
STAGES: list[Callable[..., Any]] = [book, pay, ship, cancel_booking]
