"""Concurrent lines, and a pipeline whose ledger is taken away; the sandbox reads this anew for each run."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow

from baton import PipelineInput, PipelineResult
from baton.protocol.errors import StageFailedError
from baton.workflow import Pipeline

with workflow.unsafe.imports_passed_through():
    from tests.temporal.line_stages import alpha, beta, first, gamma, lightly, second


@workflow.defn
class Waits:
    """Two stages that are tried once only; the second is light by the parameter `light`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run them."""
        await self.pipeline.stage(first)
        result = await self.pipeline.stage(lightly if start.params["light"] else second)
        return self.pipeline.result(result.output)


@workflow.defn
class Lines:
    """Two lines, each of which waits for a person and then runs a stage."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Run both, then the last stage."""

        async def line(title: str, then: Any) -> None:
            await self.pipeline.approve(title, within=timedelta(minutes=2))
            await self.pipeline.stage(then)

        await asyncio.gather(line("first", alpha), line("second", beta))
        await self.pipeline.stage(gamma)
        return self.pipeline.result()


@workflow.defn
class Catches:
    """Goes on after a light stage that fails."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        """Tell why it failed."""
        try:
            await self.pipeline.stage(lightly)
        except StageFailedError as error:
            return self.pipeline.result(str(error))
        return self.pipeline.result()
