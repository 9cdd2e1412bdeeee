"""Pipelines whose agents take notes of people while they work, and what they wait for meanwhile."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio import activity

from baton import Baton, BatonPatch, Pipeline, Retries, StageContext, pipeline, stage
from baton.core.stages import StageSpec
from tests.agents.agent_pipelines import SOON, Named

STEERED = Named(StageSpec("steered", retries=SOON, tools=frozenset({"wait"}), steer=True, agent=True))
"""An agent that takes notes, by its name and terms."""


@dataclass
class Gate:
    """Between a test and the stage of its run: the stage is at work, and it may go on."""

    working: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def hold(self) -> None:
        """Wait inside a stage."""
        self.working.set()
        await self.go_on.wait()


GATES: defaultdict[str, Gate] = defaultdict(Gate)
"""The gate of each run, by workflow id."""


async def wait() -> str:
    """Wait for the test."""
    await GATES[activity.info().workflow_id or ""].hold()
    return "it costs 3"


@stage(steer=True)
async def heedless(baton: Baton) -> BatonPatch:
    """Take notes and never look at one."""
    await GATES[activity.info().workflow_id or ""].hold()
    return BatonPatch()


@stage(steer=True, retries=Retries(attempts=2, first=timedelta(milliseconds=20)))
async def stumbling(context: StageContext[Baton]) -> BatonPatch:
    """Read a note, fail, and read it again."""
    await GATES[activity.info().workflow_id or ""].hold()
    notes = [note.text for note in await context.notes.unread()]
    if activity.info().attempt == 1:
        raise OSError("lost")
    return BatonPatch(decision_log=[f"Heard {notes}", f"Again {await context.notes.unread()}"])


@stage
async def deaf(baton: Baton) -> BatonPatch:
    """Take no notes."""
    await GATES[activity.info().workflow_id or ""].hold()
    return BatonPatch()


@pipeline
async def steers(p: Pipeline) -> None:
    """Have an agent work."""
    await p.stage(STEERED)


@pipeline
async def steers_nobody(p: Pipeline) -> None:
    """Have a stage work that looks at no note."""
    await p.stage(heedless)


@pipeline
async def steers_again(p: Pipeline) -> None:
    """Have a stage work that is retried."""
    await p.stage(stumbling)


@pipeline
async def steers_deaf(p: Pipeline) -> None:
    """Have a stage work that takes no notes."""
    await p.stage(deaf)


@pipeline
async def steers_one_of_two(p: Pipeline) -> None:
    """Have two stages work that take notes."""
    await p.fan_out(heedless, stumbling)


PIPELINES: list[type] = [steers, steers_nobody, steers_again, steers_deaf, steers_one_of_two]
STAGES: list[Callable[..., Any]] = [heedless, stumbling, deaf]
