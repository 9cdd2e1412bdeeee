"""A pipeline whose workers are killed: its stages tell when they begin, and can be made to stay."""

import asyncio
import os
from datetime import timedelta

from temporalio import activity, workflow

from baton import Baton, BatonPatch, Pipeline, PipelineInput, PipelineResult, Retries, stage

STAY = "BATON_TEST_STAY"
"""Environment variable: the stage that never ends in this process."""

_QUICKLY = Retries(attempts=0, first=timedelta(milliseconds=20), factor=1.0)
_ALIVE = timedelta(seconds=1)


async def begin() -> None:
    """Print that the calling stage has started; block in it if this process is configured so."""
    name = activity.info().activity_type
    print(name, flush=True)
    if os.environ.get(STAY) == name:
        await asyncio.Event().wait()


@stage(heartbeat=_ALIVE, retries=_QUICKLY)
async def draft(baton: Baton) -> BatonPatch:
    """Write a draft."""
    await begin()
    return BatonPatch(current_state=["Drafted", "Not built", "Not verified"], decision_log=["Chose the small way"])


@stage(heartbeat=_ALIVE, retries=_QUICKLY)
async def build(baton: Baton) -> BatonPatch:
    """Build it."""
    await begin()
    return BatonPatch(current_state=["Built"], work_scope=["src/*"], constraints=["No new service"])


@stage(heartbeat=_ALIVE, retries=_QUICKLY)
async def verify(baton: Baton) -> BatonPatch:
    """Verify it."""
    await begin()
    return BatonPatch(current_state=[f"Verified {len(baton.constraints)} rules"], decision_log=["All checks passed"])


STAGES = [draft, build, verify]


@workflow.defn
class Errand:
    """Draft, build, ask if the parameter `ask` says so, verify."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(draft)
        await self.pipeline.stage(build)
        if self.pipeline.params.get("ask"):
            await self.pipeline.approve("release manager", within=timedelta(minutes=1))
        await self.pipeline.stage(verify)
        return self.pipeline.result()
