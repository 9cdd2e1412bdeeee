"""Answers that come together while somebody asks."""

import asyncio
import uuid
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from baton.activity.exchange import EXCHANGE_ACTIVITIES
from baton.activity.safeguards import Safeguards
from baton.devserver import DevServer
from baton.edge.keyring import Keyring
from baton.plugin import BatonPlugin
from baton.protocol.messages import PipelineInput
from baton.protocol.names import QUERY_STATUS
from baton.testing import assert_replays, pipeline_worker
from tests.support import GOAL, LIMIT, event, start
from tests.temporal.exchange_pipelines import EXCHANGES, Accepts, Broadcasts

AGENTS = ("risk", "tax", "style", "terms")


async def test_a_question_in_the_moment_of_several_answers(server: DevServer, tmp_path: Path) -> None:
    """In whatever order they are opened, any worker can take the run up from its history afterwards."""
    safeguards = Safeguards(Keyring.generate(), tmp_path / "ledger.db")
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    here, there = f"here-{uuid.uuid4()}", f"there-{uuid.uuid4()}"

    async def receiver(agent: str) -> str:
        given = PipelineInput(goal=GOAL, params={"agent": agent})
        id = f"{agent}-{uuid.uuid4()}"
        return (await client.start_workflow(Accepts.run, given, id=id, task_queue=there, execution_timeout=LIMIT)).id

    async with pipeline_worker(client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=here) as gone:
        senders = [
            await start(gone, Broadcasts.run, to={one: await receiver(one) for one in AGENTS}) for _ in range(12)
        ]
        for sender in senders:
            await event(sender, EventType.EVENT_TYPE_TIMER_STARTED, len(AGENTS))
    async with pipeline_worker(client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=there):
        for sender in senders:
            await event(sender, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, len(AGENTS))
    asked = [asyncio.create_task(sender.query(QUERY_STATUS)) for sender in senders]
    await asyncio.sleep(0.5)
    async with pipeline_worker(client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=here):
        results = [await sender.result() for sender in senders]
        await asyncio.gather(*asked)

    assert [sorted(result.output["answers"]) for result in results] == [sorted(AGENTS)] * 12
    for sender in senders:
        await assert_replays(sender, [Broadcasts], plugin=BatonPlugin(safeguards=safeguards))
