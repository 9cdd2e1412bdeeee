"""Whole runs in a test: a worker for its pipelines and stages, and a pipeline from start to end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Worker

from baton.client import RunRecord, decide, read_run
from baton.core.baton import Baton
from baton.core.history import StepKind
from baton.core.messages import Decision, Overview, PipelineInput, PipelineResult
from baton.errors import BatonError, PipelineError
from baton.wire.names import QUERY_STATUS

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
