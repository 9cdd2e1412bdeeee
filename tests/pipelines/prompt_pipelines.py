"""Pipelines whose agents get more, or less, than their context windows hold."""

from datetime import timedelta

from baton import ContractTerms, Pipeline, pipeline
from baton.agents import AgentAnswer, AgentWork, agent_stage
from baton.agents.notes import NOTE_TOOLS

PROMPTS: dict[str, str] = {}
"""The newest user turn of each agent."""
READ: list[object] = []
"""What `read_artifact` returned, in order."""
FOUND = "".join(f"{place:<10}" for place in range(0, 3_000, 10))
LOG = "".join(f"{place:<10}" for place in range(0, 40_000, 10))


async def fetch() -> str:
    """Return a page, longer than a history keeps."""
    return FOUND


async def fetch_log() -> str:
    """Return a log, longer than a contract holds."""
    return LOG


class Reader:
    """An agent that calls its tools and reads the rest of shortened texts."""

    def __init__(self, name: str, reads: str = "") -> None:
        self.name, self._reads = name, reads

    async def run(self, work: AgentWork) -> AgentAnswer:
        PROMPTS[self.name] = work.user_turn()
        for tool in work.tools:
            if tool.name not in {"read_artifact", *NOTE_TOOLS}:
                await tool.call({})
            elif tool.name == "read_artifact" and self._reads:
                READ.append(await tool.call({"id": self._reads, "offset": 39_990}))
                READ.append(await tool.call({"id": "another"}))
        return AgentAnswer(patch={"decision_log": [f"{self.name} is done"]})


class Careless:
    """An agent that always answers in the wrong form."""

    name = "careless"

    async def run(self, work: AgentWork) -> AgentAnswer:
        PROMPTS[self.name] = work.user_turn()
        return work.read('{"baton_patch": {"acceptance": "pytest passes"}}')


careless = agent_stage(Careless(), attempts=2)
research = agent_stage(Reader("research"), tools=[fetch])
digest = agent_stage(Reader("digest"))
collect = agent_stage(Reader("collect"), tools=[fetch_log])
inspect = agent_stage(Reader("inspect", "3.collect.2"))
edit = agent_stage(Reader("edit", "draft"), window=4_000)
strict = agent_stage(Reader("strict"), window=4_000, whole=["draft"], timeout=timedelta(minutes=1))
STAGES = [research, digest, collect, inspect, edit, strict, careless]


@pipeline(contracts=ContractTerms())
async def learns(p: Pipeline) -> None:
    """Run agents that learn what others found."""
    for stage in (research, digest, collect, inspect):
        await p.stage(stage)


@pipeline
async def shortens(p: Pipeline) -> None:
    """Pass on a draft that does not fit."""
    await p.stage(edit, inputs={"draft": LOG, "style": "plain"})


@pipeline
async def insists(p: Pipeline) -> None:
    """Pass on a required draft that does not fit."""
    await p.stage(strict, inputs={"draft": LOG})


@pipeline
async def errs(p: Pipeline) -> None:
    """Run an agent that fails until its attempts are used up."""
    await p.stage(careless)


PIPELINES = [learns, shortens, insists, errs]
