"""How much history a pipeline leaves, and how fast a run is rebuilt from it."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.client import Client

from baton.client import RunStatus, read_run
from baton.compression.store_tokens import best_counter
from baton.core.stages import DEFAULT_DECISIONS
from benchmarks.compare import Effort
from benchmarks.measures import pipeline_input
from benchmarks.report import Findings
from benchmarks.rig import Crew, Rig
from benchmarks.samples import thousand_handed, thousand_tokens, to_json

LENGTHS = (10, 100, 1_000)
"""Stages of the pipelines that are measured."""

READINGS = 5
"""How often a run is rebuilt; the figure is the median."""

_COLUMNS = ("stages", "tokens handed", "runs", "bytes", "bytes a stage", "newest run rebuilt, s", "all runs, s")


@dataclass(frozen=True)
class Chain:
    """The runs that one pipeline consists of: one, and one more each time it continued as new.

    Attributes:
        stages: How many stages it has.
        handed: How many tokens of the baton its stages are handed.
        workflow_id: The workflow.
        run_ids: The runs, the newest first.
        history_bytes: The size of all their histories together, as the server counts it.
    """

    stages: int
    handed: int
    workflow_id: str
    run_ids: list[str]
    history_bytes: int


async def history(rig: Rig, effort: Effort) -> Findings:
    """Run pipelines of 10, 100 and 1,000 stages with a baton of 1,000 tokens, and look at their histories.

    The bytes a stage are those of the longest pipeline, where its start and end weigh least and every
    continuation is counted. The last row is only shown: there a stage is handed all of the 1,000 tokens.
    """
    crew = await rig.crew("baton")
    findings = Findings("History, baton of 1,000 tokens", _COLUMNS)
    lengths = [length // 10 for length in LENGTHS] if effort.quick else LENGTHS
    chains = []
    seconds = 0.0
    for stages in lengths:
        chains.append(await _run_chain(crew, thousand_tokens(), stages))
        newest, seconds = await _measure_rebuild(crew.client, chains[-1])
        findings.rows.append((*_cells(chains[-1]), f"{newest:.2f}", f"{seconds:.2f}"))
        print(f"history: {stages} stages", flush=True)
    findings.rows.append((*_cells(await _run_chain(crew, thousand_handed(), lengths[1])), "", ""))
    per_stage = [chain.history_bytes / chain.stages for chain in chains]
    findings.values["history_bytes_per_stage"] = per_stage[-1]
    findings.values["history_bytes_growth"] = per_stage[-1] / per_stage[0]
    findings.values["history_rebuild_s_1000"] = seconds
    return findings


def _cells(chain: Chain) -> Sequence[str]:
    """Return what the table says of a pipeline's size."""
    numbers = (chain.stages, chain.handed, len(chain.run_ids), chain.history_bytes, chain.history_bytes / chain.stages)
    return [f"{number:,.0f}" for number in numbers]


async def _run_chain(crew: Crew, baton: dict[str, Any], stages: int) -> Chain:
    """Run a pipeline of so many stages with ``baton`` to its end, and collect its runs.

    Raises:
        RuntimeError: It did not complete with that many steps.
    """
    start = pipeline_input(baton).model_copy(update={"params": {"stages": stages}})
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
        description = await crew.client.get_workflow_handle(handle.id, run_id=record.run_id).describe()
        size += description.raw_description.workflow_execution_info.history_size_bytes
        run_id = record.previous_run_id
    _, count = best_counter()
    handed = start.first_baton().restricted(None, DEFAULT_DECISIONS)
    return Chain(stages, count(to_json(handed.to_json_object())), handle.id, run_ids, size)


async def _measure_rebuild(client: Client, chain: Chain) -> tuple[float, float]:
    """Return the seconds it takes to read and rebuild the newest run, and all runs, of a pipeline.

    Raises:
        RuntimeError: The newest run, which alone tells the whole story, has not all steps.
    """
    newest, all_runs = [], []
    for _ in range(READINGS):
        started = time.perf_counter()
        record = await read_run(client, chain.workflow_id, chain.run_ids[0])
        newest.append(time.perf_counter() - started)
        if len(record.steps) != chain.stages:
            raise RuntimeError(f"the newest run tells of {len(record.steps)} steps, but {chain.stages} were taken")
        for run_id in chain.run_ids[1:]:
            await read_run(client, chain.workflow_id, run_id)
        all_runs.append(time.perf_counter() - started)
    return statistics.median(newest), statistics.median(all_runs)
