"""Throughput and latency, side by side with the baseline."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from baton import PipelineInput
from benchmarks.compare import Effort, ratio, take_turns
from benchmarks.load import Load, Speed, speed, stage_latencies
from benchmarks.peers.job import State
from benchmarks.report import Findings
from benchmarks.rig import Rig
from benchmarks.samples import large, small

PIPELINES = {1: 30, 10: 60, 50: 100}
"""How many pipelines make a turn, by how many run at a time."""

SIZES: Mapping[str, Callable[[], dict[str, Any]]] = {"1 KB": small, "4 KB": large}
"""The batons; the figures in the report are those of the first."""


def pipeline_input(baton: dict[str, Any]) -> PipelineInput:
    """Return the input of a pipeline with this first baton."""
    return PipelineInput(goal=baton["goal"], baton={name: value for name, value in baton.items() if name != "goal"})


async def throughput(rig: Rig, effort: Effort, *, concurrency: int) -> Findings:
    """Measure pipelines per second against the same four activities in a workflow written by hand."""
    baton_crew, raw_crew = await rig.crew("baton"), await rig.crew("raw")
    findings = Findings(f"Throughput, {concurrency} at a time", SPEED_COLUMNS)
    for size, make in SIZES.items():
        loads = [Load("raw", raw_crew, "RawDelivery", State(**make()))]
        loads.append(Load("baton", baton_crew, "Delivery", pipeline_input(make())))
        turn = partial(speed, pipelines=effort.pipelines(PIPELINES[concurrency]), concurrency=concurrency)
        results = await take_turns(f"throughput, {concurrency} at a time, {size}", loads, turn, effort)
        findings.rows.extend(speed_rows(size, results, "raw"))
        per_second = column(results, "per_second")
        findings.values.setdefault(f"throughput_vs_raw_c{concurrency}", ratio(per_second, "baton", "raw"))
    return findings


async def stage_latency(rig: Rig, effort: Effort) -> Findings:
    """Measure how long a stage takes in one pipeline at a time, against the workflow written by hand."""
    baton_crew, raw_crew = await rig.crew("baton"), await rig.crew("raw")
    findings = Findings("Stage latency, one pipeline at a time", LATENCY_COLUMNS)
    for size, make in SIZES.items():
        loads = [Load("raw", raw_crew, "RawDelivery", State(**make()))]
        loads.append(Load("baton", baton_crew, "Delivery", pipeline_input(make())))
        results = await _measure_latencies(f"stage latency, {size}", loads, effort, 12)
        findings.rows.extend(latency_rows(size, results, "raw"))
        findings.values.setdefault("stage_latency_vs_raw", ratio(results, "baton", "raw"))
    return findings


async def embedded_latency(rig: Rig, effort: Effort) -> Findings:
    """Measure how long a stage takes on the embedded server, against the same program with its own settings.

    With its own settings the server lets about twenty hops pass at once after a pause and then makes each wait.
    The figure is about pipelines back to back, so what the first ones take is only shown.
    """
    argument = pipeline_input(small())
    loads = [
        Load("stock", await rig.crew("baton", server="stock"), "Delivery", argument),
        Load("embedded", await rig.crew("baton"), "Delivery", argument),
    ]
    pipelines = effort.pipelines(6)

    async def turn(load: Load) -> tuple[float, float]:
        first, later = await stage_latencies(load, pipelines), await stage_latencies(load, pipelines)
        return statistics.median(first), statistics.median(later)

    results = await take_turns("embedded server", loads, turn, effort)
    paused = {load: [first for first, _ in turns] for load, turns in results.items()}
    steady = {load: [later for _, later in turns] for load, turns in results.items()}
    findings = Findings("Stage latency, embedded against stock server", LATENCY_COLUMNS)
    findings.rows.extend(latency_rows("after a pause", paused, "stock"))
    findings.rows.extend(latency_rows("back to back", steady, "stock"))
    findings.values["embedded_vs_stock_latency"] = ratio(steady, "embedded", "stock")
    return findings


async def stock_throughput(rig: Rig, effort: Effort) -> Findings:
    """Measure pipelines per second as shipped, against the SDK's and the server's own settings."""
    argument = pipeline_input(small())
    loads = [
        Load("stock", await rig.crew("baton", server="stock", settings="stock"), "Delivery", argument),
        Load("shipped", await rig.crew("baton"), "Delivery", argument),
    ]
    turn = partial(speed, pipelines=effort.pipelines(40), concurrency=10)
    results = await take_turns("as shipped against stock", loads, turn, effort)
    findings = Findings("Throughput as shipped, against stock worker and server, 10 at a time", SPEED_COLUMNS)
    findings.rows.extend(speed_rows("1 KB", results, "stock"))
    findings.values["throughput_vs_stock_c10"] = ratio(column(results, "per_second"), "shipped", "stock")
    return findings


SPEED_COLUMNS = ("side", "pipelines/s", "ratio", "worker CPU ms", "ratio", "server CPU ms", "ratio")
LATENCY_COLUMNS = ("side", "stage p50 ms", "ratio")


async def _measure_latencies(
    label: str, loads: Sequence[Load], effort: Effort, pipelines: int
) -> dict[str, list[float]]:
    """Return the median stage latency of each turn, by the name of the load."""

    async def turn(load: Load) -> float:
        return statistics.median(await stage_latencies(load, effort.pipelines(pipelines)))

    return await take_turns(label, loads, turn, effort)


def column(results: Mapping[str, Sequence[Speed]], name: str) -> dict[str, list[float]]:
    """Return one member of the results."""
    return {load: [getattr(turn, name) for turn in turns] for load, turns in results.items()}


def speed_rows(size: str, results: Mapping[str, Sequence[Speed]], base: str) -> list[Sequence[str]]:
    """Return a row for each load: medians, and ratios to ``base``."""
    columns = [column(results, name) for name in ("per_second", "worker_ms", "server_ms")]
    return [
        (
            f"{load}, {size}",
            *(
                cell
                for column in columns
                for cell in (f"{statistics.median(column[load]):.1f}", f"{ratio(column, load, base):.2f}")
            ),
        )
        for load in results
    ]


def latency_rows(size: str, results: Mapping[str, Sequence[float]], base: str) -> list[Sequence[str]]:
    """Return a row for each load: the median, and the ratio to ``base``."""
    return [
        (f"{load}, {size}", f"{statistics.median(results[load]):.1f}", f"{ratio(results, load, base):.2f}")
        for load in results
    ]
