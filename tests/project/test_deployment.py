"""The programs of docker-compose.yml and deploy/, run against a real Temporal server."""

import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio import workflow
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from baton.wire.names import SEARCH_ATTRIBUTES
from tests.support.processes import ran

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[Client]:
    """Return a client of a server without any namespace or search attribute of Baton."""
    program = shutil.which("temporal", path=PROGRAMS)
    async with await WorkflowEnvironment.start_local(ip="127.0.0.1", dev_server_existing_path=program) as environment:
        yield environment.client


async def run(client: Client, *command: str, **variables: str) -> tuple[int, str]:
    """Run a program as a container would, told where the server is; return its exit code and what it wrote."""
    environment = {
        "PATH": os.pathsep.join([str(PROGRAMS), os.environ["PATH"]]),
        "TEMPORAL_ADDRESS": client.service_client.config.target_host,
        **variables,
    }
    code, output, beside = await ran(*command, environment=environment)
    return code or 0, output + beside


class TestSetupJob:
    async def test_it_makes_the_namespace_and_changes_only_what_differs_the_next_time(self, client: Client) -> None:
        """Every `up` runs it: the second run finds all in place, but for a retention that was set anew."""
        job = COMPOSE["services"]["temporal-setup"]
        (body,) = job["command"]
        command = [*job["entrypoint"], body.replace("$$", "$")]

        first = await run(client, *command, TEMPORAL_NAMESPACE="baton", RETENTION="30d")
        second = await run(client, *command, TEMPORAL_NAMESPACE="baton", RETENTION="45d")

        assert first[0] == 0, first[1]
        assert second[0] == 0, second[1]
        described = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace="baton"), retry=True
        )
        assert described.config.workflow_execution_retention_ttl.ToTimedelta().days == 45
        listed = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace="baton"), retry=True
        )
        expected = {
            name: IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{kind.upper()}")
            for name, kind in SEARCH_ATTRIBUTES.items()
        }
        assert dict(listed.custom_attributes) == expected


@workflow.defn
class Idle:
    """A workflow that is never started; a worker needs one to poll."""

    @workflow.run
    async def run(self) -> None:
        """Do nothing."""


class TestHealthcheck:
    COMMAND = (sys.executable, str(ROOT / "deploy" / "healthcheck.py"))

    async def test_a_host_whose_worker_polls_the_queue_is_healthy(self, client: Client) -> None:
        """The service has heard this host's worker ask for work."""
        async with Worker(client, task_queue="busy", workflows=[Idle], workflow_runner=UnsandboxedWorkflowRunner()):
            healthy = await self.ask_until_heard(client)

        assert healthy == (0, "")

    async def ask_until_heard(self, client: Client) -> tuple[int, str]:
        """Ask again until the worker's first poll has reached the server; the test's timeout bounds it."""
        while True:
            answer = await run(client, *self.COMMAND, BATON_TASK_QUEUE="busy")
            if answer[0] == 0:
                return answer

    async def test_a_host_without_a_worker_on_the_queue_is_not(self, client: Client) -> None:
        """A worker that listens to another queue, or none at all, does no work here."""
        code, output = await run(client, *self.COMMAND, BATON_TASK_QUEUE="idle")

        assert code == 1
        assert output.strip() == (
            f"no worker on {socket.gethostname()!r} asks the task queue 'idle' of namespace 'default' for work"
        )

    async def test_a_service_out_of_reach_is_named_as_the_reason(self, client: Client) -> None:
        """The operator reads why, in one line."""
        code, output = await run(client, *self.COMMAND, TEMPORAL_ADDRESS="127.0.0.1:1")

        assert code == 1
        assert output.startswith("could not ask the service: ")
        assert output.count("\n") == 1
