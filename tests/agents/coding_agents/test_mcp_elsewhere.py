"""`baton mcp` where its artifact store is not the workers', and where no worker answers."""

import random
import string
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import Client as McpClient
from temporalio.client import Client
from temporalio.worker import Worker

from baton import WorkerParts
from baton.client import HandoffTools, handoff_server
from baton.client.faces import LocalArtifactStore
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.outside.client_external import OutsideAgents
from baton.plugin import BatonPlugin
from baton.testing import local_server, pipeline_worker
from tests.agents.coding_agents.calling import RefusedError, call, listed, waiting
from tests.doors.clients.desks import desk_at, served
from tests.exchange.exchange_pipelines import HandsOutside


async def client_of(server: DevServer, safeguards: Safeguards, folder: Path) -> Client:
    """Return a client with a store of its own."""
    parts = WorkerParts(artifacts=LocalArtifactStore(folder))
    return await Client.connect(server.address, plugins=[BatonPlugin(parts, safeguards=safeguards)])


@pytest.fixture
async def stored(server: DevServer, safeguards: Safeguards, folder: Path) -> AsyncIterator[Worker]:
    """Return a worker that has an artifact store."""
    client = await client_of(server, safeguards, folder / "workers")
    async with pipeline_worker(client, [HandsOutside], []) as it:
        yield it


@pytest.fixture
async def eve(server: DevServer, safeguards: Safeguards, folder: Path) -> AsyncIterator[HandoffTools]:
    """Return the desk of a reviewer whose store is another one than the workers'."""
    client = await client_of(server, safeguards, folder / "elsewhere")
    async with safeguards.shared().open() as guarded:
        yield HandoffTools(
            OutsideAgents(client, guarded.gate), "reviewer", "eve", LocalArtifactStore(folder / "elsewhere")
        )


class TestAnotherStore:
    """The agent is told while it still holds the handoff; a later stage could only fail."""

    async def test_an_artifact_that_the_workers_do_not_have_is_refused(
        self, stored: Worker, eve: HandoffTools, folder: Path
    ) -> None:
        """And taken once it is there."""
        handle = await waiting(stored)
        async with McpClient(handoff_server(eve)) as client:
            handoff_id = await listed(client, handle)
            await call(client, "accept", handoff_id=handoff_id)
            saved = await call(
                client, "save_artifact", handoff_id=handoff_id, artifact_id="review", type="review", text="All is well"
            )
            with pytest.raises(RefusedError, match=r"has no 'review'.*--artifacts"):
                await call(client, "propose_patch", handoff_id=handoff_id, patch={"artifacts": [saved]})
            await LocalArtifactStore(folder / "workers").put(b"All is well")
            await call(client, "propose_patch", handoff_id=handoff_id, patch={"artifacts": [saved]})

        assert [one["id"] for one in (await handle.result()).baton["artifacts"]] == ["review"]

    async def test_a_patch_too_large_for_the_history_says_which_way_it_went(
        self, stored: Worker, eve: HandoffTools
    ) -> None:
        """The worker cannot read it, and nothing but its log says why."""
        handle = await waiting(stored, seconds=120)
        text = "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=900_000))
        async with McpClient(handoff_server(eve)) as client:
            handoff_id = await listed(client, handle)
            await call(client, "accept", handoff_id=handoff_id)
            with pytest.raises(RefusedError, match=r"goes through the artifact store.*--artifacts"):
                await call(client, "propose_patch", handoff_id=handoff_id, patch={"decision_log": [text]})
        await handle.terminate()


class TestNoWorker:
    async def test_a_list_that_nobody_can_make_is_no_empty_one(self, safeguards: Safeguards, folder: Path) -> None:
        """An agent that reads an empty list goes home."""
        async with local_server() as server, safeguards.shared().open() as guarded:
            client = await client_of(server, safeguards, folder / "workers")
            desk = HandoffTools(OutsideAgents(client, guarded.gate), "reviewer", "ann")
            async with McpClient(handoff_server(desk)) as model:
                assert await call(model, "list_mine") == []
                async with pipeline_worker(client, [HandsOutside], []) as worker:
                    await listed(model, await waiting(worker, seconds=100))
                with pytest.raises(RefusedError, match="no worker answers for 1 waiting pipeline"):
                    await call(model, "list_mine")
            async with served(desk.agents) as url, desk_at(url) as model:
                with pytest.raises(RefusedError, match="no worker answers for 1 waiting pipeline"):
                    await call(model, "list_mine")

    async def test_what_some_pipelines_answer_is_told_and_that_others_did_not(
        self, safeguards: Safeguards, folder: Path
    ) -> None:
        """An agent whose list would be empty is told that it is not known."""
        async with local_server() as server, safeguards.shared().open() as guarded:
            client = await client_of(server, safeguards, folder / "workers")
            agents = OutsideAgents(client, guarded.gate)
            async with pipeline_worker(client, [HandsOutside], []) as gone:
                theirs = await waiting(gone, seconds=100)
                async with McpClient(handoff_server(HandoffTools(agents, "reviewer", "ann"))) as model:
                    handoff_id = await listed(model, theirs)
            async with (
                pipeline_worker(client, [HandsOutside], []) as worker,
                McpClient(handoff_server(HandoffTools(agents, "reviewer", "ann"))) as reviewer,
                McpClient(handoff_server(HandoffTools(agents, "painter", "eve"))) as painter,
            ):
                ours = await waiting(worker, seconds=100)
                await listed(reviewer, ours)
                assert [row["workflow"] for row in await call(reviewer, "list_mine")] == [ours.id]
                with pytest.raises(RefusedError, match="no worker answers for 1 waiting pipeline"):
                    await call(painter, "list_mine")
                with pytest.raises(RefusedError, match="did not answer"):
                    await call(reviewer, "claim", handoff_id=handoff_id)
                await theirs.terminate()
                while (await agents.query_open("reviewer")).unanswered:
                    pass
                assert await call(painter, "list_mine") == []
