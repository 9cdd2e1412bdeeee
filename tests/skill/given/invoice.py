"""The pipeline that pays invoices, as it runs today."""

from datetime import timedelta

from baton import Baton, BatonPatch, Pipeline, StageContext, StageResult, pipeline, stage


@stage(writes=["decision_log"])
async def read(context: StageContext[Baton]) -> StageResult:
    """Read the invoice."""
    return StageResult(baton_patch=BatonPatch(decision_log=["Read"]), output={"amount": context.params["amount"]})


@stage(writes=["decision_log"])
async def pay(context: StageContext[Baton]) -> StageResult:
    """Pay the invoice."""
    return StageResult(baton_patch=BatonPatch(decision_log=["Paid"]), output="paid")


@pipeline
async def invoice(p: Pipeline) -> object:
    """Read, ask, pay."""
    found = await p.stage(read)
    await p.approve("manager", within=timedelta(days=7), asks="Pay this?", shows={"invoice": found})
    paid = await p.stage(pay, inputs={"invoice": found})
    return {"paid": paid.output}
