"""Three agents write an article, and a person approves it: Pydantic AI on Temporal. `yes` or `no` decides."""

import asyncio
import sys
from datetime import timedelta

from temporalio import workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from pydantic_ai import Agent
    from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
    from pydantic_ai.models.test import TestModel


async def sources(topic: str) -> list[str]:
    """Return the sources on a topic."""
    return [f"{topic}: a record of the work", "Temporal keeps it"]


def agent(name: str, text: str) -> Agent[None, str]:
    """Return an agent that answers with the text."""
    tools = [sources] if name == "research" else []
    return Agent(TestModel(custom_output_text=text), name=name, tools=tools, capabilities=[TemporalDurability[None]()])


research = agent("research", "A baton is a record. Temporal keeps it.")
write = agent("write", "# Batons\n\nA baton is a record that Temporal keeps.")
edit = agent("edit", "# Batons\n\nA baton is a record. Temporal keeps it.")


@workflow.defn
class Article(PydanticAIWorkflow):
    """Research, write, edit, and ask."""

    __pydantic_ai_agents__ = (research, write, edit)

    def __init__(self) -> None:
        self.asked = self.decision = ""

    @workflow.signal
    def decide(self, decision: str) -> None:
        """Take the decision."""
        self.decision = decision

    @workflow.query
    def question(self) -> str:
        """Return what is asked."""
        return self.asked

    @workflow.run
    async def run(self, goal: str) -> str:
        """Run the agents one after the other."""
        facts = (await research.run(goal)).output
        draft = (await write.run(facts)).output
        edited = (await edit.run(draft)).output
        self.asked = f"Publish?\n\n{edited}"
        await workflow.wait_condition(lambda: bool(self.decision), timeout=timedelta(days=2))
        if self.decision != "yes":
            raise ApplicationError("denied")
        return edited


async def main() -> None:
    """Work on the article, or decide."""
    client = await Client.connect("localhost:7233", plugins=[PydanticAIPlugin()])
    if len(sys.argv) > 1:
        handle = client.get_workflow_handle("article-1")
        print(await handle.query(Article.question))
        await handle.signal(Article.decide, sys.argv[1])
        return
    async with Worker(client, task_queue="article", workflows=[Article]):
        print(await client.execute_workflow(Article.run, "Write about batons", id="article-1", task_queue="article"))


if __name__ == "__main__":
    asyncio.run(main())
