"""A team's own code, as the strict type checker sees it; it is never run."""

import asyncio
from datetime import timedelta

from pydantic import Field
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from baton import (
    ApprovalDeniedError,
    Baton,
    BatonPatch,
    ContinueAfter,
    MergeStrategy,
    Pipeline,
    PipelineInput,
    PipelineResult,
    Retries,
    StageContext,
    StageFailedError,
    StageResult,
    WorkerParts,
    open_store,
    stage,
)
from baton.client import read_run, roll_back
from baton.plugin import BatonPlugin


class ReviewBaton(Baton):
    """A baton with a field of the team's own."""

    quality: dict[str, float] = Field(default_factory=dict)


class ReviewPatch(BatonPatch):
    """Its patch."""

    quality: dict[str, float] | None = None


@stage
async def plan(baton: Baton) -> BatonPatch:
    """Take a plain baton, return a patch."""
    return BatonPatch(current_state=[f"Plan for {baton.goal}"])


@stage(
    reads=["current_state"],
    writes=["quality", "artifacts"],
    timeout=timedelta(minutes=5),
    retries=Retries(attempts=2, never=("ValueError",)),
)
async def review(context: StageContext[ReviewBaton]) -> StageResult:
    """Take a context of the team's own baton, return a result."""
    quality: dict[str, float] = context.baton.quality
    await context.artifacts.write("review-1", context.prompt, type="review")
    return StageResult(baton_patch=ReviewPatch(quality={**quality, "craft": 0.8}), output={"passed": True})


@stage
async def tidy(baton: Baton) -> None:
    """Return nothing."""


@workflow.defn
class Reviewing:
    """A pipeline with every kind of step."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(
            start,
            baton_type=ReviewBaton,
            protected=["goal", "constraints"],
            merge={"quality": MergeStrategy.LAST},
            continue_after=ContinueAfter(events=1_000),
        )

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        first, second = await self.pipeline.fan_out(review, tidy, merge={"current_state": MergeStrategy.FIRST})
        try:
            decided = await self.pipeline.approve("release manager", within=timedelta(days=2))
        except ApprovalDeniedError:
            return self.pipeline.result("denied")
        try:
            child = await self.pipeline.child(Reviewing.run, "Review the review", name=decided.who)
        except StageFailedError:
            return self.pipeline.result()
        return self.pipeline.result([first.output, second.output, child.steps])


async def serve() -> None:
    """Start a worker and a pipeline, read it and roll it back."""
    parts = WorkerParts(artifacts=open_store(".baton/artifacts"))
    client = await Client.connect("localhost:7233", plugins=[BatonPlugin(parts)])
    async with Worker(client, task_queue="baton", workflows=[Reviewing], activities=[plan, review, tidy]):
        handle = await client.start_workflow(
            Reviewing.run, PipelineInput(goal="Review"), id="review", task_queue="baton"
        )
        result: PipelineResult = await handle.result()
        quality: dict[str, float] = result.final_baton(ReviewBaton).quality
        run = await read_run(client, "review")
        print(quality, [step.name for step in run.steps])
        await roll_back(client, "review", "plan", by="ann", why="another plan")


async def call_a_stage_like_a_function() -> list[str] | None:
    """Call a stage without Temporal; its result has the function's own type."""
    patch = await plan(Baton(goal="Review"))
    return patch.current_state


if __name__ == "__main__":
    asyncio.run(serve())
