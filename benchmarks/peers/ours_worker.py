"""The process of Baton's side: `python -m benchmarks.peers.ours_worker ROLE ADDRESS QUEUE FOLDER`; SIGTERM ends it."""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from temporalio.worker import Worker

from benchmarks.peers import chain, ours_langgraph, ours_openai_agents, ours_pydantic_ai, ours_scripted
from benchmarks.peers.ours_bare import BareAgents, BareChain
from benchmarks.peers.workflows.chain import AgentChain, AgentChainAlone
from benchmarks.peers.workflows.langgraph import LangGraphStages
from benchmarks.peers.workflows.openai_agents import OpenAIAgentsStages
from benchmarks.peers.workflows.pydantic_ai import PydanticAIStages
from benchmarks.peers.workflows.pydantic_ai_alone import PydanticAIAlone
from benchmarks.peers.workflows.scripted import ScriptedStages
from benchmarks.settings import SETTINGS, collect_as
from benchmarks.worker import connect

_STAGES = [
    *ours_pydantic_ai.STAGES,
    *ours_openai_agents.STAGES,
    *ours_langgraph.STAGES,
    *ours_scripted.STAGES,
    *chain.STAGES,
]

_AGENTS: dict[str, Any] = {
    "workflows": [PydanticAIStages, OpenAIAgentsStages, LangGraphStages, ScriptedStages, AgentChain],
    "activities": _STAGES,
}

ROLES: dict[str, dict[str, Any]] = {
    "agents": _AGENTS,
    "encrypted": _AGENTS,
    "baton": {
        "workflows": [PydanticAIStages, PydanticAIAlone, AgentChain, AgentChainAlone],
        "activities": [*ours_pydantic_ai.STAGES, *chain.STAGES],
    },
    "raw": {"workflows": [BareAgents, BareChain], "activities": [*ours_pydantic_ai.BARE, *chain.BARE]},
}
"""What a worker serves, by role: with the whole protocol, encrypted too, without safeguards, without Baton."""


async def serve(role: str, address: str, queue: str, folder: Path) -> None:
    """Work until SIGTERM, with the settings of the shipped worker."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = await connect(role, address, folder)
    async with Worker(client, task_queue=queue, **ROLES[role], **SETTINGS["shipped"]):
        await stop.wait()


def main() -> None:
    """Run the worker that the command line names, and end the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.ours_worker")
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("address")
    parser.add_argument("queue")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    collect_as("shipped")
    asyncio.run(serve(given.role, given.address, given.queue, given.folder))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the SDK's threads may otherwise end the process with SIGABRT


if __name__ == "__main__":
    main()
