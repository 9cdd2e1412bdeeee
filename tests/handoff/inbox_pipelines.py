"""The pipelines of the inbox tests, beside those of the handoff tests."""

import asyncio
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from temporalio import workflow

from baton import HandoffTerms, Pipeline, PipelineInput, PipelineResult, pipeline
from baton.core.pending import PendingHandoff
from baton.core.verdict import Disposition

with workflow.unsafe.imports_passed_through():
    from tests.handoff.handoff_stages import forgetful, scoped, score, summarise
    from tests.handoff.inbox_stages import taint


@workflow.defn
class Tainted:
    """A sender that hands on text that a terminal should not show."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(taint)
        await self.pipeline.stage(score)
        return self.pipeline.result()


@workflow.defn
class TaintedTwice:
    """Two receivers at once, neither of which accepts."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(taint)
        await self.pipeline.fan_out(score, summarise)
        return self.pipeline.result()


@workflow.defn
class ForgetsInABranch:
    """Two receivers at once, one of which requires a missing field."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(forgetful)
        await self.pipeline.fan_out(score, scoped)
        return self.pipeline.result()


@pipeline(handoffs=HandoffTerms(needs=2))
async def asks_aside(p: Pipeline) -> object:
    """Ask two people about a handoff, while a stage changes the baton."""
    pending = PendingHandoff(
        handoff_id="h", sender="legal", receiver="finance", fate=Disposition.ESCALATE, details="refused"
    )
    settled, _ = await asyncio.gather(p.ask(pending, timedelta(minutes=2)), p.stage(forgetful))
    return [settled.choice, settled.who]


class Amount(BaseModel):
    """What an approver fills in."""

    amount: int


@pipeline
async def asks_what(p: Pipeline) -> object:
    """Ask for an amount."""
    return (await p.approve("what", within=timedelta(minutes=2), answer=Amount)).data


PIPELINES: list[Any] = [Tainted, TaintedTwice, ForgetsInABranch, asks_aside, asks_what]
