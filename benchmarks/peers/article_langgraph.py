"""Three agents write an article, and a person approves it: LangGraph with SQLite. With `yes` or `no` it resumes."""

import sys
from typing import Any, TypedDict

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command, interrupt


class Article(TypedDict, total=False):
    """The state of the graph."""

    goal: str
    facts: str
    draft: str
    text: str


class Scripted(GenericFakeChatModel):
    """A model that answers from a script; a real one binds tools by itself."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        """Return the model unchanged."""
        return self


def sources(topic: str) -> list[str]:
    """Return the sources on a topic."""
    return [f"{topic}: a record of the work", "Temporal keeps it"]


def agent(*script: AIMessage, tools: tuple[Any, ...] = ()) -> Any:
    """Return an agent that answers from a script."""
    return create_react_agent(Scripted(messages=iter(script)), [*tools])


SEARCH = AIMessage("", tool_calls=[{"name": "sources", "args": {"topic": "Batons"}, "id": "1"}])
research = agent(SEARCH, AIMessage("A baton is a record. Temporal keeps it."), tools=(sources,))
write = agent(AIMessage("# Batons\n\nA baton is a record that Temporal keeps."))
edit = agent(AIMessage("# Batons\n\nA baton is a record. Temporal keeps it."))


def ask(agent: Any, prompt: str) -> str:
    """Return the agent's answer."""
    return str(agent.invoke({"messages": [("user", prompt)]})["messages"][-1].content)


def release(state: Article) -> Article:
    """Ask a person."""
    if interrupt(f"Publish?\n\n{state['text']}") != "yes":
        raise ValueError("denied")
    return {}


graph = StateGraph(Article).add_sequence(
    [
        ("research", lambda state: {"facts": ask(research, state["goal"])}),
        ("write", lambda state: {"draft": ask(write, state["facts"])}),
        ("edit", lambda state: {"text": ask(edit, state["draft"])}),
        ("release", release),
    ]
)
graph.set_entry_point("research")

if __name__ == "__main__":
    with SqliteSaver.from_conn_string("article.db") as saver:
        start: Any = Command(resume=sys.argv[1]) if len(sys.argv) > 1 else {"goal": "Write about batons"}
        state = graph.compile(checkpointer=saver).invoke(start, {"configurable": {"thread_id": "article-1"}})
    print(state["__interrupt__"][0].value if "__interrupt__" in state else state["text"])
