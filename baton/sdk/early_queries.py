"""A guard against queries that bring events to a run ahead of its workflow task.

A query that waits for a worker arrives with everything that happened meanwhile: signals, results, fired timers, the
start of a task that another worker is executing. The SDK applies these events at once. A replay applies them in the
next task, at another time and beside other events, so a run that continues from there no longer fits its own history
(docs/limits.md has a reproduction without Baton). With this guard the worker drops the run from its cache once it has
answered such a query, and the next task loads the run from its history.
"""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.converter import SerializationContext, StorageDriverStoreContext
from temporalio.worker import Worker, WorkflowInstance

from baton.codec.failures import as_exception

_LEGACY_QUERY = "legacy_query"  # the SDK's id of a query without a workflow task
_TIMEOUT = timedelta(seconds=1)  # the SDK reports a deadlock after two


class RunCache:
    """The runs that a worker keeps in memory."""

    def __init__(self) -> None:
        """Make a cache without a worker."""
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self, worker: Worker) -> None:
        """Set the worker; called in its event loop."""
        self._worker, self._loop = worker, asyncio.get_running_loop()

    def drop(self, run_id: str) -> None:
        """Ask the worker to evict a run after its current activation."""
        if self._worker is not None:
            self._worker._bridge_worker.request_workflow_eviction(run_id)  # the SDK has no public API for it

    def has_task(self, workflow_id: str, run_id: str) -> bool:
        """Return whether a run has a pending workflow task; True if that is unknown. Called in a thread."""
        if self._worker is None or self._loop is None:
            return False
        client = self._worker.client
        request = client.workflow_service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(
                namespace=client.namespace, execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
            ),
            timeout=_TIMEOUT,
        )
        try:
            response = asyncio.run_coroutine_threadsafe(request, self._loop).result(_TIMEOUT.total_seconds())
        except Exception:  # then the run is loaded again, which is always safe
            return True
        return response.HasField("pending_workflow_task")


class GuardedInstance(WorkflowInstance):
    """A workflow instance that is dropped after an early query; it forwards everything else."""

    def __init__(self, inner: WorkflowInstance, cache: RunCache | None) -> None:
        self._inner = inner
        self._cache = cache
        self._last_task_time = 0
        self._is_ahead: bool | None = False  # None: unknown, because the worker's own task may look the same

    def activate(self, act: Any) -> Any:
        """Forward, and drop the run if a query without a task brought the events just before it."""
        query_ids = [job.query_workflow.query_id for job in act.jobs if job.HasField("query_workflow")]
        if not query_ids:
            last_time, self._last_task_time = self._last_task_time, act.timestamp.ToNanoseconds()
            self._is_ahead = False if act.is_replaying else self._last_task_time == last_time or None
        elif self._cache is not None and _LEGACY_QUERY in query_ids:
            if self._is_ahead is None:
                self._is_ahead = self._cache.has_task(self._inner.get_info().workflow_id, act.run_id)
            if self._is_ahead:
                self._cache.drop(act.run_id)
        try:
            return self._inner.activate(act)
        except (SystemExit, KeyboardInterrupt) as error:  # of a task that pipeline code began; it would end the worker
            raise as_exception(error).with_traceback(error.__traceback__) from None

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
