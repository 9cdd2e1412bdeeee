"""A guard against queries that bring a run events ahead of its workflow task.

A query that waits for a worker arrives with everything that happened meanwhile: signals, results, fired timers, the
start of a task that another worker is at. The SDK applies that at once. A replay applies it in the next task, at
another time and beside other events, so a run that goes on from there no longer fits its own history (docs/limits.md
has a reproduction without Baton). With this guard such a query is answered, and the next workflow task is
given back: the server sends it again at once, with the history from which the run is loaded.
"""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Client
from temporalio.converter import SerializationContext, StorageDriverStoreContext
from temporalio.worker import Worker, WorkflowInstance

_WITHOUT_TASK = "legacy_query"  # the SDK's id of a query that does not come with a workflow task
_SOON = timedelta(seconds=1)  # the SDK takes a run for stuck after two


class WorkerTasks:
    """What the server knows of the tasks of a worker's runs."""

    def __init__(self) -> None:
        """Begin without a worker."""
        self._client: Client | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def belongs_to(self, worker: Worker) -> None:
        """Tell whose they are, in the event loop in which the worker's client works."""
        self._client, self._loop = worker.client, asyncio.get_running_loop()

    def has_task(self, workflow_id: str, run_id: str) -> bool:
        """Return whether a workflow task of a run is under way or to come, as far as is known; called in a thread."""
        client = self._client
        if client is None or self._loop is None:
            return False
        asking = client.workflow_service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(
                namespace=client.namespace, execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
            ),
            timeout=_SOON,
        )
        try:
            described = asyncio.run_coroutine_threadsafe(asking, self._loop).result(_SOON.total_seconds())
        except Exception:  # whatever it is, the run is loaded again
            return True
        return described.HasField("pending_workflow_task")


class GuardedInstance(WorkflowInstance):
    """A workflow instance that is loaded again after a query that came early; it forwards everything else."""

    def __init__(self, inner: WorkflowInstance, tasks: WorkerTasks | None) -> None:
        self._inner = inner
        self._tasks = tasks
        self._at = 0  # the time of its last task
        self._brought: bool | None = False  # by a query; None: it looks like a task of the worker's own
        self._is_ahead = False

    def activate(self, act: Any) -> Any:
        """Forward; only a query without a task can have brought the events just before it."""
        asked = [job.query_workflow.query_id for job in act.jobs if job.HasField("query_workflow")]
        if not asked:
            if self._is_ahead:
                return _given_back()
            before, self._at = self._at, act.timestamp.ToNanoseconds()
            self._brought = False if act.is_replaying else self._at == before or None
        elif self._tasks is not None and _WITHOUT_TASK in asked:
            if self._brought is None:
                self._brought = self._tasks.has_task(self._inner.get_info().workflow_id, act.run_id)
            self._is_ahead = self._is_ahead or self._brought
        return self._inner.activate(act)

    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        """Forward."""
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        """Forward."""
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Any:
        """Forward."""
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        """Forward."""
        return self._inner.get_thread_id()


def _given_back() -> WorkflowActivationCompletion:
    """Return that a task failed for a reason that is no fault of the run's code."""
    completion = WorkflowActivationCompletion()
    completion.failed.failure.message = "A query came ahead of this task; the run is loaded again."
    completion.failed.force_cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE
    return completion
