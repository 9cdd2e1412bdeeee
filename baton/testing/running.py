"""Pipeline runs in tests: a server, a worker, a run from start to end, and replays.

The server is the real one of `baton.devserver`. Timers take real time, except with the SDK's `TimeSkipper` (fixture
`baton_time`), with which a run of thirty days takes milliseconds.
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
from baton.client import RunRecord, StepStatus, read_run
from baton.core.baton import Baton
from baton.core.history import StepKind
from baton.core.messages import PipelineInput, PipelineResult
from baton.devserver import DevServer, DevServerOptions, log_tail
from baton.errors import BatonError
from baton.handoff.store_gate import Freshness
from baton.handoff.store_safeguards import Safeguards
from baton.pipelines.activity_parts import WorkerParts
from baton.pipelines.workflow_steps import workflow_type
from baton.plugin import AT_ONCE, BatonPlugin
from baton.testing.replies import Replies, Replying
from baton.wire.store_clock import now_utc

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
"""Server settings beyond those of `DevServer`: runs can skip time."""

TEST_OPTIONS = DevServerOptions(ui_port=None, settings=TEST_SETTINGS)
"""The options of a test server: in memory, without the web UI, on a free local port."""

_MAX_CLOCK_SKEW = timedelta(days=36_500)  # how far a run that skips time may be ahead of its worker's clock


@asynccontextmanager
async def local_server(options: DevServerOptions | None = None) -> AsyncIterator[DevServer]:
    """Run a Temporal server for the tests inside the `async with` block.

    The server is in memory, without the web UI, with Baton's search attributes, on a free local port. One server
    per session is enough: give each workflow its own id and each worker its own task queue.

    Args:
        options: Other options, for example a database file that survives a restart.

    Yields:
        The running server; its `address` is `host:port`.

    Raises:
        ServerError: There is no `temporal` program, or the server does not start.

    Example:
        ```python
        async with local_server() as server:
            client = await connected(server.address)
        ```
    """
    async with DevServer(options or TEST_OPTIONS) as server:
        yield server


def ended_too_soon(server: DevServer) -> str | None:
    """Return how a server's process ended, with the end of its log, or None if it runs.

    Args:
        server: A started server.
    """
    code, log = server.process.returncode, server.options.log_file
    if code is None:
        return None
    tail = f"; the end of {str(log)!r}:\n{log_tail(log.read_text(encoding='utf-8', errors='replace'))}" if log else ""
    return f"the Temporal server of these tests, at {server.address!r}, exited with code {code} while they ran{tail}"


def temporary_plugin(parts: WorkerParts | None = None, *, searchable: bool = True) -> BatonPlugin:
    """Return a plugin for a test's client, with the safeguards of production in a temporary folder.

    Keys, ledger and vault are deleted once the plugin is garbage-collected, or the process ends.

    Args:
        parts: The parts for stages; by default an in-memory artifact store.
        searchable: As in `BatonPlugin`.

    Example:
        ```python
        client = await connected(server.address, temporary_plugin(WorkerParts(schemas=SCHEMAS)))
        ```
    """
    folder = Path(tempfile.mkdtemp(prefix="baton-test-"))
    # A run that skips time is ahead of the clock with which its worker checks handoffs and contracts.
    safeguards = replace(Safeguards.development(folder), freshness=Freshness(tolerance=_MAX_CLOCK_SKEW))
    parts = parts or WorkerParts(artifacts=MemoryArtifactStore())
    if parts.clock is now_utc:
        parts = replace(parts, clock=_run_time)
    plugin = BatonPlugin(parts, safeguards=safeguards, searchable=searchable)
    weakref.finalize(plugin, shutil.rmtree, folder, ignore_errors=True)
    return plugin


def _run_time() -> datetime:
    """Return the time, or that of the current run if it is ahead because it skips time."""
    return max(now_utc(), activity.info().started_time) if activity.in_activity() else now_utc()


async def connected(address: str, plugin: BatonPlugin | None = None) -> Client:
    """Return a client with `BatonPlugin`.

    Args:
        address: The server's `host:port`.
        plugin: The client's plugin; a `temporary_plugin` by default.

    Raises:
        RuntimeError: No server answers.
    """
    return await Client.connect(address, plugins=[plugin or temporary_plugin()])


ResultT = TypeVar("ResultT")


class BackgroundLoop:
    """An event loop in a thread, running inside the `with` block.

    A server and a Temporal client that are created on it can be used from other loops. Workers cannot: they belong
    to the loop of the test.

    Example:
        >>> with BackgroundLoop() as loop:
        ...     loop.run(asyncio.sleep(0, "done"))
        'done'
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="baton-test-loop", daemon=True)

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine on the loop and return its result. Call this from another thread."""
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


_UNDECIDED = "; nobody decided: pass decisions={title: True, False or a Reply} to run_pipeline"


@dataclass(frozen=True)
class PipelineRun:
    """A completed pipeline run.

    Attributes:
        handle: The run's handle, for queries, its history and `assert_replays`.
        result: The pipeline's result.
        record: The run read from its history: steps, attempts, the baton after each.
    """

    handle: WorkflowHandle[Any, PipelineResult]
    result: PipelineResult
    record: RunRecord

    @property
    def baton(self) -> Baton:
        """The final baton. For your own type use `result.final_baton(YourBaton)`."""
        return self.record.baton

    @property
    def step_names(self) -> list[str]:
        """The names of its steps in order, which say what ran and what did not: a first baton is not empty.

        Example:
            ```python
            assert run.step_names == ["summarise", "release manager"]  # denied, so `publish` did not run
            ```
        """
        return [step.name for step in self.record.steps]


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

    Stages that still run when the block ends are cancelled. The next worker of the queue continues open runs
    within a second.

    Args:
        client: A client with `BatonPlugin`.
        workflows: The pipelines.
        stages: Their stages.
        task_queue: The task queue; a new one by default, in the worker's `task_queue`.
        replay_every_task: Replay the pipeline from its beginning at every step, which reveals nondeterministic
            code. Slower.

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
        graceful_shutdown_timeout=AT_ONCE,  # a test that ends waits for no stage
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
    decisions: Mapping[str, Replies] | None = None,
) -> PipelineRun:
    """Run a pipeline from start to end.

    Args:
        worker: The worker, as from `pipeline_worker`; its task queue is used.
        pipeline: The workflow's `run` method, or the name of its type.
        start: The pipeline's input.
        id: The workflow's id; a new one by default.
        within: The execution timeout.
        decisions: What people decide, by approval title: True, False or a `Reply` each time, a list of them in turn,
            a function of the open approval, or None: no decision, and the run's clock moves to the deadline, for
            which `within` needs room.

    Returns:
        The completed run.

    Raises:
        temporalio.client.WorkflowFailureError: The pipeline failed or timed out; a note has the reason and the
            status of each step.
        AssertionError: An approval refuses a decision, needs more of them or reached its deadline before the decision,
            or the worker lacks a stage or another part; a run that is still open is terminated.

    Example:
        ```python
        replies = {"editor": Reply(True, {"headline": "Faster"}, who="ann"), "board": [True, True], "legal": False}
        run = await run_pipeline(worker, Article.run, PipelineInput(goal="Write it"), decisions=replies)
        assert run.result.steps == 4
        ```
    """
    definition: Any = pipeline  # the client's overloads accept either type, but not their union
    handle: WorkflowHandle[Any, PipelineResult] = await worker.client.start_workflow(
        definition,
        start,
        id=id or f"test-{uuid4()}",
        task_queue=worker.task_queue,
        execution_timeout=within,
        result_type=PipelineResult,
    )
    replying = Replying(worker.client, handle.id, decisions or {})
    try:
        result = await _result_of(handle, replying)
    except WorkflowFailureError as error:
        with suppress(BatonError, RPCError):  # the note must not hide the error
            record = await read_run(worker.client, handle.id)
            replying.check_in_time(record)
            error.add_note(_describe_course(record))
        raise
    record = await read_run(worker.client, handle.id)
    replying.check_in_time(record)
    return PipelineRun(handle, result, record)


async def _result_of(handle: WorkflowHandle[Any, PipelineResult], replying: Replying) -> PipelineResult:
    """Return a run's result; a run that cannot go on is terminated, and the reason raised."""
    result, replies = asyncio.create_task(handle.result()), asyncio.create_task(replying.until_refused())
    try:
        await asyncio.wait((result, replies), return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            with suppress(RPCError):  # it has just ended
                await handle.terminate("its test cannot decide it, or its worker lacks a part")
            replies.result()  # raises
        return await result
    finally:
        result.cancel()
        replies.cancel()
        await asyncio.gather(result, replies, return_exceptions=True)


def _describe_course(run: RunRecord) -> str:
    """Return why a run failed, and the status of each step."""
    steps = [
        f"- step {step.seq} {step.name!r} ({step.kind}): {step.status}"
        + (f", {step.failure.splitlines()[0]}" if step.failure else "")
        + (_UNDECIDED if step.kind is StepKind.APPROVAL and step.status is not StepStatus.DONE else "")
        for step in run.steps
    ]
    return "\n".join([f"{run.workflow_id!r} {run.status}: {run.failure}", *(steps or ["- no step was started"])])


async def assert_replays(
    run: WorkflowHistory | WorkflowHandle[Any, Any],
    workflows: Sequence[type],
    *,
    plugin: BatonPlugin | None = None,
    further: Sequence[Plugin] = (),
) -> None:
    """Assert that the pipelines' current code replays a recorded run.

    Use it with committed histories of released pipelines: code that does not replay them suspends older open runs.

    Args:
        run: A recorded history (`WorkflowHistory.from_json`), or the handle of a run, open or closed.
        workflows: The pipelines, at least that of the run.
        plugin: The plugin that decodes the history; by default that of the handle's client. A recorded history needs
            it if it is encrypted, or if payloads are in an artifact store that the environment does not name.
        further: Other plugins of the worker, such as `[DurableAgentsPlugin()]`.

    Raises:
        AssertionError: The code does not replay the history; the message has the difference.

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
            f"the code does not replay the history of {history.workflow_id!r}: {replay.replay_failure}"
        ) from replay.replay_failure


def _plugin_of(handle: WorkflowHandle[Any, Any]) -> BatonPlugin | None:
    plugins = handle._client.config(active_config=True)["plugins"]
    return next((plugin for plugin in plugins if isinstance(plugin, BatonPlugin)), None)


async def assert_replays_folder(
    folder: Path,
    workflows: Sequence[type],
    *,
    plugin: BatonPlugin | None = None,
    further: Sequence[Plugin] = (),
) -> int:
    """Assert that the pipelines' code replays every history in a folder; the error lists all that fail.

    Add a history for each path through each released pipeline; `baton export RUN FILE` writes one.

    Args:
        folder: The folder, searched recursively for `*.json` as written by `WorkflowHistory.to_json`.
        workflows: The pipelines, at least those of the histories.
        plugin: The plugin that decodes the histories; needed if they use an artifact store or are encrypted.
        further: Other plugins of the worker, such as `[DurableAgentsPlugin()]`.

    Returns:
        The number of histories.

    Raises:
        AssertionError: There is no history, or some do not replay, are invalid, or belong to other pipelines.

    Example:
        ```python
        async def test_released_runs_can_continue():
            assert await assert_replays_folder(Path("tests/histories"), [Delivery, Review]) >= 2
        ```
    """
    files = _read_histories(folder)
    if not files:
        raise AssertionError(f"{str(folder)!r} has no history; write one with `baton export RUN FILE.json`")
    mismatches = []
    for name, text in files.items():
        mismatch = await _find_mismatch(name, text, workflows, plugin, further)
        mismatches += [mismatch] if mismatch is not None else []
    if mismatches:
        lines = "\n".join(f"- {text}" for text in mismatches)
        raise AssertionError(f"{len(mismatches)} of {len(files)} histories do not replay:\n{lines}")
    return len(files)


def _read_histories(folder: Path) -> dict[str, str]:
    """Return the text of each history in a folder, by relative path."""
    files = sorted(folder.rglob("*.json"))
    return {file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8") for file in files}


async def _find_mismatch(
    name: str, text: str, workflows: Sequence[type], plugin: BatonPlugin | None, further: Sequence[Plugin]
) -> str | None:
    """Return why a history does not replay, or None."""
    try:
        history = WorkflowHistory.from_json(name.removesuffix(".json"), text)
        started = history.events[0].workflow_execution_started_event_attributes
    except Exception as error:  # an invalid history raises many kinds of errors
        return f"{name} is not a history: {type(error).__name__}: {error}"
    if started.workflow_type.name not in {workflow_type(workflow) for workflow in workflows}:
        return f"{name} belongs to pipeline {started.workflow_type.name!r}, which was not passed"
    try:
        await assert_replays(history, workflows, plugin=plugin, further=further)
    except AssertionError as error:
        return f"{name}: {error}"
    return None
