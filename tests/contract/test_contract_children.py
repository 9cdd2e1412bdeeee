"""What a pipeline forbids or does not grant, no child of it may call, nor theirs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from baton import PipelineInput
from baton.testing import pipeline_worker, run_pipeline
from tests.contract.child_pipelines import CHILD_PIPELINES, CHILD_STAGES, SENT, calls_out, forbids, grants
from tests.support import Handle, failure, start

CHILDREN: list[dict[str, Any]] = [
    {"of": "helper"},
    {"of": "helper", "undeclared": True},
    {"of": "careful_helper"},
    {"of": "middle"},
]


@pytest.fixture(scope="module")
async def worker(client: Client) -> AsyncIterator[Worker]:
    async with pipeline_worker(client, CHILD_PIPELINES, CHILD_STAGES) as worker:
        yield worker


async def exists(handle: Handle) -> bool:
    """Return whether a run was started."""
    try:
        await handle.describe()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


@pytest.mark.parametrize("child", CHILDREN, ids=["child", "tools undeclared", "own contracts", "grandchild"])
@pytest.mark.parametrize(
    ("pipeline", "why"), [(forbids, "'forbids' forbids it"), (grants, "'grants' does not grant it")]
)
async def test_it_does_not_run_and_the_error_names_both(
    worker: Worker, pipeline: Any, why: str, child: dict[str, Any]
) -> None:
    """Whatever the child's own contracts grant."""
    SENT.clear()
    message = await failure(await start(worker, pipeline, tool="Email_Send", **child))

    assert SENT == []
    last = "helper" if child["of"] == "middle" else child["of"]
    assert f"the pipeline {why}" in message
    assert f"to its child {last!r}" in message


@pytest.mark.parametrize("child", CHILDREN, ids=["child", "tools undeclared", "own contracts", "grandchild"])
@pytest.mark.parametrize("pipeline", [forbids, grants])
async def test_what_they_allow_runs(worker: Worker, pipeline: Any, child: dict[str, Any]) -> None:
    SENT.clear()
    await run_pipeline(worker, pipeline, PipelineInput(goal="Help", params={"tool": "notes.add", **child}))

    assert SENT == ["notes.add"]


async def test_a_pipeline_that_a_handoff_starts_inherits_it_too(client: Client, worker: Worker) -> None:
    SENT.clear()
    handle = await start(worker, calls_out, tool="email.send")
    other = client.get_workflow_handle(f"{handle.id}.other")
    while not await exists(other):
        pass
    assert "'calls_out' forbids it" in await failure(other)

    assert SENT == []
    await handle.terminate()
