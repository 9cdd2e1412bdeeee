"""Recovery: the time from a worker's death to the next accepted and recorded handoff.

Two workers, each a process as `worker.py` makes one, share the embedded server, a queue and a ledger. Again and again
one is killed with SIGKILL at a seeded moment while pipelines are under way on both; what counts is how long it takes
until every pipeline has its next handoff on record: of each kill the slowest one, which the dead worker held.
"""

import asyncio
import contextlib
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle

from baton import PipelineInput
from baton.devserver import DevServer, DevServerOptions
from baton.devserver.processes import bound_to_parent
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.records import stamp
from baton.plugin import BatonPlugin
from benchmarks.compare import Effort
from benchmarks.recovery_worker import QUEUE
from benchmarks.report import Findings
from benchmarks.rig import Rig, production_environment
from benchmarks.workflows.laps import Laps

KILLS, QUICK_KILLS = 100, 10
SEED = 20_261_121
PIPELINES = 4
"""How many pipelines are under way when a worker is killed."""

_ROOT = Path(__file__).parents[1]
_TIMEOUT = timedelta(minutes=2)
_POLL_SECONDS = 0.005
_WORKER = "benchmarks.recovery_worker"
_ACCEPTED = """SELECT recorded_at FROM handoff_audit
WHERE task_id = ? AND event_key LIKE '%/ACCEPTED/%' AND recorded_at > ? ORDER BY sequence LIMIT 1"""


async def recovery(rig: Rig, effort: Effort) -> Findings:
    """Measure how long a killed worker's pipelines take until their next handoff is accepted."""
    return await measure_kills(QUICK_KILLS if effort.quick else KILLS)


async def measure_kills(kills: int) -> Findings:
    """Kill so many workers, and return the times."""
    with tempfile.TemporaryDirectory(prefix="baton-recovery-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        options = DevServerOptions(database=folder / "server.db", ui_port=None)
        async with DevServer(options) as server:
            client = await Client.connect(
                server.address, plugins=[BatonPlugin(safeguards=Safeguards.development(folder))]
            )
            times = await _kill_workers(client, server.address, folder, kills)
    times.sort()
    rows: list[Sequence[str]] = [
        ("median", f"{statistics.median(times):.2f}"),
        ("90 of 100", f"{times[int(len(times) * 0.9) - 1]:.2f}"),
        ("longest", f"{times[-1]:.2f}"),
    ]
    findings = Findings(f"Worker death to the next handoff accepted, {kills} kills (seed {SEED})", ("", "s"), rows)
    findings.values.update(recovery_s_median=statistics.median(times), recovery_s_max=times[-1])
    return findings


async def _kill_workers(client: Client, address: str, folder: Path, kills: int) -> list[float]:
    """Return, for each kill, the seconds until the last pipeline continued."""
    rng = random.Random(SEED)
    times: list[float] = []
    handles: list[WorkflowHandle[Any, Any]] = []
    workers = [await start_worker(_WORKER, address, str(folder)) for _ in range(2)]
    try:
        for number in range(kills):
            if number % 5 == 0:  # short histories: a replay of a thousand laps is not what is measured
                await _end(handles)
                handles = [await _start(client) for _ in range(PIPELINES)]
                await _wait_for_acceptances(folder, [handle.id for handle in handles], datetime.now(UTC))
            await asyncio.sleep(rng.uniform(0.0, 0.3))
            victim = workers.pop(rng.randrange(2))
            died_at = datetime.now(UTC)
            victim.kill()
            await victim.wait()
            accepted_at, replacement = await asyncio.gather(
                _wait_for_acceptances(folder, [handle.id for handle in handles], died_at),
                start_worker(_WORKER, address, str(folder)),
            )
            workers.append(replacement)  # started at once, as a supervisor would
            times.append(max((accepted - died_at).total_seconds() for accepted in accepted_at))
            print(f"recovery: kill {number + 1} of {kills}: {times[-1]:.2f} s", file=sys.stderr, flush=True)
        await _end(handles)
    finally:
        for worker in workers:
            worker.kill()
            await worker.wait()
    return times


async def _start(client: Client) -> WorkflowHandle[Any, Any]:
    """Start a pipeline under its task's id."""
    task_id = str(uuid4())
    return await client.start_workflow(
        Laps.run,
        PipelineInput(goal="Run laps", task_id=task_id),
        id=task_id,
        task_queue=QUEUE,
        execution_timeout=_TIMEOUT,
        task_timeout=timedelta(seconds=1),
    )


async def _end(handles: list[WorkflowHandle[Any, Any]]) -> None:
    """Have pipelines end, and wait for it."""
    for handle in handles:
        await handle.signal(Laps.end)
    await asyncio.gather(*(handle.result() for handle in handles))


async def _wait_for_acceptances(folder: Path, tasks: list[str], moment: datetime) -> list[datetime]:
    """Wait until each task has an accepted handoff after a moment, and return their times."""
    earliest, acceptances = stamp(moment), dict[str, datetime]()
    deadline = time.monotonic() + _TIMEOUT.total_seconds()
    with contextlib.closing(sqlite3.connect(folder / "ledger.db", timeout=15)) as ledger:
        while len(acceptances) < len(tasks):
            for task in tasks:
                if task not in acceptances and (row := ledger.execute(_ACCEPTED, [task, earliest]).fetchone()):
                    acceptances[task] = datetime.fromisoformat(row[0])
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(tasks) - len(acceptances)} of {len(tasks)} pipelines did not move on")
            await asyncio.sleep(_POLL_SECONDS)
    return list(acceptances.values())


async def start_worker(module: str, *arguments: str) -> asyncio.subprocess.Process:
    """Start a worker process of a module, and wait until it prints `ready`."""
    process = await asyncio.create_subprocess_exec(
        *bound_to_parent([sys.executable, "-m", module, *arguments]),
        cwd=_ROOT,
        env=production_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    if await process.stdout.readline() != b"ready\n":
        raise RuntimeError(f"a worker ended with code {await process.wait()} before it worked")
    return process
