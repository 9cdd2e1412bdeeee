"""The OpenAI Agents plugin for Temporal: the run in the workflow, each request to the model an activity."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import workflow
from temporalio.client import Client
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from agents import Agent, Model, ModelProvider, ModelResponse, Runner, Usage
    from agents.items import TResponseStreamEvent
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    from benchmarks.peers.job import AGENTS, INSTRUCTIONS, Answer, State, answers, merge


class Scripted(Model):
    """Answers for an agent from the script."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Answer."""
        text = ResponseOutputText(text=json.dumps(answers()[self._name]), annotations=[], type="output_text")
        message = ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Refuse: nothing here streams."""
        raise NotImplementedError


class Script(ModelProvider):
    """Provides the scripted models: a model has the name of its agent."""

    def get_model(self, model_name: str | None) -> Model:
        """Return the model of an agent."""
        return Scripted(str(model_name))


@workflow.defn
class OpenAIDelivery:
    """Four agents, one after the other."""

    @workflow.run
    async def run(self, state: State) -> State:
        """Run the job."""
        for name in AGENTS:
            agent = Agent(name=name, instructions=INSTRUCTIONS, model=name, output_type=Answer)
            result = await Runner.run(agent, input=state.model_dump_json())
            state = merge(state, result.final_output_as(Answer))
        return state


async def serve(address: str, queue: str, folder: Path) -> None:
    """Work until cancelled."""
    parameters = ModelActivityParameters(start_to_close_timeout=timedelta(seconds=30))
    plugin = OpenAIAgentsPlugin(model_params=parameters, model_provider=Script())
    client = await Client.connect(address, plugins=[plugin])
    async with Worker(client, task_queue=queue, workflows=[OpenAIDelivery]):
        await asyncio.Event().wait()
