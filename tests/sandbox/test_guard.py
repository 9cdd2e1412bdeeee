"""The protocol inside a real sandboxed workflow that does not pass it through."""

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
async def worker(server: DevServer, unpassed_tests: None) -> AsyncIterator[Worker]:
    """Return a plain worker: Temporal's own sandbox and pydantic's converter, without Baton's plugin."""
    client = await Client.connect(server.address, data_converter=pydantic_data_converter)
    async with Worker(
        client,
        task_queue=f"guard-{uuid.uuid4()}",
        workflows=[Probing, Trespassing, Exemplifying],
        workflow_failure_exception_types=[Exception],
    ) as running:
        yield running


async def run_inside(worker: Worker, kind: Any, argument: Any) -> Any:
    """Run a workflow to its end and return its result."""
    return await worker.client.execute_workflow(kind.run, argument, id=str(uuid.uuid4()), task_queue=worker.task_queue)


@pytest.fixture(scope="module")
async def inside(worker: Worker) -> dict[str, Any]:
    """Return the result of every probe inside the sandbox."""
    answers: dict[str, Any] = await run_inside(worker, Probing, list(PROBES))
    return answers


@pytest.fixture(scope="module")
async def example_results(worker: Worker) -> dict[str, list[str]]:
    """Return the results of every module's examples inside the sandbox."""
    answers: dict[str, list[str]] = await run_inside(worker, Exemplifying, MODULES)
    return answers


class TestProtocol:
    @pytest.mark.parametrize("name", PROBES)
    def test_results_are_the_same_inside_and_outside(self, inside: dict[str, Any], name: str) -> None:
        """The protocol reads no clock, random number, setting or file, so replays agree (S1-design-i)."""
        assert inside[name] == PROBES[name]()

    async def test_it_was_not_passed_through(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        """Otherwise the guard would not see it: the sandbox has its own copy, unaffected by changes outside."""
        monkeypatch.setattr(names, "ANSWER", "changed outside")

        assert await run_inside(worker, Probing, []) == {"ANSWER": "answer"}

    @pytest.mark.parametrize("module", MODULES)
    def test_its_examples_hold_inside(self, example_results: dict[str, list[str]], module: str) -> None:
        """The docstrings' examples also work in the sandbox, without clock, files or settings."""
        assert [line for line in example_results[module] if "FAILED" in line] == []
        assert example_results[module] == examples(module)


class TestGuard:
    async def test_it_stops_what_the_protocol_must_not_do(self, worker: Worker) -> None:
        """The proof above depends on the guard."""
        assert await run_inside(worker, Trespassing, list(FORBIDDEN)) == list(FORBIDDEN)
