"""The protocol inside a real sandboxed workflow that does not pass it through: the sandbox is the judge."""

import importlib
import inspect
import pkgutil
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from baton import protocol
from baton.devserver import DevServer
from baton.protocol import names
from tests.sandbox.probes import FORBIDDEN, PROBES, Probing, Trespassing


@pytest.fixture(scope="module")
async def worker(server: DevServer) -> AsyncIterator[Worker]:
    """Return a plain worker: Temporal's own sandbox and pydantic's converter, and no plugin of Baton's."""
    client = await Client.connect(server.address, data_converter=pydantic_data_converter)
    async with Worker(
        client,
        task_queue=f"guard-{uuid.uuid4()}",
        workflows=[Probing, Trespassing],
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


class TestProtocol:
    """Every function of `baton.protocol`."""

    @pytest.mark.parametrize("name", PROBES)
    def test_it_answers_alike_inside_and_outside(self, inside: dict[str, Any], name: str) -> None:
        """It reads no clock, random number, setting or file, so a replay comes to the same baton (S1-design-i)."""
        assert inside[name] == PROBES[name]()

    async def test_it_was_not_passed_through(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        """Else the guard would not see it: the sandbox has a copy of its own, untouched by what happens here."""
        monkeypatch.setattr(names, "DECIDE", "changed outside")

        assert await run_inside(worker, Probing, []) == {"DECIDE": "decide"}

    def test_no_function_is_left_out(self) -> None:
        """A new function is probed too; the schemas are for readers and no workflow makes them."""
        modules = [
            importlib.import_module(f"{protocol.__name__}.{one.name}")
            for one in pkgutil.iter_modules(protocol.__path__)
        ]
        functions = {
            name
            for module in modules
            for name, found in inspect.getmembers(module, inspect.isfunction)
            if found.__module__ == module.__name__ and not name.startswith("_")
        }

        assert functions - {"schema", "schema_names"} <= PROBES.keys()


class TestGuard:
    """The sandbox itself."""

    @pytest.mark.parametrize("name", FORBIDDEN)
    async def test_it_stops_what_the_protocol_must_not_do(self, worker: Worker, name: str) -> None:
        """The proof above is worth something only because the guard bites."""
        with pytest.raises(WorkflowFailureError) as caught:
            await run_inside(worker, Trespassing, name)

        assert "RestrictedWorkflowAccessError" in repr(caught.value.cause)
