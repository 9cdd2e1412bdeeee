"""A pipeline whose tool claims less than it returns: only a transcript has the whole."""

from typing import Any

from baton import Pipeline, pipeline
from baton.agents import AgentAnswer, AgentWork, agent_stage
from baton.contract.activity import ToolAnswer

LETTER = {"text": "dear all " * 500}


class Reader:
    """An agent that reads a letter."""

    name = "reader"
    lab_overrides = frozenset[str]()

    async def run(self, work: AgentWork) -> AgentAnswer:
        [tool] = [tool for tool in work.tools if tool.name == "letter"]
        letter: Any = await tool.call({"number": 7})
        return AgentAnswer(output=str(len(letter["text"])))


def letter(number: int) -> ToolAnswer:
    """Return a letter."""
    return ToolAnswer(LETTER, claim=f"letter {number} is long")


def make(name: str, **terms: Any) -> Any:
    return agent_stage(Reader(), name=name, tools=[letter], answers=str, notes=False, **terms)


kept_stage, silent_stage = make("keeps"), make("silent", transcript="off")


@pipeline
async def letters(p: Pipeline) -> None:
    """Read the letter twice."""
    await p.stage(kept_stage)
    await p.stage(silent_stage)


class Filer:
    """An agent that files a letter, or reads the filed one."""

    lab_overrides = frozenset({"model"})

    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, work: AgentWork) -> AgentAnswer:
        artifacts = work.context.artifacts
        if self.name == "find":
            return AgentAnswer(output=(await artifacts.read("letter")).decode())
        await artifacts.write("letter", f"by {work.overrides.model or 'large'}", type="document")
        return AgentAnswer(output="filed")


file_stage, find_stage = (agent_stage(Filer(name), answers=str, notes=False) for name in ("file", "find"))


@pipeline
async def filing(p: Pipeline) -> object:
    """File a letter, and find it."""
    await p.stage(file_stage)
    return (await p.stage(find_stage)).output
