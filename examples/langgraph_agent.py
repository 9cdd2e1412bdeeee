"""A LangGraph graph as a stage. Offline."""

from langchain_core.language_models import FakeListChatModel
from langgraph.graph import START, MessagesState, StateGraph

import baton
from baton import Pipeline, pipeline
from baton.agents import AnswerForm, LangGraphAgent, agent_stage

model = FakeListChatModel(responses=["Move the logins first."])  # a real one: ChatOpenAI(model="gpt-5-mini")


async def ask(state: MessagesState) -> dict[str, object]:
    """Ask the model."""
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile(name="plan")
plan = agent_stage(LangGraphAgent(graph, into={"messages": "messages"}), answers=AnswerForm.TEXT, notes=False)


@pipeline
async def planned(p: Pipeline) -> object:
    """Plan."""
    return (await p.stage(plan)).output


if __name__ == "__main__":
    print(baton.run(planned, goal="Plan the move of the login service").output)
