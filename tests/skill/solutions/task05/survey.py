"""A survey within a budget."""

from typing import Any

from baton import Baton, BudgetExhaustedError, Pipeline, Spend, StageContext, StageResult, pipeline, stage


@stage(reserve_micro_usd=400_000)
async def ask(context: StageContext[Baton]) -> StageResult:
    """Ask about one topic."""
    return StageResult(output=f"Answer about {context.input('topic', str)}", spend=Spend(micro_usd=300_000))


@stage(reserve_micro_usd=200_000, closing=True)
async def summarise(context: StageContext[Baton]) -> StageResult:
    """Count the answers."""
    return StageResult(output=f"{len(context.input('answers', list[str]))} answers", spend=Spend(micro_usd=100_000))


@pipeline
async def survey(p: Pipeline) -> object:
    """Ask as long as there is money, then sum up."""
    answers: list[Any] = []
    topics: Any = p.params["topics"]
    for topic in topics:
        try:
            answered = await p.stage(ask, inputs={"topic": topic}, name=f"ask {topic}")
        except BudgetExhaustedError:
            break
        answers.append(answered.output)
    summed = await p.stage(summarise, inputs={"answers": answers})
    return {"answers": answers, "summary": summed.output}
