"""A guard against queries that bring a run news ahead of its workflow task.

A query that waits for a worker arrives with everything that happened meanwhile: signals, updates, results, fired
timers. The SDK applies that at once, at the time of the task before. A replay applies it in the next workflow task, so
the run no longer fits its own history (see docs/limits.md for a reproduction without Baton). A worker with this guard
refuses such a query and evicts the run, which its workflow task loads again; clients with Baton's plugin ask again.
"""

import asyncio
import threading
import time
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Interceptor, OutboundInterceptor, QueryWorkflowInput, WorkflowQueryFailedError
from temporalio.converter import SerializationContext, StorageDriverStoreContext
from temporalio.worker import WorkflowInstance

ASK_AGAIN = "this query came before the run's next workflow task; ask again"
"""The message of a refused query."""
IN_ITS_TASK = 10.0
"""Seconds after which no workflow task will come for the news, because the run was closed with it."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_MOST_RUNS = 1000


class EarlyQueries:
    """The queries that a worker has refused, by run."""

    def __init__(self) -> None:
        """Begin with none."""
        self._refused: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()  # activations run in threads

    def refuses(self, activation: WorkflowActivation, length: int, at: int) -> bool:
        """Return whether an activation is news that a query brings."""
        if activation.is_replaying or activation.history_length <= length or activation.timestamp.ToNanoseconds() != at:
            return False
        now = time.monotonic()
        with self._lock:
            before, since = self._refused.pop(activation.run_id, (0, now))
            again = before == activation.history_length
            self._refused[activation.run_id] = (activation.history_length, since if again else now)
            if len(self._refused) > _MOST_RUNS:
                del self._refused[next(iter(self._refused))]
        return not again or now - since < IN_ITS_TASK


class GuardedInstance(WorkflowInstance):
    """A workflow instance that refuses early queries and forwards everything else."""

    def __init__(self, inner: WorkflowInstance, early: EarlyQueries | None) -> None:
        self._inner = inner
        self._early = early
        self._last = (0, 0)  # the history's length and the time at the last activation

    def activate(self, act: Any) -> Any:
        """Refuse an early query."""
        if self._early is not None and self._early.refuses(act, *self._last):
            return _refusal(act.run_id)
        self._last = (act.history_length, act.timestamp.ToNanoseconds())
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


def _refusal(run_id: str) -> WorkflowActivationCompletion:
    """Return the completion that fails the query and evicts the run from the worker's cache."""
    completion = WorkflowActivationCompletion(run_id=run_id)
    completion.failed.failure.message = ASK_AGAIN
    completion.failed.failure.application_failure_info.type = "AskAgain"
    return completion


class AskingAgain(Interceptor):
    """A client interceptor that repeats a refused query for as long as the client would wait for an answer."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """Return the interceptor of the client's queries."""
        return _AskingAgain(next)


class _AskingAgain(OutboundInterceptor):
    async def query_workflow(self, input: QueryWorkflowInput) -> Any:
        limit = IN_ITS_TASK + _LONGEST_PAUSE if input.rpc_timeout is None else input.rpc_timeout.total_seconds()
        waited, pause = 0.0, _FIRST_PAUSE
        while True:
            try:
                return await super().query_workflow(input)
            except WorkflowQueryFailedError as error:
                if ASK_AGAIN not in str(error) or waited >= limit:
                    raise
            await asyncio.sleep(pause)
            waited, pause = waited + pause, min(pause * 2, _LONGEST_PAUSE)
