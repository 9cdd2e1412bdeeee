"""Stages that charge given amounts and record the bills themselves."""

import asyncio
import sqlite3
import sys
from collections import Counter
from datetime import timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import activity
from temporalio.exceptions import ApplicationError

from baton import Baton, Retries, Spend, StageContext, StageResult, stage
from baton.compression.rules import Summary
from tests.pipelines.stages import AT_ONCE

BILLS: Counter[str] = Counter()
"""What was paid, in millionths of a US dollar, by workflow id."""
SUMMARY = Spend(micro_usd=30, prompt_tokens=1_000, completion_tokens=10)
"""What a model takes for a summary."""
_RUNS: Counter[tuple[str, int, str]] = Counter()


async def _pay(context: StageContext[Baton], name: str) -> StageResult:
    """Do what the parameter `does` says of this stage's n-th run: `note`, `charge`, `thread`, `spend`, how to `end`."""
    run = activity.info().workflow_id or ""
    place = (run, context.given.seq, name)
    _RUNS[place] += 1
    acts: Any = (context.params.get("does") or {}).get(name) or [{"spend": 1_000}]
    act = acts[min(_RUNS[place], len(acts)) - 1]
    if "note" in act:
        context.session.internal_note(act["note"])
    for amount in act.get("charge", []):
        BILLS[run] += amount
        context.charge(Spend(micro_usd=amount))
    for amount in act.get("thread", []):  # as a client without `await` does
        BILLS[run] += amount
        await asyncio.to_thread(context.charge, Spend(micro_usd=amount))
    if act.get("end") == "raise before a ledger that is busy":
        await _keep_busy(str(context.params["ledger"]))
        raise RuntimeError("the answer was cut off")
    if act.get("end") == "raise":
        raise RuntimeError("the answer was cut off")
    if act.get("end") == "exit":
        sys.exit(3)
    if act.get("end") == "raise for good":
        raise ApplicationError("no such model", "gpt-0", type="UnknownModel", non_retryable=True)
    if act.get("end") == "lost":
        await asyncio.Event().wait()
    BILLS[run] += act.get("spend", 0)
    spend = Spend(micro_usd=act.get("spend", 0))
    if act.get("end") == "unreadable":
        return StageResult(report="# This is no report", spend=spend)
    patch: dict[str, JsonValue] = {"decision_log": [f"{name} {context.given.seq}.{_RUNS[place]}"]}
    if act.get("end") == "refused":
        patch = {"no_such_field": 1}
    return StageResult(baton_patch=patch, spend=spend)


async def _keep_busy(ledger: str) -> None:
    """Block others from the ledger for longer than the heartbeat timeout of `watched`."""
    connection = sqlite3.connect(ledger, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    asyncio.get_running_loop().call_later(1, connection.close)


@stage(retries=AT_ONCE, heartbeat=timedelta(seconds=1))
async def watched(context: StageContext[Baton]) -> StageResult:
    """Pay, with a short heartbeat timeout."""
    return await _pay(context, "watched")


@stage(retries=AT_ONCE)
async def first(context: StageContext[Baton]) -> StageResult:
    """Pay."""
    return await _pay(context, "first")


@stage(retries=AT_ONCE)
async def second(context: StageContext[Baton]) -> StageResult:
    """Pay."""
    return await _pay(context, "second")


@stage(retries=Retries(attempts=1), reserve_micro_usd=100_000)
async def dear(context: StageContext[Baton]) -> StageResult:
    """Pay, with a large reservation."""
    return await _pay(context, "dear")


@stage(retries=AT_ONCE, requires=["work_scope"])
async def picky(context: StageContext[Baton]) -> StageResult:
    """Pay, with a scope that nobody grants."""
    return await _pay(context, "picky")


@stage(timeout=timedelta(seconds=1), retries=Retries(attempts=1))
async def brief(context: StageContext[Baton]) -> StageResult:
    """Pay, with a short timeout."""
    return await _pay(context, "brief")


@stage
async def talk(context: StageContext[Baton]) -> StageResult:
    """Pay, with a conversation that is too long for the next stage."""
    said = "We looked at the next page and found nothing. " * 40
    turns: list[dict[str, JsonValue]] = [{"role": "analyst", "content": f"Turn {nth}: {said}"} for nth in range(30)]
    paid = await _pay(context, "talk")
    return paid.model_copy(update={"turns": turns})


@stage(window=6_000, retries=AT_ONCE)
async def listen(context: StageContext[Baton]) -> StageResult:
    """Pay."""
    return await _pay(context, "listen")


@stage(window=6_000, retries=AT_ONCE, requires=["work_scope"])
async def scoped(context: StageContext[Baton]) -> StageResult:
    """Pay, with a scope that nobody grants."""
    return await _pay(context, "scoped")


async def summarise(prompt: str, max_tokens: int) -> Summary:
    BILLS[activity.info().workflow_id or ""] += SUMMARY.micro_usd
    return Summary(text="They looked at pages.", spend=SUMMARY)


STAGES: list[Any] = [watched, first, second, dear, picky, brief, talk, listen, scoped]
BY_NAME: dict[str, Any] = {item.spec.name: item for item in STAGES}
