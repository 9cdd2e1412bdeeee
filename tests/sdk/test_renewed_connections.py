"""The server closes connections after five minutes, here after one second: no call of ours fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueRequest
from temporalio.client import Client

from baton.devserver import DevServer, DevServerOptions
from baton.runs.client_checks import check_namespace, check_search_attributes
from baton.runs.client_waiting import describe_queue
from tests.support.tampering import signal_raw

AGE = {"frontend.keepAliveMaxConnectionAge": "1s"}


@asynccontextmanager
async def old_clients(server: DevServer, count: int) -> AsyncIterator[list[Client]]:
    """Yield clients whose connections the server has closed; a poll keeps each open, and no call was made since."""
    clients = [await Client.connect(server.address) for _ in range(count)]
    request = PollWorkflowTaskQueueRequest(namespace="default", task_queue=TaskQueue(name="polled"))
    polls = [
        asyncio.create_task(client.workflow_service.poll_workflow_task_queue(request, timeout=timedelta(minutes=5)))
        for client in clients
    ]
    try:
        await asyncio.sleep(2)  # nobody is told that the server has let them go
        yield clients
    finally:
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)


async def test_the_first_call_on_an_old_connection_is_made_on_a_new_one() -> None:
    """The client learns only then that the connection is closed, and fails unless the call may be retried."""
    async with DevServer(DevServerOptions(ui_port=None, settings=AGE)) as server, old_clients(server, 4) as clients:
        queues, checks, attributes, signals = clients
        handle = await (await Client.connect(server.address)).start_workflow("Any", id="any", task_queue="nobody")

        assert list((await describe_queue(queues, "nobody")).pollers) == []
        assert (await check_namespace(checks)).found.startswith("'default' keeps closed runs")
        assert "does not list" not in (await check_search_attributes(attributes, fix=False)).found
        await signal_raw(signals, handle, "told", b"1")
