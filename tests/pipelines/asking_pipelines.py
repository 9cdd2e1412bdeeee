"""Pipelines for the tests of what approvals show and ask."""

from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from temporalio import workflow

from baton import Exhibit, Pipeline, PipelineInput, PipelineResult

with workflow.unsafe.imports_passed_through():
    from tests.pipelines.asking_stages import draft, pay

DAY = timedelta(days=1)


class Payment(BaseModel):
    """The form that an approver fills in."""

    amount: int
    reference: str = "none"


class _Asks:
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)


@workflow.defn
class Publishes(_Asks):
    """Shows a draft, an artifact, a diff, a table and an amount; parameters: `needs`, `who`, `proof`, `length`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        drafted = await self.pipeline.stage(draft)
        decided = await self.pipeline.approve(
            "release manager",
            within=DAY,
            asks="Publish?",
            shows={
                "draft": drafted,
                "plan": self.pipeline.baton.artifacts[0],
                "changes": Exhibit.diff("one\ntwo\n", "one\n2\n"),
                "prices": [{"item": "ink", "euros": 3}, {"item": "paper", "euros": 4}],
                "cost": Exhibit.amount(12_500_000),
            },
            needs=params.get("needs", 1),
            who=params.get("who", []),
            proof=params.get("proof", False),
        )
        return self.pipeline.result(decided.model_dump(mode="json"))


@workflow.defn
class Pays(_Asks):
    """Asks for an amount, and for a yes to a payment; parameters: `needs`, `who`, `swap`."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        params: Any = self.pipeline.params
        people = {name: params[name] for name in ("needs", "who") if name in params}
        filled = (await self.pipeline.approve("budget", within=DAY, answer=Payment, **people)).answer_as(Payment)
        payment = {"amount": filled.amount, "reference": filled.reference}
        await self.pipeline.approve("payment", within=DAY, then=(pay, payment))
        swapped = {**payment, "amount": 999} if params.get("swap") else payment
        if params.get("branch"):
            [paid] = await self.pipeline.fan_out(pay, params=swapped)
        else:
            paid = await self.pipeline.stage(pay, params=swapped)
        return self.pipeline.result(paid.output)


ASKING = [Publishes, Pays]
