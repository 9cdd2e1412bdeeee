"""Following a run while it happens, wherever it goes on; finding runs, and what they wait for."""

import asyncio
import uuid

import pytest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from baton import Baton, BatonPatch, WorkerParts, stage
from baton.artifacts.store import ArtifactStore
from baton.client import RunStatus, read_run, roll_back
from baton.core.history import StepKind
from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.plugin import BatonPlugin
from baton.runs.client_follow import Cursor, Followed, follow
from baton.runs.client_list import RunFilter, list_runs
from baton.runs.client_news import NewsKind
from baton.runs.client_waiting import has_pollers, waits
from baton.testing import pipeline_worker
from tests.pipelines.mishaps import FallsBack
from tests.pipelines.pipelines import Gated, Linear, Long
from tests.support import GOAL, Handle, approve, start, until_waiting


async def heard(
    client: Client, handle: Handle, run_id: str | None = None, cursor: Cursor | None = None
) -> list[Followed]:
    """Follow a run to its end, and return all updates."""
    return [update async for update in follow(client, handle.id, run_id, cursor=cursor)]


async def assert_resumes(client: Client, handle: Handle, updates: list[Followed]) -> None:
    """Check that who resumes after any piece of news is told exactly the others."""
    cursors = [Cursor.parse(str(one)) for update in updates for one in update.cursors]
    whole = whats(updates)
    assert len(cursors) == len(whole)
    for place, cursor in enumerate(cursors):
        rest = whats(await heard(client, handle, cursor=cursor))
        assert [one for one in rest if one[0] != "step_started"] == [
            one
            for one in whole[place + 1 :]
            if one[0] != "step_started"  # who reads later is not told of each begin
        ]


def whats(updates: list[Followed]) -> list[tuple[str, int | None]]:
    """Return all news of the updates, by kind and step."""
    return [(one.kind.value, one.step.seq if one.step else None) for update in updates for one in update.news]


class TestFollow:
    async def test_a_closed_run_is_told_whole_and_from_any_event_on(self, client: Client, worker: Worker) -> None:
        """What was heard before an event and after it is together what there is to hear.

        Proves S1-design-i: how understanding evolved can be followed step by step.
        """
        handle = await start(worker, Linear.run)
        await handle.result()

        [whole] = await heard(client, handle)
        assert whats([whole]) == [
            ("run_started", None),
            ("step_done", 1),
            ("step_done", 2),
            ("step_done", 3),
            ("run_ended", None),
        ]
        assert whole.is_last
        assert whole.run is not None
        await assert_resumes(client, handle, [whole])

    async def test_each_update_is_a_whole_reading_of_the_run(self, client: Client, worker: Worker) -> None:
        """A follower that takes the last update knows what a reader of the history knows."""
        handle = await start(worker, Gated.run)
        following = asyncio.create_task(heard(client, handle))
        await approve(client, handle)
        await handle.result()

        updates = await following
        last, read = updates[-1].run, await read_run(client, handle.id)
        assert last is not None
        assert (last.to_json_object(), last.last_event) == (read.to_json_object(), read.last_event)
        events = [update.run.last_event for update in updates if update.run]
        assert events == sorted(set(events))
        assert whats(updates).count(("step_done", 1)) == 1

    async def test_each_failure_is_told_once(self, client: Client, worker: Worker) -> None:
        """The workflow says it in words of its own, after the attempt, and again where it continues as new."""
        handle = await start(worker, FallsBack.run)
        following = asyncio.create_task(heard(client, handle))
        await handle.result()

        updates = await following
        failures = [(news.step, news.text) for update in updates for news in update.news if "failed" in news.kind]
        assert [step.seq for step, _ in failures if step] == [1, 2, 3]
        assert updates[0].run is not None
        first = await read_run(client, handle.id, updates[0].run.run_id)
        assert failures[0][1] == first.steps[0].failure == "ConnectionError: the model is gone"

    async def test_it_goes_on_where_a_run_continues_as_new(self, client: Client, worker: Worker) -> None:
        """Nothing is told twice, and the follower ends with the last of the runs."""
        handle = await start(worker, Long.run)
        following = asyncio.create_task(heard(client, handle, run_id=handle.first_execution_run_id))
        await approve(client, handle)
        await handle.result()

        updates = await following
        done = [seq for what, seq in whats(updates) if what == "step_done" and seq]
        assert sorted(done) == list(range(1, 11))
        assert whats(updates).count(("run_goes_on", None)) == 1
        assert updates[-1].run is not None
        assert updates[-1].run.status is RunStatus.COMPLETED

    async def test_it_goes_on_where_a_run_is_rolled_back(self, client: Client, worker: Worker) -> None:
        """What is undone is told, what stays is not told again, and the newer run is heard to its end."""
        handle = await start(worker, Long.run)
        following = asyncio.create_task(heard(client, handle))
        await until_waiting(handle, "release manager")
        await roll_back(client, handle.id, "2", by="bob", why="wrong plan")
        await approve(client, client.get_workflow_handle(handle.id))
        await client.get_workflow_handle(handle.id).result()

        updates = await following
        told = whats(updates)
        assert ("step_undone", 2) in told
        assert [told.count(("step_done", seq)) for seq in (1, 2, 3)] == [1, 2, 1]
        assert updates[-1].run is not None
        assert updates[-1].run.status is RunStatus.COMPLETED
        note = next(one.text for update in updates for one in update.news if one.kind is NewsKind.NOTE)
        assert note.endswith("by bob: wrong plan")

    async def test_a_roll_back_across_a_continue_as_new_tells_no_finished_step_again(
        self, client: Client, worker: Worker
    ) -> None:
        """The run before is the one that goes on, and its steps were told; the cursor shows the other run."""
        handle = await start(worker, Long.run)
        await approve(client, handle)
        await handle.result()
        last = (await heard(client, handle, run_id=handle.first_execution_run_id))[-1].cursors[-1]
        done = await roll_back(client, handle.id, "2", by="bob", why="wrong plan")
        await approve(client, client.get_workflow_handle(handle.id))
        await client.get_workflow_handle(handle.id).result()
        more = await heard(client, handle, cursor=last)

        told = whats(more)
        assert ("step_done", 1) not in told
        assert [told.count(("step_done", seq)) for seq in range(2, 11)] == [1] * 9
        assert next(one.run_id for update in more for one in update.cursors) == done.run_id != last.run_id
        await assert_resumes(client, handle, more)

    async def test_a_run_that_is_none_is_an_error(self, client: Client) -> None:
        """There is nothing to wait for."""
        with pytest.raises(RPCError, match="not found"):
            await anext(follow(client, "no-such-run"))


class TestListRuns:
    async def test_a_task_has_one_line_for_each_workflow_its_newest_run_first(
        self, client: Client, worker: Worker
    ) -> None:
        """A rolled-back run is one workflow, and the run that goes on is the one that is listed."""
        task = str(uuid.uuid4())
        given = PipelineInput(goal=GOAL, task_id=task)
        handles = [
            await client.start_workflow(Gated.run, given, id=f"listed-{task}-{place}", task_queue=worker.task_queue)
            for place in range(2)
        ]
        for handle in handles:
            await until_waiting(handle, "release manager")
        done = await roll_back(client, handles[0].id, "1", by="bob", why="again")
        newer = client.get_workflow_handle(handles[0].id, run_id=done.run_id)
        await approve(client, newer)
        await newer.result()

        async with asyncio.timeout(180):
            while True:  # the index lags behind
                found = {one.workflow_id: one for one in await list_runs(client, RunFilter(task=task), 10)}
                if [one.status for one in found.values()] == ["WAITING", "COMPLETED"]:
                    break
                await asyncio.sleep(0.05)

        assert found[newer.id].run_id == done.run_id
        assert found[handles[1].id].stage == "release manager"
        waiting = await list_runs(client, RunFilter(task=task, status="WAITING"), 10)
        assert [one.workflow_id for one in waiting] == [handles[1].id]
        assert len(await list_runs(client, RunFilter(task=task), 1)) == 1
        await handles[1].terminate()

    async def test_a_workflow_without_labels_is_found_if_every_one_is_asked_for(
        self, server: DevServer, store: ArtifactStore
    ) -> None:
        """Runs that other software started are not hidden for good."""
        plain = await Client.connect(
            server.address, plugins=[BatonPlugin(WorkerParts(artifacts=store), safeguards="off", searchable=False)]
        )
        handle = await plain.start_workflow(
            "Unlabelled", PipelineInput(goal=GOAL), id=f"unlabelled-{uuid.uuid4()}", task_queue="nobody-at-all"
        )

        async with asyncio.timeout(180):
            while not await list_runs(plain, RunFilter(every=True, id_prefix=handle.id), 10):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

        assert await list_runs(plain, RunFilter(id_prefix=handle.id), 10) == []
        await handle.terminate()


class TestWaits:
    async def test_an_approval_is_told_with_its_question_and_deadline(self, client: Client, worker: Worker) -> None:
        """The deadline is in the history; the question only the worker knows, so it is asked."""
        handle = await start(worker, Gated.run)
        [open_now] = (await until_waiting(handle, "release manager")).waiting_for

        now = await waits(client, await read_run(client, handle.id))
        assert now is not None
        [one] = now.pending
        assert (one.name, one.kind, one.asks) == ("release manager", StepKind.APPROVAL, open_now.asks)
        assert one.until is not None
        assert open_now.until is not None
        assert abs((one.until - open_now.until).total_seconds()) < 1
        assert (now.task_queue, now.has_worker) == (worker.task_queue, True)
        await approve(client, handle)
        await handle.result()
        assert await waits(client, await read_run(client, handle.id)) is None

    async def test_a_queue_that_nobody_asks_has_no_worker(self, client: Client) -> None:
        """Whoever starts a run there is told so."""
        assert not await has_pollers(client, f"nobody-{uuid.uuid4()}")

    async def test_a_try_that_failed_with_much_to_say_is_told_by_its_own_reason(self, client: Client) -> None:
        """The server keeps 4 KB of a failure, and of a longer one says itself only that it was."""

        @stage
        async def plan(baton: Baton) -> BatonPatch:
            """Fail."""
            raise ConnectionError("the model does not answer") from ValueError("why " * 2_000)

        async with pipeline_worker(client, [Linear], [plan]) as worker:
            handle = await start(worker, Linear.run)
            told = None
            while told is None:
                await asyncio.sleep(0.05)
                now = await waits(client, await read_run(client, handle.id))
                told = next((one.failure for one in now.pending), None) if now else None
            await handle.terminate()

        assert told == "ConnectionError: the model does not answer"
