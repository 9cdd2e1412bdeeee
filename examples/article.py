"""Three agents write an article under a budget, and a person approves it. Offline: the models answer from a script."""

from datetime import timedelta
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import baton
from baton import Budget, Pipeline, Stage, pipeline
from baton.agents import AnswerForm, Notes, Price, PydanticAgent, agent_stage

PRICE = Price(input=3, output=15)


def sources(topic: str) -> list[str]:
    """Return the sources on a topic."""
    return [f"{topic}: a record of the work", "Temporal keeps it"]


def agent(name: str, text: str, decided: str, *tools: Any) -> Stage[Any, Any]:
    """Return the stage of an agent that answers with the text, and says why."""
    script = f"{text}\n\n{Notes(decided=[decided]).render()}"
    model = TestModel(call_tools=[tool.__name__ for tool in tools], custom_output_text=script)  # or a real one
    return agent_stage(PydanticAgent(Agent(model, name=name), price=PRICE), answers=AnswerForm.TEXT, tools=tools)


research = agent("research", "A baton is a record. Temporal keeps it.", "Two facts are enough: readers skim", sources)
write = agent("write", "# Batons\n\nA baton is a record that Temporal keeps.", "One sentence: it is a note")
edit = agent("edit", "# Batons\n\nA baton is a record. Temporal keeps it.", "Two sentences: they read better")


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
