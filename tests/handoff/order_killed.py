"""Accepts an order and is killed on the way: `python -m tests.handoff.order_killed WHEN ADDRESS FOLDER ORDER TRUST ID`.

WHEN is `before` or `after` its run starts. FOLDER has the receiver's keys and ledger, TRUST the sender's public keys.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowInput,
    WorkflowHandle,
)

from baton.client import AcceptHandoff
from baton.handoff.store_safeguards import Safeguards
from baton.keys.store_keys import PublicKeys
from baton.plugin import BatonPlugin
from baton.protocol import open_order


class _Killed(OutboundInterceptor):
    """Kills the process before a start, or once the server has answered it."""

    when = ""

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        if self.when == "after":
            await super().start_workflow(input)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


class _Kills(Interceptor):
    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _Killed(super().intercept_client(next))


async def accept(address: str, folder: Path, order: bytes, trust: bytes, workflow_id: str, task_queue: str) -> None:
    safeguards = Safeguards.development(folder)
    client = await Client.connect(address, plugins=[BatonPlugin(safeguards=safeguards)], interceptors=[_Kills()])
    opened = open_order(order, PublicKeys.from_json(trust))
    async with safeguards.opened() as held:
        audience = str(opened.order.message["audience"])
        await AcceptHandoff(
            client, held.gate, opened, audience=audience, task_queue=task_queue, workflow_id=workflow_id
        ).commit(by="bob")


if __name__ == "__main__":
    _Killed.when, address, folder, order, trust, workflow_id, task_queue = sys.argv[1:]
    asyncio.run(
        accept(address, Path(folder), Path(order).read_bytes(), Path(trust).read_bytes(), workflow_id, task_queue)
    )
