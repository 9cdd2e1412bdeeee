"""The job as a LangGraph graph: four nodes in a row, each answered from the script."""

import itertools
import operator
from datetime import timedelta
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

from benchmarks.peers.job import answers


class GraphState(TypedDict):
    """The members of `benchmarks.peers.job.State`; decisions are appended, the rest is replaced."""

    goal: str
    current_state: list[str]
    decision_log: Annotated[list[str], operator.add]
    constraints: list[str]
    work_scope: list[str]
    artifacts: list[dict[str, Any]]
    open_questions: list[str]
    acceptance: list[str]


async def plan(state: GraphState) -> dict[str, Any]:
    """Answer for the first agent."""
    return {**answers()["plan"]}


async def implement(state: GraphState) -> dict[str, Any]:
    """Answer for the second agent."""
    return {**answers()["implement"]}


async def review(state: GraphState) -> dict[str, Any]:
    """Answer for the third agent."""
    return {**answers()["review"]}


async def release(state: GraphState) -> dict[str, Any]:
    """Answer for the fourth agent."""
    return {**answers()["release"]}


NODES = {"plan": plan, "implement": implement, "review": review, "release": release}
"""The nodes, in order; plain functions of a module, as the LangGraph plugin asks for."""


def delivery(metadata: dict[str, Any] | None = None) -> StateGraph[Any, Any, Any, Any]:
    """Return the graph, each of its nodes with ``metadata``."""
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(GraphState)
    for name, node in NODES.items():
        graph.add_node(name, node, metadata=metadata)
    for before, after in itertools.pairwise((START, *NODES, END)):
        graph.add_edge(before, after)
    return graph


AS_ACTIVITY = {"execute_in": "activity", "start_to_close_timeout": timedelta(seconds=30)}
"""The metadata that make a node an activity of the LangGraph plugin for Temporal."""
