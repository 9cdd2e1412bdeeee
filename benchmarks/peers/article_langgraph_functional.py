"""Three agents write an article, and a person approves it: LangGraph's functional API. `yes` or `no` resumes it."""

import sys
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import entrypoint, task
from langgraph.types import Command, interrupt
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel


def sources(topic: str) -> list[str]:
    """Return the sources on a topic."""
    return [f"{topic}: a record of the work", "Temporal keeps it"]


def script(text: str) -> TestModel:
    """Return a model that answers with the text."""
    return TestModel(custom_output_text=text)


AGENTS = {
    "research": Agent(script("A baton is a record. Temporal keeps it."), tools=[sources]),
    "write": Agent(script("# Batons\n\nA baton is a record that Temporal keeps.")),
    "edit": Agent(script("# Batons\n\nA baton is a record. Temporal keeps it.")),
}


@task
def ask(name: str, prompt: str) -> str:
    """Return an agent's answer."""
    return AGENTS[name].run_sync(prompt).output


if __name__ == "__main__":
    with SqliteSaver.from_conn_string("functional.db") as saver:

        @entrypoint(checkpointer=saver)
        def article(goal: str) -> str:
            """Research, write, edit, and ask."""
            facts = ask("research", goal).result()
            draft = ask("write", facts).result()
            edited = ask("edit", draft).result()
            if interrupt(f"Publish?\n\n{edited}") != "yes":
                raise ValueError("denied")
            return edited

        start: Any = Command(resume=sys.argv[1]) if len(sys.argv) > 1 else "Write about batons"
        done: Any = article.invoke(start, {"configurable": {"thread_id": "article-1"}})
    print(done["__interrupt__"][0].value if "__interrupt__" in done else done)
