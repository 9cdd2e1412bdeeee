"""Several people and programs look at one run while it works."""

import asyncio

from temporalio import workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.workflowservice.v1 import QueryWorkflowRequest
from temporalio.client import Client
from temporalio.worker import Worker

from baton.devserver import DevServer

QUEUE = "queried"
READERS = 8


@workflow.defn
class Counting:
    """Counts until it is told to end."""

    def __init__(self) -> None:
        self.count = 0

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.count == 2)

    @workflow.signal
    def add(self) -> None:
        self.count += 1

    @workflow.query
    def counted(self) -> int:
        return self.count


async def test_all_readers_of_a_run_that_works_are_answered(server: DevServer) -> None:
    """None is refused and has to ask again, as all but one are with the server's own setting."""
    client = await Client.connect(server.address)
    async with Worker(client, task_queue=QUEUE, workflows=[Counting]):
        handle = await client.start_workflow(Counting.run, id="counting", task_queue=QUEUE)
        assert await handle.query(Counting.counted) == 0
    await handle.signal(Counting.add)  # a task waits for a worker, and the queries with it
    request = QueryWorkflowRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id="counting"),
        query=WorkflowQuery(query_type="counted"),
    )
    asked = [asyncio.create_task(client.workflow_service.query_workflow(request)) for _ in range(READERS)]
    async with Worker(client, task_queue=QUEUE, workflows=[Counting]):
        answers = await asyncio.gather(*asked)
        await handle.signal(Counting.add)
        await handle.result()

    assert [answer.query_result.payloads[0].data for answer in answers] == [b"1"] * READERS
