"""Pipelines that work while they receive messages."""

import asyncio
from datetime import timedelta

from temporalio import workflow

from baton import Exchange, Pipeline, PipelineInput, PipelineResult, ReceiverRequirements
from tests.patience import IN_TIME

with workflow.unsafe.imports_passed_through():
    from tests.pipelines.stages import check, document, sort, tidy


@workflow.defn
class ReceivesAfterWork:
    """Runs stages in turn, then receives; parameter: `times`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline, agent="risk")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        times = start.params["times"]
        assert isinstance(times, int)
        for _ in range(times):
            await self.pipeline.stage(sort)
            await self.pipeline.stage(check)
        received = await self.exchange.receive(ReceiverRequirements("risk", "1.0.0"), within=IN_TIME)
        return self.pipeline.result(received.handoff_id)


@workflow.defn(sandboxed=False)
class ReceivesOutsideTheSandbox(ReceivesAfterWork):
    """The same without a sandbox."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        return await super().run(start)


@workflow.defn
class WorksAndReceives:
    """Works, waits for approvals and receives at once; parameters: `times`, and the number of `senders`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.exchange = Exchange(self.pipeline, agent="risk")

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        times, senders = start.params["times"], start.params["senders"]
        assert isinstance(times, int)
        assert isinstance(senders, int)
        work = asyncio.create_task(self._work(times))
        risk = ReceiverRequirements("risk", "1.0.0")
        received = [(await self.exchange.receive(risk, within=IN_TIME)).handoff_id for _ in range(senders)]
        await work
        return self.pipeline.result(received)

    async def _work(self, times: int) -> None:
        for number in range(times):
            await self.pipeline.stage(sort)
            await self.pipeline.stage(check)
            await self.pipeline.fan_out(document, tidy)
            if number % 2:
                await self.pipeline.approve(f"round {number}", within=timedelta(milliseconds=300), default=True)


@workflow.defn
class TellsWhen:
    """Waits for a note, runs a stage, and returns the time of the note."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.notes = 0

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await workflow.wait_condition(lambda: self.notes > 0)
        noted_at = workflow.now()
        await self.pipeline.stage(sort)
        return self.pipeline.result(noted_at.isoformat())

    @workflow.signal
    def note(self) -> None:
        """Receive a note."""
        self.notes += 1

    @workflow.query
    def noted(self) -> int:
        """Return the number of notes."""
        return self.notes
