"""Three agents write an article, and a person releases it: LangGraph with SQLite. With `yes` or `no` it resumes."""

import sys
from typing import Any, TypedDict

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command, interrupt


class Article(TypedDict, total=False):
    """What the agents write."""

    goal: str
    facts: str
    draft: str
    text: str


class Scripted(GenericFakeChatModel):
    """A model that answers from a script; a real one binds tools by itself."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        """Take tools."""
        return self


def sources(topic: str) -> list[str]:
    """Find what is known about a topic."""
    return [f"{topic}: a record of the work", "Temporal keeps it"]


def agent(*says: AIMessage, tools: tuple[Any, ...] = ()) -> Any:
    """Make an agent."""
    return create_react_agent(Scripted(messages=iter(says)), [*tools])


SEARCH = AIMessage("", tool_calls=[{"name": "sources", "args": {"topic": "Batons"}, "id": "1"}])
research = agent(SEARCH, AIMessage("A baton is a record. Temporal keeps it."), tools=(sources,))
write = agent(AIMessage("# Batons\n\nA baton is a record that Temporal keeps."))
edit = agent(AIMessage("# Batons\n\nA baton is a record. Temporal keeps it."))


def asked(one: Any, prompt: str) -> str:
    """Return what an agent answers."""
    return str(one.invoke({"messages": [("user", prompt)]})["messages"][-1].content)


def release(state: Article) -> Article:
    """Ask a person."""
    if interrupt(f"Publish?\n\n{state['text']}") != "yes":
        raise ValueError("denied")
    return {}


graph = StateGraph(Article).add_sequence(
    [
        ("research", lambda state: {"facts": asked(research, state["goal"])}),
        ("write", lambda state: {"draft": asked(write, state["facts"])}),
        ("edit", lambda state: {"text": asked(edit, state["draft"])}),
        ("release", release),
    ]
)
graph.set_entry_point("research")

if __name__ == "__main__":
    with SqliteSaver.from_conn_string("article.db") as saver:
        given: Any = Command(resume=sys.argv[1]) if len(sys.argv) > 1 else {"goal": "Write about batons"}
        done = graph.compile(checkpointer=saver).invoke(given, {"configurable": {"thread_id": "article-1"}})
    print(done["__interrupt__"][0].value if "__interrupt__" in done else done["text"])
