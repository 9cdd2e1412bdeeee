"""Pipelines whose past matters: they pay after an approval."""

from datetime import timedelta

from temporalio import workflow

from baton import Baton, BatonPatch, ContinueAfter, Pipeline, StageContext, pipeline, stage

PAID: list[str] = []
"""The handoffs with which `pay` ran."""
WITHIN = timedelta(days=1)


@stage
async def pay(context: StageContext[Baton]) -> BatonPatch:
    """Pay, which nobody may do without an approval."""
    PAID.append(context.baton.goal)
    return BatonPatch(current_state=["Paid"])


@stage
async def ship(context: StageContext[Baton]) -> BatonPatch:
    return BatonPatch(current_state=["Shipped"])


@pipeline
async def paying(p: Pipeline) -> object:
    """Waits at the end if `pause` says so."""
    await p.approve("boss", within=WITHIN, asks="Pay?")
    await p.stage(pay)
    await p.stage(ship)
    if p.params.get("pause"):
        await p.approve("shipped", within=WITHIN)
    return p.baton.current_state


@pipeline(name="paying")
async def paying_after_two(p: Pipeline) -> object:
    """As another release asks."""
    await p.approve("boss", within=WITHIN, asks="Pay?", needs=2)
    await p.stage(pay)
    await p.stage(ship)
    return p.baton.current_state


@pipeline(name="paying")
async def paying_more(p: Pipeline) -> object:
    """As another release asks."""
    await p.approve("boss", within=WITHIN, asks="Pay twice?")
    await p.stage(pay)
    await p.stage(ship)
    return p.baton.current_state


@pipeline(continue_after=ContinueAfter(events=12))
async def lasting(p: Pipeline) -> object:
    """Continues as new after a question that names the time; waits at the end if `pause` says so."""
    await p.approve("boss", within=WITHIN, asks=f"Pay now, at {workflow.now()}?")
    await p.stage(pay)
    await p.sleep(timedelta(seconds=1.2))
    await p.stage(ship)
    await p.child(shipping, "Ship")
    if p.params.get("pause"):
        await p.approve("later", within=WITHIN)
    return p.baton.current_state


@pipeline
async def shipping(p: Pipeline) -> object:
    await p.stage(ship)
    return None


PIPELINES: list[type] = [paying, lasting, shipping]
STAGES = [pay, ship]
