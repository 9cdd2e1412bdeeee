"""Baton's stages of agents that are scripts themselves, behind the port that every framework's agents stand behind."""

from typing import Any

from baton.agents import AgentAnswer, AgentWork, agent_stage
from benchmarks.peers.job import AGENTS, INSTRUCTIONS, answers
from benchmarks.samples import to_json


class Scripted:
    """Reads its prompt, as any agent does, and answers from the script.

    Attributes:
        name: The agent.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer."""
        assert work.user_turn()
        return work.read(to_json({"baton_patch": answers()[self.name]}))


def _stage(name: str) -> Any:
    return agent_stage(Scripted(name), name=f"scripted_{name}", instructions=INSTRUCTIONS)


plan, implement, review, release = (_stage(name) for name in AGENTS)

STAGES = (plan, implement, review, release)
