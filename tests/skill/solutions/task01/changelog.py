"""A changelog of what users see."""

from baton import Baton, BatonPatch, Pipeline, StageContext, StageResult, pipeline, stage


@stage(writes=["decision_log"])
async def collect(context: StageContext[Baton]) -> StageResult:
    """Leave out the chores."""
    commits = [str(commit) for commit in context.params["commits"]]
    kept = [commit for commit in commits if not commit.startswith("chore")]
    return StageResult(
        baton_patch=BatonPatch(decision_log=[f"Left out {len(commits) - len(kept)} chores"]), output=kept
    )


@stage(writes=["current_state"])
async def count(context: StageContext[Baton]) -> StageResult:
    """Count what is left."""
    number = len(context.input("kept", list[str]))
    return StageResult(baton_patch=BatonPatch(current_state=[f"{number} changes"]), output=number)


@pipeline
async def changelog(p: Pipeline) -> object:
    """Collect, then count."""
    kept = await p.stage(collect)
    counted = await p.stage(count, inputs={"kept": kept})
    return {"changes": kept.output, "count": counted.output}
