"""A guard against queries that bring a run events ahead of its workflow task.

A query that waits for a worker arrives with everything that happened meanwhile: signals, results, fired timers, the
start of a task that another worker is at. The SDK applies that at once. A replay applies it in the next task, at
another time and beside other events, so a run that continues from there no longer fits its own history (docs/limits.md
has a reproduction without Baton). With this guard the answer to such a query is the last thing that a worker's copy of
the run does: the worker drops it, and the next task loads the run from its history.
"""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.converter import SerializationContext, StorageDriverStoreContext
from temporalio.worker import Worker, WorkflowInstance

_WITHOUT_TASK = "legacy_query"  # the SDK's id of a query that does not come with a workflow task
_SOON = timedelta(seconds=1)  # the SDK takes a run for stuck after two


class RunCache:
    """The runs that a worker keeps in memory."""

    def __init__(self) -> None:
        """Begin without a worker, and with no runs."""
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def belongs_to(self, worker: Worker) -> None:
        """Tell whose it is, in the event loop in which that works."""
        self._worker, self._loop = worker, asyncio.get_running_loop()

    def drop(self, run_id: str) -> None:
        """Have a run forgotten once it has done what it is doing."""
        if self._worker is not None:
            self._worker._bridge_worker.request_workflow_eviction(run_id)  # the SDK has no public way

    def has_task(self, workflow_id: str, run_id: str) -> bool:
        """Return whether a workflow task of a run is under way or to come, as far as is known; called in a thread."""
        if self._worker is None or self._loop is None:
            return False
        client = self._worker.client
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
    """A workflow instance that is dropped after a query that came early; it forwards everything else."""

    def __init__(self, inner: WorkflowInstance, kept_in: RunCache | None) -> None:
        self._inner = inner
        self._kept_in = kept_in
        self._at = 0  # the time of its last task
        self._is_ahead: bool | None = False  # None: a worker's own task looks like one that a query has brought

    def activate(self, act: Any) -> Any:
        """Forward; only a query without a task can have brought the events just before it."""
        asked = [job.query_workflow.query_id for job in act.jobs if job.HasField("query_workflow")]
        if not asked:
            before, self._at = self._at, act.timestamp.ToNanoseconds()
            self._is_ahead = False if act.is_replaying else self._at == before or None
        elif self._kept_in is not None and _WITHOUT_TASK in asked:
            if self._is_ahead is None:
                self._is_ahead = self._kept_in.has_task(self._inner.get_info().workflow_id, act.run_id)
            if self._is_ahead:
                self._kept_in.drop(act.run_id)
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
