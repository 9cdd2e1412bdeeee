"""Runs that are reset to their first task: their random values stay the same."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.worker import Worker

from baton import PipelineResult, PipelineStatus
from baton.devserver import DevServer
from baton.exchange.activity import EXCHANGE_ACTIVITIES
from baton.exchange.external import QUERY_OUTSIDE, OutsideHandoff
from baton.handoff.store_safeguards import Safeguards
from baton.outside.client_external import HandoffRef, OutsideAgents
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.exchange.exchange_pipelines import HandsOutside
from tests.support import LIMIT, Handle, event, overview, start, until


@pytest.fixture(scope="module")
async def worker(server: DevServer, safeguards: Safeguards) -> AsyncIterator[Worker]:
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
    async with pipeline_worker(client, [HandsOutside], EXCHANGE_ACTIVITIES) as running:
        yield running


async def reset(client: Client, handle: Handle) -> Handle:
    """Reset a run as the Temporal UI does, and return the new one once it waits."""
    first = await event(handle, EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
    response = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id),
            reason="wrong plan",
            workflow_task_finish_event_id=first.event_id,
            request_id=str(uuid4()),
        )
    )
    rerun = client.get_workflow_handle(handle.id, run_id=response.run_id, result_type=PipelineResult)
    await until(rerun, lambda now: now.status is PipelineStatus.WAITING)
    return rerun


async def test_a_pipeline_that_hands_on_still_fits_its_history(worker: Worker, safeguards: Safeguards) -> None:
    """Once its handoff had another id in a replay, and the run stalled with the next worker."""
    handle = await start(worker, HandsOutside.run, seconds=100)
    await until(handle, lambda now: now.status is PipelineStatus.WAITING)
    rerun = await reset(worker.client, handle)
    async with safeguards.shared().open() as guarded:
        agents = OutsideAgents(worker.client, guarded.gate)
        [handoff] = await rerun.query(QUERY_OUTSIDE, result_type=list[OutsideHandoff])
        found = HandoffRef(rerun.id, handoff)
        await agents.accept(found, "reviewer")
        await agents.return_report(found, "reviewer", "done")

    assert (await rerun.result()).output["report"] == "done"
    await assert_replays(rerun, [HandsOutside], plugin=BatonPlugin(safeguards=safeguards))


async def test_a_generated_task_id_stays_the_same(server: DevServer, worker: Worker) -> None:
    """For a run started by another language or the Temporal CLI, whose ledger once got another task."""
    plain = await Client.connect(server.address)
    handle = await plain.start_workflow(
        "HandsOutside", {"goal": "g"}, id=f"plain-{uuid4()}", task_queue=worker.task_queue, execution_timeout=LIMIT
    )
    first = worker.client.get_workflow_handle(handle.id)
    await until(first, lambda now: now.status is PipelineStatus.WAITING)
    task_before = (await overview(first)).task_id
    rerun = await reset(worker.client, first)
    task_after = (await overview(rerun)).task_id
    await rerun.terminate()

    other = await start(worker, HandsOutside.run)
    assert task_after == task_before != (await overview(other)).task_id
    await other.terminate()
