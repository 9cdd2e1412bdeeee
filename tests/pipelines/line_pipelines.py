"""Concurrent lines of steps, and a pipeline that loses its ledger."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from baton import ContinueAfter, Pipeline, PipelineInput, PipelineResult
from baton.errors import StageFailedError

with workflow.unsafe.imports_passed_through():
    from tests.pipelines.line_stages import alpha, beta, charges, costs, first, gamma, once, patient, second, stumbles
    from tests.pipelines.stages import tidy


@workflow.defn
class Waits:
    """Two stages with one attempt each."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(first)
        result = await self.pipeline.stage(second)
        return self.pipeline.result(result.output)


@workflow.defn
class Returns:
    """A stage that removes the ledger and can wait for it."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(patient)
        return self.pipeline.result()


@workflow.defn
class Stumbles:
    """A stage with two attempts, the first of which fails, after one that removes the ledger."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(first)
        result = await self.pipeline.stage(stumbles)
        return self.pipeline.result(result.output)


@workflow.defn
class Lines:
    """Two lines, each of which waits for a person and then runs a stage."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        async def line(title: str, then: Any) -> None:
            await self.pipeline.approve(title, within=timedelta(minutes=2))
            await self.pipeline.stage(then)

        await asyncio.gather(line("first", alpha), line("second", beta))
        await self.pipeline.stage(gamma)
        return self.pipeline.result()


@workflow.defn
class Catches:
    """Continues after a failed stage."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        try:
            await self.pipeline.stage(once)
        except StageFailedError as error:
            return self.pipeline.result(str(error))
        return self.pipeline.result()


@workflow.defn
class Polls:
    """Looks three times, with a pause after each look; it continues as new as soon as its history has four events."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        events = int(str(start.params.get("events", 4)))
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=events))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        pause = timedelta(seconds=float(str(start.params.get("seconds", 0.6))))
        for _ in range(3):
            await self.pipeline.stage(gamma)
            await self.pipeline.sleep(pause, name="until the next look")
        return self.pipeline.result()


@workflow.defn
class Hurries:
    """Waits at most a second for a sleep of an hour."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.pipeline.sleep(timedelta(hours=1)), 1)
        await self.pipeline.stage(gamma)
        return self.pipeline.result()


@workflow.defn
class Pays:
    """One stage that charges and does not end."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(charges)
        return self.pipeline.result()


@workflow.defn
class Buys:
    """Pays for a stage beside another, as the parameter `how` says, and tells what the stage failed with."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        with suppress(StageFailedError):
            await self.pipeline.stage(costs)
        await self.pipeline.fan_out(costs, gamma)
        await self.pipeline.sleep(timedelta(hours=1))
        return self.pipeline.result()


@workflow.defn
class Races:
    """Two stages at once; the one that does not end is cancelled as soon as the other has, and not waited for."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        racing = [asyncio.ensure_future(self.pipeline.stage(each)) for each in (charges, alpha)]
        _, late = await workflow.wait(racing, return_when=asyncio.FIRST_COMPLETED)
        for task in late:
            task.cancel()
        return self.pipeline.result()


@workflow.defn
class TakesTheFirst:
    """Stages at once, of which it waits for the first only; it ends then as the parameter `how` says."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        racing = [asyncio.ensure_future(self.pipeline.stage(tidy)) for _ in range(8)]
        await workflow.wait(racing, return_when=asyncio.FIRST_COMPLETED)
        match self.pipeline.params["how"]:
            case "raises":
                raise ApplicationError("one is enough", non_retryable=True)
            case "goes on" if workflow.info().continued_run_id is None:
                workflow.continue_as_new(start)
        return self.pipeline.result()
