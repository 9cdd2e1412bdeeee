"""Whole runs in a test: servers, a worker for pipelines and stages, a pipeline from start to end, and replays.

The real server is that of `baton.devserver`, so what holds in a test holds there; timers of milliseconds take
milliseconds, and with the SDK's `TimeSkipper` (fixture `baton_time`) a run of thirty days takes a blink.
"""

import asyncio
import shutil
import tempfile
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

from temporalio import activity
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowHistory
from temporalio.service import RPCError
from temporalio.testing import TimeSkipper
from temporalio.worker import Plugin, Replayer, Worker

from baton.artifacts.store import MemoryArtifactStore
from baton.client import RunRecord, decide, read_run
from baton.core.baton import Baton
from baton.core.history import StepKind
from baton.core.messages import Decision, Overview, PipelineInput, PipelineResult
from baton.devserver import DevServer, DevServerOptions, log_tail
from baton.errors import BatonError, PipelineError
from baton.handoff.store_gate import Freshness, now_utc
from baton.handoff.store_safeguards import Safeguards
from baton.pipelines.activity_context import WorkerParts
from baton.pipelines.workflow_steps import workflow_type
from baton.plugin import BatonPlugin
from baton.wire.names import QUERY_STATUS

__all__ = [
    "TEST_OPTIONS",
    "TEST_SETTINGS",
    "TimeSkipper",
    "connected",
    "ended_too_soon",
    "local_server",
    "temporary_plugin",
]

TEST_SETTINGS: Mapping[str, object] = {"frontend.WorkflowTimeSkippingEnabled": True}
"""Server settings that tests want beyond those of `DevServer`: a run can skip time."""

TEST_OPTIONS = DevServerOptions(ui_port=None, settings=TEST_SETTINGS)
"""What tests' servers are started with: in memory, without the web UI, on a free port of this machine."""

_AHEAD = timedelta(days=36_500)  # so far ahead of a worker's clock a run may be that skips time


@asynccontextmanager
async def local_server(options: DevServerOptions | None = None) -> AsyncIterator[DevServer]:
    """Run a Temporal server for the tests inside the `async with` block.

    It is in memory, without the web UI, with Baton's search attributes, on a free port of this machine. One for
    the whole session is enough: give every workflow an id and every worker a task queue of its own.

    Args:
        options: Other options, for example a database file to restart the server on.

    Yields:
        The server, serving at its `address`.

    Raises:
        ServerError: There is no `temporal` program, or it does not start.

    Example:
        ```python
        async with local_server() as server:
            client = await connected(server.address)
        ```
    """
    async with DevServer(options or TEST_OPTIONS) as server:
        yield server


def ended_too_soon(server: DevServer) -> str | None:
    """Say how a server ended by itself, with the end of its log if it has one; None if it runs.

    Args:
        server: One that was started, and is needed still.
    """
    code, log = server.process.returncode, server.options.log_file
    if code is None:
        return None
    said = f"; the end of {str(log)!r}:\n{log_tail(log.read_text(encoding='utf-8', errors='replace'))}" if log else ""
    return f"the Temporal server of these tests, at {server.address!r}, ended with code {code} while they ran{said}"


def temporary_plugin(parts: WorkerParts | None = None, *, searchable: bool = True) -> BatonPlugin:
    """Return the plugin of a test's client: with safeguards, as in production, and nothing of it stays.

    Keys, ledger and vault are in a temporary folder until the plugin is no longer used, or the process ends.

    Args:
        parts: What stages are provided with; by default an artifact store in memory.
        searchable: As of `BatonPlugin`.

    Example:
        ```python
        client = await connected(server.address, temporary_plugin(WorkerParts(schemas=SCHEMAS)))
        ```
    """
    folder = Path(tempfile.mkdtemp(prefix="baton-test-"))
    # Runs that skip time are ahead of the clock by which their workers judge handoffs and contracts.
    safeguards = replace(Safeguards.development(folder), freshness=Freshness(tolerance=_AHEAD))
    parts = parts or WorkerParts(artifacts=MemoryArtifactStore())
    if parts.clock is now_utc:
        parts = replace(parts, clock=_time_of_the_run)
    plugin = BatonPlugin(parts, safeguards=safeguards, searchable=searchable)
    weakref.finalize(plugin, shutil.rmtree, folder, ignore_errors=True)
    return plugin


def _time_of_the_run() -> datetime:
    """Return the time, that of a run which skips time where one asks."""
    return max(now_utc(), activity.info().started_time) if activity.in_activity() else now_utc()


async def connected(address: str, plugin: BatonPlugin | None = None) -> Client:
    """Return a client of a server that speaks Baton.

    Args:
        address: The server, `host:port`.
        plugin: The client's plugin; a `temporary_plugin` by default.

    Raises:
        RuntimeError: Nothing serves there.
    """
    return await Client.connect(address, plugins=[plugin or temporary_plugin()])


ResultT = TypeVar("ResultT")


class BackgroundLoop:
    """An event loop that runs in a thread inside the `with` block.

    A server's process and a Temporal client that are made on it can be used from any other loop: the client calls
    back into the loop that awaits it. Workers cannot; they belong to the loop of the test.

    Example:
        >>> with BackgroundLoop() as loop:
        ...     loop.run(asyncio.sleep(0, "done"))
        'done'
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="baton-test-loop", daemon=True)

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine to its end on the loop, and return what it returned; call it from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        """Start the loop."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the loop and end its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_UNDECIDED = "; undecided: run_pipeline(…, decisions={…}) takes its title"
_LOOKS_EVERY = 0.05  # seconds


@dataclass(frozen=True)
class PipelineRun:
    """A pipeline that ran to its end.

    Attributes:
        handle: The run's handle, for queries, its history and `assert_replays`.
        result: What the pipeline returned.
        record: The run as its event history tells it: steps, attempts, the baton after each.
    """

    handle: WorkflowHandle[Any, PipelineResult]
    result: PipelineResult
    record: RunRecord

    @property
    def baton(self) -> Baton:
        """The final baton; of a type of your own, `result.final_baton(YourBaton)` has it typed."""
        return self.record.baton


@asynccontextmanager
async def pipeline_worker(
    client: Client,
    workflows: Sequence[type],
    stages: Sequence[Callable[..., Any]],
    *,
    task_queue: str | None = None,
    replay_every_task: bool = False,
) -> AsyncIterator[Worker]:
    """Run a worker for the tests inside the `async with` block.

    Stages that still run when the block ends are cancelled. A run that this worker leaves behind is taken up by
    the next worker of the queue within a second.

    Args:
        client: A client with `BatonPlugin`.
        workflows: The pipelines it runs.
        stages: Their stages.
        task_queue: The queue it works for; one of its own by default, in the worker's `task_queue`.
        replay_every_task: Run the pipeline's code again from its beginning at every step, which shows code that
            does not answer alike each time. Slower.

    Yields:
        The running worker.

    Example:
        ```python
        async with pipeline_worker(client, [Delivery], [plan, implement], replay_every_task=True) as worker:
            await run_pipeline(worker, Delivery.run, PipelineInput(goal="Add OAuth2 login"))
        ```
    """
    worker = Worker(
        client,
        task_queue=task_queue or f"test-{uuid4()}",
        workflows=workflows,
        activities=stages,
        max_cached_workflows=0 if replay_every_task else 1000,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(milliseconds=100),
        max_heartbeat_throttle_interval=timedelta(milliseconds=100),
    )
    async with worker:
        yield worker


async def run_pipeline(
    worker: Worker,
    pipeline: Callable[..., Any] | str,
    start: PipelineInput,
    *,
    id: str | None = None,
    within: timedelta = timedelta(minutes=3),
    decisions: Mapping[str, bool] | None = None,
) -> PipelineRun:
    """Run a pipeline from start to end.

    Args:
        worker: The worker whose queue it is started on, as `pipeline_worker` yields it.
        pipeline: The workflow's `run` method, or the name of its type.
        start: Its input.
        id: The workflow's id; one of its own by default.
        within: After how long the server ends a run that does not come to an end.
        decisions: What a person decides meanwhile: yes or no by the title of the approval, each time it is open.

    Returns:
        The run.

    Raises:
        temporalio.client.WorkflowFailureError: The pipeline failed, or did not end in time; a note says why, and how
            each of its steps stood.

    Example:
        ```python
        run = await run_pipeline(worker, Delivery.run, PipelineInput(goal="Add OAuth2 login"))
        assert run.result.steps == 2
        ```
    """
    definition: Any = pipeline  # the client's overloads take either form, but no union of them
    started: WorkflowHandle[Any, PipelineResult] = await worker.client.start_workflow(
        definition,
        start,
        id=id or f"test-{uuid4()}",
        task_queue=worker.task_queue,
        execution_timeout=within,
        result_type=PipelineResult,
    )
    person = asyncio.create_task(_decide(worker.client, started.id, decisions or {}))
    try:
        result = await started.result()
    except WorkflowFailureError as error:
        with suppress(BatonError, RPCError):  # what it is to be told with is not worth more than the error
            error.add_note(_course(await read_run(worker.client, started.id)))
        raise
    finally:
        person.cancel()
    return PipelineRun(started, result, await read_run(worker.client, started.id))


def _course(run: RunRecord) -> str:
    """Return why a run came to no end of its own, and how its steps stood."""
    steps = [
        f"- step {one.seq} {one.name!r} ({one.kind}): {one.status}"
        + (f", {one.failure.splitlines()[0]}" if one.failure else "")
        + (_UNDECIDED if one.kind is StepKind.APPROVAL and one.approved is None and not one.failure else "")
        for one in run.steps
    ]
    return "\n".join([f"{run.workflow_id!r} {run.status}: {run.failure}", *(steps or ["- no step was begun"])])


async def _decide(client: Client, workflow_id: str, decisions: Mapping[str, bool]) -> None:
    """Decide about a run's approvals, each time one is open, until it is cancelled."""
    handle = client.get_workflow_handle(workflow_id)
    while decisions:
        with suppress(RPCError, PipelineError):  # nothing can be asked yet, or the baton changed just then
            now: Overview = await handle.query(QUERY_STATUS, result_type=Overview)
            for one in now.waiting_for:
                if one.kind == "approval" and one.name in decisions:
                    decision = Decision(approval=one.name, approved=decisions[one.name], who="tester", why="a test")
                    await decide(client, workflow_id, decision)
        await asyncio.sleep(_LOOKS_EVERY)


async def assert_replays(
    run: WorkflowHistory | WorkflowHandle[Any, Any],
    workflows: Sequence[type],
    *,
    plugin: BatonPlugin | None = None,
    further: Sequence[Plugin] = (),
) -> None:
    """Assert that the pipelines' code, as it is now, fits what a run has recorded.

    Do this with committed histories of your released pipelines: code that does not fit them suspends every run
    in progress that is older.

    Args:
        run: A recorded history (`WorkflowHistory.from_json`), or the handle of a run, open or closed.
        workflows: The pipelines, at least the one that ran.
        plugin: The plugin to decode the history with; by default that of the handle's client. A recorded history needs
            it if it is encrypted, or if payloads of it are in an artifact store that the environment does not name.
        further: The other plugins of the worker, as of durable agents: `[DurableAgentsPlugin()]`.

    Raises:
        AssertionError: The code asks for something else than was recorded; the message says what.

    Example:
        ```python
        recorded = Path("tests/histories/delivery.json").read_text()
        await assert_replays(WorkflowHistory.from_json("delivery", recorded), [Delivery])
        ```
    """
    if isinstance(run, WorkflowHistory):
        history = run
    else:
        history, plugin = await run.fetch_history(), plugin or _plugin_of(run)
    replayer = Replayer(workflows=workflows, plugins=[plugin or BatonPlugin(), *further])
    replay = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if replay.replay_failure is not None:
        raise AssertionError(
            f"the code does not fit the history of {history.workflow_id!r}: {replay.replay_failure}"
        ) from replay.replay_failure


def _plugin_of(handle: WorkflowHandle[Any, Any]) -> BatonPlugin | None:
    plugins = handle._client.config(active_config=True)["plugins"]
    return next((one for one in plugins if isinstance(one, BatonPlugin)), None)


async def assert_replays_folder(
    folder: Path,
    workflows: Sequence[type],
    *,
    plugin: BatonPlugin | None = None,
    further: Sequence[Plugin] = (),
) -> int:
    """Assert that the pipelines' code fits every history in a folder; the error names all that do not fit.

    Put a history there for each released pipeline and each way through it: `baton export RUN FILE` writes one.

    Args:
        folder: Searched with its sub-folders for `*.json`, each a history as `WorkflowHistory.to_json` writes it.
        workflows: The pipelines, at least those that ran.
        plugin: The plugin to decode the histories with; needed if they name an artifact store or are encrypted.
        further: The other plugins of the worker, as of durable agents: `[DurableAgentsPlugin()]`.

    Returns:
        How many histories there are.

    Raises:
        AssertionError: The folder has none; or some do not fit, are not histories, or belong to other pipelines.

    Example:
        ```python
        async def test_released_runs_can_go_on():
            assert await assert_replays_folder(Path("tests/histories"), [Delivery, Review]) >= 2
        ```
    """
    files = _histories(folder)
    if not files:
        raise AssertionError(f"{str(folder)!r} has no history; write one with `baton export RUN FILE.json`")
    mismatches = []
    for name, text in files.items():
        mismatch = await _mismatch(name, text, workflows, plugin, further)
        mismatches += [mismatch] if mismatch is not None else []
    if mismatches:
        listed = "\n".join(f"- {text}" for text in mismatches)
        raise AssertionError(f"{len(mismatches)} of {len(files)} histories do not replay:\n{listed}")
    return len(files)


def _histories(folder: Path) -> dict[str, str]:
    """Return the texts of all histories below a folder, by their paths in it."""
    files = sorted(folder.rglob("*.json"))
    return {file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8") for file in files}


async def _mismatch(
    name: str, text: str, workflows: Sequence[type], plugin: BatonPlugin | None, further: Sequence[Plugin]
) -> str | None:
    """Return why a history does not replay, or None if it does."""
    try:
        history = WorkflowHistory.from_json(name.removesuffix(".json"), text)
        started = history.events[0].workflow_execution_started_event_attributes
    except Exception as error:  # as many kinds as there are ways of not being a history
        return f"{name} is not a history: {type(error).__name__}: {error}"
    if started.workflow_type.name not in {workflow_type(one) for one in workflows}:
        return f"{name} is of the pipeline {started.workflow_type.name!r}, which is not among those given"
    try:
        await assert_replays(history, workflows, plugin=plugin, further=further)
    except AssertionError as error:
        return f"{name}: {error}"
    return None
