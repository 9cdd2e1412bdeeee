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
    """Run a worker process that works when the block begins and has been killed when it ends."""
    command = ("-m", "tests.acceptance.handoff_worker", address, queue, str(folder), role)
    return working(*command, once="ready", environment={**os.environ, **environment})


@asynccontextmanager
async def pipelines(server: DevServer, folder: Path, *, encrypt: bool = False) -> AsyncIterator[Worker]:
    """Run a worker for pipelines only, in this process: their workers are not what the fault is about."""
    plugin = BatonPlugin(safeguards=safeguards(folder, encrypt=encrypt))
    client = await Client.connect(server.address, plugins=[plugin])
    async with pipeline_worker(client, [Relayed, Poisoner], []) as worker:
        yield worker


async def errand(worker: Worker, folder: Path, queue: str) -> Handle:
    """Start the pipeline, with its stages on a queue."""
    return await worker.client.start_workflow(
        Relayed.run,
        PipelineInput(goal=GOAL, params={"folder": str(folder), "queue": queue}),
        id=f"relayed-{uuid4()}",
        task_queue=worker.task_queue,
        execution_timeout=LIMIT,
        task_timeout=timedelta(seconds=1),
    )


async def warm_up(worker: Worker, folder: Path, queue: str) -> None:
    """Run a pipeline to its end: then every worker of the queue has its ledger open, or at least one of them."""
    await (await errand(worker, folder, queue)).result()
    (folder / "journal").unlink()


async def whole(
    client: Client, handle: Handle, folder: Path, runs: dict[str, int] | None = None
) -> tuple[RunRecord, Trace]:
    """Assert that nothing was lost, unrecorded or done twice, and return the run and its trace.

    Args:
        client: A client that can read the run.
        handle: The run.
        folder: Where ledger and journal are.
        runs: How often stages were executed that were executed more than once; by default as often as may be.
    """
    result = await handle.result()
    run = await read_run(client, handle.id)
    anchors = [ChainHead.from_anchor("baton", result.task_id, one) for one in run.anchors]
    task = await trace_of(folder, result.task_id, anchors)

    assert task.report.verdict in (Verdict.VALID, Verdict.UNANCHORED), task.report.reason
    assert [step.name for step in run.steps] == NAMES, "no handoff is lost"
    assert len(anchors) == len(NAMES)
    assert task.report.anchored_through == max(anchor.sequence for anchor in anchors)
    accepted = [one.fields.to_agent for one in task.records if one.fields.status == "ACCEPTED"]
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
    """Wait until a stage's last run has failed with a text; the run's own timeout bounds the wait."""
    found = ""
    while text not in found:
        found = "; ".join(_failure(one.last_failure) for one in await under_way(handle)) or found
        await asyncio.sleep(0.02)


async def under_way(handle: Handle) -> Sequence[PendingActivityInfo]:
    """Return the stages of a run that are under way."""
    described = await handle.describe()
    assert described.status is WorkflowExecutionStatus.RUNNING, f"the run has ended: {described.status}"
    return described.raw_description.pending_activities


def _failure(failure: Failure) -> str:
    """Return what a failure and its causes say."""
    kind = failure.application_failure_info.type
    return f"{kind}: {failure.message}" + (f": {_failure(failure.cause)}" if failure.HasField("cause") else "")


async def alive_for(handle: Handle, long: timedelta) -> None:
    """Wait until a stage's first run has sent a heartbeat so long after it began."""
    while True:
        for one in await under_way(handle):
            began, last = one.last_started_time.ToDatetime(), one.last_heartbeat_time.ToDatetime()
            if one.attempt > 1 or last - began > long:
                return
        await asyncio.sleep(0.02)


async def attempts(handle: Handle) -> Counter[str]:
    scheduled: dict[int, str] = {}
    tried: Counter[str] = Counter()
    async for one in handle.fetch_history_events():
        if one.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled[one.event_id] = one.activity_task_scheduled_event_attributes.activity_type.name
        elif one.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            started = one.activity_task_started_event_attributes
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
    """Wait until the stage `build` has returned so often, on record."""
    task_id = (await read_run(client, handle.id)).start.task_id or ""
    while True:
        records = (await trace_of(folder, task_id)).records
        if [(one.fields.from_agent, one.fields.status) for one in records].count(("build", "RETURNED")) >= times:
            return
        await asyncio.sleep(0.02)
