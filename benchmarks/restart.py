"""A restart: many long runs wait, their worker dies, another one starts, and all are told to go on at once.

The new worker has none of them in its cache, so it replays each from its beginning. How many it replays at once
decides: beyond what its threads get done within a workflow task's ten seconds, answers come too late and the work is
done again and again. Measured with the bound that the plugin sets and with the SDK's own.
"""

import asyncio
import sys
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
from benchmarks.recovery import started_worker
from benchmarks.report import Findings
from benchmarks.rig import Rig
from benchmarks.workflows.laps import STAGES_BEFORE_WAIT, Waits

RUNS, QUICK_RUNS = 100, 20
SDK_TASKS = 100
"""How many workflow tasks a worker of the SDK takes at once unless told otherwise."""
_LONGEST = timedelta(minutes=15)


async def restart(rig: Rig, effort: Effort) -> Findings:
    """Measure how long a fresh worker takes to have all runs done, with the plugin's bound and with the SDK's."""
    runs = QUICK_RUNS if effort.quick else RUNS
    with tempfile.TemporaryDirectory(prefix="baton-restart-", ignore_cleanup_errors=True) as name:
        options = DevServerOptions(database=Path(name) / "server.db", ui_port=None)
        async with DevServer(options) as server:
            client = await Client.connect(server.address, plugins=[BatonPlugin()])
            bounded = await _restarted(client, server.address, runs, WORKFLOW_TASKS)
            unbounded = await _restarted(client, server.address, runs, SDK_TASKS)
    rows: list[Sequence[str]] = [
        (f"{WORKFLOW_TASKS} workflow tasks at once", f"{bounded:.1f}"),
        (f"{SDK_TASKS} at once, as the SDK has it", f"{unbounded:.1f}"),
    ]
    title = f"A fresh worker, {runs} runs of {STAGES_BEFORE_WAIT} stages that go on at once"
    findings = Findings(title, ("", "s"), rows)
    findings.values.update(restart_s_100=bounded, restart_s_100_sdk=unbounded)
    return findings


async def _restarted(client: Client, address: str, runs: int, at_once: int) -> float:
    """Return the seconds from the start of a fresh worker until all runs are done."""
    queue = f"restart-{at_once}-{uuid4()}"
    handles = [await _start(client, queue) for _ in range(runs)]
    worker = await started_worker("benchmarks.restart_worker", address, queue, str(WORKFLOW_TASKS))
    await asyncio.gather(*(_waits(one) for one in handles))
    worker.kill()
    await worker.wait()
    for one in handles:
        await one.signal(Waits.go_on)
    began = time.monotonic()
    worker = await started_worker("benchmarks.restart_worker", address, queue, str(at_once))
    try:
        await asyncio.gather(*(one.result() for one in handles))
        return time.monotonic() - began
    finally:
        worker.kill()
        await worker.wait()
        print(f"restart: {at_once} at once: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


async def _start(client: Client, queue: str) -> WorkflowHandle[Any, Any]:
    """Start a run."""
    return await client.start_workflow(
        Waits.run, PipelineInput(goal="Wait"), id=str(uuid4()), task_queue=queue, execution_timeout=_LONGEST
    )


async def _waits(handle: WorkflowHandle[Any, Any]) -> None:
    """Return once a run has done its stages and waits."""
    while True:
        if await (await handle.describe()).memo_value("waits", default=False):
            return
        await asyncio.sleep(0.2)
