"""Invoices, each checked by itself."""

from typing import Any

from baton import Baton, BatonPatch, Pipeline, Retries, StageContext, StageFailedError, StageResult, pipeline, stage


@stage(writes=["decision_log"], retries=Retries(never=("ValueError",)))
async def check(context: StageContext[Baton]) -> StageResult:
    """Accept an invoice, or raise."""
    invoice = context.input("item", dict[str, Any])
    amount = invoice.get("amount")
    if amount is None or amount < 0:
        raise ValueError(f"invoice {invoice['number']} has no amount, or a negative one")
    return StageResult(baton_patch=BatonPatch(decision_log=[f"Accepted {invoice['number']}"]), output=amount)


@pipeline
async def check_invoices(p: Pipeline) -> object:
    """Check all of them."""
    listed: Any = p.params["invoices"]
    results = await p.map(check, listed, at_most=2, name="check invoice")
    failed = [isinstance(result, StageFailedError) for result in results]
    return {
        "total": sum(int(str(result.output)) for result in results if not isinstance(result, StageFailedError)),
        "rejected": [invoice["number"] for invoice, is_bad in zip(listed, failed, strict=True) if is_bad],
    }
