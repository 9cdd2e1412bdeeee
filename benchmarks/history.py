"""How much history a pipeline leaves, and how fast a run is rebuilt from it."""

import statistics
import time
from dataclasses import dataclass

from temporalio.client import Client

from baton.client import RunStatus, read_run
from benchmarks.compare import Effort
from benchmarks.measures import pipeline_input
from benchmarks.report import Findings
from benchmarks.rig import Crew, Rig
from benchmarks.samples import thousand_tokens

LENGTHS = (10, 100, 1_000)
"""Stages of the pipelines that are measured."""

READINGS = 5
"""How often a run is rebuilt; the figure is the median."""

_COLUMNS = ("stages", "runs", "bytes", "bytes a stage", "newest run rebuilt, s", "all runs rebuilt, s")


@dataclass(frozen=True)
class Chain:
    """The runs that one pipeline consists of: one, and one more each time it continued as new.

    Attributes:
        stages: How many stages it has.
        workflow_id: The workflow.
        run_ids: The runs, the newest first.
        history_bytes: The size of all their histories together, as the server counts it.
    """

    stages: int
    workflow_id: str
    run_ids: list[str]
    history_bytes: int


async def history(rig: Rig, effort: Effort) -> Findings:
    """Run pipelines of 10, 100 and 1,000 stages with a baton of 1,000 tokens, and look at their histories.

    The bytes a stage are those of the longest pipeline, where its start and end weigh least and every
    continuation is counted.
    """
    crew = await rig.crew("baton")
    findings = Findings("History, baton of 1,000 tokens", _COLUMNS)
    per_stage = []
    seconds = 0.0
    for stages in [length // 10 for length in LENGTHS] if effort.quick else LENGTHS:
        chain = await _ran(crew, stages)
        per_stage.append(chain.history_bytes / stages)
        newest, seconds = [statistics.median(times) for times in zip(*await _readings(crew.client, chain), strict=True)]
        cells = (f"{stages:,}", f"{len(chain.run_ids)}", f"{chain.history_bytes:,}", f"{per_stage[-1]:,.0f}")
        findings.rows.append((*cells, f"{newest:.2f}", f"{seconds:.2f}"))
        print(f"history: {stages} stages", flush=True)
    findings.values["history_bytes_per_stage"] = per_stage[-1]
    findings.values["history_bytes_growth"] = per_stage[-1] / per_stage[0]
    findings.values["history_rebuild_s_1000"] = seconds
    return findings


async def _ran(crew: Crew, stages: int) -> Chain:
    """Run a pipeline of so many stages to its end, and collect its runs.

    Raises:
        RuntimeError: It did not complete with that many steps.
    """
    start = pipeline_input(thousand_tokens()).model_copy(update={"params": {"stages": stages}})
    handle = await crew.start("LongDelivery", start)
    await handle.result()
    run_ids: list[str] = []
    size = 0
    run_id: str | None = None
    while run_id or not run_ids:
        record = await read_run(crew.client, handle.id, run_id)
        if not run_ids and (record.status, len(record.steps)) != (RunStatus.COMPLETED, stages):
            raise RuntimeError(f"a pipeline of {stages} stages is {record.status} with {len(record.steps)} steps")
        run_ids.append(record.run_id)
        described = await crew.client.get_workflow_handle(handle.id, run_id=record.run_id).describe()
        size += described.raw_description.workflow_execution_info.history_size_bytes
        run_id = record.previous_run_id
    return Chain(stages, handle.id, run_ids, size)


async def _readings(client: Client, chain: Chain) -> list[tuple[float, float]]:
    """Return how many seconds it takes to read and rebuild the newest run, and all runs, of a pipeline.

    Raises:
        RuntimeError: The newest run, which alone tells the whole story, has not all steps.
    """
    readings = []
    for _ in range(READINGS):
        began = time.perf_counter()
        record = await read_run(client, chain.workflow_id, chain.run_ids[0])
        newest = time.perf_counter() - began
        if len(record.steps) != chain.stages:
            raise RuntimeError(f"the newest run tells of {len(record.steps)} steps, but {chain.stages} were taken")
        for run_id in chain.run_ids[1:]:
            await read_run(client, chain.workflow_id, run_id)
        readings.append((newest, time.perf_counter() - began))
    return readings
