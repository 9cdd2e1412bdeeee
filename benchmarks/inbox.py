"""The inbox among thousands of runs that wait for a person, and decisions while a fresh worker replays all of them."""

import asyncio
import statistics
import time
from datetime import timedelta
from uuid import uuid4

from baton import PipelineInput
from baton.client import Answer, decide
from baton.client.faces import inbox_page
from benchmarks.compare import Effort
from benchmarks.report import Findings
from benchmarks.rig import Crew, Rig

RUNS, QUICK_RUNS = 5_000, 100
_DECISIONS, _STARTERS = 10, 20
_POLL_SECONDS = 0.5
_OPEN = "BatonStatus = 'WAITING' AND ExecutionStatus = 'Running'"


async def waiting_people(rig: Rig, effort: Effort) -> Findings:
    """Measure the inbox's first page, and how long decisions take right after each run got something to do.

    Raises:
        RuntimeError: The inbox does not count all runs, or a decision did not count.
    """
    runs = QUICK_RUNS if effort.quick else RUNS
    crew = await rig.crew("baton")
    ids = [f"asks-{uuid4().hex}" for _ in range(runs)]
    await _start(crew, ids)
    pages = []
    for _ in range(effort.rounds):
        started = time.perf_counter()
        page = await inbox_page(crew.client)
        pages.append((time.perf_counter() - started) * 1_000)
        if page.total != runs:
            raise RuntimeError(f"the inbox counts {page.total} of {runs} runs")
    await asyncio.gather(*(_wake(crew, run) for run in ids))
    decided = [await _decide(crew, run) for run in ids[-_DECISIONS:]]
    findings = Findings(f"{runs:,} runs that ask", ("", ""))
    findings.rows.append(("the inbox's first page, ms", f"{statistics.median(pages):.0f}"))
    findings.rows.append(("decisions while all runs have a task to do, s, median", f"{statistics.median(decided):.1f}"))
    findings.rows.append(("… the longest", f"{max(decided):.1f}"))
    findings.values["inbox_ms_5000"] = statistics.median(pages)
    findings.values["decide_s_busy"] = max(decided)
    return findings


async def _start(crew: Crew, ids: list[str]) -> None:
    """Start the runs, and wait until all of them ask."""
    remaining = iter(ids)

    async def start_next() -> None:
        for run in remaining:
            await crew.client.start_workflow(
                "Asks", PipelineInput(goal="Ask"), id=run, task_queue=crew.queue, execution_timeout=timedelta(hours=2)
            )

    await asyncio.gather(*(start_next() for _ in range(_STARTERS)))
    while (await crew.client.count_workflows(_OPEN)).count < len(ids):  # noqa: ASYNC110 - another process counts
        await asyncio.sleep(_POLL_SECONDS)


async def _wake(crew: Crew, run: str) -> None:
    """Give a run a workflow task: a signal that changes nothing."""
    await crew.client.get_workflow_handle(run).signal("handoff_chunk", "stray")


async def _decide(crew: Crew, run: str) -> float:
    """Approve, and return how many seconds it took."""
    started = time.perf_counter()
    decided = await decide(crew.client, run, Answer(question="release", choice="approve", who="ann"))
    if not decided.approved:
        raise RuntimeError(f"the decision about {run!r} did not count: {decided}")
    return time.perf_counter() - started
