"""Runs pinned to a build of their workers."""

import asyncio
import io
import uuid
from typing import Any

import pytest
from rich.console import Console
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import Worker, WorkerDeploymentConfig

from baton import PipelineInput
from baton.cli.show import waits_card
from baton.client import read_run, roll_back
from baton.runs.client_waiting import Build, Unchosen, has_pollers, no_worker_error, waits
from tests.pipelines.pipelines import Gated
from tests.pipelines.stages import STAGES
from tests.runs.moving_pipelines import moves, stays
from tests.support import GOAL, LIMIT, approve, until_waiting


def versioned_worker(client: Client, name: str, build: str, behavior: VersioningBehavior) -> Worker:
    """Return a worker of a build; task queue and deployment have the same name."""
    config = WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name=name, build_id=build),
        use_worker_versioning=True,
        default_versioning_behavior=behavior,
    )
    return Worker(client, task_queue=name, workflows=[Gated, moves, stays], activities=STAGES, deployment_config=config)


async def make_current(client: Client, name: str, build: str) -> None:
    """Make a build current once the server knows it; the test's timeout bounds the wait."""
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace, deployment_name=name, build_id=build, identity="ann"
    )
    while True:
        try:
            await client.workflow_service.set_worker_deployment_current_version(request)
        except RPCError:
            await asyncio.sleep(0.1)
        else:
            return


@pytest.mark.parametrize(
    ("behavior", "pinned"),
    [
        pytest.param(VersioningBehavior.PINNED, True, id="pinned"),
        pytest.param(VersioningBehavior.AUTO_UPGRADE, False, id="upgraded"),
    ],
)
async def test_only_workers_of_its_build_continue_a_pinned_run(
    client: Client, behavior: VersioningBehavior, pinned: bool
) -> None:
    """Workers of another build do not count; an auto-upgraded run continues with any."""
    name = f"builds-{uuid.uuid4()}"
    async with versioned_worker(client, name, "one", behavior):
        await make_current(client, name, "one")
        handle = await client.start_workflow(
            Gated.run, PipelineInput(goal=GOAL), id=name, task_queue=name, execution_timeout=LIMIT
        )
        await until_waiting(handle, "release manager")
        waits_now = await waits(client, await read_run(client, handle.id))
        has_workers = [await has_pollers(client, name, Build(name, build)) for build in ("one", "gone")]

    assert waits_now is not None
    assert (waits_now.has_worker, waits_now.build) == (True, Build(name, "one") if pinned else None)
    assert has_workers == [True, False]


async def test_a_run_reports_that_no_build_of_the_workers_is_current(client: Client) -> None:
    """The workers poll and get nothing: without the message the run would look slow."""
    name = f"builds-{uuid.uuid4()}"
    async with versioned_worker(client, name, "one", VersioningBehavior.PINNED):
        handle = await client.start_workflow(
            Gated.run, PipelineInput(goal=GOAL), id=name, task_queue=name, execution_timeout=LIMIT
        )
        while not await has_pollers(client, name):  # noqa: ASYNC110 - the server tells no event
            await asyncio.sleep(0.1)
        run = await read_run(client, handle.id)
        waits_before = await waits(client, run)
        await make_current(client, name, "one")
        waits_after = await waits(client, run)
        await handle.terminate()

    assert waits_before is not None
    assert waits_after is not None
    assert (waits_before.has_worker, waits_before.unchosen) == (False, Unchosen(name, "one", None))
    assert (waits_after.has_worker, waits_after.unchosen) == (True, None)
    file = io.StringIO()
    Console(file=file, width=200).print(waits_card(run, waits_before))
    assert f"set-current-version --deployment-name {name} --build-id one" in file.getvalue()


async def test_a_run_of_a_lost_build_begins_again_on_the_current_one(client: Client) -> None:
    """By a roll-back to its first step; one to a later step stays on the lost build."""
    name = f"builds-{uuid.uuid4()}"
    async with versioned_worker(client, name, "one", VersioningBehavior.PINNED):
        await make_current(client, name, "one")
        handle = await client.start_workflow(
            Gated.run, PipelineInput(goal=GOAL), id=name, task_queue=name, execution_timeout=LIMIT
        )
        await until_waiting(handle, "release manager")
    async with versioned_worker(client, name, "two", VersioningBehavior.PINNED):
        await make_current(client, name, "two")
        await roll_back(client, name, "2", by="ann", why="the build is lost")
        stays = await waits(client, await read_run(client, name))
        await roll_back(client, name, "1", by="ann", why="the build is lost")
        await until_waiting(client.get_workflow_handle(name), "release manager")
        moved = await waits(client, await read_run(client, name))

    assert stays is not None
    assert moved is not None
    assert (stays.build, moved.build, moved.has_worker) == (Build(name, "one"), Build(name, "two"), True)


@pytest.mark.parametrize(("pipeline", "ends_on"), [(moves, "two"), (stays, "one")], ids=["moves", "stays"])
async def test_a_pinned_run_moves_to_a_new_build_where_it_says_so(client: Client, pipeline: Any, ends_on: str) -> None:
    """It continues as new before its next step; any other continues on its own build."""
    name = f"builds-{uuid.uuid4()}"
    async with versioned_worker(client, name, "one", VersioningBehavior.PINNED):
        await make_current(client, name, "one")
        start = PipelineInput(goal=GOAL)
        handle = await client.start_workflow(pipeline, start, id=name, task_queue=name, execution_timeout=LIMIT)
        await until_waiting(handle, "release manager")
        async with versioned_worker(client, name, "two", VersioningBehavior.PINNED):
            await make_current(client, name, "two")
            await approve(client, client.get_workflow_handle(name))
            result = await handle.result()

    assert result.output == ends_on
    assert (await read_run(client, name)).start.continued >= 1


def test_the_error_names_the_build() -> None:
    """The operator learns which build to start."""
    assert "no worker of build 'one', to which the run is pinned, polls task queue 'q'" in str(
        no_worker_error("q", Build("d", "one"))
    )
