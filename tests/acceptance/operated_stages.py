"""The stages of the pipelines that the tests of the command operate."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pydantic import JsonValue

from baton import Baton, BatonPatch, Retries, Spend, StageContext, StageResult, stage


@stage
async def plan(context: StageContext[Baton]) -> StageResult:
    """Plan, and write the plan down."""
    await context.artifacts.write("plan-1", f"Plan for: {context.baton.goal}", type="plan", path="docs/plan.md")
    patch = BatonPatch(
        current_state=["The plan is written"],
        decision_log=["Chose JWT over sessions"],
        constraints=["Keep Python 3.11", "No new database"],
        open_questions=["Which library?"],
    )
    return StageResult(baton_patch=patch, output=context.params, spend=Spend(micro_usd=80_000, prompt_tokens=4200))


@stage(writes=["current_state", "decision_log", "constraints"])
async def implement(context: StageContext[Baton]) -> BatonPatch | dict[str, JsonValue]:
    """Write an undeclared field, and correct that at the second attempt."""
    if context.attempt == 1:
        return {"goal": "Something else"}
    return BatonPatch(
        current_state=["The module is written"], decision_log=["Use PyJWT"], constraints=["Keep Python 3.11"]
    )


@stage
async def check(baton: Baton) -> BatonPatch:
    """Run the tests."""
    return BatonPatch(current_state=["42 tests pass"], decision_log=[])


@stage
async def review(baton: Baton) -> BatonPatch:
    """Read the code."""
    return BatonPatch(current_state=["The code reads well"], open_questions=[])


@stage
async def release(baton: Baton) -> BatonPatch:
    """Ship it."""
    return BatonPatch(current_state=["Released"])


@stage(retries=Retries(attempts=2, first=timedelta(hours=1), longest=timedelta(hours=1)))
async def stumble(baton: Baton) -> BatonPatch:
    """Fail, and be retried much later."""
    raise RuntimeError("the model did not answer")


STAGES: list[Callable[..., Any]] = [plan, implement, check, review, release, stumble]
