"""A team's own code, as the strict type checker sees it; it is never run."""

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

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
from baton.client import (
    Answer,
    Decide,
    GroupBy,
    RunFilter,
    count_runs,
    decide,
    explain,
    follow,
    inbox,
    list_runs,
    open_approvals,
    read_charges,
    read_handoffs,
    read_run,
    roll_back,
    standing,
    sum_charges,
    waits,
)
from baton.plugin import BatonPlugin

if TYPE_CHECKING:  # names are loaded on first use, but a misspelt one is an error at once
    from baton import Piipeline as Piipeline  # type: ignore[attr-defined]
    from baton.client import list_run as list_run  # type: ignore[attr-defined]


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


async def oversee(client: Client) -> list[dict[str, Any]]:
    """Use each list of `baton.client`, and hand on what it yields as JSON."""
    rows: list[dict[str, Any]] = [run.to_json_object() async for run in list_runs(client, limit=20)]
    async for listed in list_runs(client, RunFilter(status="WAITING")):
        record = await read_run(client, listed.workflow_id, listed.run_id)
        stands = standing(record, await waits(client, record))
        rows += [record.to_json_object(), stands.to_json_object(), *(step.to_json_object() for step in record.steps)]
    async for waiting in inbox(client, limit=5):
        rows.append(waiting.question.to_json_object() if waiting.question else waiting.to_json_object())
    async for asked in open_approvals(client):
        answer: Answer = asked.question.answer("approve", who="ann", why="tests are green")
        rows.append((await decide(client, asked.workflow_id, answer)).to_json_object())
    async for asked in open_approvals(client, "review", limit=1):
        operation = Decide(client, asked.workflow_id, "deny", asked.question.id)
        preview = await operation.preview()
        rows.append(preview.to_json_object())
        settled = await operation.commit(preview.mark, by="ann", why="not now")
        rows += [settled.to_json_object()] if settled else []
    charges = [charge async for charge in read_charges(client, limit=1_000)]
    rows += [spend.to_json_object() for spend in sum_charges(charges, GroupBy.MODEL).values()]
    async for update in follow(client, "review"):
        rows += [news.to_json_object() for news in update.news]
    rows += [(await explain(client, "review", "plan")).to_json_object()]
    rows += [(await read_handoffs(client, "review")).to_json_object(), {"waiting": await count_runs(client)}]
    return rows


async def call_a_stage_like_a_function() -> list[str] | None:
    """Call a stage without Temporal; its result has the function's own type."""
    patch = await plan(Baton(goal="Review"))
    return patch.current_state


if __name__ == "__main__":
    asyncio.run(serve())
