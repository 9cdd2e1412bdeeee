"""Pipelines whose children may call no more than they may."""

from datetime import timedelta

from temporalio import workflow

from baton import Baton, ContractTerms, Exchange, Pipeline, Receiver, StageContext, StageResult, pipeline, stage

SENT: list[str] = []
"""What ran the tool `email.send`."""


@stage(tools=["email.send", "notes.add"])
async def calls(context: StageContext[Baton]) -> StageResult:
    """Call the tool that the parameter `tool` names."""
    tool = str(context.params["tool"])
    return StageResult(output=await context.tools.call(tool, lambda: SENT.append(tool)))


@stage
async def undeclared(context: StageContext[Baton]) -> StageResult:
    """Do the same, of tools that nobody declared."""
    tool = str(context.params["tool"])
    return StageResult(output=await context.tools.call(tool, lambda: SENT.append(tool)))


@pipeline
async def helper(p: Pipeline) -> None:
    """Call a tool, without contracts."""
    await p.stage(undeclared if p.params.get("undeclared") else calls)


@pipeline(contracts=ContractTerms())
async def careful_helper(p: Pipeline) -> None:
    """Call a tool, with contracts of its own."""
    await p.stage(calls)


@pipeline(contracts=ContractTerms(granted=frozenset({"email.send", "notes.add"})))
async def middle(p: Pipeline) -> None:
    """Have a child call a tool, with contracts that grant all."""
    await p.child(helper, "Help", params=p.params)


@pipeline(contracts=ContractTerms(forbidden=frozenset({"email.send"})))
async def forbids(p: Pipeline) -> None:
    """Have the child `of` call a tool, and forbid one."""
    await p.child(str(p.params["of"]), "Help", params=p.params)


@pipeline(contracts=ContractTerms(granted=frozenset({"notes.add"})))
async def grants(p: Pipeline) -> None:
    """Have the child `of` call a tool, and grant one."""
    await p.child(str(p.params["of"]), "Help", params=p.params)


@pipeline(contracts=ContractTerms(forbidden=frozenset({"email.send"})))
async def calls_out(p: Pipeline) -> None:
    """Start another pipeline by a handoff to it."""
    to = Receiver(f"{workflow.info().workflow_id}.other", "helper", starts=helper, params=p.params)
    await Exchange(p).hand_off(to, "Help", within=timedelta(minutes=1))


CHILD_PIPELINES = [helper, careful_helper, middle, forbids, grants, calls_out]
CHILD_STAGES = [calls, undeclared]
