"""An agent of the OpenAI Agents SDK. Offline."""

from agents import Agent
from agents.testing import ScriptedModel, assistant_message

import baton
from baton import Pipeline, pipeline
from baton.agents import AnswerForm, OpenAIAgent, agent_stage

model = ScriptedModel([[assistant_message("Move the logins first.")]])  # a real one: "gpt-5-mini"
plan = agent_stage(OpenAIAgent(Agent("plan", model=model)), answers=AnswerForm.TEXT, notes=False)


@pipeline
async def planned(p: Pipeline) -> object:
    """Plan."""
    return (await p.stage(plan)).output


if __name__ == "__main__":
    print(baton.run(planned, goal="Plan the move of the login service").output)
