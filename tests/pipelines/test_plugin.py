"""`BatonPlugin`: bad input and failing code end a run with a message, and nothing is retried for ever."""

import asyncio
import logging
import re
import time
import traceback
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.workflowservice.v1 import StartWorkflowExecutionRequest
from temporalio.client import (
    Client,
    GrpcCompression,
    WithStartWorkflowOperation,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowUpdateFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker, WorkerConfig

from baton import Baton, BatonPatch, Pipeline, PipelineResult, WorkerParts, open_store, stage
from baton.client import Connection, connect, read_run
from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.keys.store_keyring import Keyring
from baton.ledger.records import LedgerUnavailableError
from baton.plugin import BatonPlugin
from baton.telemetry import worker_logs
from baton.testing import pipeline_worker, run_pipeline
from tests.pipelines import stages
from tests.pipelines.mishaps import Raises
from tests.pipelines.pipelines import PIPELINES, Gated, Linear
from tests.pipelines.stages import STAGES
from tests.replay.mutants import GateDropped
from tests.support import GOAL, LIMIT, Handle, approve, assert_reads_back, event, names, start, until_waiting
from tests.support.tampering import JSON_PLAIN


@pytest.fixture(scope="module")
async def worker(client: Client, unpassed_tests: None) -> AsyncIterator[Worker]:
    """Return a worker whose pipelines are in the sandbox, as a user's are."""
    async with pipeline_worker(client, PIPELINES, STAGES) as worker:
        yield worker


BAD_CODE = [
    pytest.param("init", "UnheardOf", "in the beginning", id="an exception in __init__"),
    pytest.param("unheard of", "UnheardOf", "nobody knows me", id="an exception that nobody registered"),
    pytest.param("no message", "KeyError", "KeyError", id="an exception without a message"),
    pytest.param("clock", "RestrictedWorkflowAccessError", "datetime.now", id="asking the clock"),
    pytest.param("result", "PydanticSerializationError", "Unable to serialize", id="returning what is no JSON"),
    pytest.param("group", "StageFailedError", "stage 'fail' failed", id="a failure in a task group"),
    pytest.param("signal", "UnheardOf", "a signal too many", id="an exception in a signal handler"),
]

BAD_INPUTS: list[Any] = [
    pytest.param([Payload(metadata=JSON_PLAIN, data=b'"Add login"')], id="a string"),
    pytest.param([Payload(metadata=JSON_PLAIN, data=b"[1]")], id="a list"),
    pytest.param([Payload(metadata=JSON_PLAIN, data=b"null")], id="null"),
    pytest.param([Payload(metadata=JSON_PLAIN, data=b"{}")], id="no goal"),
    pytest.param([Payload(metadata=JSON_PLAIN, data=b'{"goal": " \\n"}')], id="a blank goal"),
    pytest.param([Payload(metadata=JSON_PLAIN, data=b'{"goal": 1}')], id="a number for a goal"),
    pytest.param([Payload(metadata=JSON_PLAIN, data=b'{"goal": "g", "gaol": "g"}')], id="an unknown member"),
    pytest.param([Payload(metadata=JSON_PLAIN, data=b'{"goal": "g", "baton": {"artifacts": ["a"]}}')], id="a bad seed"),
    pytest.param([Payload(metadata=JSON_PLAIN, data=b'{"goal": "g", "baton": {"nobody": 1}}')], id="an unknown field"),
    pytest.param([Payload(metadata=JSON_PLAIN, data=b'{"goal": ')], id="half a JSON text"),
    pytest.param([Payload(metadata={"encoding": b"binary/plain"}, data=b"\xff\x00")], id="bytes"),
    pytest.param([Payload(metadata={"encoding": b"binary/zstd-1"}, data=b"x")], id="damaged compression"),
    pytest.param([Payload(metadata={"encoding": b"alien/form"}, data=b"x")], id="an unknown encoding"),
    pytest.param([], id="nothing"),
    pytest.param([Payload(metadata=JSON_PLAIN, data=b'{"goal": "g"}')] * 2, id="two arguments"),
]


async def start_raw(client: Client, task_queue: str, id: str, payloads: list[Payload]) -> Handle:
    """Start a Linear pipeline with raw payloads."""
    request = StartWorkflowExecutionRequest(
        namespace=client.namespace, workflow_id=id, request_id=id, input=Payloads(payloads=payloads)
    )
    request.workflow_type.name = "Linear"
    request.task_queue.name = task_queue
    request.workflow_execution_timeout.FromTimedelta(LIMIT)
    await client.workflow_service.start_workflow_execution(request, retry=True)
    return client.get_workflow_handle(id)


class TestFailures:
    @pytest.mark.parametrize(("how", "kind", "message"), BAD_CODE)
    async def test_an_exception_of_the_code_fails_the_run(
        self, worker: Worker, how: str, kind: str, message: str
    ) -> None:
        """With type and message, at once; the workflow task is not retried."""
        handle = await start(worker, Raises.run, how=how)
        if how == "signal":
            await handle.signal("stumble")

        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
        cause = raised.value.cause
        assert isinstance(cause, ApplicationError)
        assert cause.type == kind
        assert message in cause.message

    async def test_the_log_has_the_line_of_code_that_failed_the_run(
        self, worker: Worker, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The message alone does not say where; a failed stage has its own."""
        for how in ("unheard of", "group"):
            handle = await start(worker, Raises.run, how=how)
            with pytest.raises(WorkflowFailureError):
                await handle.result()

        [logged] = [record for record in caplog.records if "the pipeline's code failed the run" in record.getMessage()]
        assert logged.exc_info is not None
        assert any(Path(frame.filename).name == "mishaps.py" for frame in traceback.extract_tb(logged.exc_info[2]))

    async def test_the_log_has_a_signal_handler_that_fails_the_run(
        self, worker: Worker, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Once, with the run's id."""
        handle = await start(worker, Raises.run, how="signal")
        # When nothing else comes meanwhile, for which the server would have the task done again.
        await event(handle, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
        await handle.signal("stumble")
        with pytest.raises(WorkflowFailureError):
            await handle.result()

        [logged] = [record for record in caplog.records if "the pipeline's code failed the run" in record.getMessage()]
        assert logged.exc_info is not None
        assert all(told in logged.getMessage() for told in ("'Raises'", handle.id, str(handle.first_execution_run_id)))

    async def test_the_log_has_an_update_whose_handler_failed(
        self, worker: Worker, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The run continues, and otherwise only the sender would know; a rejection is not logged."""
        handle = await start(worker, Raises.run, how="signal")
        with pytest.raises(WorkflowUpdateFailedError):
            await handle.execute_update("trip")
        with pytest.raises(WorkflowUpdateFailedError):
            await handle.execute_update("decide", {"approval": "nobody's", "approved": True, "who": "ann"})
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        await handle.terminate()

        [logged] = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert "the handler of the update 'trip' failed" in logged.getMessage()
        assert handle.id in logged.getMessage()
        assert logged.exc_info is not None

    @pytest.mark.parametrize("payloads", [BAD_INPUTS[0], BAD_INPUTS[2]])
    async def test_the_log_has_no_code_error_for_an_invalid_input(
        self,
        client: Client,
        worker: Worker,
        payloads: list[Payload],
        request: pytest.FixtureRequest,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The run's error says what is wrong with it."""
        handle = await start_raw(client, worker.task_queue, request.node.name, payloads)
        with pytest.raises(WorkflowFailureError):
            await handle.result()

        assert not [record for record in caplog.records if "code failed" in record.getMessage()]

    async def test_a_forbidden_call_names_the_alternatives(self, worker: Worker) -> None:
        """Temporal's own message only explains how to disable the check."""
        handle = await start(worker, Raises.run, how="clock")

        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
        assert "use workflow.now()" in str(raised.value.cause)

    @pytest.mark.parametrize("payloads", BAD_INPUTS)
    async def test_an_invalid_input_fails_the_run(
        self, client: Client, worker: Worker, payloads: list[Payload], request: pytest.FixtureRequest
    ) -> None:
        """The message says what was expected and never shows the input."""
        handle = await start_raw(client, worker.task_queue, request.node.name, payloads)

        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
        assert "Add login" not in str(raised.value.cause)
        assert (await handle.describe()).status is WorkflowExecutionStatus.FAILED
        events = [event async for event in handle.fetch_history_events()]
        assert EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED not in [event.event_type for event in events]

    async def test_code_that_does_not_fit_the_history_suspends_the_run(self, client: Client) -> None:
        """A wrong deployment does not fail runs in progress; they resume with the right code."""
        async with pipeline_worker(client, PIPELINES, STAGES) as worker:
            handle = await start(worker, Gated.run, task_timeout=timedelta(seconds=1))
            await until_waiting(handle, "release manager")
        async with pipeline_worker(client, [GateDropped], STAGES, task_queue=worker.task_queue):
            await handle.signal("decide", {})
            failed = (
                await event(handle, EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED)
            ).workflow_task_failed_event_attributes
            assert failed.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR
            run = await read_run(client, handle.id)
            assert "Nondeterminism error" in (run.suspended or "")
            assert names(run) == ["plan", "release manager"]
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        async with pipeline_worker(client, PIPELINES, STAGES, task_queue=worker.task_queue):
            await approve(client, handle)
            await handle.result()
        assert (await read_run(client, handle.id)).suspended is None


class TestParts:
    async def test_history_is_readable_without_compression(self, server: DevServer, client: Client) -> None:
        """`compress=False` writes plain JSON, and clients read both forms."""
        plain = await Client.connect(
            server.address, plugins=[BatonPlugin(WorkerParts(), safeguards="off", compress=False)]
        )
        seed = PipelineInput(goal=GOAL, baton={"acceptance": ["All existing tests pass"] * 60})
        async with pipeline_worker(plain, PIPELINES, STAGES) as worker:
            run = await run_pipeline(worker, Raises.run, seed.model_copy(update={"params": {"how": "well"}}))
            assert b"binary/zstd" not in str((await run.handle.fetch_history()).to_json()).encode()
            assert (await read_run(client, run.handle.id)).baton == run.baton

    @pytest.mark.parametrize(("where", "at_a_time"), [("artifacts", 1), ("memory:", 1), ("s3://bucket/prefix", 3)])
    async def test_a_local_store_is_used_without_concurrency(self, client: Client, where: str, at_a_time: int) -> None:
        """The SDK's concurrency of three costs time for every payload; buckets keep it."""
        worker_config = WorkerConfig(client=client, max_workflow_task_external_storage_concurrency=3)

        config = BatonPlugin(WorkerParts(artifacts=open_store(where)), safeguards="off").configure_worker(worker_config)

        assert config["max_workflow_task_external_storage_concurrency"] == at_a_time


class TestLabels:
    async def test_every_run_has_a_task_id(self, client: Client, worker: Worker) -> None:
        """Set before the start, so that search attribute and run agree."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        described = await run.handle.describe()
        labels = {pair.key.name: pair.value for pair in described.typed_search_attributes}
        assert labels["BatonTaskId"] == run.result.task_id == run.record.start.task_id
        assert labels["BatonPipeline"] == "Linear"

    async def test_a_run_that_an_update_starts_is_listed_too(self, client: Client, worker: Worker) -> None:
        """Also if the run refuses the update."""
        beginning = WithStartWorkflowOperation(
            Linear.run,
            PipelineInput(goal=GOAL),
            id=f"linear-{uuid4()}",
            task_queue=worker.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        )
        with pytest.raises(WorkflowUpdateFailedError):
            await client.execute_update_with_start_workflow("answer", {}, start_workflow_operation=beginning)

        handle = await beginning.workflow_handle()
        described = await handle.describe()
        labels = {pair.key.name: pair.value for pair in described.typed_search_attributes}
        assert (labels["BatonPipeline"], labels["BatonTaskId"]) == ("Linear", (await handle.result()).task_id)

    async def test_a_server_without_the_attributes_runs_pipelines(self, server: DevServer) -> None:
        """With `searchable=False` nothing sets search attributes."""
        client = await Client.connect(
            server.address, plugins=[BatonPlugin(WorkerParts(), safeguards="off", searchable=False)]
        )
        async with pipeline_worker(client, PIPELINES, STAGES) as worker:
            run = await run_pipeline(worker, Raises.run, PipelineInput(goal=GOAL, params={"how": "well"}))
            await assert_reads_back(client, run.handle)

        described = await run.handle.describe()
        assert [pair.key.name for pair in described.typed_search_attributes if "Baton" in pair.key.name] == []

    @pytest.mark.filterwarnings("ignore:Dictionary-based search attributes are deprecated")
    async def test_untyped_search_attributes_are_rejected(self, client: Client) -> None:
        """Temporal's deprecated form cannot be extended."""
        with pytest.raises(TypeError, match="search_attributes must be TypedSearchAttributes"):
            await client.start_workflow(
                Linear.run,
                PipelineInput(goal=GOAL),
                id="untyped",
                task_queue="nobody",
                search_attributes={"BatonStage": ["plan"]},
            )


@workflow.defn
class Forgetful:
    """A pipeline without `@workflow.init`."""

    def __init__(self, start: PipelineInput) -> None:
        self.pipeline = Pipeline(start)

    @workflow.run
    async def run(self, start: PipelineInput) -> PipelineResult:
        return self.pipeline.result()


class TestInit:
    async def test_a_pipeline_without_it_is_rejected_by_its_worker(self, client: Client) -> None:
        """When the worker is created, not in every run."""
        with pytest.raises(TypeError, match=r"Forgetful\.__init__ takes start, .*@workflow\.init above it"):
            Worker(client, task_queue=f"forgetful-{uuid4()}", workflows=[Linear, Forgetful])


class TestActivities:
    async def test_a_function_that_is_not_a_stage_is_rejected_by_name(self, client: Client) -> None:
        """The error names the missing decorator."""

        async def plain(baton: Baton) -> BatonPatch:
            return BatonPatch()

        with pytest.raises(TypeError, match=r"plain at .* is not a stage: write @stage above it"):
            Worker(client, task_queue=f"plain-{uuid4()}", workflows=[Linear], activities=[plain])


class TestEventLoop:
    async def test_a_blocked_loop_is_reported(
        self, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It sends no heartbeats while the server believes the worker is alive; the log has the stack."""
        monkeypatch.setattr(worker_logs, "TICK_SECONDS", 0.1)

        @stage
        async def plan(baton: Baton) -> BatonPatch:
            time.sleep(3)  # noqa: ASYNC251 - as somebody will
            return BatonPatch()

        others = [item for item in STAGES if item is not stages.plan]
        async with pipeline_worker(client, [Linear], [plan, *others]) as worker:
            await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))
        assert "the event loop has been blocked" in caplog.text
        assert re.search(rf"^  {re.escape(__file__)}:\d+ plan$", caplog.text, re.MULTILINE)


class TestSafeguards:
    @pytest.mark.parametrize("alone", [True, False], ids=["run", "async with"])
    async def test_a_worker_with_bad_safeguards_ends_with_the_reason(
        self, server: DevServer, tmp_path: Path, alone: bool
    ) -> None:
        """Whichever way it is run."""
        (tmp_path / "ledger.db").write_text("This is no database. " * 1_000, encoding="utf-8")
        safeguards = Safeguards(Keyring.generate(), tmp_path / "ledger.db")
        client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
        worker = Worker(client, task_queue=f"broken-{uuid4()}", workflows=PIPELINES, activities=STAGES)

        async def entered() -> None:
            async with worker:
                await asyncio.Event().wait()

        with pytest.raises(LedgerUnavailableError, match="file is not a database"):
            await asyncio.wait_for(worker.run() if alone else entered(), LIMIT.total_seconds())


class TestConnect:
    async def test_connect_without_a_plugin_reads_results(self, server: DevServer, worker: Worker) -> None:
        """A script without the plugin gets results instead of a decoding error."""
        plain = await connect(Connection(address=server.address))

        result = await plain.execute_workflow(
            Linear.run,
            PipelineInput(goal=GOAL, baton={"constraints": ["All existing tests pass"] * 40}),
            id=f"plain-{uuid4()}",
            task_queue=worker.task_queue,
        )

        assert "Approved the change" in str(result.baton["decision_log"])

    async def test_a_local_connection_uses_no_gzip(self, server: DevServer) -> None:
        """Connections to other machines keep the SDK's default."""
        here = await Client.connect(server.address, plugins=[BatonPlugin()])
        elsewhere = await Client.connect("temporal.example:7233", lazy=True, plugins=[BatonPlugin()])

        assert here.service_client.config.grpc_compression is GrpcCompression.NONE
        assert elsewhere.service_client.config.grpc_compression is GrpcCompression.GZIP
