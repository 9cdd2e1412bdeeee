"""A worker's clock, compared with the server's."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.runs import client_clock
from baton.runs.client_clock import ClockError, clock_fault, clock_skew
from baton.runs.client_follow import follow
from baton.runs.client_reader import read_run
from baton.runs.client_waiting import has_pollers
from baton.testing import pipeline_worker
from baton.wire.store_clock import now_utc
from tests.handoff.handoff_pipelines import PIPELINES
from tests.handoff.handoff_stages import STAGES
from tests.pipelines.pipelines import Gated
from tests.support import approve, start, until_waiting
from tests.support.clocks import shift_clocks


@pytest.mark.parametrize("off", [timedelta(days=-1), timedelta(days=1)])
async def test_a_difference_is_found(server: DevServer, monkeypatch: pytest.MonkeyPatch, off: timedelta) -> None:
    """In both directions; without one nothing is said."""
    client = await Client.connect(server.address)
    assert await clock_skew(client) == timedelta(0)

    monkeypatch.setattr(client_clock, "now_utc", lambda: now_utc() + off)
    skew = await clock_skew(client)
    assert skew is not None
    assert abs(skew - off) < timedelta(minutes=1)
    assert ("behind" if off < timedelta(0) else "ahead of") in str(clock_fault(skew))


async def test_a_worker_whose_clock_is_a_day_slow_does_not_begin(
    server: DevServer, safeguards: Safeguards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would send good handoffs to people."""
    monkeypatch.setattr(client_clock, "now_utc", lambda: now_utc() - timedelta(days=1))
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    with pytest.raises(ClockError, match="1 day, 0:00:00 behind the server"):
        async with pipeline_worker(client, PIPELINES, STAGES):
            await asyncio.Event().wait()


async def test_a_worker_whose_clock_is_set_back_stops(
    server: DevServer, safeguards: Safeguards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It polls no longer, and its program hears why."""
    monkeypatch.setattr(client_clock, "CHECK_INTERVAL", timedelta(seconds=0.1))
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    with pytest.raises(ClockError, match="behind the server"):  # noqa: PT012
        async with pipeline_worker(client, PIPELINES, STAGES):
            monkeypatch.setattr(client_clock, "now_utc", lambda: now_utc() - timedelta(days=1))
            await asyncio.Event().wait()


@pytest.mark.parametrize("off", [timedelta(days=-1), timedelta(days=1)], ids=["slow", "fast"])
async def test_what_a_reader_measures_is_by_the_clock_of_the_server(
    server: DevServer, worker: Worker, monkeypatch: pytest.MonkeyPatch, off: timedelta
) -> None:
    """Whether workers poll and how long a run has taken, on a machine whose clock is a day off."""
    handle = await start(worker, Gated.run)
    await until_waiting(handle, "release manager")
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])
    shift_clocks(monkeypatch, off)

    assert await has_pollers(client, worker.task_queue)
    update = await anext(follow(client, handle.id))
    for run in (await read_run(client, handle.id), update.run):
        assert run is not None
        assert run.took is not None
        assert abs(run.took) < timedelta(hours=1)
    monkeypatch.undo()
    await approve(client, handle)
