"""Workers that are killed while a handoff is accepted, and a ledger that cannot be written."""

import signal
import sqlite3
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError

from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.exchange.exchange_pipelines import EXCHANGES, HandsOff, Receives
from tests.support import GOAL, LIMIT, event, overview, start
from tests.support.processes import working

ROOT = Path(__file__).parents[2]
QUICK = timedelta(seconds=1)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_worker_killed_around_the_record_loses_and_duplicates_nothing(
    server: DevServer, tmp_path: Path, moment: str
) -> None:
    """The next worker accepts: one record, one answer, one execution (S3-5.1-d, F1)."""
    safeguards, queue = Safeguards.development(tmp_path), f"queue-{uuid.uuid4()}"
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    program = ("-m", "tests.exchange.exchange_worker", server.address, queue, str(tmp_path), moment)
    async with (
        working(*program, once="up") as doomed,
        pipeline_worker(client, EXCHANGES, EXCHANGE_ACTIVITIES) as worker,
    ):
        receiver = await client.start_workflow(
            Receives.run,
            PipelineInput(goal=GOAL),
            id=f"risk-{uuid.uuid4()}",
            task_queue=queue,
            task_timeout=QUICK,
            execution_timeout=LIMIT,
        )
        sender = await start(worker, HandsOff.run, to=receiver.id)
        assert await doomed.wait() == -signal.SIGKILL
        async with pipeline_worker(client, EXCHANGES, EXCHANGE_ACTIVITIES, task_queue=queue):
            sent: Any = await sender.result()
            [ack] = sent.output
            result = await receiver.result()

    output: Any = result.output
    [received] = output
    assert ack["answer"] == "accepted"
    assert result.baton["decision_log"] == ["Took over from legal"]
    async with Ledger(safeguards.ledger) as ledger:
        records = (await ledger.trace(received["task_id"])).records
    assert [record.members["status"] for record in records] == ["ACCEPTED"]
    await assert_replays(receiver, [Receives], plugin=BatonPlugin(safeguards=safeguards))


async def test_nothing_is_accepted_while_the_ledger_cannot_be_written(server: DevServer, tmp_path: Path) -> None:
    """The receiver does not begin and the sender gets no answer; then both continue (F13, S3-6.2-a)."""
    safeguards = Safeguards.development(tmp_path)
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    async with pipeline_worker(client, EXCHANGES, EXCHANGE_ACTIVITIES) as worker:
        receiver = await start(worker, Receives.run)
        await overview(receiver)
        with sqlite3.connect(str(safeguards.ledger), isolation_level=None) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            sender = await start(worker, HandsOff.run, to=receiver.id, seconds=60, attempts=20)
            await event(receiver, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, 2)  # it was sent again
            now = await overview(sender)
            assert [wait.name for wait in now.waiting_for] == ["hand off to risk"]
            lock.execute("ROLLBACK")
        lock.close()
        [ack] = (await sender.result()).output
        [received] = (await receiver.result()).output

    assert (ack["answer"], ack["handoffId"]) == ("accepted", received["handoff_id"])


async def test_a_receiver_that_is_cancelled_while_it_answers_has_not_failed(server: DevServer, tmp_path: Path) -> None:
    """Its code gets a cancellation, not a failed step after which it could continue."""
    safeguards = Safeguards.development(tmp_path)
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    async with pipeline_worker(client, EXCHANGES, EXCHANGE_ACTIVITIES) as worker:
        receiver = await start(worker, Receives.run)
        await overview(receiver)
        with sqlite3.connect(str(safeguards.ledger), isolation_level=None) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            await start(worker, HandsOff.run, to=receiver.id, seconds=1)
            await event(receiver, EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED, 2)
            await receiver.cancel()
            with pytest.raises(WorkflowFailureError) as raised:
                await receiver.result()
            lock.execute("ROLLBACK")
        lock.close()

    assert isinstance(raised.value.cause, CancelledError)
    await assert_replays(receiver, [Receives], plugin=BatonPlugin(safeguards=safeguards))
