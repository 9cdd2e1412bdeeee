"""Evicted runs in memory, and the pipelines that run while they are collected."""

import gc
import sys
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from baton.testing import assert_replays, pipeline_worker
from tests.pipelines.litter import Clings, Collecting, Races
from tests.pipelines.pipelines import Gated
from tests.pipelines.stages import STAGES
from tests.support import start, until_waiting


class TestCollection:
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @pytest.mark.parametrize("kind", [Gated, Clings])
    async def test_an_evicted_run_changes_no_other(self, client: Client, kind: Any) -> None:
        """Its blocks are closed where the interpreter collects them, and must not write there."""
        gc.disable()
        gc.freeze()  # of the tests before, which a collection within a workflow task has no time for
        try:
            async with pipeline_worker(client, [kind], STAGES) as worker:
                handle = await start(worker, kind.run)
                await until_waiting(handle, "release manager")
            del worker
            async with pipeline_worker(client, [Collecting], STAGES) as other:
                collecting = await start(other, Collecting.run)
                await collecting.result()
                events = (await collecting.fetch_history()).events
                await assert_replays(collecting, [Collecting])
        finally:
            gc.unfreeze()
            gc.enable()
        await handle.terminate()

        written = EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES
        assert [event.event_type for event in events if event.event_type == written] == []

    @pytest.mark.parametrize("kind", [Gated, Races])
    async def test_an_evicted_run_is_closed_silently(
        self, client: Client, monkeypatch: pytest.MonkeyPatch, kind: Any
    ) -> None:
        """A block that awaits while it is closed would cause an error in the worker's log."""
        errors: list[object] = []
        monkeypatch.setattr(sys, "unraisablehook", errors.append)
        async with pipeline_worker(client, [kind], STAGES) as worker:
            handle = await start(worker, kind.run)
            await until_waiting(handle, "release manager")
        del worker
        gc.collect()
        await handle.terminate()

        assert [str(getattr(reply, "exc_value", reply)) for reply in errors] == []
