"""A payload above the server's limit fails its own step, and the run continues."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import Worker, WorkerConfig

from baton import MemoryArtifactStore, PipelineResult, WorkerParts
from baton.client import read_run
from baton.devserver import DevServer
from baton.plugin import WORKFLOW_TASKS, BatonPlugin
from baton.runtime import workflow_run
from baton.testing import assert_replays, pipeline_worker
from tests.pipelines.large_pipelines import PIPELINES, STAGES, FillsUp, Overfills, SpreadsOut
from tests.support import failure, most_activities, start


@pytest.fixture(scope="module")
async def worker(server: DevServer) -> AsyncIterator[Worker]:
    """Return a running worker without an artifact store."""
    client = await Client.connect(server.address, plugins=[BatonPlugin(WorkerParts(), safeguards="off")])
    async with pipeline_worker(client, PIPELINES, STAGES) as it:
        yield it


async def test_a_large_payload_fails_its_step(worker: Worker) -> None:
    """Not the workflow task, which would be retried for ever; the error has size and remedy."""
    for how in ("stage", "fan_out", "child", "returned"):
        handle = await start(worker, Overfills.run, how=how)
        result = await handle.result()
        assert "bytes as it would be stored" in result.output, how
        assert "BATON_ARTIFACTS" in result.output, how
        assert result.baton["decision_log"] == ["part1 had 5 characters"], how
        events = [event async for event in handle.fetch_history_events()]
        assert EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED not in [event.event_type for event in events], how
        assert max(event.activity_task_started_event_attributes.attempt for event in events) == 1, (
            "it is not paid again"
        )
        await assert_replays(handle, PIPELINES, plugin=BatonPlugin(WorkerParts()))


async def test_a_large_result_fails_the_run(worker: Worker) -> None:
    """With the same error."""
    assert "without an artifact store" in await failure(await start(worker, Overfills.run, how="result"))


async def test_many_large_inputs_are_sent_in_slices(worker: Worker) -> None:
    """The server ends a run whose workflow task completes with more than 4 MB."""
    handle = await start(worker, SpreadsOut.run)
    result = await handle.result()

    assert sorted(result.baton["decision_log"]) == sorted(f"part{n} had 180000 characters" for n in range(28))
    await assert_replays(handle, PIPELINES, plugin=BatonPlugin(WorkerParts()))


async def test_only_content_decides_how_many_begin_at_once(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new member of Baton's own messages would else start timers in recorded runs that had none."""
    monkeypatch.setattr(workflow_run, "_MAX_TASK_BYTES", 2 * 180_230)
    handle = await start(worker, SpreadsOut.run)
    await handle.result()

    scheduled = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    kinds = [event.event_type == scheduled async for event in handle.fetch_history_events()]
    assert max(sum(run) for _, run in itertools.groupby(kinds)) == 2


async def test_many_steps_at_once_begin_in_turn(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server rejects a task with more than 2,000 of them for ever, and a task has two seconds."""
    monkeypatch.setattr(workflow_run, "MAX_AT_WORK", 5)
    monkeypatch.setattr(workflow_run, "_MAX_TASK_STEPS", 2)
    handle = await start(worker, SpreadsOut.run)
    result = await handle.result()

    assert len(result.baton["decision_log"]) == 28
    assert await most_activities(handle) <= 5
    scheduled = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    kinds = [event.event_type == scheduled async for event in handle.fetch_history_events()]
    assert max(sum(run) for _, run in itertools.groupby(kinds)) <= 2  # those of one task come in a row
    await assert_replays(handle, PIPELINES, plugin=BatonPlugin(WorkerParts()))


async def test_a_run_that_carries_too_much_is_suspended_until_there_is_a_store(server: DevServer) -> None:
    """It would otherwise hang: the SDK drops the error of a continue-as-new that cannot be written."""
    plugin = BatonPlugin(WorkerParts(), safeguards="off")
    client = await Client.connect(server.address, plugins=[plugin])
    async with pipeline_worker(client, PIPELINES, STAGES) as worker:
        handle = await start(worker, FillsUp.run)
        async with asyncio.timeout(30):
            while not (suspended := (await read_run(client, handle.id)).suspended):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert "carries over 2," in suspended
        assert "BATON_ARTIFACTS" in suspended

    plugin = BatonPlugin(WorkerParts(artifacts=MemoryArtifactStore()), safeguards="off")
    client = await Client.connect(server.address, plugins=[plugin])
    async with pipeline_worker(client, PIPELINES, STAGES, task_queue=worker.task_queue):
        result = await client.get_workflow_handle(handle.id, result_type=PipelineResult).result()
        assert result.output == 16 * 180_000
        assert (await read_run(client, handle.id)).start.continued == 1


async def test_a_worker_takes_few_workflow_tasks_at_a_time(client: Client) -> None:
    """Of a hundred replays after a restart, most would time out and be repeated."""
    for options, used in (({}, WORKFLOW_TASKS), ({"max_concurrent_workflow_tasks": 3}, 3)):
        config = BatonPlugin(safeguards="off").configure_worker(WorkerConfig(client=client, **options))  # type: ignore[typeddict-item]
        assert config["max_concurrent_workflow_tasks"] == used
