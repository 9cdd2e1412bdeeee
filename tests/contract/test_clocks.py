"""Handoffs and contracts whose receiver's clock is behind the sender's."""

from datetime import datetime, timedelta
from functools import partial

import pytest
from temporalio.client import Client

from baton import MemoryArtifactStore, WorkerParts
from baton.devserver import DevServer
from baton.handoff import store_safeguards, workflow_delivery
from baton.handoff.store_gate import Gate
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from baton.wire.store_clock import now_utc
from tests.contract.leak_pipelines import LEAK_PIPELINES, SCHEMAS, SendsOne, Waits
from tests.contract.leak_stages import LEAK_STAGES
from tests.pipelines.stages import EXECUTED
from tests.support import start, until


async def connected_behind(
    server: DevServer, safeguards: Safeguards, monkeypatch: pytest.MonkeyPatch, behind: timedelta
) -> Client:
    """Return a client whose workers verify handoffs and contracts by a clock that is behind."""

    def clock() -> datetime:
        return now_utc() - behind

    monkeypatch.setattr(store_safeguards, "Gate", partial(Gate, clock=clock))
    parts = WorkerParts(artifacts=MemoryArtifactStore(), schemas=SCHEMAS, clock=clock)
    return await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards=safeguards)])


async def answers(safeguards: Safeguards, task_id: str) -> set[str]:
    async with Ledger(safeguards.ledger) as ledger:
        records = (await ledger.trace(task_id)).records
    return {record.members["status"] for record in records if record.members["kind"] in ("start", "handoff")}


async def test_two_minutes_are_tolerated_everywhere(
    server: DevServer, safeguards: Safeguards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the handoff as in its contract; the sender's agent, which is paid, runs once."""
    client = await connected_behind(server, safeguards, monkeypatch, timedelta(minutes=2))
    async with pipeline_worker(client, LEAK_PIPELINES, LEAK_STAGES) as worker:
        handle = await start(worker, Waits.run, queue=worker.task_queue)
        result = await handle.result()

    assert EXECUTED[handle.id, "confide"] == 1
    assert await answers(safeguards, result.task_id) == {"ACCEPTED"}


async def test_what_only_a_clock_refused_is_tried_elsewhere(
    server: DevServer, safeguards: Safeguards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a person is asked: the next worker's clock is right."""
    monkeypatch.setattr(workflow_delivery, "_FIRST_PAUSE", timedelta(seconds=0.5))
    queue = f"clocks-{now_utc().timestamp()}"
    with monkeypatch.context() as patch:
        client = await connected_behind(server, safeguards, patch, timedelta(days=1))
        async with pipeline_worker(client, LEAK_PIPELINES, LEAK_STAGES, task_queue=queue) as worker:
            handle = await start(worker, SendsOne.run, stage="tell_all")
            await until(handle, lambda now: any("clock is off" in note for note in now.notes))
    client = await connected_behind(server, safeguards, monkeypatch, timedelta(0))
    async with pipeline_worker(client, LEAK_PIPELINES, LEAK_STAGES, task_queue=queue):
        result = await handle.result()

    assert EXECUTED[handle.id, "tell_all"] == 1
    assert await answers(safeguards, result.task_id) == {"ACCEPTED", "REJECTED"}
    await assert_replays(handle, LEAK_PIPELINES, plugin=BatonPlugin(safeguards=safeguards))
