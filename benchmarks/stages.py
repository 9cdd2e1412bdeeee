"""The stages that are measured, as a team would write them with Baton; `benchmarks.raw` has the same by hand."""

import asyncio
import json
import os
import time
from datetime import timedelta
from pathlib import Path

from temporalio import activity

from baton import Baton, BatonPatch, Retries, StageContext, StageResult, stage
from benchmarks.samples import patch


@stage
async def plan(baton: Baton) -> BatonPatch:
    """Answer step 1."""
    return _answer(1, baton)


@stage
async def implement(baton: Baton) -> BatonPatch:
    """Answer step 2."""
    return _answer(2, baton)


@stage
async def review(baton: Baton) -> BatonPatch:
    """Answer step 3."""
    return _answer(3, baton)


@stage
async def release(baton: Baton) -> BatonPatch:
    """Answer step 4."""
    return _answer(4, baton)


@stage
async def work(context: StageContext[Baton]) -> StageResult:
    """Answer whichever step it is, in a pipeline of many."""
    return StageResult(baton_patch=_answer(context.given.seq, context.baton))


@stage
async def decide(context: StageContext[Baton]) -> BatonPatch:
    """Make one more decision."""
    seq = context.given.seq
    return BatonPatch(decision_log=[f"Decision {seq}: option {seq % 7}, for the evidence of step {seq}"])


@stage(tools=["crm.lookup"])
async def look_up(context: StageContext[Baton]) -> BatonPatch:
    """Call a tool, think aloud, and decide."""
    seq = context.given.seq
    await context.tools.call("crm.lookup", lambda: f"Customer {seq} has {seq % 9} seats.")
    context.session.brainstorm(f"What if customer {seq} had none?")
    context.session.decision(f"Customer {seq} keeps the plan.")
    return BatonPatch(current_state=[f"Customer {seq} was looked up", "The list goes on", "Nobody waits"])


@stage(heartbeat=timedelta(seconds=1), retries=Retries(attempts=0, first=timedelta(milliseconds=100), factor=1.0))
async def lap(baton: Baton) -> BatonPatch:
    """Work for a moment; that its worker died is noticed within a second."""
    await asyncio.sleep(0.05)
    return BatonPatch(current_state=["One lap more"])


@stage
async def look_at_clock(baton: Baton) -> StageResult:
    """Tell when it runs, in seconds since the epoch."""
    return StageResult(output=time.time())


@stage
async def noted(context: StageContext[Baton]) -> BatonPatch:
    """Work for half a second; note when that begins and ends in the file that the parameter `effects` names."""
    _note(context, "begun")
    await asyncio.sleep(0.5)
    _note(context, "done")
    return BatonPatch(current_state=[f"Step {context.given.seq} is done"])


def _note(context: StageContext[Baton], what: str) -> None:
    """Append a line: a write to the end of a file is whole, whichever process makes it. The clock is never off."""
    line: dict[str, object] = {
        "run": activity.info().workflow_id,
        "step": context.given.seq,
        "attempt": context.given.attempt,
    }
    line |= {"execution": activity.info().attempt, "process": os.getpid(), "at": time.monotonic(), "what": what}
    with Path(str(context.params["effects"])).open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(line)}\n")


def _answer(seq: int, baton: Baton) -> BatonPatch:
    """Return the patch of a step, as long as the state it replaces."""
    return BatonPatch.model_validate(patch(seq, len(baton.current_state)))
