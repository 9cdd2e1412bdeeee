"""Agents that hand texts of 40 KB on to each other, and tell how much of each arrived."""

from pathlib import Path
from typing import Any

from baton import Pipeline, pipeline
from baton.agents import AgentAnswer, AgentWork, agent_stage

CHARACTERS = 40_000
AGENTS = 5
LONGER = 2 * AGENTS
"""Agents of the longer chain; what it adds to the history is stages alone, without a run's start and end."""

ARRIVED: list[tuple[int, int]] = []
"""Of each text that an agent was handed: the characters of its lines that stand in the prompt, and of all its lines."""


def text(seq: int) -> str:
    """Return what an agent wrote: 40,000 characters of this project's pages, others for each agent."""
    folder = Path(__file__).parents[2] / "docs"
    pages = "\n".join(page.read_text(encoding="utf-8") for page in sorted(folder.glob("*.md")))
    start = seq * CHARACTERS % len(pages)
    return (pages[start:] + pages)[:CHARACTERS]


class Scribe:
    """An agent that writes the next text."""

    def __init__(self, seq: int) -> None:
        self.name, self._seq = f"scribe{seq}", seq

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Note what arrived, and write."""
        if self._seq:
            lines = text(self._seq - 1).splitlines()
            ARRIVED.append((sum(len(line) for line in lines if line in work.prompt), sum(map(len, lines))))
        return AgentAnswer(output=text(self._seq))


SCRIBES: list[Any] = [agent_stage(Scribe(seq), name=f"scribe{seq}") for seq in range(LONGER)]


@pipeline
async def hands_texts_on(p: Pipeline) -> None:
    """Give every agent what the one before it wrote; parameter: `agents`."""
    written = await p.stage(SCRIBES[0])
    for scribe in SCRIBES[1 : int(p.params["agents"])]:
        written = await p.stage(scribe, inputs={"text": written})
