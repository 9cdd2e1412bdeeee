"""Whether a long pipeline reaches its end, and how long its longest workflow task holds a processor."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

from baton import PipelineInput, PipelineResult
from benchmarks.compare import Effort
from benchmarks.report import Findings
from benchmarks.rig import Rig
from benchmarks.timing import longest_task_ms

CASES = (("with decisions", "LongDecisions", 10_000), ("with contracts and tools", "LongContracts", 3_000))
"""What is measured: the pipelines, and how many stages they have."""

_TIMEOUT = timedelta(hours=1)


async def long_run(rig: Rig, effort: Effort) -> Findings:
    """Run long pipelines to their end: `long_run_task_ms_max`, the processor time of the longest workflow task.

    Raises:
        RuntimeError: A pipeline ended with fewer steps.
    """
    crew = await rig.crew("long")
    findings = Findings("Long runs", ("pipeline", "stages", "longest task so far, ms"))
    for what, workflow, full in CASES:
        stages = full // 20 if effort.quick else full
        start = PipelineInput(goal="Work for a long time", params={"stages": stages})
        result: Any = await crew.client.execute_workflow(
            workflow,
            start,
            id=f"bench-{uuid4().hex}",
            task_queue=crew.queue,
            execution_timeout=_TIMEOUT,
            result_type=PipelineResult,
        )
        if result.steps != stages:
            raise RuntimeError(f"a pipeline of {stages} stages {what} ended with {result.steps} steps")
        longest = longest_task_ms(rig.folder)
        findings.rows.append((what, f"{stages:,}", f"{longest:.0f}"))
        findings.values["long_run_task_ms_max"] = longest
    return findings
