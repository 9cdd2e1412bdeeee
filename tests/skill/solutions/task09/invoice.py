"""The pipeline that pays invoices, with a check for new runs and an archive for all."""

from datetime import timedelta
from typing import Any

from baton import Baton, BatonPatch, Pipeline, StageContext, StageResult, pipeline, stage


@stage(writes=["decision_log"])
async def read(context: StageContext[Baton]) -> StageResult:
    """Read the invoice."""
    decided = BatonPatch(decision_log=["Read the invoice"])
    return StageResult(baton_patch=decided, output={"amount": context.params["amount"]})


@stage(writes=["decision_log"])
async def check(context: StageContext[Baton]) -> StageResult:
    """Compare the amount with the limit."""
    is_within = context.input("invoice", dict[str, int])["amount"] <= 1_000
    return StageResult(baton_patch=BatonPatch(decision_log=["Checked"]), output=is_within)


@stage(writes=["decision_log"])
async def pay(context: StageContext[Baton]) -> StageResult:
    """Pay the invoice."""
    return StageResult(baton_patch=BatonPatch(decision_log=["Paid"]), output="paid")


@stage(writes=["decision_log"])
async def archive(context: StageContext[Baton]) -> StageResult:
    """Keep the invoice."""
    number = f"A-{context.input('invoice', dict[str, int])['amount']}"
    return StageResult(baton_patch=BatonPatch(decision_log=["Archived"]), output=number)


@pipeline
async def invoice(p: Pipeline) -> object:
    """Read, check, ask, pay, archive."""
    found = await p.stage(read)
    shows: dict[str, Any] = {"invoice": found}
    if p.params.get("checks"):
        shows["within the limit"] = await p.stage(check, inputs={"invoice": found})
    await p.approve("manager", within=timedelta(days=7), asks="Pay this?", shows=shows)
    paid = await p.stage(pay, inputs={"invoice": found})
    archived = await p.stage(archive, inputs={"invoice": found})
    return {"paid": paid.output, "archived": archived.output}
