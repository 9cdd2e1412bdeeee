"""Runs that their worker's code cannot continue: operators see why, and the runs continue once the code fits."""

import asyncio
import io
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console
from temporalio.api.enums.v1 import EventType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueRequest
from temporalio.client import Client

from baton import Baton, BatonPatch, HistoryEntry, MemoryArtifactStore, Outcome, WorkerParts, stage
from baton.cli.show import heading, waits_card
from baton.client import Decide, RunRecord, RunStatus, read_run
from baton.client.faces import CheckMark
from baton.core.messages import PipelineInput
from baton.devserver import DevServer, DevServerOptions
from baton.plugin import BatonPlugin
from baton.runs.client_checks import check_suspended_runs
from baton.runs.client_follow import follow
from baton.runs.client_list import RunFilter, list_runs, with_details
from baton.runs.client_waiting import Waits, waits
from baton.testing import assert_replays, pipeline_worker
from tests.pipelines.pipelines import Gated, Linear
from tests.pipelines.stages import STAGES
from tests.pipelines.streaming_pipelines import spoken
from tests.replay.mutants import GateMoved
from tests.support import GOAL, LIMIT, Handle, event, start, until, until_waiting

_REPORTED_AFTER = "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute"


@pytest.fixture
async def eager() -> AsyncIterator[Client]:
    """Return a client of a server that reports failing code at the first failure, not the fifth."""
    options = DevServerOptions(ui_port=None, settings={_REPORTED_AFTER: 1})
    async with DevServer(options) as server:
        parts = WorkerParts(artifacts=MemoryArtifactStore())
        yield await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards="off")])


async def until_suspended(client: Client, handle: Handle, tries: int) -> tuple[RunRecord, Waits]:
    """Return the run once its code has failed that often; its execution timeout bounds the wait."""
    while True:
        run = await read_run(client, handle.id)
        run_waits = await waits(client, run)
        assert run_waits is not None, run.failure
        if run.suspended and run_waits.tries >= tries:
            return run, run_waits
        await asyncio.sleep(0.05)


async def until_news(client: Client, handle: Handle) -> list[tuple[str, str]]:
    """Return a follower's news up to the suspension."""
    news: list[tuple[str, str]] = []
    async for update in follow(client, handle.id):
        news += [(piece.kind.value, piece.text) for piece in update.news]
        if any(kind == "run_suspended" for kind, _ in news):
            break
    return news


async def until_polled(client: Client, handle: Handle, queue: str, times: int) -> tuple[RunRecord, Waits]:
    """Return the run once a worker that never answers has got its task that often."""
    request = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue))
    while True:
        await client.workflow_service.poll_workflow_task_queue(request, timeout=timedelta(minutes=1), retry=True)
        run = await read_run(client, handle.id)
        run_waits = await waits(client, run)
        assert run_waits is not None, run.failure
        if run_waits.tries >= times:
            return run, run_waits


def render(run: RunRecord, run_waits: Waits) -> str:
    """Return how `baton show` prints the run's standing."""
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(heading(run, run_waits), waits_card(run, run_waits))
    return console.export_text()


class TestSuspended:
    """Runs that the server retries until they can continue."""

    async def test_an_unknown_pipeline_is_reported(self, eager: Client) -> None:
        """A misspelt name, or a worker of another release: in record, news, list and doctor, with the reason."""
        client, queue = eager, f"suspended-{uuid.uuid4()}"
        run_filter = RunFilter(status="SUSPENDED")
        handle: Handle = await client.start_workflow(
            "Linear", PipelineInput(goal=GOAL), id=f"unknown-{uuid.uuid4()}", task_queue=queue, execution_timeout=LIMIT
        )
        async with pipeline_worker(client, [Gated], STAGES, task_queue=queue):
            run, run_waits = await until_suspended(client, handle, tries=2)
            news = await until_news(client, handle)
            async with asyncio.timeout(LIMIT.total_seconds()):
                while not (runs := [run async for run in list_runs(client, run_filter, limit=10)]):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            doctor = await check_suspended_runs(client)

        assert run.status is RunStatus.RUNNING
        assert (doctor.mark, doctor.found.startswith("1 run")) == (CheckMark.FAIL, True)
        assert "Linear is not registered on this worker" in (run.suspended or "")
        assert run.to_json_object()["suspended"] == run.suspended
        assert run_waits.has_worker
        assert [(listed.workflow_id, listed.status) for listed in runs] == [(handle.id, "SUSPENDED")]
        assert news == [("run_started", GOAL), ("run_suspended", run.suspended)]
        async with pipeline_worker(client, [Linear], STAGES, task_queue=queue):
            await handle.result()
        assert (await read_run(client, handle.id)).suspended is None
        assert [run async for run in list_runs(client, run_filter, limit=10)] == []

    async def test_a_list_says_so_before_the_server_reports_it(self, client: Client) -> None:
        """The server does after five failures, which takes a while; the history has the first."""
        queue = f"suspended-{uuid.uuid4()}"
        start = PipelineInput(goal=GOAL)
        handle: Handle = await client.start_workflow(
            "Linear", start, id=queue, task_queue=queue, execution_timeout=LIMIT
        )
        run_filter = RunFilter(id_prefix=queue)
        async with pipeline_worker(client, [Gated], STAGES, task_queue=queue):
            await event(handle, EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED)
            while not (listed := [run async for run in list_runs(client, run_filter, limit=1)]):
                pass
            [run] = await with_details(client, listed)
        async with pipeline_worker(client, [Linear], STAGES, task_queue=queue):
            await handle.result()

        assert (run.workflow_id, run.status, run.ended) == (queue, "SUSPENDED", None)
        [run] = await with_details(client, [listed async for listed in list_runs(client, run_filter, limit=1)])
        assert run.status != "SUSPENDED"

    async def test_a_run_waits_for_a_worker_with_its_stage(self, client: Client) -> None:
        """Otherwise a release without the stage would fail the runs that reach it."""

        @stage(name="speak")
        async def speak(baton: Baton) -> BatonPatch:
            return BatonPatch(current_state=["Spoken"])

        queue = f"removed-{uuid.uuid4()}"
        start_input = PipelineInput(goal=GOAL, params={"stream": False})
        async with pipeline_worker(client, [spoken], STAGES, task_queue=queue):
            handle = await client.start_workflow(
                spoken, start_input, id=queue, task_queue=queue, execution_timeout=LIMIT
            )
            status = await until(handle, lambda status: bool(status.notes))
        assert "this worker has no stage 'speak'" in status.notes[0]

        async with pipeline_worker(client, [spoken], [speak], task_queue=queue):
            result = await handle.result()
            await assert_replays(handle, [spoken])
        assert result.final_baton().current_state == ["Spoken"]

    async def test_a_continued_run_whose_code_has_changed_waits_for_code_that_fits(self, client: Client) -> None:
        """Its earlier steps are not events of its own, and yet a release must not fail it."""
        queue = f"continued-{uuid.uuid4()}"
        planned = HistoryEntry(seq=1, stage_id="plan", timestamp=datetime(2026, 11, 21, tzinfo=UTC))
        outcome = Outcome(seq=1, order=0, name="plan", entries=[planned])
        start_input = PipelineInput(goal=GOAL, outcomes=[outcome], continued=1)
        handle: Handle = await client.start_workflow(
            "Gated", start_input, id=queue, task_queue=queue, execution_timeout=LIMIT
        )
        async with pipeline_worker(client, [GateMoved], STAGES, task_queue=queue):
            run, _ = await until_suspended(client, handle, tries=2)
        assert run.status is RunStatus.RUNNING
        assert "step 1 was recorded as stage 'plan', but the code asks for approval" in (run.suspended or "")

        async with pipeline_worker(client, [Gated], STAGES, task_queue=queue):
            await until_waiting(handle, "release manager")
        assert (await read_run(client, handle.id)).suspended is None
        await handle.terminate()

    async def test_a_decision_finds_that_code_does_not_fit_a_waiting_run(self, client: Client) -> None:
        """Nobody asks the worker before; the history says why, and the decision counts once code fits."""
        queue = f"misfit-{uuid.uuid4()}"
        async with pipeline_worker(client, [Gated], STAGES, task_queue=queue) as worker:
            handle = await start(worker, Gated.run, id=queue, task_timeout=timedelta(seconds=1))
            await until_waiting(handle, "release manager")
        decide = Decide(client, queue, "approve", within=0.1)
        async with pipeline_worker(client, [GateMoved], STAGES, task_queue=queue):
            assert (await read_run(client, handle.id)).suspended is None
            assert await decide.commit(by="ann", why="tests are green") is None
            run, run_waits = await until_suspended(client, handle, tries=2)
        assert "Nondeterminism" in (run.suspended or "")
        assert "Suspended: its worker's code has failed" in render(run, run_waits)

        async with pipeline_worker(client, [Gated], STAGES, task_queue=queue):
            await handle.result()

    async def test_a_worker_that_never_answers_is_reported(self, client: Client) -> None:
        """A worker that the pipeline kills or blocks reports no failure; one lost try may happen to any run."""
        queue = f"unanswered-{uuid.uuid4()}"
        handle: Handle = await client.start_workflow(
            Linear.run,
            PipelineInput(goal=GOAL),
            id=queue,
            task_queue=queue,
            execution_timeout=LIMIT,
            task_timeout=timedelta(seconds=1),
        )
        pages = {times: render(*await until_polled(client, handle, queue, times)) for times in (1, 3)}

        assert "without an answer" not in pages[1]
        assert "Its worker was asked 3 times without an answer: it died" in pages[3]
        await handle.terminate()
