"""Pipelines with costs, for the tests of `baton bill`."""

from baton import Baton, BatonPatch, Pipeline, Spend, StageContext, pipeline, stage


@stage(reserve_micro_usd=600_000)
async def bill_dear(context: StageContext[Baton]) -> BatonPatch:
    """Cost more than reserved."""
    context.charge(Spend(micro_usd=700_000, prompt_tokens=1_000, completion_tokens=100), "bill-large")
    return BatonPatch()


@stage
async def bill_cheap(context: StageContext[Baton]) -> BatonPatch:
    """Call two models, one of them unnamed."""
    context.charge(Spend(micro_usd=20_000, prompt_tokens=50), "bill-small")
    context.charge(Spend(micro_usd=10_000, prompt_tokens=5))
    return BatonPatch()


@pipeline
async def bill_child(p: Pipeline) -> None:
    """Cost a little."""
    await p.stage(bill_cheap)


@pipeline
async def bill_parent(p: Pipeline) -> None:
    """Cost much, and run a child."""
    await p.stage(bill_dear)
    await p.child(bill_child, goal="Cost a little")
