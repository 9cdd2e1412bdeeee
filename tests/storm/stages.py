"""The stages of the storm: short, retried without end, missed after two seconds."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from baton import Baton, BatonPatch, Retries, Spend, StageContext, StageResult, stage

_AGAIN = Retries(attempts=0, first=timedelta(milliseconds=200), factor=1.0)
_ALIVE = timedelta(seconds=2)


async def _work(context: StageContext[Baton], name: str) -> StageResult:
    await asyncio.sleep(random.uniform(0, 0.3))
    return StageResult(baton_patch={"decision_log": [f"{name} {context.given.seq}"]}, spend=Spend(micro_usd=10))


@stage(retries=_AGAIN, heartbeat=_ALIVE)
async def plan(context: StageContext[Baton]) -> StageResult:
    """Work."""
    return await _work(context, "plan")


@stage(retries=_AGAIN, heartbeat=_ALIVE)
async def build(context: StageContext[Baton]) -> StageResult:
    """Work."""
    return await _work(context, "build")


@stage(retries=_AGAIN, heartbeat=_ALIVE)
async def check(context: StageContext[Baton]) -> StageResult:
    """Work."""
    return await _work(context, "check")


@stage(retries=_AGAIN, heartbeat=_ALIVE, requires=["work_scope"])
async def scoped(context: StageContext[Baton]) -> StageResult:
    """Work in a scope that is missing until a person edits the baton."""
    return await _work(context, "scoped")


@stage(retries=_AGAIN, heartbeat=_ALIVE)
async def undo(baton: Baton) -> BatonPatch:
    """Undo what was done."""
    return BatonPatch(decision_log=["undone"])


@stage(retries=Retries(attempts=1), heartbeat=_ALIVE)
async def breaks(baton: Baton) -> BatonPatch:
    """Fail."""
    raise RuntimeError("the model is down")


STAGES: list[Callable[..., Any]] = [plan, build, check, scoped, undo, breaks]
