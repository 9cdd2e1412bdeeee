"""Loads: pipelines per second, and how long a stage takes."""

import asyncio
import itertools
import time
from dataclasses import dataclass
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle

from benchmarks.rig import Crew


@dataclass(frozen=True)
class Load:
    """One side of a comparison: a workflow and its worker.

    Attributes:
        name: Its name in the tables.
        crew: The worker and its client.
        workflow: The name of the workflow.
        argument: The argument of the workflow.
    """

    name: str
    crew: Crew
    workflow: str
    argument: Any


@dataclass(frozen=True)
class Speed:
    """The result of one turn of a load.

    Attributes:
        per_second: Pipelines per second.
        worker_ms: Processor time of the worker for a pipeline, in milliseconds; 0 if unknown.
        server_ms: Processor time of the server for a pipeline, in milliseconds; 0 if unknown.
    """

    per_second: float
    worker_ms: float
    server_ms: float


async def speed(load: Load, pipelines: int, concurrency: int) -> Speed:
    """Run pipelines with the given concurrency, and return their speed."""
    remaining = iter(range(pipelines))

    async def run_next() -> None:
        for _ in remaining:
            await (await load.crew.start(load.workflow, load.argument)).result()

    cpu = load.crew.cpu_seconds() or (0.0, 0.0)
    started = time.perf_counter()
    await asyncio.gather(*(run_next() for _ in range(concurrency)))
    seconds = time.perf_counter() - started
    after = load.crew.cpu_seconds() or (0.0, 0.0)
    worker_ms, server_ms = ((b - a) * 1_000 / pipelines for a, b in zip(cpu, after, strict=True))
    return Speed(pipelines / seconds, worker_ms, server_ms)


async def run_times(load: Load, pipelines: int) -> list[float]:
    """Run pipelines one at a time and return how long each took, from its start call to its result, in milliseconds."""
    times = []
    for _ in range(pipelines):
        started = time.perf_counter()
        await (await load.crew.start(load.workflow, load.argument)).result()
        times.append((time.perf_counter() - started) * 1_000)
    return times


async def stage_latencies(load: Load, pipelines: int) -> list[float]:
    """Run pipelines one at a time and return how long each of their stages took, in milliseconds.

    By the server's history: from the event that schedules a stage to the one that schedules the next,
    or that completes the run.
    """
    handles: list[WorkflowHandle[Any, Any]] = []
    for _ in range(pipelines):
        handle = await load.crew.start(load.workflow, load.argument)
        await handle.result()
        handles.append(handle)
    return [
        stage_time
        for handle in handles
        for stage_time in _stage_times([e async for e in handle.fetch_history_events()])
    ]


def _stage_times(events: list[HistoryEvent]) -> list[float]:
    """Return the milliseconds of each stage in a completed run's history."""
    marks = [
        event.event_time.ToNanoseconds() / 1e6
        for event in events
        if event.WhichOneof("attributes")
        in ("activity_task_scheduled_event_attributes", "workflow_execution_completed_event_attributes")
    ]
    return [following - preceding for preceding, following in itertools.pairwise(marks)]
