"""Runs that are taken back to their very first task: what their code draws by chance before it begins."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.worker import Worker

from baton.core.messages import PipelineResult, PipelineStatus
from baton.devserver import DevServer
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.exchange.client_external import Found, OutsideAgents
from baton.exchange.external import QUERY_OUTSIDE, OutsideHandoff
from baton.handoff.store_safeguards import Safeguards
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.exchange.exchange_pipelines import HandsOutside
from tests.support import LIMIT, Handle, event, overview, start, until


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    async with pipeline_worker(client, [HandsOutside], EXCHANGE_ACTIVITIES) as it:
        yield it


async def reset(client: Client, handle: Handle) -> Handle:
    """Take a run back as the Temporal UI does, and return the new one once it waits."""
    first = await event(handle, EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
    answer = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id),
            reason="wrong plan",
            workflow_task_finish_event_id=first.event_id,
            request_id=str(uuid4()),
        )
    )
    again = client.get_workflow_handle(handle.id, run_id=answer.run_id, result_type=PipelineResult)
    await until(again, lambda now: now.status is PipelineStatus.WAITING)
    return again


async def test_a_pipeline_that_hands_on_still_fits_its_history(worker: Worker, safeguards: Safeguards) -> None:
    """Its handoff had another id in a replay than it went out under, and with the next worker the run stood still."""
    handle = await start(worker, HandsOutside.run, seconds=100)
    await until(handle, lambda now: now.status is PipelineStatus.WAITING)
    again = await reset(worker.client, handle)
    async with safeguards.shared().open() as guarded:
        agents = OutsideAgents(worker.client, guarded.gate)
        [one] = await again.query(QUERY_OUTSIDE, result_type=list[OutsideHandoff])
        found = Found(again.id, one)
        await agents.accept(found, "reviewer")
        await agents.return_report(found, "reviewer", "done")

    assert (await again.result()).output["report"] == "done"
    await assert_replays(again, [HandsOutside], plugin=BatonPlugin(safeguards=safeguards))


async def test_a_task_that_the_run_was_not_given_stays_the_same(server: DevServer, worker: Worker) -> None:
    """A run that another language or the Temporal CLI started: its ledger went on under another task."""
    plain = await Client.connect(server.address)
    handle = await plain.start_workflow(
        "HandsOutside", {"goal": "g"}, id=f"plain-{uuid4()}", task_queue=worker.task_queue, execution_timeout=LIMIT
    )
    first = worker.client.get_workflow_handle(handle.id)
    await until(first, lambda now: now.status is PipelineStatus.WAITING)
    before = (await overview(first)).task_id
    again = await reset(worker.client, first)
    after = (await overview(again)).task_id
    await again.terminate()

    other = await start(worker, HandsOutside.run)
    assert after == before != (await overview(other)).task_id
    await other.terminate()
