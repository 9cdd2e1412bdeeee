"""Three agents write an article, and a person approves it: DBOS with SQLite. The argument `yes` or `no` decides."""

import sys

from dbos import DBOS, DBOSClient, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

DATABASE = "sqlite:///article.db"


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


@DBOS.step()  # type: ignore[untyped-decorator]
def ask(name: str, prompt: str) -> str:
    """Return an agent's answer."""
    return AGENTS[name].run_sync(prompt).output


@DBOS.workflow()  # type: ignore[untyped-decorator]
def article(goal: str) -> str:
    """Research, write, edit, and ask."""
    facts = ask("research", goal)
    draft = ask("write", facts)
    edited: str = ask("edit", draft)
    print(f"Publish?\n\n{edited}")
    if DBOS.recv("editor", timeout_seconds=2 * 86_400) != "yes":
        raise ValueError("denied")
    return edited


if __name__ == "__main__":
    if len(sys.argv) > 1:
        DBOSClient(system_database_url=DATABASE).send("article-1", sys.argv[1], "editor")
    else:
        DBOS(config={"name": "article", "system_database_url": DATABASE, "log_level": "ERROR"})
        DBOS.launch()
        with SetWorkflowID("article-1"):
            print(article("Write about batons"))
