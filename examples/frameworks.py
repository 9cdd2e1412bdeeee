"""Two frameworks in one pipeline: a Pydantic AI agent plans, an OpenAI Agents SDK agent reviews. Offline."""

from agents import Agent as SdkAgent
from agents import Model, ModelResponse, Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import baton
from baton import Pipeline, pipeline
from baton.agents import AnswerForm, OpenAIAgent, PydanticAgent, agent_stage


class ScriptedReviewer(Model):
    """A model that always approves; for a real one, write `model="gpt-5-mini"` instead."""

    async def get_response(self, *args: object, **kwargs: object) -> ModelResponse:
        """Return the scripted answer."""
        text = ResponseOutputText(text="Good: it names the risk.", type="output_text", annotations=[])
        message = ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
        """Not used: the stage does not stream."""
        raise NotImplementedError


planner = TestModel(custom_output_text="Move the logins first; the risk is the session store.")
plan = agent_stage(PydanticAgent(Agent(planner, name="plan")), answers=AnswerForm.TEXT)
review = agent_stage(OpenAIAgent(SdkAgent("review", model=ScriptedReviewer())), answers=AnswerForm.TEXT)


@pipeline
async def plan_and_review(p: Pipeline) -> object:
    """Plan with one framework, review with the other."""
    planned = await p.stage(plan)
    return (await p.stage(review, inputs={"plan": planned})).output


if __name__ == "__main__":
    print(baton.run(plan_and_review, goal="Plan the move of the login service").output)
