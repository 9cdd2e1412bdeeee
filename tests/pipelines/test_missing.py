"""A worker that lacks a part fails nothing: the run is suspended until a worker has it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.testing import ActivityEnvironment
from typer.testing import CliRunner

from baton import (
    Baton,
    BatonPatch,
    ConfigurationError,
    Overview,
    PipelineInput,
    PipelineStatus,
    Safeguards,
    WorkerParts,
    stage,
)
from baton.cli.app import make_app
from baton.client import (
    RunFilter,
    RunRecord,
    RunStatus,
    SteeringNote,
    StepStatus,
    follow,
    list_runs,
    read_run,
    standing,
)
from baton.client.faces import CheckMark, describe
from baton.devserver import DevServer
from baton.ledger.store import Ledger, LedgerOptions
from baton.pipelines.activity_parts import worker_parts
from baton.pipelines.activity_steering import check_note
from baton.pipelines.activity_worker import missing_part
from baton.runs.client_checks import check_blocked_runs, check_suspended_runs
from baton.testing import assert_replays, local_server, pipeline_worker
from tests.chat_server import chat_server, completion
from tests.handoff.handoff_stages import INJECTION
from tests.pipelines import missing_pipelines as they
from tests.support import LIMIT, Handle, until

ROOT = Path(__file__).parents[2]
TOLD = {
    "stage": "this worker has no stage 'stage', only begin; start a worker that has it",
    "schema": "the stage's output must fit 'Facts@1', but this worker has no output schemas",
    "variable": "the environment of this worker has no 'LACKING_TEST_KEY', which holds the key; set it",
    "module": "No module named 'lacking_test_extra'; install it on the workers",
}


@pytest.fixture
def safeguards(tmp_path: Path) -> Safeguards:
    """Return the keys and ledger that all workers of a test share."""
    return Safeguards.development(tmp_path / "kept")


async def begun(client: Client, queue: str, what: str) -> Handle:
    """Return a run whose second stage needs a part."""
    start = PipelineInput(goal="Need something", params={"what": what})
    return await client.start_workflow(
        they.needs, start, id=f"missing-{uuid4()}", task_queue=queue, execution_timeout=LIMIT
    )


async def suspended_now(handle: Handle) -> Overview:
    """Return the overview once the run waits for a worker."""
    return await until(handle, lambda now: now.status is PipelineStatus.SUSPENDED)


async def asked_again(client: Client, handle: Handle, times: int) -> None:
    """Wait until workers were asked that often for the missing part."""
    while True:
        pending = (await describe(client, handle.id)).details.pending_activities
        if pending and pending[0].attempt > times:
            return
        await asyncio.sleep(0.05)


async def sendings(handle: Handle) -> list[bytes]:
    """Return the inputs of the second stage, one for each attempt."""
    events = (await handle.fetch_history()).events
    sent = [event.activity_task_scheduled_event_attributes for event in events]
    return [attributes.input.payloads[0].data for attributes in sent if attributes.activity_type.name in they.NEEDY]


@asynccontextmanager
async def elsewhere(server: DevServer, queue: str, folder: Path, url: str) -> AsyncIterator[None]:
    """Run a worker process that has the key and the package."""
    (folder / "extra").mkdir()
    (folder / "extra" / "lacking_test_extra.py").write_text("WORD = 'done'\n", encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.pipelines.missing_worker", server.address, queue, str(folder / "kept"), url),
        cwd=ROOT,
        env={**os.environ, they.KEY: "sk-there", "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder / "extra")])},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"up\n"
        yield
    finally:
        process.kill()
        await process.wait()


async def completed(client: Client, handle: Handle) -> RunRecord:
    """Return a completed run, with one execution of each stage; its history replays."""
    await handle.result()
    run = await read_run(client, handle.id)
    assert (run.status, run.missing) == (RunStatus.COMPLETED, [])
    assert run.baton.decision_log[0] == "begun"
    assert [step.status for step in run.steps] == [StepStatus.DONE] * 2
    sent = await sendings(handle)
    assert len(sent) == 2, "the stage was sent once to the worker that lacks something, and to the other one"
    assert sent[0] == sent[1], "as the same handoff"
    await assert_replays(handle, [they.needs])
    return run


class TestMissing:
    """A worker without a part, then one that has it."""

    @pytest.mark.parametrize("what", ["stage", "schema"])
    async def test_the_run_resumes_when_a_worker_has_it(
        self, server: DevServer, safeguards: Safeguards, what: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It reports at once what is missing and uses up no attempt."""
        queue = f"missing-{uuid4()}"
        client = await Client.connect(server.address, plugins=[they.plugin(safeguards)])
        able = await Client.connect(server.address, plugins=[they.plugin(safeguards, schemas=they.SCHEMAS)])
        stages: list[Any] = [they.begin, they.schemed] if what == "schema" else [they.begin]
        async with pipeline_worker(client, [they.needs], stages, task_queue=queue):
            handle = await begun(client, queue, what)
            now = await suspended_now(handle)
            await asked_again(client, handle, 1)
            run = await read_run(client, handle.id)
            length = run.last_event
            await asked_again(client, handle, 2)
            assert (await read_run(client, handle.id)).last_event == length, "waiting costs no history"
        async with pipeline_worker(able, [they.needs], [they.begin, they.unknown, they.schemed], task_queue=queue):
            await completed(client, handle)

        assert run.steps[-1].status is StepStatus.RUNNING
        assert run.lacking == {run.steps[-1].seq}
        assert TOLD[what] in run.missing[0]
        assert TOLD[what] in now.notes[-1]
        lines = [
            record
            for record in caplog.records
            if TOLD[what] in record.getMessage() and "waits for a worker" in record.getMessage()
        ]
        assert {record.name for record in lines} == {"baton.worker", "temporalio.workflow"}
        assert [record for record in caplog.records if record.exc_info and record.levelname != "DEBUG"] == []

    @pytest.mark.parametrize("what", ["variable", "module"])
    async def test_another_process_with_the_key_or_package_runs_it(
        self, server: DevServer, safeguards: Safeguards, tmp_path: Path, what: str
    ) -> None:
        """No model is called before, and then it is paid once."""
        queue = f"missing-{uuid4()}"
        client = await Client.connect(server.address, plugins=[they.plugin(safeguards)])
        with chat_server(*[completion("done")] * (what == "variable")) as models:
            stages = [they.begin, they.imports, they.asking(models.url)]
            async with pipeline_worker(client, [they.needs], stages, task_queue=queue):
                handle = await begun(client, queue, what)
                await suspended_now(handle)
                assert models.asked == []
            assert TOLD[what] in (await read_run(client, handle.id)).missing[0]
            async with elsewhere(server, queue, tmp_path, models.url):
                run = await completed(client, handle)

        assert len(models.asked) == (what == "variable")
        assert run.billed.prompt_tokens == 1_000 * (what == "variable")

    async def test_it_passes_workers_that_lack_it(self, server: DevServer, safeguards: Safeguards) -> None:
        """All poll the same queue; the stage ends on the worker that has the part."""
        queue = f"missing-{uuid4()}"
        client, other, able = [
            await Client.connect(server.address, plugins=[they.plugin(safeguards)]) for _ in range(3)
        ]
        async with (
            pipeline_worker(client, [they.needs], [they.begin], task_queue=queue),
            pipeline_worker(other, [they.needs], [they.begin], task_queue=queue),
        ):
            handle = await begun(client, queue, "stage")
            await suspended_now(handle)
            async with pipeline_worker(able, [], [they.begin, they.unknown], task_queue=queue):
                result = await handle.result()

        assert result.baton["decision_log"] == ["begun", "done"]
        assert len(set(await sendings(handle))) == 1
        await assert_replays(handle, [they.needs])

    async def test_earlier_attempts_count(self, server: DevServer, safeguards: Safeguards) -> None:
        """A stage with three attempts that failed once has two left."""
        queue = f"missing-{uuid4()}"
        client = await Client.connect(server.address, plugins=[they.plugin(safeguards)])
        ran: list[int] = []

        @stage(name="thrice")
        async def failing(baton: Baton) -> BatonPatch:
            ran.append(activity.info().attempt)
            if len(ran) == 2:
                raise ConfigurationError("this worker has no tool; install it")
            raise ValueError("it failed")

        async with pipeline_worker(client, [they.needs], [they.begin, failing], task_queue=queue):
            handle = await begun(client, queue, "thrice")
            await suspended_now(handle)
        second_client = await Client.connect(server.address, plugins=[they.plugin(safeguards)])
        async with pipeline_worker(second_client, [they.needs], [they.begin, failing], task_queue=queue):
            with pytest.raises(WorkflowFailureError):
                await handle.result()
        assert ran == [1, 2, 1, 2], "one try, one without what it needs, and the two that were left"
        async with Ledger(safeguards.ledger, LedgerOptions(create=False)) as ledger:
            records = (await ledger.trace((await read_run(client, handle.id)).task_id or "")).records
        failed = [record.fields.details for record in records if record.fields.status == "FAILED"]
        assert failed == ["ValueError: it failed"] * 3, "each try is on record, what was missing is not"

    async def test_a_suspended_run_can_be_cancelled(self, server: DevServer, safeguards: Safeguards) -> None:
        """Like any other."""
        queue = f"missing-{uuid4()}"
        client = await Client.connect(server.address, plugins=[they.plugin(safeguards)])
        async with pipeline_worker(client, [they.needs], [they.begin], task_queue=queue):
            handle = await begun(client, queue, "stage")
            await suspended_now(handle)
            await handle.cancel()
            with pytest.raises(WorkflowFailureError):
                await handle.result()

        run = await read_run(client, handle.id)
        assert (run.status, run.missing, run.lacking) == (RunStatus.CANCELED, [], set())


class TestMissingPart:
    """Which errors count as a missing part."""

    @pytest.mark.parametrize("module", ["lacking_test_extra", "lacking_test_extra.part", "shared_namespace.lacking"])
    def test_a_package_that_is_not_installed_is_missing(
        self, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also beside others in a namespace, and as the cause of a library's own error."""
        (tmp_path / "shared_namespace").mkdir()
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ModuleNotFoundError) as raised:
            import_module(module)
        wrapped = RuntimeError("install the extra")
        wrapped.__cause__ = raised.value

        assert missing_part(raised.value) == f"{raised.value}; install it on the workers"
        assert missing_part(ExceptionGroup("both", [wrapped])) == missing_part(raised.value)

    @pytest.mark.parametrize("module", ["baton.lacking_part", "json.decoder.lacking_part"])
    def test_a_missing_part_of_an_installed_package_is_an_error(self, module: str) -> None:
        """It may be an agent's invention; the stage fails and no other run is suspended."""
        with pytest.raises(ModuleNotFoundError) as raised:
            import_module(module)

        assert missing_part(raised.value) is None
        assert missing_part(ModuleNotFoundError("no tool of that name")) is None


class TestShown:
    """How operators see such a run."""

    async def test_every_view_says_what_is_missing_and_what_to_do(self, safeguards: Safeguards, tmp_path: Path) -> None:
        """`show`, `list`, `doctor`, the details in the Temporal UI and `follow`."""
        async with local_server() as server:
            queue = f"missing-{uuid4()}"
            client = await Client.connect(server.address, plugins=[they.plugin(safeguards)])
            async with pipeline_worker(client, [they.needs], [they.begin], task_queue=queue):
                handle = await begun(client, queue, "stage")
                await asked_again(client, handle, 1)
                await suspended_now(handle)
                while not (listed := [run async for run in list_runs(client, RunFilter(status="SUSPENDED"), limit=10)]):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                doctor, stopped = await check_suspended_runs(client), await check_blocked_runs(client)
                page = await handle.query("baton_details", result_type=str)
                heard: list[str] = []
                async for update in follow(client, handle.id):
                    heard += [item.text for item in update.news if item.kind.value == "waits_for_worker"]
                    if heard:
                        break
                shown, listed_runs = [
                    await asyncio.to_thread(
                        CliRunner().invoke, make_app(), words, env={"TEMPORAL_ADDRESS": server.address}
                    )
                    for words in (["show", handle.id], ["inbox", "list"])
                ]
                card = standing(await read_run(client, handle.id))

        assert [(run.workflow_id, run.status) for run in listed] == [(handle.id, "SUSPENDED")]
        assert (doctor.mark, doctor.found.startswith("1 run")) == (CheckMark.FAIL, True)
        assert stopped.mark is CheckMark.FAIL
        for view in (stopped.found, page, heard[0], " ".join(shown.output.split())):
            assert TOLD["stage"] in view, view
        assert "SUSPENDED" in shown.output
        assert "1 run suspended" in listed_runs.output
        assert (card.status, TOLD["stage"] in card.sentence) == ("SUSPENDED", True)
        assert "continues by itself once a worker has that" in " ".join(shown.output.split())


@workflow.defn
class Plain:
    """A workflow without a pipeline."""

    @workflow.run
    async def run(self) -> str:
        """Ask for an activity that no worker has."""
        try:
            await workflow.execute_activity(
                "nobody.has",
                ["a"],
                start_to_close_timeout=timedelta(seconds=5),
                retry_policy=RetryPolicy(maximum_attempts=2),
            )
        except ActivityError as error:
            return str(getattr(error.cause, "type", error.cause))
        return ""


async def test_other_activities_fail_as_usual(server: DevServer, safeguards: Safeguards) -> None:
    """Only a pipeline's activities wait for a worker."""
    client = await Client.connect(server.address, plugins=[they.plugin(safeguards)])
    async with pipeline_worker(client, [Plain], [they.begin]) as worker:
        handle = await client.start_workflow(Plain.run, id=f"plain-{uuid4()}", task_queue=worker.task_queue)
        assert await handle.result() == "NotFoundError"
        started = [
            event
            async for event in handle.fetch_history_events()
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
        ]
        assert started[0].activity_task_started_event_attributes.attempt == 2


async def test_a_worker_without_keys_checks_no_note_of_a_sealed_run() -> None:
    """It has no safety scan, so a note for an agent waits for a worker that has."""
    note = SteeringNote(id="1:0", seq=1, step="s", text=INJECTION, who="ann", at=datetime(2026, 11, 29, tzinfo=UTC))
    with worker_parts(WorkerParts()):
        assert await ActivityEnvironment().run(check_note, note, False) == ""
        with pytest.raises(ConfigurationError):
            await ActivityEnvironment().run(check_note, note, True)
