"""The LangGraph plugin for Temporal: the graph in the workflow, each node an activity, as its manual says."""

import asyncio
from pathlib import Path
from typing import Any

from temporalio import workflow
from temporalio.client import Client
from temporalio.langgraph import LangGraphPlugin, graph
from temporalio.worker import Worker

from benchmarks.peers.graph import AS_ACTIVITY, delivery


@workflow.defn
class LangGraphDelivery:
    """Four nodes, one after the other."""

    @workflow.run
    async def run(self, state: dict[str, Any]) -> Any:
        """Run the job."""
        return await graph("delivery").compile().ainvoke(state)


async def serve(address: str, queue: str, folder: Path) -> None:
    """Work until cancelled."""
    client = await Client.connect(address)
    plugin = LangGraphPlugin(graphs={"delivery": delivery(AS_ACTIVITY)})
    async with Worker(client, task_queue=queue, workflows=[LangGraphDelivery], plugins=[plugin]):
        await asyncio.Event().wait()
