"""Baton's stages of agents of pydantic-ai, and the same agents called in bare activities."""

import json
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio import activity

from baton.agents import agent_stage
from baton.agents.pydantic_ai import PydanticAgent
from benchmarks.peers.job import AGENTS, INSTRUCTIONS, Answer, State, answers


def scripted(name: str, *, wrapped: bool) -> FunctionModel:
    """Return a model that answers for an agent from the script.

    Args:
        name: The agent.
        wrapped: Answer as a stage's agent is asked to: with a `baton_patch`.
    """

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        said = {"baton_patch": answers()[name]} if wrapped else answers()[name]
        return ModelResponse([ToolCallPart(info.output_tools[0].name, json.dumps(said))])

    return FunctionModel(answer)


def _stage(name: str) -> Any:
    agent: Agent[None, str] = Agent(scripted(name, wrapped=True), name=name)
    return agent_stage(PydanticAgent(agent), name=f"pydantic_{name}", instructions=INSTRUCTIONS)


plan, implement, review, release = (_stage(name) for name in AGENTS)

_bare = {name: Agent(scripted(name, wrapped=False), output_type=Answer, instructions=INSTRUCTIONS) for name in AGENTS}


@activity.defn
async def bare_plan(state: State) -> Answer:
    """Have the first agent answer."""
    return (await _bare["plan"].run(state.model_dump_json())).output


@activity.defn
async def bare_implement(state: State) -> Answer:
    """Have the second agent answer."""
    return (await _bare["implement"].run(state.model_dump_json())).output


@activity.defn
async def bare_review(state: State) -> Answer:
    """Have the third agent answer."""
    return (await _bare["review"].run(state.model_dump_json())).output


@activity.defn
async def bare_release(state: State) -> Answer:
    """Have the fourth agent answer."""
    return (await _bare["release"].run(state.model_dump_json())).output


STAGES = (plan, implement, review, release)
BARE = (bare_plan, bare_implement, bare_review, bare_release)
