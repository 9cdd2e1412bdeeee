"""Pipelines of versioned workers that continue as new: one on the new build, one on its own."""

from datetime import timedelta
from typing import Any

from temporalio import workflow

from baton import ContinueAfter, Pipeline, pipeline

STEPS = 20  # after the approval: the server tells each task whether there is a new build, the first perhaps not yet


async def end_on_a_build(p: Pipeline) -> Any:
    """Wait for a person, go on, and return the build that ended the run."""
    await p.sleep(timedelta(seconds=1))  # a younger run does not continue as new
    await p.approve("release manager", within=timedelta(minutes=2))
    for _ in range(STEPS):
        await p.sleep(timedelta(milliseconds=50))
    build = workflow.info().get_current_deployment_version()
    return None if build is None else build.build_id


@pipeline(continue_after=ContinueAfter(upgrade=True))
async def moves(p: Pipeline) -> Any:
    """Continue as new because there is a new build."""
    return await end_on_a_build(p)


@pipeline(continue_after=ContinueAfter(events=8))
async def stays(p: Pipeline) -> Any:
    """Continue as new because the history is long."""
    return await end_on_a_build(p)
