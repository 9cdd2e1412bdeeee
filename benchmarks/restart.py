"""A restart: many long runs wait, their worker dies, another one starts, and all continue at once.

The new worker has none of them in its cache, so it replays each from its beginning. How many it replays at once
decides: beyond what its threads get done within a workflow task's ten seconds, answers come too late and the work is
done again and again: with the 100 at once that the SDK takes, they were not done when that was stopped after eight
minutes.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle

from baton import PipelineInput
from baton.devserver import DevServer, DevServerOptions
from baton.plugin import WORKFLOW_TASKS, BatonPlugin
from benchmarks.compare import Effort
from benchmarks.recovery import start_worker
from benchmarks.report import Findings
from benchmarks.rig import Rig
from benchmarks.workflows.laps import STAGES_BEFORE_WAIT, Waits

RUNS, QUICK_RUNS = 100, 20
_TIMEOUT = timedelta(minutes=15)


async def restart(rig: Rig, effort: Effort) -> Findings:
    """Measure how long a fresh worker takes to have all runs done."""
    runs = QUICK_RUNS if effort.quick else RUNS
    with tempfile.TemporaryDirectory(prefix="baton-restart-", ignore_cleanup_errors=True) as name:
        options = DevServerOptions(database=Path(name) / "server.db", ui_port=None)
        async with DevServer(options) as server:
            client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])
            seconds = await _measure_restart(client, server.address, runs)
    rows: list[Sequence[str]] = [(f"{WORKFLOW_TASKS} workflow tasks at once", f"{seconds:.1f}")]
    title = f"A fresh worker, {runs} runs of {STAGES_BEFORE_WAIT} stages that go on at once"
    findings = Findings(title, ("", "s"), rows)
    findings.values.update(restart_s_100=seconds)
    return findings


async def _measure_restart(client: Client, address: str, runs: int) -> float:
    """Return the seconds from the start of a fresh worker until all runs are done."""
    queue = f"restart-{uuid4()}"
    handles = [await _start(client, queue) for _ in range(runs)]
    worker = await start_worker("benchmarks.restart_worker", address, queue)
    await asyncio.gather(*(_wait_until_waiting(handle) for handle in handles))
    worker.kill()
    await worker.wait()
    for handle in handles:
        await handle.signal(Waits.go_on)
    started = time.monotonic()
    worker = await start_worker("benchmarks.restart_worker", address, queue)
    try:
        await asyncio.gather(*(handle.result() for handle in handles))
        return time.monotonic() - started
    finally:
        worker.kill()
        await worker.wait()


async def _start(client: Client, queue: str) -> WorkflowHandle[Any, Any]:
    """Start a run."""
    return await client.start_workflow(
        Waits.run, PipelineInput(goal="Wait"), id=str(uuid4()), task_queue=queue, execution_timeout=_TIMEOUT
    )


async def _wait_until_waiting(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait until a run has done its stages and waits."""
    while True:
        if await (await handle.describe()).memo_value("waits", default=False):
            return
        await asyncio.sleep(0.2)
