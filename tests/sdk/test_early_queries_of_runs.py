"""Queries that wait for a worker, and bring their run what came meanwhile ahead of its workflow task."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowQueryFailedError

from baton.devserver import DevServer
from baton.plugin import BatonPlugin
from baton.sdk import early_queries
from baton.sdk.early_queries import ASK_AGAIN
from baton.testing import assert_replays, pipeline_worker
from tests.pipelines.stages import sort
from tests.pipelines.working_pipelines import TellsWhen
from tests.support import Handle, event, start

RUNS = 8
"""So many that a query of at least one of them comes before its task, which no test can arrange."""


async def begun(client: Client, queue: str, count: int = RUNS) -> list[Handle]:
    """Return runs that wait for a note, and whose worker is gone."""
    async with pipeline_worker(client, [TellsWhen], [sort], task_queue=queue) as gone:
        runs = [await start(gone, TellsWhen.run) for _ in range(count)]
        assert [await run.query(TellsWhen.noted) for run in runs] == [0] * count
    return runs


async def asked_and_told(asker: Client, runs: Sequence[Handle]) -> list[asyncio.Task[Any]]:
    """Have all runs asked first, and then told something, while there is no worker; return the questions."""
    asking = [asyncio.create_task(asker.get_workflow_handle(run.id).query(TellsWhen.noted)) for run in runs]
    await asyncio.sleep(0.5)
    for run in runs:
        await run.signal(TellsWhen.note)
    return asking


async def test_nothing_is_told_ahead_of_its_task(client: Client) -> None:
    """The SDK told a run what came after its last task at the time of that task; it would not have fitted a replay."""
    queue = f"early-{uuid4()}"
    runs = await begun(client, queue)
    asking = await asked_and_told(client, runs)
    async with pipeline_worker(client, [TellsWhen], [sort], task_queue=queue):
        results = [await run.result() for run in runs]
        assert await asyncio.gather(*asking) == [1] * RUNS  # who asked is answered all the same

    for run, result in zip(runs, results, strict=True):
        note = await event(run, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
        assert datetime.fromisoformat(result.output).timestamp() > note.event_time.ToNanoseconds() / 1e9
        await assert_replays(run, [TellsWhen], plugin=BatonPlugin())


async def test_who_asks_without_baton_is_told_to_ask_again(client: Client, server: DevServer) -> None:
    """The Temporal UI and plain clients cannot know that there is only a moment to wait."""
    plain, refused = await Client.connect(server.address), set()
    for _ in range(5):  # more than once only where all queries of the first time came behind their tasks
        queue = f"early-{uuid4()}"
        runs = await begun(client, queue)
        asking = await asked_and_told(plain, runs)
        async with pipeline_worker(client, [TellsWhen], [sort], task_queue=queue):
            answers = await asyncio.gather(*asking, return_exceptions=True)
            for run in runs:
                await run.result()
        refused |= {(type(one), str(one)) for one in answers if one != 1}
        if refused:
            break

    assert refused == {(WorkflowQueryFailedError, ASK_AGAIN)}


async def test_a_run_that_was_closed_with_news_can_be_asked(
    client: Client, server: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No task will ever tell it of them; after a while that is taken for granted, and one asks again until then."""
    monkeypatch.setattr(early_queries, "IN_ITS_TASK", 1.0)
    queue = f"early-{uuid4()}"
    [run] = await begun(client, queue, 1)
    await run.signal(TellsWhen.note)
    await run.terminate()
    async with pipeline_worker(client, [TellsWhen], [sort], task_queue=queue):
        with pytest.raises(WorkflowQueryFailedError, match=ASK_AGAIN):
            await (await Client.connect(server.address)).get_workflow_handle(run.id).query(TellsWhen.noted)
        assert await run.query(TellsWhen.noted) == 1
    await assert_replays(run, [TellsWhen], plugin=BatonPlugin())  # where nobody asks, nothing is refused
