"""Following a run live, listing runs, and what they wait for."""

import asyncio
import uuid
from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from baton import Baton, BatonPatch, Pipeline, StepKind, WorkerParts, pipeline, stage
from baton.client import RunStatus, read_run, roll_back
from baton.client.faces import ArtifactStore
from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.errors import HistoryError
from baton.plugin import BatonPlugin
from baton.runs.client_follow import Cursor, Followed, follow
from baton.runs.client_list import RunFilter, list_runs
from baton.runs.client_news import NewsKind
from baton.runs.client_waiting import has_pollers, waits
from baton.testing import pipeline_worker
from tests.pipelines.mishaps import FallsBack
from tests.pipelines.pipelines import Gated, Linear, Long
from tests.support import GOAL, Handle, approve, start, until_waiting


@pipeline
async def lengthy(p: Pipeline) -> None:
    """Do so many steps that the server has the history in two pages."""
    for _ in range(90):
        await p.sleep(timedelta(milliseconds=1))


async def follow_to_end(
    client: Client, handle: Handle, run_id: str | None = None, cursor: Cursor | None = None
) -> list[Followed]:
    """Follow a run to its end, and return all updates."""
    return [update async for update in follow(client, handle.id, run_id, cursor=cursor)]


async def assert_resumes(client: Client, handle: Handle, updates: list[Followed]) -> None:
    """Check that resuming after any piece of news yields exactly the rest."""
    cursors = [Cursor.parse(str(cursor)) for update in updates for cursor in update.cursors]
    all_news = kinds_and_steps(updates)
    assert len(cursors) == len(all_news)
    for position, cursor in enumerate(cursors):
        resumed = kinds_and_steps(await follow_to_end(client, handle, cursor=cursor))
        assert resumed == all_news[position + 1 :]


def kinds_and_steps(updates: list[Followed]) -> list[tuple[str, int | None]]:
    """Return all news of the updates, by kind and step."""
    return [(piece.kind.value, piece.step.seq if piece.step else None) for update in updates for piece in update.news]


class TestFollow:
    async def test_a_closed_run_is_followed_whole_and_from_any_cursor(self, client: Client, worker: Worker) -> None:
        """The news before and after a cursor together are all the news.

        Proves S1-design-i: how understanding evolved can be followed step by step.
        """
        handle = await start(worker, Linear.run)
        await handle.result()

        [update] = await follow_to_end(client, handle)
        assert kinds_and_steps([update]) == [
            ("run_started", None),
            *((what, seq) for seq in (1, 2, 3) for what in ("step_started", "step_done")),
            ("run_ended", None),
        ]
        assert update.is_last
        assert update.run is not None
        await assert_resumes(client, handle, [update])

    async def test_what_has_happened_is_one_update(self, client: Client) -> None:
        """The server's pages of a long history end in the middle of it, where the run is not yet as it is."""
        async with pipeline_worker(client, [lengthy], []) as own:
            handle = await start(own, lengthy)
            await handle.result()
        [update] = await follow_to_end(client, handle)

        assert update.is_last
        assert kinds_and_steps([update]).count(("step_done", 90)) == 1

    async def test_each_update_has_the_whole_run(self, client: Client, worker: Worker) -> None:
        """The last update equals a reading of the history."""
        handle = await start(worker, Gated.run)
        following = asyncio.create_task(follow_to_end(client, handle))
        await approve(client, handle)
        await handle.result()

        updates = await following
        last_run, record = updates[-1].run, await read_run(client, handle.id)
        assert last_run is not None
        assert (last_run.to_json_object(), last_run.last_event) == (record.to_json_object(), record.last_event)
        events = [update.run.last_event for update in updates if update.run]
        assert events == sorted(set(events))
        assert kinds_and_steps(updates).count(("step_done", 1)) == 1

    async def test_each_failure_is_news_once(self, client: Client, worker: Worker) -> None:
        """The workflow adds a prefix after the attempt, and repeats it where it continues as new."""
        handle = await start(worker, FallsBack.run)
        following = asyncio.create_task(follow_to_end(client, handle))
        await handle.result()

        updates = await following
        failures = [(news.step, news.text) for update in updates for news in update.news if "failed" in news.kind]
        assert [step.seq for step, _ in failures if step] == [1, 2, 3]
        assert updates[0].run is not None
        first = await read_run(client, handle.id, updates[0].run.run_id)
        assert failures[0][1] == first.steps[0].failure == "ConnectionError: the model is gone"

    async def test_it_follows_a_run_that_continues_as_new(self, client: Client, worker: Worker) -> None:
        """Nothing is repeated, and the follower ends with the last run."""
        handle = await start(worker, Long.run)
        following = asyncio.create_task(follow_to_end(client, handle, run_id=handle.first_execution_run_id))
        await approve(client, handle)
        await handle.result()

        updates = await following
        done_steps = [seq for kind, seq in kinds_and_steps(updates) if kind == "step_done" and seq]
        assert sorted(done_steps) == list(range(1, 11))
        assert kinds_and_steps(updates).count(("run_replaced", None)) == 1
        assert updates[-1].run is not None
        assert updates[-1].run.status is RunStatus.COMPLETED

    async def test_it_follows_a_run_that_is_rolled_back(self, client: Client, worker: Worker) -> None:
        """Undone steps are news, kept steps are not repeated, and the newer run is followed to its end."""
        handle = await start(worker, Long.run)
        following = asyncio.create_task(follow_to_end(client, handle))
        await until_waiting(handle, "release manager")
        await roll_back(client, handle.id, "2", by="bob", why="wrong plan")
        await approve(client, client.get_workflow_handle(handle.id))
        await client.get_workflow_handle(handle.id).result()

        updates = await following
        news = kinds_and_steps(updates)
        assert ("step_undone", 2) in news
        assert [news.count(("step_done", seq)) for seq in (1, 2, 3)] == [1, 2, 1]
        assert updates[-1].run is not None
        assert updates[-1].run.status is RunStatus.COMPLETED
        note = next(piece.text for update in updates for piece in update.news if piece.kind is NewsKind.NOTE)
        assert note.endswith("by bob: wrong plan")

    async def test_a_roll_back_across_a_continue_as_new_repeats_no_finished_step(
        self, client: Client, worker: Worker
    ) -> None:
        """The earlier run continues, and its steps are known; the cursor is of the other run."""
        handle = await start(worker, Long.run)
        await approve(client, handle)
        await handle.result()
        last_cursor = (await follow_to_end(client, handle, run_id=handle.first_execution_run_id))[-1].cursors[-1]
        result = await roll_back(client, handle.id, "2", by="bob", why="wrong plan")
        await approve(client, client.get_workflow_handle(handle.id))
        await client.get_workflow_handle(handle.id).result()
        updates = await follow_to_end(client, handle, cursor=last_cursor)

        news = kinds_and_steps(updates)
        assert ("step_done", 1) not in news
        assert [news.count(("step_done", seq)) for seq in range(2, 11)] == [1] * 9
        assert (
            next(cursor.run_id for update in updates for cursor in update.cursors)
            == result.run_id
            != last_cursor.run_id
        )
        await assert_resumes(client, handle, updates)

    async def test_an_unknown_run_or_event_is_an_error(self, client: Client, worker: Worker) -> None:
        """There is nothing to wait for."""
        with pytest.raises(RPCError, match="not found"):
            await anext(follow(client, "no-such-run"))
        handle = await start(worker, Linear.run)
        with pytest.raises(HistoryError, match=r"run '.*' of '.*' has no event 0"):
            await anext(follow(client, handle.id, cursor=Cursor(handle.first_execution_run_id or "", 0, 0)))


class TestListRuns:
    async def test_each_workflow_of_a_task_is_listed_with_its_newest_run(self, client: Client, worker: Worker) -> None:
        """A rolled-back run is one workflow, and its continuing run is listed."""
        task = str(uuid.uuid4())
        start_input = PipelineInput(goal=GOAL, task_id=task)
        handles = [
            await client.start_workflow(
                Gated.run, start_input, id=f"listed-{task}-{number}", task_queue=worker.task_queue
            )
            for number in range(2)
        ]
        for handle in handles:
            await until_waiting(handle, "release manager")
        result = await roll_back(client, handles[0].id, "1", by="bob", why="again")
        newer = client.get_workflow_handle(handles[0].id, run_id=result.run_id)
        await approve(client, newer)
        await newer.result()

        async with asyncio.timeout(180):
            while True:  # the index lags behind
                runs = {run.workflow_id: run async for run in list_runs(client, RunFilter(task=task), limit=10)}
                if [run.status for run in runs.values()] == ["WAITING", "COMPLETED"]:
                    break
                await asyncio.sleep(0.05)

        assert runs[newer.id].run_id == result.run_id
        assert runs[handles[1].id].stage == "release manager"
        waiting = [run async for run in list_runs(client, RunFilter(task=task, status="WAITING"), limit=10)]
        assert [run.workflow_id for run in waiting] == [handles[1].id]
        for limit, count in ((0, 0), (1, 1), (None, 2)):
            assert len([run async for run in list_runs(client, RunFilter(task=task), limit=limit)]) == count
        await handles[1].terminate()

    async def test_a_workflow_without_labels_is_listed_with_every(
        self, server: DevServer, store: ArtifactStore
    ) -> None:
        """Runs of other software are not hidden for good."""
        plain = await Client.connect(
            server.address, plugins=[BatonPlugin(WorkerParts(artifacts=store), safeguards="off", searchable=False)]
        )
        handle = await plain.start_workflow(
            "Unlabelled", PipelineInput(goal=GOAL), id=f"unlabelled-{uuid.uuid4()}", task_queue="nobody-at-all"
        )

        async with asyncio.timeout(180):
            while not [run async for run in list_runs(plain, RunFilter(every=True, id_prefix=handle.id), limit=10)]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

        assert [run async for run in list_runs(plain, RunFilter(id_prefix=handle.id), limit=10)] == []
        await handle.terminate()


class TestWaits:
    async def test_an_approval_has_its_question_and_deadline(self, client: Client, worker: Worker) -> None:
        """The deadline is in the history; the worker answers the question."""
        handle = await start(worker, Gated.run)
        [approval] = (await until_waiting(handle, "release manager")).questions

        run_waits = await waits(client, await read_run(client, handle.id))
        assert run_waits is not None
        [pending] = run_waits.pending
        assert (pending.name, pending.kind, pending.asks) == (
            "release manager",
            StepKind.APPROVAL,
            approval.asks or None,
        )
        assert pending.until is not None
        assert abs((pending.until - approval.until).total_seconds()) < 1
        assert (run_waits.task_queue, run_waits.has_worker) == (worker.task_queue, True)
        await approve(client, handle)
        await handle.result()
        assert await waits(client, await read_run(client, handle.id)) is None

    async def test_a_queue_without_pollers_has_no_worker(self, client: Client) -> None:
        """The operator is told when starting a run there."""
        assert not await has_pollers(client, f"nobody-{uuid.uuid4()}")

    async def test_a_long_failure_keeps_its_own_reason(self, client: Client) -> None:
        """The server keeps 4 KB of a failure, and replaces the message of a longer one."""

        @stage
        async def plan(baton: Baton) -> BatonPatch:
            """Fail."""
            raise ConnectionError("the model does not answer") from ValueError("why " * 2_000)

        async with pipeline_worker(client, [Linear], [plan]) as worker:
            handle = await start(worker, Linear.run)
            failure_text = None
            while failure_text is None:
                await asyncio.sleep(0.05)
                run_waits = await waits(client, await read_run(client, handle.id))
                failure_text = next((pending.failure for pending in run_waits.pending), None) if run_waits else None
            await handle.terminate()

        assert failure_text == "ConnectionError: the model does not answer"
