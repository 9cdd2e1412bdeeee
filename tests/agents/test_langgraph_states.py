"""What a LangGraph node or graph does to its state, and what of it becomes the patch."""

import operator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from tests.agents.material import node_stage
from tests.agents.test_langgraph import run_stage


class Doubts(TypedDict, total=False):
    """A state with what is decided."""

    decision_log: Annotated[list[str], operator.add]


class TestState:
    """States that are changed, returned whole, hold anything, or are kept by a checkpointer."""

    @pytest.mark.parametrize("in_a_graph", [True, False])
    async def test_lists_that_a_node_changes_in_place_are_seen_to_have_changed(self, in_a_graph: bool) -> None:
        """What was given is known as it was, so no decision is lost."""

        async def decide(state: Any) -> Any:
            state["current_state"].append("A plan")
            state["decision_log"].append("Use Postgres")
            return {"current_state": state["current_state"], "decision_log": state["decision_log"]}

        class State(TypedDict):
            current_state: list[str]
            decision_log: list[str]

        graph = StateGraph(State)
        graph.add_node("decide", decide)
        graph.add_edge(START, "decide")

        assert (await run_stage(node_stage(graph if in_a_graph else decide, name="decide"))).baton_patch == {
            "current_state": ["Nothing", "A plan"],
            "decision_log": ["Use Postgres"],
        }

    async def test_a_node_that_returns_its_whole_state_changes_what_is_new_in_it(self) -> None:
        """Fields that it left alone are no part of the patch, which may write some fields only."""

        async def plan(state: dict[str, Any]) -> dict[str, Any]:
            return {**state, "current_state": ["A plan"]}

        assert (await run_stage(node_stage(plan))).baton_patch == {"current_state": ["A plan"]}

    async def test_members_that_are_not_taken_may_hold_anything(self) -> None:
        """Also what JSON cannot say."""

        async def plan(state: dict[str, Any]) -> dict[str, Any]:
            return {"current_state": ["A plan"], "seen": {("a", "b"): 1}}

        assert (await run_stage(node_stage(plan))).baton_patch == {"current_state": ["A plan"]}

    async def test_what_is_taken_is_json(self) -> None:
        """Records of any kind keep their members; it was their text in Python, with no structure for what follows."""

        class Level(Enum):
            HIGH = "high"

        @dataclass
        class Risk:
            clause: str
            level: Level

        async def score(state: dict[str, Any]) -> dict[str, Any]:
            return {"current_state": ["Scored"], "risks": [Risk("4.2", Level.HIGH)], "by": {("a", Level.HIGH): b"\xff"}}

        result = await run_stage(node_stage(score, out={"current_state": "current_state", "output": "risks"}))
        assert result.output == [{"clause": "4.2", "level": "high"}]
        assert (await run_stage(node_stage(score, out={"output": "by"}))).output == {"a,high": "_w=="}

    async def test_a_run_finds_no_state_of_another_one(self) -> None:
        """Each run of a graph with a checkpointer begins a thread of its own, also where there is no handoff."""

        class State(TypedDict, total=False):
            task: str
            decisions: Annotated[list[str], operator.add]

        graph = StateGraph(State)
        graph.add_node("decide", lambda state: {"decisions": [f"After {len(state.get('decisions', []))} others"]})
        graph.add_edge(START, "decide")
        checkpointed = graph.compile(checkpointer=InMemorySaver())
        stage = node_stage(checkpointed, name="decide", into={"task": "goal"}, out={"decision_log": "decisions"})

        for _ in range(2):
            assert (await run_stage(stage)).baton_patch == {"decision_log": ["After 0 others"]}

    @pytest.mark.parametrize("stops", [{"interrupt_before": ["check"]}, {"interrupt_after": "*"}])
    @pytest.mark.parametrize("below", [False, True])
    def test_a_graph_that_stops_on_its_way_is_refused_at_once(self, stops: dict[str, Any], below: bool) -> None:
        """It would return what it has by then, and the stage would be done with half of it."""
        graph = StateGraph(Doubts)
        graph.add_sequence([("plan", plans), ("check", plans)])
        graph.add_edge(START, "plan")
        stopping = graph.compile(checkpointer=InMemorySaver(), name="review", **stops)
        around = StateGraph(Doubts)
        around.add_node("inner", stopping)
        around.add_edge(START, "inner")

        with pytest.raises(ValueError, match=r"the graph 'review' stops at .* and nothing would resume it"):
            node_stage(around.compile(name="review") if below else stopping)


def plans(state: Doubts) -> Doubts:
    """Decide."""
    return {"decision_log": ["A plan"]}
