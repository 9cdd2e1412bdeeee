"""pydantic-ai's durable agents: the run in the workflow, each request to the model an activity, as its manual says."""

import asyncio
import json
from pathlib import Path

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from pydantic_ai import Agent, ModelMessage, ModelResponse, ToolCallPart
    from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from benchmarks.peers.job import AGENTS, INSTRUCTIONS, Answer, State, answers, merge


def scripted(name: str) -> FunctionModel:
    """Return a model that answers for an agent from the script."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart(info.output_tools[0].name, json.dumps(answers()[name]))])

    return FunctionModel(answer)


def _agent(name: str) -> Agent[None, Answer]:
    durable = [TemporalDurability[None]()]
    return Agent(scripted(name), output_type=Answer, instructions=INSTRUCTIONS, name=name, capabilities=durable)


plan, implement, review, release = (_agent(name) for name in AGENTS)


@workflow.defn
class PydanticAIDelivery(PydanticAIWorkflow):
    """Four agents, one after the other."""

    __pydantic_ai_agents__ = (plan, implement, review, release)

    @workflow.run
    async def run(self, state: State) -> State:
        """Run the job."""
        for agent in (plan, implement, review, release):
            state = merge(state, (await agent.run(state.model_dump_json())).output)
        return state


async def serve(address: str, queue: str, folder: Path) -> None:
    """Work until cancelled."""
    client = await Client.connect(address, plugins=[PydanticAIPlugin()])
    async with Worker(client, task_queue=queue, workflows=[PydanticAIDelivery]):
        await asyncio.Event().wait()
