"""What a team pays: the processor time of a worker, beside the same four activities in a workflow written by hand.

The server's own processor time, which is the same for all sides, stands beside it.
"""

from functools import partial

from benchmarks.compare import Effort, ratio, take_turns
from benchmarks.load import Load, speed
from benchmarks.measures import SPEED_COLUMNS, column, pipeline_input, speed_rows
from benchmarks.peers.job import State
from benchmarks.report import Findings
from benchmarks.rig import Rig
from benchmarks.samples import STAGES, large

RAW, PLAIN, SAFE, ENCRYPTED = "raw", "without safeguards", "with safeguards", "encrypted too"
_ROLES = {PLAIN: "baton", SAFE: "protocol", ENCRYPTED: "encrypted"}


async def worker_cost(rig: Rig, effort: Effort) -> Findings:
    """Measure the processor time of workers, 10 pipelines at a time, with a baton of 4 KB."""
    findings = Findings("What a worker costs, 10 pipelines at a time, baton of 4 KB", SPEED_COLUMNS)
    turn = partial(speed, pipelines=effort.pipelines(60), concurrency=10)
    results = await take_turns("worker's processor", await _make_loads(rig), turn, effort)
    findings.rows.extend(speed_rows("4 KB", results, RAW))
    worker = column(results, "worker_ms")
    findings.values["worker_cpu_vs_raw"] = ratio(worker, PLAIN, RAW)
    findings.values["worker_cpu_vs_raw_safe"] = ratio(worker, ENCRYPTED, RAW)
    findings.values["worker_cpu_safe_vs_plain"] = ratio(worker, SAFE, PLAIN)
    return findings


async def handoff_cost(rig: Rig, effort: Effort) -> Findings:
    """Measure the processor time that safeguards add to a handoff, one pipeline at a time."""
    findings = Findings("What a handoff costs, one pipeline at a time, baton of 4 KB", SPEED_COLUMNS)
    turn = partial(speed, pipelines=effort.pipelines(40), concurrency=1)
    results = await take_turns("handoff's processor", await _make_loads(rig), turn, effort)
    findings.rows.extend(speed_rows("4 KB", results, RAW))
    worker = column(results, "worker_ms")
    added = [(safe - plain) / STAGES for safe, plain in zip(worker[SAFE], worker[PLAIN], strict=True)]
    findings.values["handoff_cpu_ms"] = sorted(added)[len(added) // 2]
    return findings


async def _make_loads(rig: Rig) -> list[Load]:
    ours = [Load(side, await rig.crew(role), "Delivery", pipeline_input(large())) for side, role in _ROLES.items()]
    return [Load(RAW, await rig.crew("raw"), "RawDelivery", State(**large())), *ours]
