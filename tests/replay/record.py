"""Records the histories beside this file: `python -m tests.replay.record`.

A recording that is there already is kept; delete a file to record it again. Nothing is released yet, so a change of
the workflow's code may do that. After the first release a recording that no longer replays means that the next
deployment would suspend runs in progress.
"""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from baton import Budget, MemoryArtifactStore, PipelineStatus, WorkerParts
from baton.client import Question, fork, roll_back
from baton.core.messages import PipelineInput
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import local_server, pipeline_worker, run_pipeline
from baton.wire.names import ANSWER, QUERY_QUESTIONS
from tests.budget.paying_pipelines import Takes
from tests.budget.paying_stages import STAGES as PAYING_STAGES
from tests.contract.contract_pipelines import CONTRACT_PIPELINES, CONTRACT_STAGES, SCHEMAS, Reviewed
from tests.exchange.exchange_pipelines import EXCHANGES, HandsOff, Receives, StreamsIn, StreamsOut
from tests.handoff import handoff_pipelines as handed
from tests.handoff.handoff_stages import STAGES as HANDED_STAGES
from tests.handoff.inbox_pipelines import ForgetsInABranch
from tests.pipelines.line_pipelines import Catches, Lines
from tests.pipelines.line_stages import STAGES as LINE_STAGES
from tests.pipelines.map_pipelines import STAGES as MAP_STAGES
from tests.pipelines.map_pipelines import mapped, named
from tests.pipelines.mishaps import NeverAwaits
from tests.pipelines.pipelines import PIPELINES, FansOut, Gated, Linear, Long, Parent
from tests.pipelines.stages import GATES, STAGES
from tests.pipelines.undoing import STAGES as UNDOING_STAGES
from tests.pipelines.undoing import Books
from tests.replay import detours
from tests.support import GOAL, Handle, approve, start, until

PLAIN_PIPELINES: list[type] = [*PIPELINES, Catches, Lines, Books, mapped, named]
HANDED_PIPELINES: list[type] = [*handed.PIPELINES, *EXCHANGES, *CONTRACT_PIPELINES, ForgetsInABranch, Takes]
HISTORIES = Path(__file__).with_name("histories")


async def run_plain(worker: Worker, pipeline: type, id: str) -> Handle:
    return (await run_pipeline(worker, pipeline.run, PipelineInput(goal=GOAL), id=id)).handle  # type: ignore[attr-defined]


async def run_unawaited(worker: Worker, id: str) -> Handle:
    """Return a run that forgot to await a stage."""
    handle = await start(worker, NeverAwaits.run, id=id)
    with contextlib.suppress(WorkflowFailureError):
        await handle.result()
    return handle


async def run_approved(worker: Worker, pipeline: type, id: str) -> Handle:
    """Return a run in which a person approved."""
    handle = await start(worker, pipeline.run, id=id)  # type: ignore[attr-defined]
    await approve(worker.client, handle)
    await handle.result()
    return handle


async def run_named(worker: Worker, id: str) -> Handle:
    """Return a run whose steps have names of their own."""
    handle = await start(worker, named, id=id)
    GATES[handle.id, "open"].set()
    await handle.result()
    return handle


async def run_mapped(worker: Worker, id: str) -> Handle:
    """Return a run with a stage for each of three items, of which one fails."""
    handle = await start(worker, mapped, id=id, pages=["one", "bad", "three"], at_most=2)
    await handle.result()
    return handle


async def run_continued(worker: Worker, id: str) -> Handle:
    """Return the last run of a chain that continued as new."""
    handle = await run_approved(worker, Long, id)
    return worker.client.get_workflow_handle(handle.id)


async def run_continuing(worker: Worker, id: str) -> Handle:
    """Return the first run of such a chain."""
    handle = await run_approved(worker, Long, id)
    return worker.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)


async def run_rolled_back(worker: Worker, id: str) -> Handle:
    """Return a run that was rolled back to its second stage."""
    handle = await run_plain(worker, Linear, id)
    result = await roll_back(worker.client, handle.id, "implement", by="bob", why="wrong plan")
    rerun = worker.client.get_workflow_handle(handle.id, run_id=result.run_id)
    await rerun.result()
    return rerun


async def run_forked(worker: Worker, id: str) -> Handle:
    """Return a run that was forked at its last stage, with an edit."""
    handle = await run_plain(worker, Linear, f"{id}-from")
    edit: dict[str, JsonValue] = {"constraints": ["No new service"]}
    fork_handle = await fork(worker.client, handle.id, "review", by="bob", why="cheaper", patch=edit, new_id=id)
    await fork_handle.result()
    return fork_handle


RECORDINGS: dict[str, Callable[[Worker, str], Awaitable[Handle]]] = {
    "linear": lambda worker, id: run_plain(worker, Linear, id),
    "fan-out": lambda worker, id: run_plain(worker, FansOut, id),
    "unawaited": run_unawaited,
    "child": lambda worker, id: run_plain(worker, Parent, id),
    "approval": lambda worker, id: run_approved(worker, Gated, id),
    "continuing": run_continuing,
    "continued": run_continued,
    "rolled-back": run_rolled_back,
    "forked": run_forked,
    "named": run_named,
    "mapped": run_mapped,
    **detours.PLAIN,
}


async def run_released(worker: Worker, id: str) -> Handle:
    """Return a run in which a person released a dead letter."""
    handle = await start(worker, handed.FourAgents.run, id=id, poisoned=True)
    await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
    [question] = await handle.query(QUERY_QUESTIONS, result_type=list[Question])
    await handle.execute_update(ANSWER, question.answer("release", who="ann", why="quoted"))
    await handle.result()
    return handle


async def run_topped_up(worker: Worker, id: str) -> Handle:
    """Return a run that waited for a top-up by a person."""
    handle: Handle = await worker.client.start_workflow(
        handed.Spends.run,
        PipelineInput(goal=GOAL, budget=Budget(initial_micro_usd=200_000)),
        id=id,
        task_queue=worker.task_queue,
    )
    await until(handle, lambda now: now.status is PipelineStatus.PENDING_HANDOFF)
    [question] = await handle.query(QUERY_QUESTIONS, result_type=list[Question])
    top_up = question.answer("top_up", who="ann", why="worth it", data={"micro_usd": 30_000})
    await handle.execute_update(ANSWER, top_up)
    await handle.result()
    return handle


async def run_slept(worker: Worker, id: str) -> Handle:
    """Return a run that slept between two stages."""
    handle = await start(worker, handed.Talks.run, id=id, pause=1)
    await handle.result()
    return handle


async def run_contracted(worker: Worker, id: str) -> Handle:
    """Return a run whose stages had contracts."""
    handle = await start(worker, Reviewed.run, id=id, marker="a rumour")
    await handle.result()
    return handle


async def run_exchanged(
    worker: Worker, id: str, sends: type, receives: type, *, receiver: bool, **params: Any
) -> Handle:
    """Return one side of a handoff between two pipelines that have ended."""
    taker = await start(worker, receives.run, id=id if receiver else f"{id}-to")  # type: ignore[attr-defined]
    giver = await start(worker, sends.run, id=f"{id}-from" if receiver else id, to=taker.id, **params)  # type: ignore[attr-defined]
    await giver.result()
    await taker.result()
    return taker if receiver else giver


HANDED: dict[str, Callable[[Worker, str], Awaitable[Handle]]] = {
    "handoffs": lambda worker, id: run_plain(worker, handed.FourAgents, id),
    "handoffs-corrected": lambda worker, id: run_plain(worker, handed.Forgets, id),
    "handoffs-released": run_released,
    "handoffs-compressed": lambda worker, id: run_plain(worker, handed.Talks, id),
    "handoffs-topped-up": run_topped_up,
    "handed-off": lambda worker, id: run_exchanged(worker, id, HandsOff, Receives, receiver=False),
    "received": lambda worker, id: run_exchanged(worker, id, HandsOff, Receives, receiver=True),
    "streamed": lambda worker, id: run_exchanged(worker, id, StreamsOut, StreamsIn, receiver=False, count=5),
    "streamed-to": lambda worker, id: run_exchanged(worker, id, StreamsOut, StreamsIn, receiver=True, count=5),
    "contracts": run_contracted,
    **detours.HANDED,
}
"""The recordings of workers with safeguards; they replay without keys."""


async def record() -> None:
    async with local_server() as server:
        parts = WorkerParts(artifacts=MemoryArtifactStore(), schemas=SCHEMAS)
        plugin = BatonPlugin(parts, safeguards="off")
        client = await Client.connect(server.address, plugins=[plugin], identity="test")
        plain_stages: list[Callable[..., Any]] = [*STAGES, *LINE_STAGES, *UNDOING_STAGES, *MAP_STAGES]
        async with pipeline_worker(client, PLAIN_PIPELINES, plain_stages, task_queue="recording") as worker:
            await _record(worker, RECORDINGS)
        with tempfile.TemporaryDirectory() as folder:
            safeguards = Safeguards.development(Path(folder))
            plugin = BatonPlugin(parts, safeguards=safeguards)
            client = await Client.connect(server.address, plugins=[plugin], identity="test")
            handed_stages: list[Any] = [*HANDED_STAGES, *CONTRACT_STAGES]
            names = {stage.spec.name for stage in handed_stages}  # `Takes` is recorded without those of the same name
            stages = [
                *handed_stages,
                *(stage for stage in PAYING_STAGES if stage.spec.name not in names),
                *EXCHANGE_ACTIVITIES,
            ]
            async with pipeline_worker(client, HANDED_PIPELINES, stages, task_queue="recording") as worker:
                outside = detours.outside(safeguards)
                await _record(worker, {**HANDED, **dict.fromkeys(detours.OUTSIDE, outside)})


async def _record(worker: Worker, recordings: dict[str, Callable[[Worker, str], Awaitable[Handle]]]) -> None:
    """Record the missing histories on a worker."""
    for name, recording in recordings.items():
        file = HISTORIES / f"{name}.json"
        if not file.exists():
            history = await (await recording(worker, name)).fetch_history()
            document = _without_traces(json.loads(history.to_json()))
            file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            print(f"recorded {file.name}")


def _without_traces(node: Any) -> Any:
    """Return a history without the stack traces of failures, which have paths of this machine."""
    if isinstance(node, dict):
        return {name: _without_traces(value) for name, value in node.items() if name != "stackTrace"}
    return [_without_traces(item) for item in node] if isinstance(node, list) else node


if __name__ == "__main__":
    asyncio.run(record())
    sys.stdout.flush()
    os._exit(0)  # temporalio can abort while the interpreter ends, after all work is done
