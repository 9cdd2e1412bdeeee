"""What it costs to follow a run: the processor time of a watcher, beside that of the worker alone."""

import statistics
import time

from baton import PipelineInput
from baton.client import follow
from benchmarks.compare import Effort
from benchmarks.report import Findings
from benchmarks.rig import Crew, Rig

STAGES = 150


async def follow_cost(rig: Rig, effort: Effort) -> Findings:
    """Measure worker and watcher of a run of 150 stages that somebody follows, against the worker of one alone."""
    crew = await rig.crew("baton")
    stages = 20 if effort.quick else STAGES
    await _run(crew, stages, watched=False)
    pairs = [
        (await _run(crew, stages, watched=False), await _run(crew, stages, watched=True)) for _ in range(effort.rounds)
    ]
    alone, followed = (statistics.median(column) for column in zip(*pairs, strict=True))
    findings = Findings(f"A run of {stages} stages, processor time", ("", "s"))
    findings.rows.append(("worker, nobody looks on", f"{alone:.2f}"))
    findings.rows.append(("worker and one watcher", f"{followed:.2f}"))
    findings.values["follow_cost"] = statistics.median(with_one / without for without, with_one in pairs)
    return findings


async def _run(crew: Crew, stages: int, *, watched: bool) -> float:
    """Return the processor time of the worker, with that of this process if it watches."""
    before, own = crew.cpu_seconds() or (0.0, 0.0), time.process_time()
    handle = await crew.start("LongDelivery", PipelineInput(goal="Work", params={"stages": stages}))
    if watched:
        async for _ in follow(crew.client, handle.id):
            pass
    await handle.result()
    after = crew.cpu_seconds() or (0.0, 0.0)
    return after[0] - before[0] + (time.process_time() - own if watched else 0.0)
