"""The pipelines about which the operator of the browser tests decides."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel, Field
from temporalio import workflow

from baton import Baton, BatonPatch, Exhibit, Pipeline, StageContext, StageResult, pipeline, stage

with workflow.unsafe.imports_passed_through():
    from tests.handoff import handoff_stages
    from tests.handoff.handoff_pipelines import Breaks, Forgets, FourAgents, Spends

DAY = timedelta(days=1)


class Payment(BaseModel):
    """What whoever approves fills in."""

    amount: int = Field(ge=1, le=100, description="In euros, at most 100.")
    account: Literal["travel", "office"]
    note: str = ""


@stage
async def write(context: StageContext[Baton]) -> StageResult:
    """Write what the parameter says."""
    text = str(context.params.get("text", "All is well."))
    patch = BatonPatch(current_state=[text], decision_log=[f"Wrote: {text}"], open_questions=[text])
    return StageResult(baton_patch=patch, output={"text": text})


@stage
async def publish(context: StageContext[Baton]) -> BatonPatch:
    """Publish."""
    return BatonPatch(decision_log=["Published"])


@pipeline
async def asks(p: Pipeline) -> object:
    """Ask for a payment; parameters: `needs`, `who`, `text`."""
    params: Any = p.params
    written = await p.stage(write)
    decided = await p.approve(
        str(params.get("title", "payment"))[:150],
        within=DAY,
        asks=str(params.get("asks", "Pay this invoice?")),
        shows={
            "invoice": written,
            "terms": Exhibit.diff("pay in 30 days\nno discount\n", "pay in 14 days\nno discount\n"),
            "lines": [{"item": "ink", "euros": 3}, {"item": "paper", "euros": 4}],
            "sum": Exhibit.amount(12_500_000),
        },
        answer=Payment,
        needs=params.get("needs", 1),
        who=params.get("who", []),
    )
    return {"answer": decided.data, "who": decided.who, "why": decided.why}


@pipeline
async def confirms(p: Pipeline) -> object:
    """Ask for a plain yes."""
    params: Any = p.params
    await p.stage(write)
    decided = await p.approve("publication", within=DAY, asks="Publish it?", needs=params.get("needs", 1))
    return {"who": decided.who, "why": decided.why}


@pipeline
async def part(p: Pipeline) -> object:
    """A part of another pipeline's work, which waits for a person of its own."""
    await p.approve("part", within=DAY)
    return None


@pipeline(protected=["constraints"])
async def relay(p: Pipeline) -> object:
    """Write, ask, publish, and leave a part to a child."""
    await p.stage(write)
    await p.approve("publication", within=DAY)
    await p.stage(publish)
    await p.child(part, "The part")
    return None


DESK: list[type] = [asks, confirms, part, relay, FourAgents, Forgets, Breaks, Spends]
DESK_STAGES: list[Callable[..., Any]] = [write, publish, *handoff_stages.STAGES]
