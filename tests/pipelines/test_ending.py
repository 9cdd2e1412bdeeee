"""A run whose code ends before its steps: it closes, and nothing follows its end."""

import asyncio

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError

from baton import PipelineResult
from baton.client import RunStatus, StepStatus, read_run
from baton.testing import assert_replays, pipeline_worker
from tests.pipelines.line_pipelines import Races, TakesTheFirst
from tests.pipelines.line_stages import STAGES as LINE_STAGES
from tests.pipelines.pipelines import AsksWhileWorking
from tests.pipelines.stages import STAGES
from tests.support import start, until_waiting


async def test_a_run_canceled_with_steps_in_progress_closes(client: Client) -> None:
    """The stage is canceled after the approvals, when the waiting code has ended."""
    async with pipeline_worker(client, [AsksWhileWorking], STAGES) as worker:
        handle = await start(worker, AsksWhileWorking.run, gate="shut", patch={})
        await until_waiting(handle, "hold", "legal", "security")
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()

    assert isinstance(raised.value.cause, CancelledError)
    run = await read_run(client, handle.id)
    assert run.status is RunStatus.CANCELED
    failed = StepStatus.FAILED
    assert {step.name: step.status for step in run.steps} == {"hold": failed, "legal": failed, "security": failed}
    await assert_replays(handle, [AsksWhileWorking])


async def test_a_run_that_does_not_await_a_canceled_step_closes(client: Client) -> None:
    """The step's commands come too late."""
    async with pipeline_worker(client, [Races], LINE_STAGES) as worker:
        handle = await start(worker, Races.run)
        result = PipelineResult.model_validate(await handle.result())

    assert result.baton["decision_log"] == ["alpha"]
    run = await read_run(client, handle.id)
    assert run.status is RunStatus.COMPLETED
    await assert_replays(handle, [Races])


@pytest.mark.filterwarnings("ignore:Cannot find activity to cancel")  # the SDK's, of one that has just ended
@pytest.mark.parametrize("how", ["returns", "raises", "goes on"])
async def test_a_run_that_ends_together_with_unawaited_stages_closes(client: Client, how: str) -> None:
    """Commands after its end would make the server reject the task for ever."""
    async with pipeline_worker(client, [TakesTheFirst], STAGES) as worker:
        handles = [await start(worker, TakesTheFirst.run, how=how) for _ in range(4)]
        async with asyncio.timeout(60):
            ended = await asyncio.gather(*(handle.result() for handle in handles), return_exceptions=True)

    assert all(isinstance(result, WorkflowFailureError if how == "raises" else PipelineResult) for result in ended)
    for handle in handles:
        first = client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
        await assert_replays(first, [TakesTheFirst])
