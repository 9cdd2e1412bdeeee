"""Answers that arrive together during a query."""

import asyncio
import uuid
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.handoff.store_safeguards import Safeguards
from baton.keys.store_keyring import Keyring
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from baton.wire.names import QUERY_STATUS
from tests.exchange.exchange_pipelines import EXCHANGES, Accepts, Broadcasts
from tests.support import GOAL, LIMIT, Handle, event, start

AGENTS = ("risk", "tax", "style", "terms")
LONG = 120  # seconds: nothing is sent a second time, however slow the machine is
SHORT = 15  # of which a third passes before the second attempt


async def answered(server: DevServer, folder: Path, *, senders: int, seconds: int, query: str, apart: float) -> None:
    """Send answers and a query to senders without a worker, before a worker processes them.

    Args:
        server: The server.
        folder: Where the ledger is.
        senders: How many.
        seconds: How long each waits for its answers.
        query: What each is asked.
        apart: How many seconds there are between one sender and the next.
    """
    safeguards = Safeguards(Keyring.generate(), folder / "ledger.db")
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    sender_queue, receiver_queue = f"here-{uuid.uuid4()}", f"there-{uuid.uuid4()}"

    async def receiver(agent: str) -> str:
        start_input = PipelineInput(goal=GOAL, params={"agent": agent})
        id = f"{agent}-{uuid.uuid4()}"
        return (
            await client.start_workflow(
                Accepts.run, start_input, id=id, task_queue=receiver_queue, execution_timeout=LIMIT
            )
        ).id

    async with pipeline_worker(client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=sender_queue) as gone:
        sent: list[Handle] = []
        for _ in range(senders):
            to = {agent: await receiver(agent) for agent in AGENTS}
            sent.append(await start(gone, Broadcasts.run, to=to, seconds=seconds))
            await asyncio.sleep(apart)
        for sender in sent:
            await event(sender, EventType.EVENT_TYPE_TIMER_STARTED, len(AGENTS))
    async with pipeline_worker(client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=receiver_queue):
        for sender in sent:
            await event(sender, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, len(AGENTS))
    queries = [asyncio.create_task(sender.query(query)) for sender in sent]
    await asyncio.sleep(0.5)
    async with pipeline_worker(client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=sender_queue):
        results = [await sender.result() for sender in sent]
        await asyncio.gather(*queries)

    assert [sorted(result.output["answers"]) for result in results] == [sorted(AGENTS)] * senders
    for sender in sent:
        await assert_replays(sender, [Broadcasts], plugin=BatonPlugin(safeguards=safeguards))


async def test_a_question_in_the_moment_of_several_answers(server: DevServer, tmp_path: Path) -> None:
    """In whatever order they are opened, any worker can continue the run from its history."""
    await answered(server, tmp_path, senders=12, seconds=LONG, query=QUERY_STATUS, apart=0)


async def test_a_question_in_the_moment_in_which_the_time_is_up(server: DevServer, tmp_path: Path) -> None:
    """The run may see an answer after the timeout, and in a replay before it, with the same result."""
    await answered(server, tmp_path, senders=8, seconds=SHORT, query="pondered", apart=0.4)
