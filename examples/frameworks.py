"""Two frameworks in one pipeline: an agent of Pydantic AI plans, one of the OpenAI Agents SDK reviews. Offline."""

from agents import Agent as OpenAIsAgent
from agents import Model, ModelResponse, Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import baton
from baton import Pipeline, pipeline
from baton.agents import AnswerForm, OpenAIAgent, PydanticAgent, agent_stage


class Reviewer(Model):
    """Stands in for a model of the SDK: it approves. With a real one, write `model="gpt-5-mini"` instead."""

    async def get_response(self, *args: object, **more: object) -> ModelResponse:
        """Answer."""
        said = ResponseOutputText(text="Good: it names the risk.", type="output_text", annotations=[])
        message = ResponseOutputMessage(id="1", content=[said], role="assistant", status="completed", type="message")
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args: object, **more: object) -> object:  # type: ignore[override]
        """Stream nothing."""
        raise NotImplementedError


planner = TestModel(custom_output_text="Move the logins first; the risk is the session store.")
plan = agent_stage(PydanticAgent(Agent(planner, name="plan")), answers=AnswerForm.TEXT)
review = agent_stage(OpenAIAgent(OpenAIsAgent("review", model=Reviewer())), answers=AnswerForm.TEXT)


@pipeline
async def plan_and_review(p: Pipeline) -> object:
    """Plan with one framework, review with the other."""
    planned = await p.stage(plan)
    return (await p.stage(review, inputs={"plan": planned})).output


if __name__ == "__main__":
    print(baton.run(plan_and_review, goal="Plan the move of the login service").output)
