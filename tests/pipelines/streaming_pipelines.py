"""Pipelines whose stages stream output; each test defines the stages."""

from datetime import timedelta

from baton import Pipeline, Retries, pipeline
from baton.core.stages import StageSpec
from tests.agents.agent_pipelines import Named

SPEAK = Named(StageSpec("speak", retries=Retries(attempts=3, first=timedelta(milliseconds=20))))
ECHO = Named(StageSpec("echo", retries=Retries(attempts=3, first=timedelta(milliseconds=20))))


@pipeline
async def spoken(p: Pipeline) -> object:
    """Run one stage, streaming if the parameters say so."""
    return (await p.stage(SPEAK, stream=p.params["stream"] is True)).output


@pipeline
async def spoken_at_once(p: Pipeline) -> object:
    """Run two streaming stages at once."""
    ended = await p.fan_out(Named(StageSpec("speak", stream=True)), Named(StageSpec("echo", stream=True)))
    return [result.output for result in ended]
