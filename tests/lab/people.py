"""A pipeline that registers a person and writes to them, by agents whose texts are sealed or not kept."""

from baton import Baton, BatonPatch, Pipeline, StageContext, pipeline, stage
from baton.agents import AgentAnswer, AgentWork, agent_stage
from baton.client import Erased

ADDRESS = "jane.in.the.lab@example.org"
SEEN: list[str] = []
"""What agents read."""


class Writer:
    """An agent that reads an address, and writes one that it makes up."""

    name = "write"
    lab_overrides = frozenset({"model"})

    async def run(self, work: AgentWork) -> AgentAnswer:
        known = await work.context.personal.read("email")
        SEEN.extend("erased" if isinstance(one, Erased) else str(one["email"]) for one in known.values())
        await work.context.personal.write(str(work.context.params["subject"]), {"email": "invented@example.org"})
        return AgentAnswer(output=f"{len(known)} written")


@stage(personal_data=["email"])
async def register(context: StageContext[Baton]) -> BatonPatch:
    """Seal the address of a person."""
    await context.personal.write(str(context.params["subject"]), {"email": ADDRESS})
    return BatonPatch(current_state=["Registered"])


writing = agent_stage(Writer(), personal_data=["email"], notes=False, answers=str)
silent = agent_stage(Writer(), name="silent", personal_data=["email"], notes=False, answers=str, transcript="off")


@pipeline
async def mail_to(p: Pipeline) -> None:
    """Register a person, and write to them twice."""
    await p.stage(register)
    await p.stage(writing)
    await p.stage(silent)
