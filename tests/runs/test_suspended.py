"""A run that its worker's code cannot go on with: operators see that and why, and it goes on once the code fits."""

import asyncio
import io
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueRequest
from temporalio.client import Client

from baton import Baton, BatonPatch, WorkerParts, stage
from baton.artifacts.store import MemoryArtifactStore
from baton.cli.doctor import Mark, check_suspended_runs
from baton.client import RunRecord, RunStatus, read_run
from baton.core.history import HistoryEntry, Outcome
from baton.core.messages import PipelineInput
from baton.devserver import DevServer, DevServerOptions
from baton.plugin import BatonPlugin
from baton.runs.cli_show import heading, waits_card
from baton.runs.client_follow import follow
from baton.runs.client_list import RunFilter, list_runs
from baton.runs.client_waiting import Waits, waits
from baton.testing import assert_replays, pipeline_worker
from tests.pipelines.pipelines import Gated, Linear
from tests.pipelines.stages import STAGES
from tests.pipelines.streaming_pipelines import spoken
from tests.replay.mutants import GateMoved
from tests.support import GOAL, LIMIT, Handle, start, until, until_waiting

_REPORTED_AFTER = "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute"


@pytest.fixture
async def at_once() -> AsyncIterator[Client]:
    """Return a client of a server that reports code which fails at its first failure, and not at the fifth."""
    options = DevServerOptions(ui_port=None, settings={_REPORTED_AFTER: 1})
    async with DevServer(options) as server:
        parts = WorkerParts(artifacts=MemoryArtifactStore())
        yield await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards="off")])


async def until_suspended(client: Client, handle: Handle, tries: int) -> tuple[RunRecord, Waits]:
    """Return the run once its code has failed that often; its execution timeout bounds the wait."""
    while True:
        run = await read_run(client, handle.id)
        now = await waits(client, run)
        assert now is not None, run.failure
        if run.suspended and now.tries >= tries:
            return run, now
        await asyncio.sleep(0.05)


async def until_heard(client: Client, handle: Handle) -> list[tuple[str, str]]:
    """Return what a follower is told up to the news that the run is suspended, that included."""
    heard: list[tuple[str, str]] = []
    async for update in follow(client, handle.id):
        heard += [(one.kind.value, one.text) for one in update.news]
        if any(kind == "run_suspended" for kind, _ in heard):
            break
    return heard


async def until_given(client: Client, handle: Handle, queue: str, times: int) -> tuple[RunRecord, Waits]:
    """Return the run once a worker that never answers was given it that often."""
    asked = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue))
    while True:
        await client.workflow_service.poll_workflow_task_queue(asked, timeout=timedelta(minutes=1), retry=True)
        run = await read_run(client, handle.id)
        now = await waits(client, run)
        assert now is not None, run.failure
        if now.tries >= times:
            return run, now


def shown(run: RunRecord, now: Waits) -> str:
    """Return what `baton show` says of how the run stands."""
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(heading(run, now), waits_card(run, now))
    return console.export_text()


class TestSuspended:
    """What the server tries again until it can go on, and what it says of itself meanwhile."""

    async def test_a_pipeline_that_no_worker_knows_is_told_as_such(self, at_once: Client) -> None:
        """A misspelt name, or a worker of another release, is in record, news and list, with its reason."""
        client, queue = at_once, f"suspended-{uuid.uuid4()}"
        wanted = RunFilter(status="SUSPENDED")
        handle: Handle = await client.start_workflow(
            "Linear", PipelineInput(goal=GOAL), id=f"unknown-{uuid.uuid4()}", task_queue=queue, execution_timeout=LIMIT
        )
        async with pipeline_worker(client, [Gated], STAGES, task_queue=queue):
            run, now = await until_suspended(client, handle, tries=2)
            heard = await until_heard(client, handle)
            async with asyncio.timeout(LIMIT.total_seconds()):
                while not (listed := await list_runs(client, wanted, 10)):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            doctor = await check_suspended_runs(client)

        assert run.status is RunStatus.RUNNING
        assert (doctor.mark, doctor.found.startswith("1 run")) == (Mark.FAIL, True)
        assert "Linear is not registered on this worker" in (run.suspended or "")
        assert run.to_json_object()["suspended"] == run.suspended
        assert now.has_worker
        assert [(one.workflow_id, one.status) for one in listed] == [(handle.id, "SUSPENDED")]
        assert heard == [("run_started", GOAL), ("run_suspended", run.suspended)]
        async with pipeline_worker(client, [Linear], STAGES, task_queue=queue):
            await handle.result()
        assert (await read_run(client, handle.id)).suspended is None
        assert await list_runs(client, wanted, 10) == []

    async def test_a_stage_that_no_worker_has_waits_for_one_that_has_it(self, client: Client) -> None:
        """A release that removed it would otherwise fail the runs that were about to begin it."""

        @stage(name="speak")
        async def speak(baton: Baton) -> BatonPatch:
            return BatonPatch(current_state=["Spoken"])

        queue = f"removed-{uuid.uuid4()}"
        given = PipelineInput(goal=GOAL, params={"stream": False})
        async with pipeline_worker(client, [spoken], STAGES, task_queue=queue):
            handle = await client.start_workflow(spoken, given, id=queue, task_queue=queue, execution_timeout=LIMIT)
            now = await until(handle, lambda now: bool(now.notes))
        assert "this worker has no stage 'speak'" in now.notes[0]

        async with pipeline_worker(client, [spoken], [speak], task_queue=queue):
            result = await handle.result()
            await assert_replays(handle, [spoken])
        assert result.final_baton().current_state == ["Spoken"]

    async def test_a_continued_run_whose_code_has_changed_waits_for_code_that_fits(self, client: Client) -> None:
        """Its earlier steps are no events of its own, and yet a release must not fail it for good."""
        queue = f"continued-{uuid.uuid4()}"
        planned = HistoryEntry(seq=1, stage_id="plan", timestamp=datetime(2026, 11, 21, tzinfo=UTC))
        recorded = Outcome(seq=1, order=0, name="plan", entries=[planned])
        given = PipelineInput(goal=GOAL, outcomes=[recorded], continued=1)
        handle: Handle = await client.start_workflow(
            "Gated", given, id=queue, task_queue=queue, execution_timeout=LIMIT
        )
        async with pipeline_worker(client, [GateMoved], STAGES, task_queue=queue):
            run, _ = await until_suspended(client, handle, tries=2)
        assert run.status is RunStatus.RUNNING
        assert "step 1 was recorded as stage 'plan', but the code asks for approval" in (run.suspended or "")

        async with pipeline_worker(client, [Gated], STAGES, task_queue=queue):
            await until_waiting(handle, "release manager")
        assert (await read_run(client, handle.id)).suspended is None
        await handle.terminate()

    async def test_a_run_that_waits_tells_that_its_code_does_not_fit_before_it_goes_on(self, client: Client) -> None:
        """Nothing has failed yet, but nobody can decide: the worker cannot even be asked."""
        queue = f"misfit-{uuid.uuid4()}"
        async with pipeline_worker(client, [Gated], STAGES, task_queue=queue) as worker:
            handle = await start(worker, Gated.run, id=queue)
            await until_waiting(handle, "release manager")
        async with pipeline_worker(client, [GateMoved], STAGES, task_queue=queue):
            run = await read_run(client, handle.id)
            now = await waits(client, run)

        assert now is not None
        assert run.suspended is None
        assert "Nondeterminism" in (now.fault or "")
        assert "Suspended: its worker's code has failed" in shown(run, now)
        await handle.terminate()

    async def test_a_worker_that_never_answers_is_told(self, client: Client) -> None:
        """One that dies of the pipeline, or is blocked by it, does not even fail; once may happen to any run."""
        queue = f"unanswered-{uuid.uuid4()}"
        handle: Handle = await client.start_workflow(
            Linear.run,
            PipelineInput(goal=GOAL),
            id=queue,
            task_queue=queue,
            execution_timeout=LIMIT,
            task_timeout=timedelta(seconds=1),
        )
        told = {times: shown(*await until_given(client, handle, queue, times)) for times in (1, 3)}

        assert "without an answer" not in told[1]
        assert "Its worker was asked 3 times without an answer: it died" in told[3]
        await handle.terminate()
