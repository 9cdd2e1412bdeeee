"""Three agents write an article under a budget, and a person releases it. Offline: the models answer from a script."""

from datetime import timedelta

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import baton
from baton import Budget, Pipeline, pipeline
from baton.agents import AgentAnswer, Price, PydanticAgent, agent_stage

PRICE = Price(input=3, output=15)


def sources(topic: str) -> list[str]:
    """Find what is known about a topic."""
    return [f"{topic}: a record of the work", "Temporal keeps it"]


def says(text: str, name: str) -> PydanticAgent:
    """Make an agent."""
    model = TestModel(custom_output_text=text)  # a real one: "openai:gpt-5-mini"
    return PydanticAgent(Agent(model, name=name), price=PRICE, of_output=lambda found: AgentAnswer(output=found))


research = agent_stage(says("A baton is a record. Temporal keeps it.", "research"), tools=[sources])
write = agent_stage(says("# Batons\n\nA baton is a record that Temporal keeps.", "write"))
edit = agent_stage(says("# Batons\n\nA baton is a record. Temporal keeps it.", "edit"))


@pipeline
async def article(p: Pipeline) -> object:
    """Research, write, edit, and ask."""
    facts = await p.stage(research)
    drafted = await p.stage(write, inputs={"facts": facts})
    edited = await p.stage(edit, inputs={"draft": drafted})
    await p.approve("editor", within=timedelta(days=2), asks=f"Publish?\n\n{edited.output}")
    return edited.output


if __name__ == "__main__":
    print(baton.run(article, goal="Write about batons", budget=Budget(initial_micro_usd=500_000)).output)
