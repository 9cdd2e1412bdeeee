"""Decisions on a wait that a query showed before it was recorded."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from baton.errors import PipelineError
from baton.runs.client_decide import send_decision
from baton.testing import pipeline_worker
from tests.pipelines.refusing import Refuses
from tests.support import LIMIT


@pytest.fixture(scope="module")
async def worker(client: Client) -> AsyncIterator[Worker]:
    """Return a worker of the rejecting workflow."""
    async with pipeline_worker(client, [Refuses], []) as it:
        yield it


@pytest.fixture
async def refusing(worker: Worker) -> AsyncIterator[WorkflowHandle[Any, Any]]:
    """Return a run that rejects the update."""
    handle = await worker.client.start_workflow(
        Refuses.run, id=f"refuses-{uuid4()}", task_queue=worker.task_queue, execution_timeout=LIMIT
    )
    yield handle
    if not (await handle.describe()).close_time:
        await handle.terminate()


class TestDecidedByUpdate:
    async def test_an_early_rejection_is_retried(self, refusing: WorkflowHandle[Any, Any]) -> None:
        """The run is waiting for this decision, and then accepts it."""

        async def waits() -> bool:
            await refusing.signal(Refuses.listen)
            return True

        assert await send_decision(refusing, "say", "yes", str, waits) == "heard yes"
        assert await refusing.result() == "yes"

    @pytest.mark.parametrize(("waits_for_it", "asked"), [(False, 1), (True, 4)], ids=["it does not wait", "it does"])
    async def test_a_lasting_rejection_is_the_answer(
        self, refusing: WorkflowHandle[Any, Any], waits_for_it: bool, asked: int
    ) -> None:
        """At once if the run waits for nothing similar, and never without end."""
        times = 0

        async def waits() -> bool:
            nonlocal times
            times += 1
            return waits_for_it

        with pytest.raises(PipelineError, match="nobody listens yet"):
            await send_decision(refusing, "say", "yes", str, waits)
        assert times == asked
