"""Cohorts of the lab in pytest: does today's code still do to recorded cases what was recorded?"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from temporalio.worker import Worker

from baton.lab import Cohort, Judge, LabOptions, Lane, LaneReport, Limits, gate, report, run_lab


async def assert_cohort(
    worker: Worker,
    file: Path | str,
    *,
    candidates: Sequence[Lane] = (),
    repeat: int = 1,
    limits: Limits | None = None,
    judges: Mapping[str, Judge] | None = None,
) -> list[LaneReport]:
    """Assert that the gate lets the baseline, or each candidate, pass on a cohort.

    The cases run on the worker of the test, with their tools answered from the record. With agents that answer from a
    cassette (`RecordedAgent`) no model is asked, and with a packed cohort nothing of the recorded runs is needed.

    Args:
        worker: A worker of the cases' stages, as from `pipeline_worker`.
        file: The cohort's file.
        candidates: Candidates beside the baseline, which alone is judged without them.
        repeat: How often each case is run.
        limits: What the gate demands; by default that 95 % of the decisions are as recorded.
        judges: Judges of the team by name.

    Returns:
        What was judged: the baseline, then the candidates.

    Raises:
        AssertionError: The gate refuses one; the message has the cases that differ.

    Example:
        ```python
        async def test_the_recorded_refunds(baton_worker):
            async with baton_worker([refund], [decide]) as worker:
                await assert_cohort(worker, "lab/refunds.json")
        ```
    """
    cohort = Cohort.from_bytes(await asyncio.to_thread(Path(file).read_bytes), str(file))
    options = LabOptions(repeat=repeat, task_queue=worker.task_queue)
    results = await run_lab(worker.client, cohort, candidates, options)
    reports = report(cohort, results, judges)
    judged = gate(cohort, results, reports, limits)
    faults = [f"{lane.lane}: {fault}" for lane, refused in judged for fault in refused]
    if faults:
        raise AssertionError(f"the gate refuses {file}:\n" + "\n".join(f"- {fault}" for fault in faults))
    return reports
