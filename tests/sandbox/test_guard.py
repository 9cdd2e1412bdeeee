"""The protocol inside a real sandboxed workflow that does not pass it through: the sandbox is the judge."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from baton.devserver import DevServer
from baton.wire import names
from tests.sandbox.probes import FORBIDDEN, MODULES, PROBES, Exemplifying, Probing, Trespassing, examples


@pytest.fixture(scope="module")
async def worker(server: DevServer) -> AsyncIterator[Worker]:
    """Return a plain worker: Temporal's own sandbox and pydantic's converter, and no plugin of Baton's."""
    client = await Client.connect(server.address, data_converter=pydantic_data_converter)
    async with Worker(
        client,
        task_queue=f"guard-{uuid.uuid4()}",
        workflows=[Probing, Trespassing, Exemplifying],
        workflow_failure_exception_types=[Exception],
    ) as running:
        yield running


async def run_inside(worker: Worker, kind: Any, argument: Any) -> Any:
    """Run a workflow to its end and return what it returned."""
    return await worker.client.execute_workflow(kind.run, argument, id=str(uuid.uuid4()), task_queue=worker.task_queue)


@pytest.fixture(scope="module")
async def inside(worker: Worker) -> dict[str, Any]:
    """Return what every probe answered inside the sandbox."""
    answers: dict[str, Any] = await run_inside(worker, Probing, list(PROBES))
    return answers


@pytest.fixture(scope="module")
async def told(worker: Worker) -> dict[str, list[str]]:
    """Return what every module's examples told inside the sandbox."""
    answers: dict[str, list[str]] = await run_inside(worker, Exemplifying, MODULES)
    return answers


class TestProtocol:
    @pytest.mark.parametrize("name", PROBES)
    def test_it_answers_alike_inside_and_outside(self, inside: dict[str, Any], name: str) -> None:
        """It reads no clock, random number, setting or file, so a replay comes to the same baton (S1-design-i)."""
        assert inside[name] == PROBES[name]()

    async def test_it_was_not_passed_through(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        """Else the guard would not see it: the sandbox has a copy of its own, untouched by what happens here."""
        monkeypatch.setattr(names, "DECIDE", "changed outside")

        assert await run_inside(worker, Probing, []) == {"DECIDE": "decide"}

    @pytest.mark.parametrize("module", MODULES)
    def test_its_examples_hold_inside(self, told: dict[str, list[str]], module: str) -> None:
        """What the docstrings show is so in the sandbox too, where no clock, file or setting can be reached."""
        assert [one for one in told[module] if "FAILED" in one] == []
        assert told[module] == examples(module)


class TestGuard:
    async def test_it_stops_what_the_protocol_must_not_do(self, worker: Worker) -> None:
        """The proof above is worth something only because the guard bites."""
        assert await run_inside(worker, Trespassing, list(FORBIDDEN)) == list(FORBIDDEN)
