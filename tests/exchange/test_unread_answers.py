"""Runs whose answers cannot be read here: of a later release, or with other keys."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from mcp import Client as McpClient
from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineStatus
from baton.client import HandoffTools, WaitingQuestion, handoff_server, inbox
from baton.devserver import DevServer
from baton.errors import HistoryError
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.handoff.store_safeguards import Safeguards
from baton.outside.client_external import OutsideAgents
from baton.plugin import BatonPlugin
from baton.testing import local_server, pipeline_worker
from tests.agents.coding_agents.calling import RefusedError, call
from tests.exchange.exchange_pipelines import HandsOutside, Receives
from tests.handoff.handoff_stages import analyse, score
from tests.handoff.newer_pipelines import InboxOfLater, OutsideOfLater
from tests.support import Handle, start, until


@pytest.fixture(scope="module")
async def client(server: DevServer, safeguards: Safeguards) -> Client:
    return await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])


@pytest.fixture(scope="module")
async def worker(client: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(client, [InboxOfLater], [analyse, score]) as worker:
        yield worker


@pytest.fixture
async def agents(client: Client, safeguards: Safeguards) -> AsyncIterator[OutsideAgents]:
    async with safeguards.shared().open() as guarded:
        yield OutsideAgents(client, guarded.gate)


async def waiting(worker: Worker, pipeline: type, status: PipelineStatus = PipelineStatus.WAITING) -> Handle:
    """Start a pipeline and wait until its handoff waits."""
    handle = await start(worker, pipeline.run, poisoned=True, seconds=100)  # type: ignore[attr-defined]
    await until(handle, lambda now: now.status is status)
    return handle


async def indexed(client: Client, handles: Sequence[Handle], status: PipelineStatus, *, running: bool = True) -> None:
    """Wait until the server lists runs under a status, as running or ended."""
    sign = "=" if running else "!="
    for handle in handles:
        query = f"WorkflowId = '{handle.id}' AND BatonStatus = '{status.value}' AND ExecutionStatus {sign} 'Running'"
        while not [run async for run in client.list_workflows(query)]:  # noqa: ASYNC110 - the index tells nobody
            await asyncio.sleep(0.02)


class TestOutside:
    async def test_an_unreadable_run_does_not_break_the_list(self, safeguards: Safeguards) -> None:
        """The others' handoffs are listed; a list with the unreadable run alone says that it is unknown."""
        async with local_server() as server, safeguards.shared().open() as guarded:
            client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
            agents = OutsideAgents(client, guarded.gate)
            async with pipeline_worker(client, [HandsOutside, OutsideOfLater], EXCHANGE_ACTIVITIES) as worker:
                readable, unreadable = await waiting(worker, HandsOutside), await waiting(worker, OutsideOfLater)
                await indexed(client, [readable, unreadable], PipelineStatus.WAITING)
                listed = await agents.query_open("reviewer")
                assert ([handoff.workflow_id for handoff in listed.handoffs], listed.answered, listed.unanswered) == (
                    [readable.id],
                    1,
                    1,
                )

                await readable.terminate()
                await indexed(client, [readable], PipelineStatus.WAITING, running=False)
                async with McpClient(handoff_server(HandoffTools(agents, "reviewer", "ann"))) as model:
                    with pytest.raises(RefusedError, match=r"cannot be read: .*urgent"):
                        await call(model, "list_mine")
                    with pytest.raises(RefusedError, match=r"cannot be read: .*urgent"):
                        await call(model, "claim", handoff_id=f"x@{unreadable.id}")
                assert [ref async for ref in agents.list_open("reviewer")] == []

    async def test_a_run_whose_code_fails_still_has_its_handoff(self, client: Client, agents: OutsideAgents) -> None:
        """Its handoff keeps waiting, so an agent must not be told that there is none."""
        queue = f"unfit-{uuid4()}"
        async with pipeline_worker(client, [HandsOutside], EXCHANGE_ACTIVITIES, task_queue=queue) as first:
            handle = await waiting(first, HandsOutside)
            await indexed(client, [handle], PipelineStatus.WAITING)
            [found] = [ref async for ref in agents.list_open("reviewer") if ref.workflow_id == handle.id]
            await agents.claim(found, "reviewer")
            await agents.accept(found, "reviewer")

        name, patch = f"{found.handoff.handoff_id}@{handle.id}", {"decision_log": ["Fine"]}
        async with (
            pipeline_worker(client, [Receives], EXCHANGE_ACTIVITIES, task_queue=queue),
            McpClient(handoff_server(HandoffTools(agents, "reviewer", "reviewer"))) as model,
        ):
            with pytest.raises(RefusedError, match=r"did not answer .* try again"):
                await call(model, "propose_patch", handoff_id=name, patch=patch)
            assert (await agents.query_open("reviewer")).unanswered > 0
        async with pipeline_worker(client, [HandsOutside], EXCHANGE_ACTIVITIES, task_queue=queue):
            await agents.return_patch(found, "reviewer", {"decision_log": ["Fine"]})
            assert (await handle.result()).baton["decision_log"] == ["Fine"]


class TestInbox:
    async def listed(self, client: Client, handle: Handle) -> list[WaitingQuestion]:
        """Return a run's entries in the inbox, once the server's index has it."""
        await indexed(client, [handle], PipelineStatus.PENDING_HANDOFF)
        return [entry async for entry in inbox(client) if entry.workflow_id == handle.id]

    async def test_a_question_of_a_later_release_is_listed_as_unreadable(self, worker: Worker) -> None:
        """It says why nothing can be decided from here."""
        handle = await waiting(worker, InboxOfLater, PipelineStatus.PENDING_HANDOFF)
        [entry] = await self.listed(worker.client, handle)
        assert (entry.question, entry.stage) == (None, "score")
        assert "cannot be decoded" in (entry.trouble or "")
        assert entry.to_json_object()["choices"] == []
        [own] = [entry async for entry in inbox(worker.client, handle.id)]
        assert (own.question, "newer release" in (own.trouble or "")) == (None, True)
        await handle.terminate()

    async def test_a_run_with_other_keys_does_not_break_the_list(
        self, server: DevServer, worker: Worker, tmp_path: Path
    ) -> None:
        """Another team's, in the same namespace, while its worker answers."""
        elsewhere = Safeguards.development(tmp_path, encrypt=True)
        sealing = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=elsewhere)])
        async with pipeline_worker(sealing, [InboxOfLater], [analyse, score]) as other:
            unreadable = await waiting(other, InboxOfLater, PipelineStatus.PENDING_HANDOFF)
            [entry] = await self.listed(worker.client, unreadable)
            assert (entry.handoff, entry.stage, entry.has_worker) == (None, "score", True)
            with pytest.raises(HistoryError):
                [entry async for entry in inbox(worker.client, unreadable.id)]
            await unreadable.terminate()
