"""Stages for the tests of what approvals show and ask."""

from collections import defaultdict
from typing import Any

from temporalio import activity

from baton import Baton, BatonPatch, StageContext, StageResult, stage

KEYS: defaultdict[str, list[str]] = defaultdict(list)
"""The key under which `pay` paid, in each try, by workflow id."""


@stage
async def draft(context: StageContext[Baton]) -> StageResult:
    """Write a draft of the given length, and an artifact."""
    params: Any = context.params
    text = "# Title\n\nAll is well. <script>\n" + "x" * params.get("length", 10) + "END"
    ref = await context.artifacts.write("plan", b"step one\nstep two\n", type="plan")
    return StageResult(baton_patch=BatonPatch(artifacts=[ref], decision_log=["Drafted"]), output=text)


@stage
async def pay(context: StageContext[Baton]) -> StageResult:
    """Pay; the first attempt is lost."""
    KEYS[activity.info().workflow_id or ""].append(context.handoff_id)
    if activity.info().attempt == 1:
        raise RuntimeError("the connection was lost")
    return StageResult(output=dict(context.params))


STAGES: list[Any] = [draft, pay]
