"""Startup times: the import, and the first stage."""

import os
import statistics
import subprocess
import sys
import time

from benchmarks.compare import Effort
from benchmarks.measures import pipeline_input
from benchmarks.report import Findings
from benchmarks.rig import Rig, production_environment
from benchmarks.samples import small

INTERPRETERS = 5
"""How many fresh interpreters run each statement."""
_STATEMENTS = {
    "bare": "pass",
    "the SDK's client": "import temporalio.client",
    "the SDK's worker": "import temporalio.worker",
    "a pipeline": "from baton import Pipeline, stage",
    "a command on a run": "import baton.cli.show",
    "baton --help": "from baton.cli import main; import sys; sys.argv[1:] = ['--help']; main()",
}


async def import_time(rig: Rig, effort: Effort) -> Findings:
    """Measure the processor time of what users import, and of a command's start, beside what the SDK takes."""
    for statement in _STATEMENTS.values():  # compiles what is not compiled yet, and fills the disk's cache
        _measure_interpreter(statement)
    results: dict[str, list[float]] = {name: [] for name in _STATEMENTS}
    for _ in range(2 if effort.quick else INTERPRETERS):
        for name, statement in _STATEMENTS.items():
            results[name].append(_measure_interpreter(statement))
    medians = {name: statistics.median(times) for name, times in results.items()}
    findings = Findings("Import", ("interpreter", "ms"), [(name, f"{median:.0f}") for name, median in medians.items()])
    findings.values["import_ms"] = medians["a pipeline"] - medians["bare"]
    return findings


async def first_stage(rig: Rig, effort: Effort) -> Findings:
    """Measure the time from the call that starts a pipeline to the first line of its first stage."""
    crew = await rig.crew("baton")
    start = pipeline_input(small())
    times = []
    for number in range(effort.pipelines(60) + 5):
        started = time.time()
        result = await (await crew.start("FirstStage", start)).result()
        if number >= 5:  # the first ones warm up
            times.append((result["output"] - started) * 1_000)
    p50, worst = statistics.median(times), max(times)
    findings = Findings("From start to first stage", ("", "ms"), [("p50", f"{p50:.1f}"), ("longest", f"{worst:.1f}")])
    findings.values["start_to_first_stage_ms"] = p50
    return findings


def _measure_interpreter(statement: str) -> float:
    """Return the milliseconds of processor time that a fresh interpreter takes for a statement."""
    before = os.times()
    subprocess.run(
        [sys.executable, "-c", statement], env=production_environment(), check=True, stdout=subprocess.DEVNULL
    )
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used * 1_000
