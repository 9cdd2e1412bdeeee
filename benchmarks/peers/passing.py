"""How peers pass a conversation on, as their manuals say, with the models of `benchmarks.scripted`.

They run in the project's own environment, whose extras have the peers' libraries.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from typing import Any

from agents import Agent as SdkAgent
from agents import RunConfig, Runner, function_tool
from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai import Agent, ModelMessage

from benchmarks.planted import ROLES, TOOLS
from benchmarks.scripted import TASK, SdkModel, make_graph, pydantic_model


async def messages_state(goal: str) -> None:
    """LangGraph: five agents share a state of messages."""
    graph = StateGraph(MessagesState)
    for role in ROLES:
        graph.add_node(role, make_graph(role, TASK))
    for before, after in pairwise((START, *ROLES)):
        graph.add_edge(before, after)
    config: Any = {"recursion_limit": 100}
    await graph.compile().ainvoke(MessagesState(messages=[HumanMessage(goal)]), config)


async def handoffs(goal: str) -> None:
    """OpenAI Agents SDK: each agent hands off to the next."""
    await _hand_off(goal, RunConfig(tracing_disabled=True))


async def nested_handoffs(goal: str) -> None:
    """Do the same with the option that packs the history into one message."""
    await _hand_off(goal, RunConfig(tracing_disabled=True, nest_handoff_history=True))


async def _hand_off(goal: str, config: RunConfig) -> None:
    successor: SdkAgent[None] | None = None
    tools: list[Any] = [function_tool(tool) for tool in TOOLS]
    for role in reversed(ROLES):
        model = SdkModel(role, successor.name if successor else None)
        following: list[Any] = [successor] if successor else []
        successor = SdkAgent(role, instructions=TASK, model=model, tools=tools, handoffs=following)
    assert successor is not None
    await Runner.run(successor, goal, max_turns=200, run_config=config)


async def message_history(goal: str) -> None:
    """Pydantic AI: each run gets the messages of those before."""
    history: list[ModelMessage] = []
    for role in ROLES:
        agent: Agent[None, str] = Agent(pydantic_model(role), name=role, instructions=TASK, tools=[*TOOLS])
        result = await agent.run(goal if not history else f"Go on: {role}.", message_history=history)
        history = result.all_messages()


PEERS: Mapping[str, Callable[[str], Awaitable[None]]] = {
    "LangGraph, messages state": messages_state,
    "OpenAI Agents SDK, handoffs": handoffs,
    "OpenAI Agents SDK, nested history": nested_handoffs,
    "Pydantic AI, message history": message_history,
}
"""What each peer offers for passing a conversation on."""

_WORD = re.compile(r"[^\W\d_]{4,}")


def summarise(text: str, most_tokens: int, count: Callable[[str], int]) -> str:
    r"""Return the lines of a text that sum it up, in their order: SumBasic (Nenkova and Vanderwende, 2005).

    A line's weight is the mean probability of its words. The heaviest is taken, its words' probabilities are squared,
    and so on while there is room.

    Example:
        >>> summarise("Batons fall.\nTeams drop batons.\nIt rains.", 8, lambda text: len(text.split()))
        'Batons fall.\nTeams drop batons.\nIt rains.'
    """
    lines = dict.fromkeys(line.strip() for line in text.splitlines())
    words = {line: _WORD.findall(line.lower()) for line in lines}
    frequencies = Counter(word for line in text.splitlines() for word in words[line.strip()])
    chances = {word: number / frequencies.total() for word, number in frequencies.items()}
    left = {line: found for line, found in words.items() if found}
    taken: set[str] = set()
    while left:
        line = max(left, key=lambda line: sum(chances[word] for word in left[line]) / len(left[line]))
        most_tokens -= count(f"{line}\n")
        if most_tokens < 0:
            break
        for word in {*left.pop(line)}:
            chances[word] **= 2
        taken.add(line)
    return "\n".join(line for line in lines if line in taken)
