"""Stages of concurrent lines, and of a pipeline that loses its ledger."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from baton import Baton, BatonPatch, Retries, Spend, StageContext, StageResult, stage

_ONCE = Retries(attempts=1)


@stage(retries=_ONCE, timeout=timedelta(seconds=30))  # too short for a result to wait for its record
async def first(context: StageContext[Baton]) -> StageResult:
    """Remove the ledger."""
    folder = Path(str(context.params["folder"]))
    (folder / "ledger").rename(folder / "away")
    return StageResult()


@stage(retries=_ONCE)
async def patient(context: StageContext[Baton]) -> StageResult:
    """Remove the ledger, and have time enough to wait for it."""
    folder = Path(str(context.params["folder"]))
    (folder / "ledger").rename(folder / "away")
    return StageResult()


@stage(retries=_ONCE)
async def second(context: StageContext[Baton]) -> StageResult:
    """Say that it ran."""
    with (Path(str(context.params["folder"])) / "ran").open("a") as file:
        file.write("second\n")
    return StageResult(output=context.attempt)


@stage(retries=Retries(attempts=2, first=timedelta(seconds=10), longest=timedelta(seconds=10)))
async def stumbles(context: StageContext[Baton]) -> StageResult:
    """Fail at its first run, succeed at its second."""
    ran = Path(str(context.params["folder"])) / "ran"
    if not ran.exists():
        ran.touch()
        raise ValueError("it stumbled")
    return StageResult(output=context.attempt)


@stage(retries=_ONCE)
async def once(context: StageContext[Baton]) -> StageResult:
    """Fail permanently."""
    raise ValueError("it cannot be done")


@stage
async def alpha(baton: Baton) -> BatonPatch:
    """Continue the first line."""
    return BatonPatch(decision_log=["alpha"])


@stage
async def beta(baton: Baton) -> BatonPatch:
    """Continue the second line."""
    return BatonPatch(decision_log=["beta"])


@stage
async def gamma(baton: Baton) -> BatonPatch:
    """Continue after both lines."""
    return BatonPatch(decision_log=["gamma"])


@stage(heartbeat=timedelta(minutes=5))
async def charges(context: StageContext[Baton]) -> StageResult:
    """Charge twice and never end."""
    for _ in range(2):
        context.charge(Spend(prompt_tokens=1_000))
        await asyncio.sleep(0)
    await asyncio.Event().wait()
    return StageResult()


@stage(writes=["decision_log"], attempts=2, retries=_ONCE)
async def costs(context: StageContext[Baton]) -> StageResult:
    """Charge, then raise or return a patch that is rejected."""
    if context.params["how"] == "raises":
        context.charge(Spend(micro_usd=70))
        raise ValueError("it cannot be done")
    refused = context.params["how"] == "is refused"
    patch = BatonPatch(current_state=["Paid"]) if refused else BatonPatch(decision_log=["Paid"])
    return StageResult(baton_patch=patch, spend=Spend(micro_usd=100, prompt_tokens=10))


STAGES: list[Callable[..., Any]] = [costs, first, patient, second, stumbles, once, alpha, beta, gamma, charges]
