"""A risk, scored where an agent says."""

from pydantic_ai import Agent
from team_model import MODEL

from baton import Baton, BatonPatch, Pipeline, Retries, StageContext, StageResult, pipeline, stage
from baton.agents import PydanticAgent, agent_stage

scope = agent_stage(
    PydanticAgent(Agent(MODEL, name="scope")),
    instructions="Say which parts of the system to look at.",
    writes=["work_scope", "decision_log"],
    shows_params=True,
)


@stage(requires=["work_scope"], retries=Retries(attempts=1))
async def score(context: StageContext[Baton]) -> StageResult:
    """Score each part in the scope."""
    scores = {part: len(part) for part in context.baton.work_scope}
    return StageResult(baton_patch=BatonPatch(decision_log=[f"Scored {len(scores)} parts"]), output=scores)


@pipeline
async def risk(p: Pipeline) -> object:
    """Scope, then score."""
    await p.stage(scope)
    return (await p.stage(score)).output
