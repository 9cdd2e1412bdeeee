"""An artifact that the store has lost: the run waits for it, says so, and continues once it is back."""

import asyncio
import hashlib
import json
import shutil
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from typer.testing import CliRunner, Result

from baton import (
    Baton,
    BatonPatch,
    Pipeline,
    PipelineInput,
    PipelineResult,
    PipelineStatus,
    Retries,
    Safeguards,
    StageContext,
    StageFailedError,
    StageResult,
    WorkerParts,
    stage,
)
from baton.artifacts.store import LocalArtifactStore, MemoryArtifactStore, not_found_error
from baton.cli.app import make_app
from baton.client import RunRecord, StepStatus, read_run
from baton.devserver import DevServer
from baton.errors import ArtifactError, ArtifactUnavailableError
from baton.ledger.store import Ledger, LedgerOptions
from baton.plugin import BatonPlugin
from baton.testing import assert_replays, pipeline_worker
from tests.support import LIMIT, Handle, event, until

PLAN = "1. read the code\n2. change it\n"
HASH = hashlib.sha256(PLAN.encode()).hexdigest()
LATER = "later"
NOISE = "".join(hashlib.sha256(str(n).encode()).hexdigest() for n in range(500))  # too large for the history


@stage
async def plan(context: StageContext[Baton]) -> BatonPatch:
    """Write the plan."""
    await context.artifacts.write("plan", PLAN, type="plan", path="plan.md")
    return BatonPatch(work_scope=["plan.md"])


@stage
async def reads(context: StageContext[Baton]) -> StageResult:
    """Read the plan."""
    return StageResult(output=(await context.artifacts.read("plan")).decode())


@stage
async def selects(context: StageContext[Baton]) -> StageResult:
    """Select what fits."""
    return StageResult(output=(await context.artifacts.select(1_000))["plan"])


@stage
async def prompts(context: StageContext[Baton]) -> StageResult:
    """Have the plan in the prompt, and a large input."""
    prompt = await context.prompt_with_inputs()
    return StageResult(output=PLAN if "1. read the code" in prompt else prompt)


STAGES = {"reads": reads, "selects": selects, "prompts": prompts}


@workflow.defn
class Needs:
    """A plan, and on another task queue a stage that needs it; parameters: the stage, whether its input is large."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        inputs = {"noise": NOISE} if start.params.get("large") else None
        queue = f"{workflow.info().task_queue}-{LATER}"
        done = await self.pipeline.stage(STAGES[str(start.params["stage"])], inputs=inputs, task_queue=queue)
        return self.pipeline.result(done.output)


def baton(server: DevServer, folder: Path, *words: str) -> Result:
    """Run the command as an operator of these workers does."""
    env = {"TEMPORAL_ADDRESS": server.address, "BATON_ARTIFACTS": str(folder), "COLUMNS": "400"}
    return CliRunner().invoke(make_app(), words, env=env)


def found_artifacts(server: DevServer, folder: Path) -> str:
    """Return whether `baton doctor` finds the artifacts of open runs in the store."""
    findings = json.loads(baton(server, folder, "doctor", "--json").stdout)
    return str(next(finding["mark"] for finding in findings if finding["check"] == "artifacts"))


async def begun(client: Client, queue: str, stage: str, *, large: bool = False) -> Handle:
    """Return a run whose second stage is scheduled, with no worker for it yet."""
    start = PipelineInput(goal="Need it", params={"stage": stage, "large": large})
    handle = await client.start_workflow(
        Needs.run, start, id=f"lost-{uuid4()}", task_queue=queue, execution_timeout=LIMIT
    )
    await event(handle, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, 2)
    return handle


async def asked_again(handle: Handle) -> None:
    """Wait until a worker looked for what is missing, and did not find it."""
    while True:
        pending = (await handle.describe()).raw_description.pending_activities
        if pending and pending[0].HasField("last_failure"):
            return
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("needs", "large"),
    [
        pytest.param("reads", False, id="a stage reads it"),
        pytest.param("selects", False, id="a stage selects it"),
        pytest.param("prompts", False, id="an agent's prompt has it"),
        pytest.param("reads", True, id="the stage's own input is gone as well"),
    ],
)
async def test_the_run_waits_until_it_is_back(
    own_server: DevServer, tmp_path: Path, needs: str, *, large: bool
) -> None:
    """It is suspended and not failed; every view names what is missing and how to put it back."""
    server, folder, backup, queue = own_server, tmp_path / "artifacts", tmp_path / "backup", f"lost-{uuid4()}"
    safeguards = Safeguards.development(tmp_path / "kept")
    plugin = BatonPlugin(WorkerParts(artifacts=LocalArtifactStore(folder)), safeguards=safeguards)
    client = await Client.connect(server.address, plugins=[plugin])
    async with pipeline_worker(client, [Needs], [plan], task_queue=queue):
        handle = await begun(client, queue, needs, large=large)
        there = await asyncio.to_thread(found_artifacts, server, folder)
        shutil.copytree(folder, backup)
        for file in (folder / "sha256").rglob("*"):
            if file.is_file():
                file.unlink()
        async with pipeline_worker(client, [], [*STAGES.values()], task_queue=f"{queue}-{LATER}"):
            await until(handle, lambda now: now.status is PipelineStatus.SUSPENDED)
            await asked_again(handle)
            shown, listed = [
                await asyncio.to_thread(baton, server, backup, *words)  # the views need the run's payloads themselves
                for words in (["show", handle.id], ["inbox", "list"])
            ]
            if not large:
                assert HASH in (await read_run(client, handle.id)).missing[0]
                assert (await read_run(client, handle.id)).steps[-1].status is StepStatus.RUNNING
            gone = await asyncio.to_thread(found_artifacts, server, folder)
            files = [str(file) for file in backup.rglob("*") if file.is_file()]
            put = await asyncio.to_thread(baton, server, folder, "artifact", "put", *files)
            result = await handle.result()

    assert result.output == PLAN
    assert put.exit_code == 0, put.output
    assert (there, gone) == ("ok", "fail")
    missing = HASH if not large else "no artifact"
    for view in (shown, listed):
        words = " ".join(view.output.split())
        assert missing in words, words
        assert "baton artifact put" in words
    assert "continues by itself once that is back" in " ".join(shown.output.split())
    async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
        records = (await ledger.trace((await read_run(client, handle.id)).task_id or "")).records
    assert [record.fields.status for record in records if record.fields.status.startswith("FAILED")] == []
    await assert_replays(handle, [Needs], plugin=plugin)


async def test_a_loss_that_stops_the_pipelines_code_is_named_too(own_server: DevServer, tmp_path: Path) -> None:
    """Code that fits does not help, so nobody is told to look for it."""
    folder, queue = tmp_path / "artifacts", f"lost-{uuid4()}"
    plugin = BatonPlugin(WorkerParts(artifacts=LocalArtifactStore(folder)), safeguards="off")
    client = await Client.connect(own_server.address, plugins=[plugin])
    async with pipeline_worker(client, [Needs], [plan], task_queue=queue):
        handle = await begun(client, queue, "reads")
    await handle.signal("nudge", NOISE)
    [lost] = [file for file in (folder / "sha256").rglob("*") if file.is_file() and file.name != HASH]
    lost.unlink()
    async with pipeline_worker(
        await Client.connect(own_server.address, plugins=[plugin]), [Needs], [plan], task_queue=queue
    ):
        await event(handle, EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED, 1)
        shown = await asyncio.to_thread(baton, own_server, folder, "show", handle.id)

    words = " ".join(shown.output.split())
    assert f"needs what the artifact store has lost: ArtifactNotFoundError: no artifact '{lost.name}'" in words
    assert "baton replay" not in words
    await handle.terminate()


@stage(retries=Retries(attempts=2, first=timedelta(milliseconds=1)))
async def archived(context: StageContext[Baton]) -> StageResult:
    """Read the plan from an archive of the stage's own, which lacks it."""
    try:
        await MemoryArtifactStore().get(HASH)
    except ArtifactError as error:
        if context.params["wrapped"]:
            raise RuntimeError("my own archive lacks it") from error
        raise
    return StageResult()


@stage(retries=Retries(attempts=2))
async def needed(context: StageContext[Baton]) -> StageResult:
    """Read the plan."""
    return StageResult(output=(await context.artifacts.read("plan")).decode())


FAILING = {"archived": archived, "needed": needed}


@workflow.defn
class Handles:
    """A plan, and a stage whose failure the pipeline handles; parameters: the stage, and what it uses."""

    @workflow.init
    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        await self.pipeline.stage(plan)
        try:
            done = await self.pipeline.stage(FAILING[str(start.params["stage"])])
        except StageFailedError as error:
            return self.pipeline.result(f"handled: {error}")
        return self.pipeline.result(done.output)


class SomeWorkers(MemoryArtifactStore):
    """The stores of two workers: the stage's first runs are on the one whose store lacks the plan, waits on the other.

    Attributes:
        lacking: How many runs of the stage are on the worker that lacks it.
        runs: The ids of its activities.
    """

    def __init__(self, lacking: int) -> None:
        super().__init__()
        self.lacking = lacking
        self.runs: set[str] = set()

    async def get(self, sha256: str) -> bytes:
        info = activity.info()
        if info.activity_type in FAILING:
            self.runs.add(info.activity_id)
            if len(self.runs) <= self.lacking:
                raise not_found_error(sha256, "memory")
        return await super().get(sha256)


async def handled(
    server: DevServer, folder: Path, store: MemoryArtifactStore, **params: str | bool
) -> tuple[str, RunRecord, int]:
    """Return the output, the record and the number of timers of a run that handles failures; its history replays."""
    plugin = BatonPlugin(WorkerParts(artifacts=store), safeguards=Safeguards.development(folder))
    client = await Client.connect(server.address, plugins=[plugin])
    async with pipeline_worker(client, [Handles], [plan, *FAILING.values()]) as worker:
        handle = await client.start_workflow(
            Handles.run,
            PipelineInput(goal="Need it", params=params),
            id=f"lost-{uuid4()}",
            task_queue=worker.task_queue,
            execution_timeout=LIMIT,
        )
        result = await handle.result()
    await assert_replays(handle, [Handles], plugin=plugin)
    timers = [it.event_type == EventType.EVENT_TYPE_TIMER_STARTED async for it in handle.fetch_history_events()]
    return str(result.output), await read_run(client, handle.id), sum(timers)


@pytest.mark.parametrize("wrapped", [True, False])
async def test_another_store_is_the_stages_own_matter(server: DevServer, tmp_path: Path, *, wrapped: bool) -> None:
    """Its error is a failure like any other if the worker's store has the artifact."""
    output, run, timers = await handled(server, tmp_path, MemoryArtifactStore(), stage="archived", wrapped=wrapped)

    assert output.startswith("handled: stage 'archived' failed")
    assert HASH in output
    assert (run.steps[-1].status, timers) == (StepStatus.FAILED, 0)
    async with Ledger(Safeguards.development(tmp_path).ledger, LedgerOptions(create=False)) as ledger:
        records = (await ledger.trace(run.task_id or "")).records
    assert any(record.fields.status.startswith("FAILED") for record in records)


@pytest.mark.parametrize(
    ("lacking", "output"),
    [
        pytest.param(2, PLAN, id="the third run is on the worker that has it"),
        pytest.param(9, "handled: stage 'needed' failed", id="none is"),
    ],
)
async def test_a_loss_that_another_workers_store_denies_counts(
    server: DevServer, tmp_path: Path, lacking: int, output: str
) -> None:
    """The first is free; each further one is one of the stage's tries."""
    store = SomeWorkers(lacking)
    found, run, timers = await handled(server, tmp_path, store, stage="needed")

    assert found.startswith(output)
    assert (len(store.runs), timers) == (3, 1), "with a pause before the last"
    assert run.steps[-1].status is (StepStatus.DONE if found == PLAN else StepStatus.FAILED)


class TestFolder:
    """A store's folder that was used and is gone."""

    async def test_it_is_not_made_again(self, tmp_path: Path) -> None:
        """What runs refer to would be gone without a word; an empty folder is a person's decision."""
        folder = tmp_path / "artifacts"
        await LocalArtifactStore(folder).put(b"x")
        shutil.rmtree(folder)

        with pytest.raises(ArtifactUnavailableError, match="is gone: it was moved or deleted"):
            await LocalArtifactStore(folder).put(b"x")
        assert not folder.exists()
        folder.mkdir()
        await LocalArtifactStore(folder).put(b"x")

    async def test_a_folder_that_was_there_counts_too(self, tmp_path: Path) -> None:
        """Such as a volume, which an administrator made."""
        folder = tmp_path / "artifacts"
        folder.mkdir()
        await LocalArtifactStore(folder).put(b"x")
        shutil.rmtree(folder)

        with pytest.raises(ArtifactUnavailableError):
            await LocalArtifactStore(folder).put(b"y")
