"""A run that is cancelled while a signal of its own is on the way to another pipeline."""

import asyncio
import uuid

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError

from baton.activity.exchange import EXCHANGE_ACTIVITIES
from baton.activity.safeguards import Safeguards
from baton.client import RunStatus, read_run
from baton.plugin import BatonPlugin
from baton.protocol.messages import PipelineInput
from baton.testing import assert_replays, pipeline_worker
from tests.support import GOAL, LIMIT, event, start
from tests.temporal.exchange_pipelines import Receives
from tests.temporal.held_pipelines import HandsOffLater
from tests.temporal.holding import GO, HELD


@pytest.mark.parametrize(
    ("there", "outcome"),
    [
        (True, EventType.EVENT_TYPE_EXTERNAL_WORKFLOW_EXECUTION_SIGNALED),
        (False, EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED),
    ],
    ids=["arrives", "finds nobody"],
)
async def test_a_run_that_is_cancelled_as_its_handoff_arrives_is_cancelled(
    sealing: Client, safeguards: Safeguards, there: bool, outcome: "EventType.ValueType"
) -> None:
    """It is told of both in one workflow task: the SDK forgets the cancellation, or fails that task for ever."""
    HELD.clear()
    GO.clear()
    to = f"risk-{uuid.uuid4()}"
    if there:  # nobody works for it, so it answers nothing
        await sealing.start_workflow(
            Receives.run, PipelineInput(goal=GOAL), id=to, task_queue=to, execution_timeout=LIMIT
        )
    async with pipeline_worker(sealing, [HandsOffLater], EXCHANGE_ACTIVITIES) as worker:
        sender = await start(worker, HandsOffLater.run, to=to)
        assert await asyncio.to_thread(HELD.wait, 20)
        asyncio.get_running_loop().call_later(0.3, GO.set)  # the worker, told to stop, takes no other task after this
    await event(sender, outcome)
    await sender.cancel()
    async with pipeline_worker(sealing, [HandsOffLater], EXCHANGE_ACTIVITIES, task_queue=worker.task_queue):
        with pytest.raises(WorkflowFailureError) as raised:
            await asyncio.wait_for(sender.result(), 60)

    assert isinstance(raised.value.cause, CancelledError)
    assert (await read_run(sealing, sender.id)).status is RunStatus.CANCELED
    await assert_replays(sender, [HandsOffLater], plugin=BatonPlugin(safeguards=safeguards))
