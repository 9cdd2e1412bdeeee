"""An offer by two agents."""

from pydantic import BaseModel
from pydantic_ai import Agent
from team_model import MODEL

from baton import Baton, Pipeline, StageContext, StageResult, pipeline, stage
from baton.agents import AnswerForm, PydanticAgent, agent_stage


class Facts(BaseModel):
    """What is known of a customer."""

    customer: str
    pays_usd: int


research = agent_stage(
    PydanticAgent(Agent(MODEL, name="research")), answers=Facts, instructions="Find out what the customer pays a month."
)
write = agent_stage(
    PydanticAgent(Agent(MODEL, name="write")), answers=AnswerForm.TEXT, instructions="Write an offer for a year."
)


@stage
async def price(context: StageContext[Baton]) -> StageResult:
    """Make a year of a month."""
    return StageResult(output=context.input("facts", Facts).pays_usd * 12)


@pipeline
async def offer(p: Pipeline) -> object:
    """Find facts, price them, write."""
    facts = await p.stage(research, inputs={"customer": p.params["customer"]})
    yearly = await p.stage(price, inputs={"facts": facts})
    text = await p.stage(write, inputs={"facts": facts, "yearly": yearly})
    return {"yearly_usd": yearly.output, "offer": text.output}
