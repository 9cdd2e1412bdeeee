"""Recovery: from the death of a worker to the next handoff that is accepted, on record.

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
from benchmarks.rig import Rig, as_deployed
from benchmarks.workflows.laps import Laps

KILLS, QUICK_KILLS = 100, 10
SEED = 20_261_121
PIPELINES = 4
"""How many pipelines are under way when a worker is killed."""

_ROOT = Path(__file__).parents[1]
_LONGEST = timedelta(minutes=2)
_POLL_SECONDS = 0.005
_WORKER = "benchmarks.recovery_worker"
_ACCEPTED = """SELECT recorded_at FROM handoff_audit
WHERE task_id = ? AND event_key LIKE '%/ACCEPTED/%' AND recorded_at > ? ORDER BY sequence LIMIT 1"""


async def recovery(rig: Rig, effort: Effort) -> Findings:
    """Measure how long a killed worker's pipelines take until their next handoff is accepted."""
    return await measured(QUICK_KILLS if effort.quick else KILLS)


async def measured(kills: int) -> Findings:
    """Kill so many workers, and return the times."""
    with tempfile.TemporaryDirectory(prefix="baton-recovery-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        options = DevServerOptions(database=folder / "server.db", ui_port=None)
        async with DevServer(options) as server:
            client = await Client.connect(
                server.address, plugins=[BatonPlugin(safeguards=Safeguards.development(folder))]
            )
            times = await _kill_again_and_again(client, server.address, folder, kills)
    times.sort()
    rows: list[Sequence[str]] = [
        ("median", f"{statistics.median(times):.2f}"),
        ("90 of 100", f"{times[int(len(times) * 0.9) - 1]:.2f}"),
        ("longest", f"{times[-1]:.2f}"),
    ]
    findings = Findings(f"Worker death to the next handoff accepted, {kills} kills (seed {SEED})", ("", "s"), rows)
    findings.values.update(recovery_s_median=statistics.median(times), recovery_s_max=times[-1])
    return findings


async def _kill_again_and_again(client: Client, address: str, folder: Path, kills: int) -> list[float]:
    """Return, for each kill, the seconds until the last of the pipelines has moved on."""
    moments = random.Random(SEED)
    times: list[float] = []
    handles: list[WorkflowHandle[Any, Any]] = []
    workers = [await started_worker(_WORKER, address, str(folder)) for _ in range(2)]
    try:
        for number in range(kills):
            if number % 5 == 0:  # short histories: a replay of a thousand laps is not what is measured
                await _end(handles)
                handles = [await _start(client) for _ in range(PIPELINES)]
                await _accepted_after(folder, [one.id for one in handles], datetime.now(UTC))
            await asyncio.sleep(moments.uniform(0.0, 0.3))
            doomed = workers.pop(moments.randrange(2))
            died = datetime.now(UTC)
            doomed.kill()
            await doomed.wait()
            following, another = await asyncio.gather(
                _accepted_after(folder, [one.id for one in handles], died),
                started_worker(_WORKER, address, str(folder)),
            )
            workers.append(another)  # started at once, as whoever supervises workers would
            times.append(max((at - died).total_seconds() for at in following))
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
        execution_timeout=_LONGEST,
        task_timeout=timedelta(seconds=1),
    )


async def _end(handles: list[WorkflowHandle[Any, Any]]) -> None:
    """Have pipelines end, and wait for it."""
    for handle in handles:
        await handle.signal(Laps.end)
    await asyncio.gather(*(handle.result() for handle in handles))


async def _accepted_after(folder: Path, tasks: list[str], moment: datetime) -> list[datetime]:
    """Return when each task's first handoff after a moment was accepted, as soon as all have one on record."""
    after, found = stamp(moment), dict[str, datetime]()
    deadline = time.monotonic() + _LONGEST.total_seconds()
    with contextlib.closing(sqlite3.connect(folder / "ledger.db", timeout=15)) as ledger:
        while len(found) < len(tasks):
            for task in tasks:
                if task not in found and (row := ledger.execute(_ACCEPTED, [task, after]).fetchone()):
                    found[task] = datetime.fromisoformat(row[0])
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(tasks) - len(found)} of {len(tasks)} pipelines did not move on")
            await asyncio.sleep(_POLL_SECONDS)
    return list(found.values())


async def started_worker(module: str, *arguments: str) -> asyncio.subprocess.Process:
    """Return a worker process that works, of a module that says `ready`."""
    process = await asyncio.create_subprocess_exec(
        *bound_to_parent([sys.executable, "-m", module, *arguments]),
        cwd=_ROOT,
        env=as_deployed(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    if await process.stdout.readline() != b"ready\n":
        raise RuntimeError(f"a worker ended with code {await process.wait()} before it worked")
    return process
