"""Queries that come with a workflow task in which a local activity runs."""

import asyncio
from contextlib import suppress

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowQueryFailedError
from temporalio.service import RPCError

from baton.activity.exchange import EXCHANGE_ACTIVITIES
from baton.activity.safeguards import Safeguards
from baton.devserver import DevServer
from baton.edge.conversion import RECORD, SEALED
from baton.plugin import BatonPlugin
from baton.protocol.messages import Overview
from baton.protocol.names import QUERY_STATUS
from baton.testing import JSON_PLAIN, assert_replays, signal_raw
from baton.workflow.correspondence import HANDOFF, HANDOFF_ANSWER
from tests.support import Handle, sealing_worker, start
from tests.temporal.exchange_pipelines import HandsOff
from tests.temporal.stages import check, sort
from tests.temporal.test_exchange import output
from tests.temporal.working_pipelines import ReceivesAfterWork

STRAY = Payload(metadata={**JSON_PLAIN, RECORD: SEALED}, data=b'{"stray":true}')


async def ask(run: Handle, query: str, answers: list[str]) -> None:
    """Ask a run the same again and again, and note what it answers."""
    while True:
        with suppress(RPCError):  # one of so many may come too late
            try:
                answer = await run.query(query, result_type=Overview)
            except WorkflowQueryFailedError as error:
                answers.append(str(error))
            else:
                answers.append(answer.task_id)


@pytest.mark.parametrize("query", [QUERY_STATUS, "nobody knows this one"])
async def test_a_run_at_work_that_is_sent_messages_and_asked(
    server: DevServer, safeguards: Safeguards, query: str
) -> None:
    """Light stages, others, and what it makes of messages come in the order in which any worker replays them."""
    pipelines = [ReceivesAfterWork, HandsOff]
    async with sealing_worker(server, safeguards, pipelines, [sort, check, *EXCHANGE_ACTIVITIES]) as worker:
        receiver = await start(worker, ReceivesAfterWork.run, times=12)
        answers: list[str] = []
        asking = asyncio.create_task(ask(receiver, query, answers))
        for number in range(60):
            for signal in (HANDOFF, HANDOFF_ANSWER):
                for _ in range(1 + number % 3):
                    await signal_raw(worker.client, receiver, signal, STRAY)
            await asyncio.sleep(number * 7 % 5 / 200)
        sender = await start(worker, HandsOff.run, to=receiver.id)
        received = await output(receiver)
        asking.cancel()

        assert received == (await output(sender))[0]["handoffId"]
        assert answers
        await assert_replays(receiver, pipelines, plugin=BatonPlugin(safeguards=safeguards))
