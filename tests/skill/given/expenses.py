"""A claim for expenses: an agent sums it up, large ones need two people, and then it is paid."""

from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent
from team_model import MODEL

from baton import ApprovalDeniedError, Baton, BatonPatch, Pipeline, StageContext, StageResult, pipeline, stage
from baton.agents import AnswerForm, PydanticAgent, agent_stage

LIMIT = 500


class Booking(BaseModel):
    """What the approvers fill in."""

    cost_centre: str


summarise = agent_stage(
    PydanticAgent(Agent(MODEL, name="summarise")), answers=AnswerForm.TEXT, instructions="Sum the expenses up."
)


@stage(writes=["current_state"])
async def pay(context: StageContext[Baton]) -> StageResult:
    """Pay the claim."""
    paid = f"Paid {context.params['amount']} from {context.params['cost_centre']}"
    return StageResult(baton_patch=BatonPatch(current_state=[paid]), output=paid)


@pipeline
async def expenses(p: Pipeline) -> object:
    """Sum up, ask about large claims, pay."""
    items: Any = p.params["items"]
    amount = sum(item["amount"] for item in items)
    summary = await p.stage(summarise, inputs={"items": items})
    cost_centre = "general"
    if amount > LIMIT:
        try:
            decided = await p.approve(
                "lead", within=timedelta(days=3), shows={"summary": summary}, answer=Booking, needs=2
            )
        except ApprovalDeniedError as error:
            return {"paid": 0, "why": error.decided.via if error.decided.via == "deadline" else "denied"}
        cost_centre = decided.answer_as(Booking).cost_centre
    await p.stage(pay, params={"amount": amount, "cost_centre": cost_centre})
    return {"paid": amount, "cost_centre": cost_centre}
