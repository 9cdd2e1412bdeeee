"""Two companies that order from each other, each with keys, a ledger and a worker of its own."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker
from typer.testing import CliRunner, Result

from baton.cli.app import make_app
from baton.client import AcceptedHandoff, AcceptHandoff, ExportHandoff
from baton.devserver import DevServer
from baton.handoff.store_gate import Gate
from baton.handoff.store_safeguards import Safeguards
from baton.protocol import open_order
from tests.handoff.order_pipelines import (
    orders_score,
    scope,
    score,
)
from tests.support import sealing_worker


@dataclass(frozen=True)
class Company:
    """A company: its gate, with keys and ledger, its worker, and the folder of both."""

    gate: Gate
    worker: Worker
    folder: Path

    def run(self, server: DevServer, *words: str) -> Result:
        """Type `baton handoff …` at this company."""
        names = {"KEYS": "keys.toml", "LEDGER": "ledger.db", "WITNESS": "witness.jsonl", "VAULT": "vault.db"}
        places = {f"BATON_{name}": str(self.folder / file) for name, file in names.items()}
        environment = {**places, "TEMPORAL_ADDRESS": server.address, "BATON_TASK_QUEUE": self.worker.task_queue}
        return CliRunner().invoke(make_app(), ["handoff", *words], env=environment)

    def publish(self, folder: Path) -> str:
        """Write the public keys into a file."""
        file = folder / f"{uuid4()}.jwks"
        file.write_text(self.gate.keyring.public().to_json(), encoding="utf-8")
        return str(file)

    @property
    def client(self) -> Client:
        return self.worker.client

    async def records(self, task_id: str, order: str) -> list[tuple[str, str]]:
        """Return the kinds and statuses of what its ledger has of an order of a task."""
        headers = (await self.gate.ledger.trace(task_id)).headers
        return [(header.kind, header.status) for header in headers if header.event_id == order]


@asynccontextmanager
async def company(server: DevServer, folder: Path, pipelines: list[Any], stages: list[Any]) -> AsyncIterator[Company]:
    safeguards = Safeguards.development(folder)
    async with (
        sealing_worker(server, safeguards, pipelines, stages) as worker,
        safeguards.shared().open() as opened,
    ):
        yield Company(opened.gate, worker, folder)


@pytest.fixture(scope="module")
async def acme(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Company]:
    async with company(server, tmp_path_factory.mktemp("acme"), [orders_score], [scope, score]) as made:
        yield made


def exporting(acme: Company, ordered: str, **options: Any) -> ExportHandoff:
    return ExportHandoff(acme.client, acme.gate, ordered, "score", **{"to": "risk_scoring"} | options)


def accepting(globex: Company, acme: Company, data: bytes, **options: Any) -> AcceptHandoff:
    order, queue = open_order(data, acme.gate.keyring.public()), globex.worker.task_queue
    return AcceptHandoff(globex.client, globex.gate, order, **{"task_queue": queue} | options)


def name_of(data: bytes) -> str:
    """Return the audience of an order."""
    return str(json.loads(data)["message"]["audience"])


async def accept(globex: Company, acme: Company, data: bytes, **options: Any) -> AcceptedHandoff:
    return await accepting(globex, acme, data, **{"audience": name_of(data)} | options).commit(by="bob")


async def forget(client: Client, workflow_id: str) -> None:
    """Have the server delete an ended run, as its retention does."""
    request = DeleteWorkflowExecutionRequest(
        namespace=client.namespace, workflow_execution=WorkflowExecution(workflow_id=workflow_id)
    )
    await client.workflow_service.delete_workflow_execution(request)
    async with asyncio.timeout(60):
        while True:
            try:
                await client.get_workflow_handle(workflow_id).describe()
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return
                raise
            await asyncio.sleep(0.05)
