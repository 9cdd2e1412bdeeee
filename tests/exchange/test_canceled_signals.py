"""A run that is cancelled while it signals another pipeline."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError

from baton.client import RunStatus, read_run
from baton.core.messages import PipelineInput
from baton.devserver import DevServer, DevServerOptions
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.exchange.exchange_pipelines import HandsOff, Receives
from tests.support import GOAL, LIMIT, event, start


@pytest.fixture
async def unhurried(safeguards: Safeguards) -> AsyncIterator[Client]:
    """Return a client of a server that transfers signals only once a second."""
    options = DevServerOptions(settings={"history.transferProcessorMaxPollRPS": 1})
    async with DevServer(options) as server:
        yield await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])


@pytest.mark.parametrize("there", [True, False], ids=["arrives", "finds nobody"])
async def test_a_run_that_is_cancelled_as_its_handoff_arrives_is_cancelled(
    unhurried: Client, safeguards: Safeguards, there: bool
) -> None:
    """Both arrive in one workflow task, in which the SDK alone would lose the cancellation or fail for ever."""
    to = f"risk-{uuid.uuid4()}"
    if there:  # nobody works for it, so it answers nothing
        await unhurried.start_workflow(
            Receives.run, PipelineInput(goal=GOAL), id=to, task_queue=to, execution_timeout=LIMIT
        )
    async with pipeline_worker(unhurried, [HandsOff], EXCHANGE_ACTIVITIES) as worker:
        sender = await start(worker, HandsOff.run, to=to)
        await event(sender, EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED)
        await sender.cancel()
        with pytest.raises(WorkflowFailureError) as raised:
            await asyncio.wait_for(sender.result(), 60)

    assert isinstance(raised.value.cause, CancelledError)
    assert (await read_run(unhurried, sender.id)).status is RunStatus.CANCELED
    await assert_replays(sender, [HandsOff], plugin=BatonPlugin(safeguards=safeguards))
