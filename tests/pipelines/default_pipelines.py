"""Pipelines that return values that JSON cannot represent, and an ordinary one."""

from typing import Any

from baton import Baton, BatonPatch, Pipeline, StageContext, StageResult, pipeline, stage

ODD: dict[str, Any] = {"large": 2**60, "half": "half \ud800"}


@stage
async def note(baton: Baton) -> BatonPatch:
    """Decide something."""
    return BatonPatch(decision_log=["noted"])


@stage(attempts=1)
async def odd(context: StageContext[Baton]) -> StageResult:
    """Return the odd value, as output or in the patch."""
    value = ODD[str(context.params["what"])]
    if context.params["where"] == "output":
        return StageResult(output=value)
    return StageResult(baton_patch={"decision_log": [f"{value}"], "current_state": [value]})


@pipeline
async def noted(p: Pipeline) -> str:
    """Note something."""
    await p.stage(note)
    return "noted"


@pipeline
async def returns_odd(p: Pipeline) -> object:
    """Return the odd value: as a stage's result, a stage's parameter, or the pipeline's output."""
    value = ODD[str(p.params["what"])]
    if p.params["where"] == "result":
        await p.stage(note)
        return value
    if p.params["where"] == "params":
        await p.stage(note, params={"odd": value})
        return None
    if p.params["where"] == "input":
        await p.stage(note, inputs={"odd": value})
        return None
    await p.stage(odd)
    return None


PIPELINES = [noted, returns_odd]
STAGES: list[Any] = [note, odd]
