"""What `baton doctor` says of a namespace and the workers of a task queue."""

import asyncio
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Worker, WorkerDeploymentConfig

from baton import Baton, Pipeline, PipelineInput, WorkerParts, pipeline, stage
from baton.cli.storage_checks import check_ledger_records, check_retention
from baton.client.faces import ArtifactStore, CheckResult
from baton.client.faces import CheckMark as Mark
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.store import Ledger
from baton.plugin import BatonPlugin
from baton.runs import client_waiting
from baton.runs.client_checks import (
    check_blocked_runs,
    check_namespace,
    check_other_queues,
    check_payloads,
    check_waiting_runs,
    check_workers,
)
from baton.testing import pipeline_worker
from baton.worker import Settings
from tests.pipelines.line_pipelines import Lines
from tests.pipelines.line_stages import STAGES
from tests.pipelines.mishaps import Stumbles
from tests.pipelines.pipelines import Gated, Linear
from tests.pipelines.stages import STAGES as LINEAR_STAGES
from tests.runs.test_builds import make_current, versioned_worker
from tests.support import GOAL, LIMIT, event, start, until_waiting


@stage
async def elsewhere(baton: Baton) -> None:
    """Do nothing."""


@pipeline
async def splits(p: Pipeline) -> None:
    """Run a stage on the task queue `later`."""
    await p.stage(elsewhere, task_queue=str(p.params["later"]))


async def seen(client: Client, queue: str) -> CheckResult:
    """Return what is found once the worker's first poll has reached the server; the test's timeout bounds it."""
    while (finding := await check_workers(client, queue)).found.startswith("no worker"):  # noqa: ASYNC110 - it has to be asked
        await asyncio.sleep(0.1)
    return finding


async def test_the_retention_of_the_namespace_is_shown(client: Client) -> None:
    """The development server keeps closed runs for one day."""
    assert (await check_namespace(client)).found == "'default' keeps closed runs for 1 day"


async def test_a_retention_below_that_of_logs_is_a_warning(client: Client) -> None:
    """It names both, and what else keeps the records."""
    assert (await check_namespace(client, 1)).mark is Mark.OK
    found = await check_namespace(client, 183)
    assert (found.mark, "183" in found.found) == (Mark.WARN, True)


@pytest.mark.parametrize(
    ("variables", "mark"),
    [
        pytest.param({}, Mark.OK, id="no term"),
        pytest.param({"BATON_LOG_DAYS": "183"}, Mark.OK, id="six months"),
        pytest.param({"BATON_LOG_DAYS": "30"}, Mark.WARN, id="less"),
        pytest.param({"BATON_LOG_DAYS": "183", "BATON_SAFEGUARDS": "off"}, Mark.WARN, id="without a ledger"),
        pytest.param({"BATON_LOG_DAYS": "183", "BATON_TRANSCRIPT_DAYS": "0"}, Mark.WARN, id="without transcripts"),
    ],
)
def test_what_the_eu_ai_act_asks_of_logs_is_checked(variables: dict[str, str], mark: Mark) -> None:
    """Where somebody says that the deployment is subject to it."""
    assert check_retention(Settings.of(variables)).mark is mark


@pytest.mark.parametrize(
    ("variables", "days"),
    [
        pytest.param({}, 30, id="no term"),
        pytest.param({"BATON_LOG_DAYS": "183"}, 183, id="a term"),
        pytest.param({"BATON_LOG_DAYS": "7"}, 30, id="a shorter one"),
        pytest.param({"BATON_LOG_DAYS": "183", "BATON_TRANSCRIPT_DAYS": "400"}, 400, id="more by itself"),
        pytest.param({"BATON_LOG_DAYS": "183", "BATON_TRANSCRIPT_DAYS": "0"}, None, id="none are made"),
    ],
)
def test_transcripts_are_kept_as_long_as_logs(variables: dict[str, str], days: int | None) -> None:
    """A worker that is told the term needs no second setting."""
    kept = Settings.of(variables).transcripts
    assert (None if kept is None else kept.days) == days


async def test_a_polling_worker_is_ok(client: Client) -> None:
    """A queue without workers is named with a remedy."""
    async with pipeline_worker(client, [Lines], STAGES) as worker:
        assert (await seen(client, worker.task_queue)).mark is Mark.OK
    idle = await check_workers(client, "idle-queue")
    assert (idle.mark, idle.found) == (Mark.WARN, "no worker polls task queue 'idle-queue'")


async def test_open_runs_without_workers_are_a_failure(client: Client) -> None:
    """They cannot progress; an unused queue is only a warning."""
    name = f"idle-{uuid.uuid4()}"
    handle = await client.start_workflow(
        Gated.run, PipelineInput(goal=GOAL), id=name, task_queue=name, execution_timeout=LIMIT
    )
    while (finding := await check_workers(client, name)).mark is Mark.WARN:  # noqa: ASYNC110 - the index comes later
        await asyncio.sleep(0.05)
    await handle.terminate()

    assert (finding.mark, bool(finding.remedy), "1 open run" in finding.found) == (Mark.FAIL, True, True)


async def test_other_task_queues_without_workers_are_a_failure(own_server: DevServer) -> None:
    """Of runs, and of stages on a queue of their own; a run names each."""
    client = await Client.connect(own_server.address, plugins=[BatonPlugin(safeguards="off")])
    idle, later = f"idle-{uuid.uuid4()}", f"later-{uuid.uuid4()}"

    async with pipeline_worker(client, [splits], []) as worker:
        handle = await start(worker, splits, later=later)
        given = PipelineInput(goal=GOAL, params={"later": later})
        unserved = await client.start_workflow(splits, given, id=idle, task_queue=idle)
        await event(handle, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
        while idle not in (found := (await check_other_queues(client, worker.task_queue)).found) or later not in found:  # noqa: ASYNC110 - the index comes later
            await asyncio.sleep(0.05)
        async with (
            pipeline_worker(client, [splits], [], task_queue=idle),
            pipeline_worker(client, [], [elsewhere], task_queue=later),
        ):
            await handle.result()
            await unserved.result()
            while (served := await check_other_queues(client, worker.task_queue)).mark is Mark.FAIL:  # noqa: ASYNC110 - the index comes later
                await asyncio.sleep(0.05)

    assert f"'{idle}' has no worker, which '{idle}' needs" in found
    assert f"'{later}' has no worker for stages, which '{handle.id}' needs" in found
    assert served.mark is Mark.OK


async def test_a_run_whose_stage_fails_repeatedly_is_a_failure(own_server: DevServer) -> None:
    """The finding names the reason, the run, and how to see more."""
    client = await Client.connect(own_server.address, plugins=[BatonPlugin(safeguards="off")])
    async with pipeline_worker(client, [Stumbles], LINEAR_STAGES) as worker:
        handle = await start(worker, Stumbles.run, stumbles=10_000)
        while (finding := await check_blocked_runs(client)).mark is Mark.OK:  # noqa: ASYNC110 - no event tells of an attempt
            await asyncio.sleep(0.05)
        await handle.terminate()

    assert (finding.mark, finding.remedy) == (Mark.FAIL, f"baton show {handle.id}")
    assert "the model does not answer" in finding.found


async def test_runs_that_wait_for_an_approval_are_counted(own_server: DevServer) -> None:
    """Like those with a handoff that waits for a person."""
    client = await Client.connect(own_server.address, plugins=[BatonPlugin(safeguards="off")])
    async with pipeline_worker(client, [Gated], LINEAR_STAGES) as worker:
        handle = await start(worker, Gated.run)
        await until_waiting(handle, "release manager")
        while (finding := await check_waiting_runs(client)).mark is Mark.OK:  # noqa: ASYNC110 - the index comes later
            await asyncio.sleep(0.05)
        await handle.terminate()

    assert (finding.mark, finding.remedy) == (Mark.WARN, "baton inbox")
    assert finding.found.startswith("1 run ")


async def test_a_ledger_without_the_records_of_receipts_is_a_failure(
    own_server: DevServer, store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted under its workers, cut, or another ledger."""
    safeguards = Safeguards.development(tmp_path)
    plugin = BatonPlugin(WorkerParts(artifacts=store), safeguards=safeguards)
    client = await Client.connect(own_server.address, plugins=[plugin])
    monkeypatch.setenv("BATON_LEDGER", str(safeguards.ledger))
    async with pipeline_worker(client, [Linear], LINEAR_STAGES) as worker:
        await (await start(worker, Linear.run)).result()
    while (complete := await check_ledger_records(client)).found == "no run here is on record":  # noqa: ASYNC110 - the index comes later
        await asyncio.sleep(0.05)
    for file in tmp_path.glob("ledger.db*"):  # noqa: ASYNC240 - a folder of a test
        file.unlink()
    deleted = await check_ledger_records(client)
    async with Ledger(safeguards.ledger):
        pass
    empty = await check_ledger_records(client)

    assert [complete.mark, deleted.mark, empty.mark] == [Mark.OK, Mark.FAIL, Mark.FAIL]


async def test_a_build_without_routed_runs_is_a_warning(client: Client) -> None:
    """A versioned worker gets no runs until its build is made current."""
    name = f"builds-{uuid.uuid4()}"
    version = WorkerDeploymentVersion(deployment_name=name, build_id="one")
    config = WorkerDeploymentConfig(
        version=version, use_worker_versioning=True, default_versioning_behavior=VersioningBehavior.PINNED
    )
    worker = Worker(client, task_queue=name, workflows=[Lines], activities=STAGES, deployment_config=config)
    async with worker:
        finding = await seen(client, name)
        assert (finding.mark, finding.remedy) == (
            Mark.WARN,
            f"temporal worker deployment set-current-version --deployment-name {name} --build-id one",
        )
        await client.workflow_service.set_worker_deployment_current_version(
            SetWorkerDeploymentCurrentVersionRequest(
                namespace=client.namespace, deployment_name=name, build_id="one", identity="ann"
            ),
            retry=True,
        )
        while (await seen(client, name)).mark is not Mark.OK:  # noqa: ASYNC110 - it has to be asked
            await asyncio.sleep(0.1)


async def test_runs_pinned_to_a_build_without_workers_are_a_warning(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of other builds may be running."""
    name = f"builds-{uuid.uuid4()}"
    async with versioned_worker(client, name, "one", VersioningBehavior.PINNED):
        await make_current(client, name, "one")
        handle = await client.start_workflow(
            Gated.run, PipelineInput(goal=GOAL), id=name, task_queue=name, execution_timeout=LIMIT
        )
        await until_waiting(handle, "release manager")
        with_worker = await seen(client, name)
        monkeypatch.setattr(client_waiting, "WORKER_SILENCE", timedelta(0))  # its worker was never there
        while (without_worker := await seen(client, name)).mark is Mark.OK:  # noqa: ASYNC110 - the index comes later
            await asyncio.sleep(0.1)

    assert with_worker.mark is Mark.OK
    assert (without_worker.mark, without_worker.found) == (
        Mark.WARN,
        f"1 run is pinned to builds without workers, such as {name!r} to 'one': they cannot continue",
    )
    assert f"baton rollback {name} --to 1" in (without_worker.remedy or "")


async def test_keys_that_cannot_decode_the_runs_are_a_failure(
    server: DevServer, store: ArtifactStore, tmp_path: Path
) -> None:
    """The keys are valid, but not those of the workers."""
    own = Safeguards.development(tmp_path / "own", encrypt=True)
    other = Safeguards.development(tmp_path / "other", encrypt=True)
    writer, stranger = [
        await Client.connect(server.address, plugins=[BatonPlugin(WorkerParts(artifacts=store), safeguards=safeguards)])
        for safeguards in (own, other)
    ]
    name = f"keys-{uuid.uuid4()}"
    handle = await writer.start_workflow(
        Gated.run, PipelineInput(goal=GOAL), id=name, task_queue=name, execution_timeout=LIMIT
    )
    try:
        while (read := await check_payloads(writer)).found != f"the payloads of {name!r} can be read":  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # until it is in the index
        opaque = await check_payloads(stranger)
    finally:
        await handle.terminate()
    assert read.mark is Mark.OK
    assert opaque.mark is Mark.FAIL
    assert opaque.found.startswith(f"run {name!r}: the payload of event 1 cannot be decoded: a payload is encrypted")
    assert opaque.remedy == "set BATON_KEYS and BATON_ARTIFACTS to the workers' keys and store"
