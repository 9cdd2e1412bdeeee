"""An article that an editor approves."""

from datetime import timedelta

from pydantic import BaseModel
from pydantic_ai import Agent
from team_model import MODEL

from baton import ApprovalDeniedError, Baton, BatonPatch, Pipeline, StageContext, pipeline, stage
from baton.agents import AnswerForm, PydanticAgent, agent_stage


class Publication(BaseModel):
    """What the editor fills in."""

    headline: str


write = agent_stage(
    PydanticAgent(Agent(MODEL, name="write")), answers=AnswerForm.TEXT, instructions="Write an article."
)
edit = agent_stage(
    PydanticAgent(Agent(MODEL, name="edit")), answers=AnswerForm.TEXT, instructions="Make the draft shorter."
)


@stage(writes=["current_state", "artifacts"])
async def publish(context: StageContext[Baton]) -> BatonPatch:
    """Keep the article under its headline."""
    text = f"{context.params['headline']}\n\n{await context.input_text('article')}"
    await context.artifacts.write("article", text, type="article")
    return BatonPatch(current_state=["Published"])


@pipeline
async def article(p: Pipeline) -> object:
    """Write, edit, ask, publish."""
    draft = await p.stage(write)
    edited = await p.stage(edit, inputs={"draft": draft})
    try:
        decided = await p.approve(
            "editor",
            within=timedelta(days=2),
            asks="Publish this article?",
            shows={"article": edited},
            answer=Publication,
        )
    except ApprovalDeniedError as error:
        return {"published": False, "why": "too late" if error.decided.via == "deadline" else "denied"}
    headline = decided.answer_as(Publication).headline
    await p.stage(publish, inputs={"article": edited}, params={"headline": headline})
    return {"published": True, "headline": headline}
