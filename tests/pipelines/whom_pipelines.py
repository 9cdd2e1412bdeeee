"""Pipelines that know who they work for, and those that wait for their turn."""

from collections import defaultdict
from datetime import timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import activity

from baton import Baton, BatonPatch, ContinueAfter, Pipeline, StageContext, StageResult, pipeline, stage
from baton.agents import AgentAnswer, AgentWork, agent_stage, current_requester

WORKED: defaultdict[str, list[str]] = defaultdict(list)
"""Which tenants' stages ran, in order, by task queue."""


def see_customer() -> JsonValue:
    """Return who asks, as the tool knows it."""
    requester = current_requester()
    return None if requester is None else requester.to_json_object()


class Asks:
    """An agent that calls its tool once."""

    name = "look_up"

    async def run(self, work: AgentWork) -> AgentAnswer:
        """Answer with what the tool said, and with whether the prompt names anybody."""
        [tool] = [tool for tool in work.tools if tool.name == "see_customer"]
        return AgentAnswer(output={"tool": await tool.call({}), "prompted": "acme" in work.prompt})


look_up = agent_stage(Asks(), tools=[see_customer])


@stage
async def see(context: StageContext[Baton]) -> StageResult:
    """Return who the run works for."""
    requester = context.requester
    return StageResult(output={"requester": None if requester is None else requester.to_json_object()})


@pipeline
async def seen_in_child(p: Pipeline) -> Any:
    """Return what a child's stage sees."""
    return (await p.stage(see)).output


@pipeline
async def seen(p: Pipeline) -> Any:
    """Return what a stage, an agent's tool and a child's stage see."""
    stage, tool = await p.stage(see), await p.stage(look_up)
    child = await p.child(seen_in_child, goal="See")
    return {"stage": stage.output, "agent": tool.output, "child": child.output}


@pipeline
async def asks_requester(p: Pipeline) -> Any:
    """Ask the person for whom the run works."""
    decided = await p.approve("customer", within=timedelta(minutes=2), asks="Yours?", who=["Run:Requester"])
    return decided.who


@stage
async def take_turn(context: StageContext[Baton]) -> BatonPatch:
    """Note whose turn it is."""
    WORKED[activity.info().task_queue].append(str(context.params["tenant"]))
    return BatonPatch()


@pipeline
async def takes_turn(p: Pipeline) -> None:
    """Work once for a tenant."""
    await p.stage(take_turn, task_queue=str(p.params["work"]))


@pipeline(continue_after=ContinueAfter(events=8))
async def continues(p: Pipeline) -> Any:
    """Return what a stage sees after the run has continued as new."""
    await p.sleep(timedelta(seconds=1))  # a younger run does not continue
    await p.stage(see)
    return (await p.stage(see)).output
