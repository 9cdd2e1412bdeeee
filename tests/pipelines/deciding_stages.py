"""Stages for the tests of simultaneous decisions, in their own module like those of the handoff tests."""

from collections.abc import Callable
from typing import Any

from baton import Baton, BatonPatch, Retries, Spend, StageResult, stage
from tests.handoff.handoff_stages import dear, extract, score, summarise
from tests.handoff.inbox_stages import taint


@stage(retries=Retries(attempts=1), reserve_micro_usd=150_000)
async def dearer(baton: Baton) -> StageResult:
    """Cost as much as `dear`, beside it."""
    return StageResult(baton_patch=BatonPatch(decision_log=["Paid as well"]), spend=Spend(micro_usd=150_000))


STAGES: list[Callable[..., Any]] = [dear, dearer, extract, score, summarise, taint]
