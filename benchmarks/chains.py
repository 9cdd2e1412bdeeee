"""The chains of five agents whose handoffs `benchmarks.fidelity` looks into: one for each adapter of Baton."""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from agents import Agent as SdkAgent
from pydantic_ai import Agent

from baton.agents import (
    AnswerForm,
    LangGraphAgent,
    OpenAIAgent,
    PydanticAgent,
    SubprocessAgent,
    agent_stage,
    chat_agent,
)
from benchmarks.planted import ROLES, TOOLS
from benchmarks.scripted import TASK, SdkModel, make_graph, pydantic_model

_ROOT = Path(__file__).parents[1]
CHAINS: dict[str, tuple[Any, ...]] = {}
"""The stages of each chain, by its adapter; `make_chains` fills it."""

ADAPTERS = ("Pydantic AI", "OpenAI Agents", "LangGraph", "chat completions", "command line")


def make_chains(adapters: Iterable[str], chat_url: str, folder: Path) -> None:
    """Make the stages of the chains of some adapters.

    Args:
        adapters: The adapters, of `ADAPTERS`.
        chat_url: The address of a `chat_server`.
        folder: Where the programs keep what they read, in a file for each role.
    """
    makers: Mapping[str, Callable[[str], Any]] = {
        "Pydantic AI": lambda role: PydanticAgent(Agent(pydantic_model(role), name=role)),
        "OpenAI Agents": lambda role: OpenAIAgent(SdkAgent(role, model=SdkModel(role))),
        "chat completions": lambda role: chat_agent(role, chat_url, role),
        "command line": lambda role: SubprocessAgent(
            role,
            [sys.executable, "-m", "benchmarks.planted", role, str(folder / f"{role}.md")],
            directory=_ROOT,
        ),
        "LangGraph": _graph_agent,
    }
    for adapter in adapters:
        brings_tools = adapter in ("LangGraph", "command line")
        CHAINS[adapter] = tuple(
            agent_stage(
                makers[adapter](role),
                name=f"{role}, {adapter}",
                instructions=TASK,
                answers=AnswerForm.TEXT,
                tools=() if brings_tools else TOOLS,
            )
            for role in ROLES
        )


def _graph_agent(role: str) -> LangGraphAgent:
    """Return an agent of LangGraph, which brings its tools, with a state of messages."""
    return LangGraphAgent(make_graph(role, TASK), into={"messages": "messages"}, uses=[tool.__name__ for tool in TOOLS])
