"""Workers of handoffs that are disturbed, and what must hold whatever happens to them; see `whole`."""

import asyncio
import contextlib
import os
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.worker import Worker

from baton.client import RunRecord, read_run
from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.ledger.chain import ChainHead, Verdict
from baton.ledger.entries import Trace
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker
from tests.acceptance.handoff_errands import (
    Poisoner,
    Relayed,
    journal,
    safeguards,
    trace_of,
)
from tests.support import GOAL, LIMIT, Handle
from tests.support.processes import working

ROOT = Path(__file__).parents[2]
NAMES = ["draft", "build", "verify"]


def process(
    address: str, queue: str, folder: Path, role: str = "stages", **environment: str
) -> AbstractAsyncContextManager[Process]:
    """Run a worker process for the block, and kill it at the end."""
    command = ("-m", "tests.acceptance.handoff_worker", address, queue, str(folder), role)
    return working(*command, once="ready", environment={**os.environ, **environment})


@asynccontextmanager
async def pipelines(server: DevServer, folder: Path, *, encrypt: bool = False) -> AsyncIterator[Worker]:
    """Run a worker for pipelines only in this process; it is not part of the fault."""
    plugin = BatonPlugin(safeguards=safeguards(folder, encrypt=encrypt))
    client = await Client.connect(server.address, plugins=[plugin])
    async with pipeline_worker(client, [Relayed, Poisoner], []) as worker:
        yield worker


async def errand(worker: Worker, folder: Path, queue: str) -> Handle:
    """Start the pipeline, with its stages on a task queue."""
    return await worker.client.start_workflow(
        Relayed.run,
        PipelineInput(goal=GOAL, params={"folder": str(folder), "queue": queue}),
        id=f"relayed-{uuid4()}",
        task_queue=worker.task_queue,
        execution_timeout=LIMIT,
        task_timeout=timedelta(seconds=1),
    )


async def warm_up(worker: Worker, folder: Path, queue: str) -> None:
    """Run a pipeline to its end, so that at least one worker of the queue has its ledger open."""
    await (await errand(worker, folder, queue)).result()
    (folder / "journal").unlink()


async def whole(
    client: Client, handle: Handle, folder: Path, runs: dict[str, int] | None = None
) -> tuple[RunRecord, Trace]:
    """Assert that nothing was lost, unrecorded or repeated, and return the run and its trace.

    Args:
        client: A client that can read the run.
        handle: The run.
        folder: Where ledger and journal are.
        runs: How often stages were executed that were executed more than once; by default as often as may be.
    """
    result = await handle.result()
    run = await read_run(client, handle.id)
    anchors = [ChainHead.from_anchor("baton", result.task_id, anchor) for anchor in run.anchors]
    task = await trace_of(folder, result.task_id, anchors)

    assert task.report.verdict in (Verdict.VALID, Verdict.UNANCHORED), task.report.findings
    assert [step.name for step in run.steps] == NAMES, "no handoff is lost"
    assert len(anchors) == len(NAMES)
    assert task.report.anchored_through == max(anchor.sequence for anchor in anchors)
    accepted = [record.fields.to_agent for record in task.records if record.fields.status == "ACCEPTED"]
    assert accepted == NAMES, "each is accepted once, in order"
    acts = [act for act in journal(folder) if act["task"] == result.task_id]
    assert all(act["accepted"] == 1 for act in acts), "its one acceptance was on record before anything was done"
    begun = Counter(act["stage"] for act in acts if act["what"] == "begun")
    tried = await attempts(handle)
    assert all(1 <= begun[name] <= tried[name] for name in NAMES), "only Temporal's own next attempt does it again"
    if runs is not None:
        assert begun == dict.fromkeys(NAMES, 1) | runs
    assert [entry.split()[0] for entry in run.baton.decision_log] == NAMES, "one answer of each stage counts"
    return run, task


async def failing(handle: Handle, text: str) -> None:
    """Wait until a stage's last attempt failed with a text; the run's timeout bounds the wait."""
    failures = ""
    while text not in failures:
        failures = "; ".join(_failure(step.last_failure) for step in await under_way(handle)) or failures
        await asyncio.sleep(0.02)


async def under_way(handle: Handle) -> Sequence[PendingActivityInfo]:
    """Return the running stages of a run."""
    described = await handle.describe()
    assert described.status is WorkflowExecutionStatus.RUNNING, f"the run has ended: {described.status}"
    return described.raw_description.pending_activities


def _failure(failure: Failure) -> str:
    """Return the messages of a failure and its causes."""
    kind = failure.application_failure_info.type
    return f"{kind}: {failure.message}" + (f": {_failure(failure.cause)}" if failure.HasField("cause") else "")


async def alive_for(handle: Handle, long: timedelta) -> None:
    """Wait until a stage's first attempt has sent a heartbeat this long after its start."""
    while True:
        for step in await under_way(handle):
            began, last = step.last_started_time.ToDatetime(), step.last_heartbeat_time.ToDatetime()
            if step.attempt > 1 or last - began > long:
                return
        await asyncio.sleep(0.02)


async def attempts(handle: Handle) -> Counter[str]:
    scheduled: dict[int, str] = {}
    tried: Counter[str] = Counter()
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            started = event.activity_task_started_event_attributes
            tried[scheduled[started.scheduled_event_id]] += started.attempt
    return tried


class Cable:
    """A connection to the server that can be cut."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Cable":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()

    async def cut(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, int(self._port))
        self._writers += [writer, back]
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._forward(source, sink))
            self._tasks.add(task)

    @staticmethod
    async def _forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        sink.transport.abort()


async def returned(folder: Path, handle: Handle, client: Client, times: int) -> None:
    """Wait until the stage `build` has returned this often on record."""
    task_id = (await read_run(client, handle.id)).start.task_id or ""
    while True:
        records = (await trace_of(folder, task_id)).records
        if [(record.fields.from_agent, record.fields.status) for record in records].count(
            ("build", "RETURNED")
        ) >= times:
            return
        await asyncio.sleep(0.02)
