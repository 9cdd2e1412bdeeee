"""Pipelines for the tests of simultaneous decisions."""

import asyncio
from datetime import timedelta

from temporalio import workflow

from baton import ContinueAfter, Pipeline, PipelineInput, PipelineResult
from baton.core.pending import PendingHandoff
from baton.core.verdict import Disposition

with workflow.unsafe.imports_passed_through():
    from tests.handoff.handoff_stages import dear, extract, score, summarise
    from tests.handoff.inbox_stages import taint
    from tests.pipelines.deciding_stages import dearer

REFUSED = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
"""The handoff about which `AsksItself` asks."""


@workflow.defn
class SpendsInBranches:
    """Two branches, each of which costs more than the rest of the budget."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(extract)
        await self.pipeline.fan_out(dear, dearer)
        return self.pipeline.result()


@workflow.defn
class SpendsBeside:
    """A stage that costs more than the budget, beside two that do not."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await asyncio.gather(self.pipeline.stage(dear), self._light())
        return self.pipeline.result()

    async def _light(self) -> None:
        await self.pipeline.stage(extract)
        await self.pipeline.stage(score)


@workflow.defn
class TaintedBranches:
    """Two branches that both reject the handoff, with protected constraints."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, protected=["constraints"])

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(taint)
        await self.pipeline.fan_out(score, summarise)
        return self.pipeline.result()


@workflow.defn
class GoesOnDecided:
    """Continues as new after one decision, and waits for another."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=10))

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(taint)
        await self.pipeline.stage(score)
        await self.pipeline.sleep(timedelta(seconds=1.1))
        await self.pipeline.approve("release manager", within=timedelta(minutes=1))
        return self.pipeline.result()


@workflow.defn
class AsksItself:
    """Asks a person in its own code, before and after it continues as new."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, continue_after=ContinueAfter(events=10))

    async def ask(self, why: str) -> str:
        """Ask about a handoff that another pipeline rejected."""
        within = timedelta(minutes=2)
        decision = await self.pipeline.ask(
            PendingHandoff(handoff_id=REFUSED, sender="legal", receiver="risk", fate=Disposition.ESCALATE, details=why),
            within,
        )
        return f"{decision.who}: {decision.choice}"

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(extract)
        answers = [await self.ask("it was refused")]
        await self.pipeline.sleep(timedelta(seconds=1.1))
        await self.pipeline.stage(score)
        answers.append(await self.ask("it was refused"))
        return self.pipeline.result([*answers])


@workflow.defn
class EndsDuringAnAnswer:
    """Ends in the workflow task in which an answer comes after the decision; parameter: `fails`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)
        self.decided = False

    @workflow.query
    def is_decided(self) -> bool:
        """Whether the decision is in effect."""
        return self.decided

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.approve("release manager", within=timedelta(minutes=1))
        self.decided = True
        await workflow.wait_condition(lambda: not workflow.all_handlers_finished())
        if self.pipeline.params.get("fails"):
            raise ValueError("it failed")
        return self.pipeline.result()


PIPELINES = [EndsDuringAnAnswer, SpendsInBranches, SpendsBeside, TaintedBranches, GoesOnDecided, AsksItself]
