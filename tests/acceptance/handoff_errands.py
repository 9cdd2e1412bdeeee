"""A pipeline whose handoffs are disturbed: each stage looks, as its first act, whether its handoff is on record.

What stages did is in a journal beside the ledger, a line for each act, so that it outlives the worker.
"""

import asyncio
import json
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from baton import Baton, BatonPatch, Pipeline, PipelineInput, PipelineResult, Retries, StageContext, StageResult, stage
from baton.core.messages import StageReturn

with workflow.unsafe.imports_passed_through():
    from baton.handoff.store_safeguards import Safeguards
    from baton.keys.store_keyring import Keyring
    from baton.ledger.chain import ChainHead
    from baton.ledger.entries import Trace
    from baton.ledger.store import Ledger, LedgerOptions
    from baton.wire.names import HANDOFF_REFUSED

STAY = "BATON_TEST_STAY"
"""Environment variable: where a process stays for ever, as `<stage>:begun` or `<stage>:done`."""

_QUICKLY = Retries(attempts=0, first=timedelta(milliseconds=50), factor=1.0)
_ALIVE = timedelta(seconds=1)


def safeguards(folder: Path, *, encrypt: bool = False) -> Safeguards:
    """Return safeguards with the keys of a folder, and the ledger in a folder inside it."""
    return Safeguards(Keyring.development(folder), folder / "ledger" / "ledger.db", encrypt=encrypt)


async def trace_of(folder: Path, task_id: str, anchors: Sequence[ChainHead] = ()) -> Trace:
    """Return the trace of a task, verified with the public keys and the anchors."""
    async with Ledger(folder / "ledger" / "ledger.db", LedgerOptions(create=False)) as ledger:
        return await ledger.trace(task_id, verifier=Keyring.development(folder).public(), anchors=anchors)


def journal(folder: Path) -> list[dict[str, Any]]:
    path = folder / "journal"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def _act(context: StageContext[Baton], what: str) -> None:
    """Record an act with the number of recorded acceptances, notify the test, and optionally block."""
    folder, name = Path(str(context.params["folder"])), context.given.stage
    records = (await trace_of(folder, context.given.task_id)).records
    accepted = [record for record in records if (record.fields.to_agent, record.fields.status) == (name, "ACCEPTED")]
    line = {
        "task": context.given.task_id,
        "stage": name,
        "what": what,
        "run": activity.info().attempt,
        "accepted": len(accepted),
    }
    with (folder / "journal").open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(f"{name}:{what}", flush=True)
    if os.environ.get(STAY) == f"{name}:{what}":
        while not (folder / "go").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.02)


async def _work(context: StageContext[Baton]) -> StageResult:
    """Do a stage's work, with a different answer each time, like a model."""
    await _act(context, "begun")
    answer = uuid4().hex
    await _act(context, "done")
    return StageResult(baton_patch=BatonPatch(decision_log=[f"{context.given.stage} {answer}"]), output=answer)


@stage(heartbeat=_ALIVE, retries=_QUICKLY)
async def draft(context: StageContext[Baton]) -> StageResult:
    """Write a draft."""
    return await _work(context)


@stage(heartbeat=_ALIVE, retries=_QUICKLY)
async def build(context: StageContext[Baton]) -> StageResult:
    """Build it."""
    return await _work(context)


@stage(heartbeat=_ALIVE, retries=_QUICKLY)
async def verify(context: StageContext[Baton]) -> StageResult:
    """Verify it."""
    return await _work(context)


STAGES = [draft, build, verify]


@workflow.defn
class Relayed:
    """Draft, build, verify."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        queue = start.params.get("queue")
        for current_stage in STAGES:
            await self.pipeline.stage(current_stage, task_queue=None if queue is None else str(queue))
        return self.pipeline.result()


@workflow.defn
class Poisoner:
    """An attacker with access to Temporal, who starts a stage with a forged payload."""

    @workflow.run
    async def run(self, stage: str, queue: str, poison: list[str]) -> StageReturn:
        """Start a stage with a payload: the values of `encoding` and `baton-record`, and the data in latin-1."""
        encoding, record, data = poison
        metadata = {"encoding": encoding.encode()} | ({"baton-record": record.encode()} if record else {})
        try:
            answer: StageReturn = await workflow.execute_activity(
                stage,
                RawValue(Payload(metadata=metadata, data=data.encode("latin-1"))),
                result_type=StageReturn,
                task_queue=queue,
                start_to_close_timeout=timedelta(seconds=10),
                retry_policy=RetryPolicy(maximum_attempts=2),
            )
        except ActivityError as error:
            if not (isinstance(error.cause, ApplicationError) and error.cause.type == HANDOFF_REFUSED):
                raise
            return StageReturn.model_validate(error.cause.details[0], strict=False)
        return answer
