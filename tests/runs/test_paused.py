"""Runs that an operator paused."""

import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rich.console import Console
from temporalio.client import Client

from baton import MemoryArtifactStore, WorkerParts
from baton.cli.show import waits_card
from baton.client import (
    Answer,
    News,
    NewsKind,
    Pause,
    Unpause,
    decide,
    fork,
    inbox,
    read_run,
    roll_back,
    standing,
)
from baton.client.faces import describe_news
from baton.devserver import DevServer, DevServerOptions
from baton.errors import OutdatedError, PipelineError
from baton.handoff.store_safeguards import Safeguards
from baton.outside.client_external import OutsideAgents
from baton.plugin import BatonPlugin
from baton.runs.client_events import decode
from baton.runs.client_executions import history
from baton.runs.client_follow import Followed, follow
from baton.runs.client_list import RunFilter, list_runs
from baton.runs.client_reader import RunReader
from baton.runs.client_waiting import must_be_open, waits
from baton.testing import pipeline_worker
from tests.acceptance.operating import Operator
from tests.pipelines.pipelines import Gated
from tests.pipelines.stages import STAGES
from tests.support import Handle, approve, start, until_waiting

PAUSES = (NewsKind.RUN_PAUSED, NewsKind.RUN_UNPAUSED)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Return a client of a server like that of `baton dev`, on which runs may be paused."""
    async with DevServer(DevServerOptions(ui_port=None)) as server:
        parts = WorkerParts(artifacts=MemoryArtifactStore())
        yield await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards="off")])


async def pause(client: Client, handle: Handle) -> None:
    """Pause a run, and wait until the list knows it; the test's timeout bounds the wait."""
    await Pause(client, handle.id).commit(by="ann", why="the service was restored")
    while not [run async for run in list_runs(client, RunFilter(status="PAUSED"), limit=10)]:
        pass


async def until_kind(updates: AsyncIterator[Followed], kind: NewsKind, news: list[News]) -> list[News]:
    """Return the news so far and up to one of a kind; the test's timeout bounds the wait."""
    news = [*news]
    while kind not in [piece.kind for piece in news]:
        news += (await anext(updates)).news
    return news


async def test_a_paused_run_is_read_like_any_other(client: Client, tmp_path: Path) -> None:
    """The SDK does not know the status: one paused run would break every list."""
    async with pipeline_worker(client, [Gated], STAGES) as worker:
        handle, other = await start(worker, Gated.run), await start(worker, Gated.run)
        for run_handle in (handle, other):
            await until_waiting(run_handle, "release manager")
        await pause(client, handle)

        statuses = {run.workflow_id: run.status async for run in list_runs(client, RunFilter(), limit=10)}
        run = await read_run(client, handle.id)
        run_waits = await waits(client, run)
        update = await anext(follow(client, handle.id))
        entries = [*[entry async for entry in inbox(client)], *[entry async for entry in inbox(client, handle.id)]]
        handoffs = [entry.handoff for entry in entries if entry.handoff]
        with pytest.raises(PipelineError, match=r"was paused by ann: .*restored; nothing was decided\. .* unpause"):
            await must_be_open(client, handle.id)
        async with Safeguards.development(tmp_path).opened() as guarded:
            agents = OutsideAgents(client, guarded.gate)
            with pytest.raises(PipelineError, match="is paused: nothing can be asked"):
                await agents.find(handle.id, "reviewer", "none")
        with pytest.raises(PipelineError, match=r"was paused by ann: .*; nothing was decided"):
            await decide(client, handle.id, Answer(question="release manager", choice="approve", who="ann"))
        fork_handle = await fork(client, handle.id, "2", by="ann", why="try")
        rollback = await roll_back(client, handle.id, "1", by="ann", why="again")
        await until_waiting(client.get_workflow_handle(handle.id), "release manager")

    assert statuses == {handle.id: "PAUSED", other.id: "WAITING"}
    assert run_waits is not None
    assert run_waits.pause is not None
    assert (run_waits.pause.by, run_waits.pause.why, standing(run, run_waits).status) == (
        "ann",
        "the service was restored",
        "PAUSED",
    )
    assert update.run is not None
    assert update.run.run_id == run.run_id == rollback.from_run_id
    assert (handoffs, fork_handle.id.startswith(handle.id)) == ([], True)
    file = io.StringIO()
    Console(file=file, width=300).print(waits_card(run, run_waits))
    assert f"baton unpause {handle.id}" in file.getvalue()


async def test_an_unpaused_run_is_not_reported_as_paused(client: Client) -> None:
    """It can be decided about again, and whoever followed it still does."""
    async with pipeline_worker(client, [Gated], STAGES) as worker:
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        await pause(client, handle)
        updates = follow(client, handle.id)
        first = await anext(updates)
        shown = await Unpause(client, handle.id).preview()
        assert shown.facts[0].text == "It was paused by ann: the service was restored."
        with pytest.raises(PipelineError, match="was paused before, by ann; nothing was paused"):
            await Pause(client, handle.id).preview()
        news = await until_kind(updates, NewsKind.RUN_PAUSED, [*first.news])
        await Unpause(client, handle.id).commit(shown.mark, by="bob", why="it works")
        news = await until_kind(updates, NewsKind.RUN_UNPAUSED, news)
        with pytest.raises(PipelineError, match="is not paused; nothing was unpaused"):
            await Unpause(client, handle.id).commit(shown.mark, by="bob", why="it works")

        run_waits = await waits(client, await read_run(client, handle.id))
        await must_be_open(client, handle.id)
        await approve(client, handle)
        [*_, last] = [update async for update in updates]
        run = await read_run(client, handle.id)

    with pytest.raises(PipelineError, match="has ended: it is COMPLETED; nothing was paused"):
        await Pause(client, handle.id).preview()
    assert (first.is_last, last.is_last) == (False, True)
    told = [describe_news(piece, run) for piece in news if piece.kind in PAUSES]
    assert told == ["paused by ann: the service was restored", "unpaused by bob: it works"]
    assert [change["by"] for change in run.to_json_object()["pauses"]] == ["ann", "bob"]
    reader = RunReader(handle.id, run.run_id)
    _, events = await history(client, handle.id, run.run_id)
    decoded = await decode(events, client.data_converter)
    one_by_one = [piece for event in decoded for task in reader.feed([event]) for piece in task.news]
    assert [describe_news(piece, run) for piece in one_by_one if piece.kind in PAUSES] == told
    assert run_waits is not None
    assert (run_waits.pause, run_waits.task_queue) == (None, worker.task_queue)


async def test_a_run_that_was_paused_again_stays_paused(client: Client, tmp_path: Path) -> None:
    """Bob was shown Ann's reason, not Carol's; the command shows it, too."""
    async with pipeline_worker(client, [Gated], STAGES) as worker:
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        operator = Operator(tmp_path, {"TEMPORAL_ADDRESS": client.service_client.config.target_host})
        await operator("pause", handle.id, "--why", "a fault", "--yes")
        shown = await Unpause(client, handle.id).preview()
        await operator("unpause", handle.id, "--why", "no fault", "--yes")
        await Pause(client, handle.id).commit(by="carol", why="an audit")

        with pytest.raises(OutdatedError, match="nothing was unpaused: it was paused again meanwhile"):
            await Unpause(client, handle.id).commit(shown.mark, by="bob", why="no fault")

        assert "ann: a fault" in shown.facts[0].text
        await handle.terminate()
