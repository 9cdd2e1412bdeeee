"""A coding agent's session that ends in the middle of a call."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client, Interceptor, OutboundInterceptor, StartWorkflowUpdateInput, WorkflowUpdateHandle
from temporalio.worker import Worker

from baton import WorkerParts
from baton.client import HandoffTools
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.outside.client_external import OutsideAgents
from baton.plugin import BatonPlugin
from tests.agents.coding_agents.calling import waiting


class AnswerLost(Interceptor):
    """The first update comes through, and its answer does not."""

    def __init__(self) -> None:
        self.came_through = asyncio.Event()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        came_through = self.came_through

        class Outbound(OutboundInterceptor):
            async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:
                answer = await super().start_workflow_update(input)
                if not came_through.is_set():
                    came_through.set()
                    await asyncio.Event().wait()
                return answer

        return Outbound(next)


@pytest.fixture
async def losing(server: DevServer, safeguards: Safeguards) -> AsyncIterator[tuple[OutsideAgents, AnswerLost]]:
    """Return what an agent does whose first answer is lost."""
    lost = AnswerLost()
    plugin = BatonPlugin(WorkerParts(), safeguards=safeguards)
    client = await Client.connect(server.address, plugins=[plugin], interceptors=[lost])
    async with safeguards.shared().open() as guarded:
        yield OutsideAgents(client, guarded.gate), lost


async def test_a_claim_under_way_is_given_back(
    exchange: Worker, agents: OutsideAgents, losing: tuple[OutsideAgents, AnswerLost]
) -> None:
    """Nobody else could have taken the handoff for an hour: the claim had come through."""
    handle = await waiting(exchange, seconds=100)
    [found] = await _listed(agents, handle.id)
    theirs, lost = losing
    desk = HandoffTools(theirs, "reviewer", "ann")
    claiming = asyncio.ensure_future(desk.claim(f"{found.handoff.handoff_id}@{handle.id}"))
    await lost.came_through.wait()
    claiming.cancel()
    await asyncio.wait([claiming])
    held = await agents.find(handle.id, "reviewer", found.handoff.handoff_id)
    await desk.leave()
    left = await agents.find(handle.id, "reviewer", found.handoff.handoff_id)
    await handle.terminate()

    assert (held.handoff.holder, left.handoff.holder) == ("ann", None)


async def _listed(agents: OutsideAgents, workflow_id: str) -> list[Any]:
    """Return what waits in a pipeline, once the server's index has it."""
    while True:
        found = [one async for one in agents.list_open("reviewer") if one.workflow_id == workflow_id]
        if found:
            return found
        await asyncio.sleep(0.02)
