"""A pipeline whose first agent answers with a typed output, which its code and the next agent read."""

from datetime import date
from typing import Any

from pydantic import BaseModel, Field
from temporalio import workflow

from baton import Baton, ContractTerms, Pipeline, PipelineResult, StageContext, StageResult, stage
from baton.agents import AgentAnswer, AgentWork, agent_stage
from baton.core.messages import PipelineInput


class Facts(BaseModel):
    """What is known of a customer; the alias is the name on the wire."""

    customer: str
    pays: int = Field(alias="paysUsd", ge=0)
    since: date | None = None
    notes: list[str] = Field(default_factory=list)


FACTS = {"customer": "c-1", "paysUsd": 20, "notes": ["Late: twice", "two\nlines"]}
WHOLE = {"customer": "c-1", "paysUsd": 20, "since": None, "notes": ["Late: twice", "two\nlines"]}
READABLE = """customer: c-1
notes:
- "Late: twice"
- |
  two
  lines
paysUsd: 20
since: null
"""
NOTED: dict[str, Any] = {
    "decided": ["Offer 10 %, because they pay late (rejected: 20 %)"],
    "rejected": ["A refund, because nothing is owed"],
    "thought": ["Maybe they are a bot"],
}
PROMPTS: list[str] = []
"""What the agents read, in order."""


class Knows:
    """An agent that knows facts."""

    name = "find"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer with them, and with notes."""
        PROMPTS.append(work.user_turn())
        return work.read({"output": FACTS, **NOTED})


find = agent_stage(Knows(), answers=Facts)


@stage
async def offer(context: StageContext[Baton]) -> StageResult:
    """Read the facts as a record, and keep the prompt that an agent would read."""
    facts = context.input("facts", Facts)
    PROMPTS.append(await context.prompt_with_inputs())
    return StageResult(output={"percent": facts.pays // 2})


@workflow.defn
class Offers:
    """Finds out, and makes an offer by it."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start, contracts=ContractTerms())

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        facts = (await self.pipeline.stage(find)).output_as(Facts)
        offered = await self.pipeline.stage(offer, inputs={"facts": facts})
        return self.pipeline.result({"pays": facts.pays, **offered.output_as(dict[str, int])})
