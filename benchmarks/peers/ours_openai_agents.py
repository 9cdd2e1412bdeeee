"""Baton's stages of agents of the OpenAI Agents SDK."""

import json
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Usage
from agents.items import TResponseStreamEvent
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from baton.agents import agent_stage
from baton.agents.openai_agents import OpenAIAgent
from benchmarks.peers.job import AGENTS, INSTRUCTIONS, answers


class Scripted(Model):
    """Answers for an agent from the script."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Answer."""
        said = json.dumps({"baton_patch": answers()[self._name]})
        text = ResponseOutputText(text=said, annotations=[], type="output_text")
        message = ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Refuse: nothing here streams."""
        raise NotImplementedError


def _stage(name: str) -> Any:
    agent: Agent[None] = Agent(name=name, model=Scripted(name))
    return agent_stage(OpenAIAgent(agent), name=f"openai_{name}", instructions=INSTRUCTIONS)


plan, implement, review, release = (_stage(name) for name in AGENTS)

STAGES = (plan, implement, review, release)
