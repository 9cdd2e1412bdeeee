"""Pipelines with costs, for the tests of `baton bill`."""

from typing import Any

from baton import Baton, BatonPatch, Pipeline, Retries, Spend, StageContext, pipeline, stage


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


@stage(attempts=2)
async def pay_twice(context: StageContext[Baton]) -> BatonPatch | dict[str, Any]:
    """Pay in a tool and outside of it; the first answer is rejected."""

    def search(what: str) -> str:
        context.charge(Spend(micro_usd=300), "bill-search")
        context.charge(Spend(micro_usd=20))
        return what

    await context.tools.call("bill_search", search, "price")
    context.charge(Spend(micro_usd=4_000), "bill-search")
    return BatonPatch() if context.attempt > 1 else {"goal": 5}


@stage(retries=Retries(attempts=1))
async def pay_and_fail(context: StageContext[Baton]) -> BatonPatch:
    """Pay, and fail for good."""
    context.charge(Spend(micro_usd=70_000), "bill-failing")
    raise ValueError("no price")


@pipeline
async def bill_work(p: Pipeline) -> None:
    """Pay for work that is accepted, rejected and lost."""
    await p.stage(pay_twice)
    await p.stage(pay_and_fail)
