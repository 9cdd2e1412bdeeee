"""A pipeline during whose tasks the garbage of other runs is collected."""

import asyncio
import gc
from datetime import timedelta

from temporalio import workflow

from baton import Pipeline, PipelineInput, PipelineResult
from baton.exchange.workflow_messages import cancel_once

with workflow.unsafe.imports_passed_through():
    from tests.pipelines.stages import plan


def collect() -> None:
    """Collect garbage, as the interpreter may at any time."""
    with workflow.unsafe.sandbox_unrestricted():
        gc.collect()


@workflow.defn
class Collecting:
    """One stage, and a collection of garbage before it and after it."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        collect()
        await self.pipeline.stage(plan)
        collect()
        return self.pipeline.result()


@workflow.defn
class Clings:
    """Waits for a person, and raises if the wait is interrupted."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        try:
            await self.pipeline.approve("release manager", within=timedelta(minutes=2))
        finally:
            raise ValueError("not done yet")


@workflow.defn
class Races:
    """Waits beside a task that waits for a person."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        asking = asyncio.ensure_future(self.pipeline.approve("release manager", within=timedelta(minutes=2)))
        await cancel_once(lambda: False, [asking])
        return self.pipeline.result()
