"""What tests of your own pipelines use: a real server in memory, a worker, whole runs, and replays.

It is the server of `baton.devserver`, so what holds in a test holds there; timers of milliseconds take
milliseconds. Nothing in here needs a particular test framework. A stage alone needs none of it: call it like
the function it is, with `StageContext.for_test` if it takes a context.

```python
@pytest.fixture(scope="session")
async def client():
    async with local_server() as server:
        yield await Client.connect(server.address, plugins=[BatonPlugin()])

async def test_delivery_plans_before_it_implements(client):
    async with pipeline_worker(client, [Delivery], [plan, implement]) as worker:
        run = await run_pipeline(worker, Delivery.run, PipelineInput(goal="Add OAuth2 login"))
    assert [step.name for step in run.record.steps] == ["plan", "implement"]
    assert run.baton.decision_log == ["Chose JWT over sessions"]
    await assert_replays(run.handle, [Delivery])
```

It works with real processes; if the test process itself ends with SIGABRT after all tests have passed, sleep
for a third of a second at the end of the session (temporalio's threads outlive the interpreter otherwise).
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer, Worker

from baton.client import RunRecord, read_run
from baton.devserver import DevServer, DevServerOptions
from baton.plugin import BatonPlugin
from baton.protocol.baton import Baton
from baton.protocol.messages import PipelineInput, PipelineResult

__all__ = ["PipelineRun", "assert_replays", "local_server", "pipeline_worker", "run_pipeline"]


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
            client = await Client.connect(server.address, plugins=[BatonPlugin()])
        ```
    """
    async with DevServer(options or DevServerOptions(ui_port=None)) as server:
        yield server


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
    within: timedelta = timedelta(seconds=30),
) -> PipelineRun:
    """Run a pipeline from start to end.

    Args:
        worker: The worker whose queue it is started on, as `pipeline_worker` yields it.
        pipeline: The workflow's `run` method, or the name of its type.
        start: Its input.
        id: The workflow's id; one of its own by default.
        within: After how long the server ends a run that does not come to an end.

    Returns:
        The run.

    Raises:
        temporalio.client.WorkflowFailureError: The pipeline failed, or did not end in time; `read_run` tells
            how far it came.

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
    result = await started.result()
    return PipelineRun(started, result, await read_run(worker.client, started.id))


async def assert_replays(
    run: WorkflowHistory | WorkflowHandle[Any, Any],
    workflows: Sequence[type],
    *,
    plugin: BatonPlugin | None = None,
) -> None:
    """Assert that the pipelines' code, as it is now, fits what a run has recorded.

    Do this with committed histories of your released pipelines: code that does not fit them suspends every run
    in progress that is older.

    Args:
        run: A recorded history (`WorkflowHistory.from_json`), or the handle of a run, open or closed.
        workflows: The pipelines, at least the one that ran.
        plugin: The plugin to decode the history with; needed if it names an artifact store.

    Raises:
        AssertionError: The code asks for something else than was recorded; the message says what.

    Example:
        ```python
        recorded = Path("tests/histories/delivery.json").read_text()
        await assert_replays(WorkflowHistory.from_json("delivery", recorded), [Delivery])
        ```
    """
    history = run if isinstance(run, WorkflowHistory) else await run.fetch_history()
    replayer = Replayer(workflows=workflows, plugins=[plugin or BatonPlugin()])
    replay = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if replay.replay_failure is not None:
        raise AssertionError(
            f"the code does not fit the history of {history.workflow_id!r}: {replay.replay_failure}"
        ) from replay.replay_failure
