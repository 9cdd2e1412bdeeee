"""Three agents write an article under a budget, and a person approves it. Offline: the models answer from a script."""

from datetime import timedelta

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import baton
from baton import Budget, Pipeline, pipeline
from baton.agents import AgentAnswer, Price, PydanticAgent, agent_stage

PRICE = Price(input=3, output=15)


def sources(topic: str) -> list[str]:
    """Return the sources on a topic."""
    return [f"{topic}: a record of the work", "Temporal keeps it"]


def scripted_agent(name: str, text: str) -> PydanticAgent:
    """Return an agent that answers with the text."""
    model = TestModel(custom_output_text=text)  # a real one: "openai:gpt-5-mini"
    return PydanticAgent(Agent(model, name=name), price=PRICE, of_output=lambda output: AgentAnswer(output=output))


research = agent_stage(scripted_agent("research", "A baton is a record. Temporal keeps it."), tools=[sources])
write = agent_stage(scripted_agent("write", "# Batons\n\nA baton is a record that Temporal keeps."))
edit = agent_stage(scripted_agent("edit", "# Batons\n\nA baton is a record. Temporal keeps it."))


@pipeline
async def article(p: Pipeline) -> object:
    """Research, write, edit, and ask."""
    facts = await p.stage(research)
    draft = await p.stage(write, inputs={"facts": facts})
    edited = await p.stage(edit, inputs={"draft": draft})
    await p.approve("editor", within=timedelta(days=2), asks=f"Publish?\n\n{edited.output}")
    return edited.output


if __name__ == "__main__":
    print(baton.run(article, goal="Write about batons", budget=Budget(initial_micro_usd=500_000)).output)
