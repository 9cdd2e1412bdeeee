"""Whatever fails, a pipeline ends as if nothing had: the same baton, the same history but for its times.

Workers and servers here are processes of their own, killed with SIGKILL.
"""

import asyncio
import os
import uuid
from asyncio.subprocess import Process
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowUpdateFailedError

from baton.client import Answer, read_run
from baton.core.messages import PipelineInput
from baton.devserver import DevServer, DevServerOptions
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from baton.wire.names import ANSWER, QUERY_STATUS
from tests.acceptance.errands import STAGES, STAY, Errand
from tests.support import GOAL, LIMIT, Handle, answer_to, approve, event, undated, until, until_waiting
from tests.support.processes import working
from tests.support.tampering import JSON_PLAIN, signal_raw

ROOT = Path(__file__).parents[2]
YES = Answer(question="release manager", choice="approve", who="ann", why="it is tested")


@pytest.fixture(scope="module")
async def client(server: DevServer) -> Client:
    return await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])


def process(address: str, queue: str, role: str = "both", **environment: str) -> AbstractAsyncContextManager[Process]:
    """Run a worker process for the block, and kill it at the end."""
    command = ("-m", "tests.acceptance.worker_process", address, queue, role)
    return working(*command, once="ready", environment={**os.environ, **environment})


async def errand(client: Client, queue: str, **params: Any) -> Handle:
    """Start an errand whose lost workflow tasks time out after a second."""
    return await client.start_workflow(
        Errand.run,
        PipelineInput(goal=GOAL, params=params),
        id=f"errand-{uuid.uuid4()}",
        task_queue=queue,
        execution_timeout=LIMIT,
        task_timeout=timedelta(seconds=1),
    )


async def undisturbed(client: Client, **params: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the baton and the history of an undisturbed errand."""
    async with pipeline_worker(client, [Errand], STAGES) as worker:
        handle = await errand(client, worker.task_queue, **params)
        if params.get("ask"):
            await approve(client, handle)
        await handle.result()
        return await ended(client, handle)


async def ended(client: Client, handle: Handle) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the baton and the history of a completed errand, by query and by reading it."""
    await handle.result()
    run = await read_run(client, handle.id)
    assert run.result is not None
    assert run.result.baton == run.baton.to_json_object()
    await assert_replays(handle, [Errand])
    return run.baton.to_json_object(), undated(run)


async def begun(worker: Any, stage: str, times: int = 1) -> None:
    """Wait until a worker process says that it has begun a stage so often; the test's timeout bounds the wait."""
    while times:
        line = (await worker.stdout.readline()).decode()
        assert line, "the worker has ended"
        times -= line == f"{stage}\n"


class TestKilledWorkers:
    async def test_before_in_and_after_every_stage(self, server: DevServer, client: Client) -> None:
        """Ten workers, nine of them killed: only interrupted stages are repeated."""
        queue = f"killed-{uuid.uuid4()}"
        handle = await errand(client, queue)
        for nth, stage in enumerate(("draft", "build", "verify"), 1):
            async with process(server.address, queue, "pipelines"):
                await event(handle, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, nth)
            async with process(server.address, queue, "stages", **{STAY: stage}) as staying:
                await begun(staying, stage)
            async with process(server.address, queue, "stages"):
                await event(handle, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, nth)
        async with process(server.address, queue, "pipelines"):
            assert await ended(client, handle) == await undisturbed(client)

        attempts = [
            event.activity_task_started_event_attributes.attempt
            async for event in handle.fetch_history_events()
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
        ]
        assert attempts == [2, 2, 2]

    async def test_while_a_person_is_asked(self, server: DevServer, client: Client) -> None:
        """The wait, and a decision without a running worker, outlive the worker."""
        queue = f"asked-{uuid.uuid4()}"
        handle = await errand(client, queue, ask=True)
        async with process(server.address, queue):
            yes = await answer_to(handle)
        await handle.signal(ANSWER, yes)
        async with process(server.address, queue):
            assert await ended(client, handle) == await undisturbed(client, ask=True)

    async def test_one_of_two_with_a_hundred_pipelines_under_way(self, server: DevServer, client: Client) -> None:
        """The other one finishes them all."""
        queue = f"hundred-{uuid.uuid4()}"
        async with process(server.address, queue) as doomed, process(server.address, queue):
            handles = await asyncio.gather(*(errand(client, queue) for _ in range(100)))
            await begun(doomed, "build", 15)
            doomed.kill()
            await asyncio.gather(*(handle.result() for handle in handles))

        expected = await undisturbed(client)
        runs = await asyncio.gather(*(read_run(client, handle.id) for handle in handles))
        assert [(run.baton.to_json_object(), undated(run)) for run in runs] == [expected] * 100


class TestRestartedServer:
    async def test_in_a_stage_and_while_a_person_is_asked(self, tmp_path: Path, port: int) -> None:
        """The server has kept what it acknowledged, and its workers reconnect."""
        file, queue = tmp_path / "runs.db", "restarted"
        options = DevServerOptions(database=file, ui_port=None, port=port)
        async with DevServer(options) as first:
            client = await Client.connect(first.address, plugins=[BatonPlugin(safeguards="off")])
            expected = await undisturbed(client, ask=True)
            handle = await errand(client, queue, ask=True)
            async with process(first.address, queue, **{STAY: "build"}) as staying:
                await begun(staying, "build")
                await kill(first)
        async with DevServer(options) as second, process(second.address, queue):
            yes = await answer_to(handle)
            await kill(second)
            async with DevServer(options):
                await handle.signal(ANSWER, yes)
                assert await ended(client, handle) == expected


async def kill(server: DevServer) -> None:
    """Kill a server with SIGKILL, and wait for its end."""
    server.process.kill()
    await server.process.wait()


GARBAGE = [
    [],
    [Payload(metadata=JSON_PLAIN, data=b"{}")] * 2,
    [Payload(metadata=JSON_PLAIN, data=b'{"approval": ')],
    [Payload(metadata=JSON_PLAIN, data=b'"yes"')],
    [Payload(metadata=JSON_PLAIN, data=b"null")],
    [Payload(metadata=JSON_PLAIN, data=b'{"approval": "release manager", "approved": "yes", "who": "ann"}')],
    [Payload(metadata=JSON_PLAIN, data=b'{"approval": "release manager", "approved": true, "who": "ann", "sure": 1}')],
    [Payload(metadata={"encoding": b"binary/plain"}, data=b"\xff\xfe")],
    [Payload(metadata={"encoding": b"binary/null"})],
    [Payload(metadata={"encoding": b"binary/zstd-1"}, data=b"not compressed at all")],
    [Payload(metadata={"encoding": b"alien/form"}, data=b"x")],
    [Payload(data=b"x")],
]


class TestGarbage:
    async def test_signals_of_every_wrong_shape_and_name(self, client: Client) -> None:
        """They are recorded or dropped, and change neither history nor result."""
        async with pipeline_worker(client, [Errand], STAGES) as worker:
            handle = await errand(client, worker.task_queue, ask=True)
            for name in (ANSWER, "rolled_back", "nobody"):
                for payloads in GARBAGE:
                    await signal_raw(client, handle, name, *payloads)
            await until_waiting(handle, "release manager")
            noted = (await until(handle, lambda now: len(now.notes) >= 7)).notes
            assert all(note.startswith(f"refused a signal {ANSWER!r}") for note in noted)
            await approve(client, handle)
            assert await ended(client, handle) == await undisturbed(client, ask=True)

    async def test_updates_and_queries_of_every_wrong_shape_and_name(self, client: Client) -> None:
        """The sender gets an error, and the pipeline continues."""
        async with pipeline_worker(client, [Errand], STAGES) as worker:
            handle = await errand(client, worker.task_queue, ask=True)
            await until_waiting(handle, "release manager")
            updates: list[tuple[str, list[Any]]] = [
                (ANSWER, []),
                (ANSWER, [1, 2]),
                (ANSWER, ["yes"]),
                (ANSWER, [b"\xff"]),
                ("nobody", [{}]),
            ]
            for name, args in updates:
                with pytest.raises(WorkflowUpdateFailedError):
                    await handle.execute_update(name, args=args)
            for name, arg in (("nobody", 1), ("history", "all")):
                with pytest.raises(WorkflowQueryFailedError):
                    await handle.query(name, arg)
            assert await handle.query(QUERY_STATUS)
            await approve(client, handle)
            assert await ended(client, handle) == await undisturbed(client, ask=True)
