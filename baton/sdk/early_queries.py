"""Queries that bring their run news ahead of its workflow task.

A query that waits until a worker is there is given everything that came meanwhile: signals, answers, timers that ran
out. The SDK tells the run of it at once, at the time of the task before. What comes until the next workflow task begins
is told after it then, and in a replay together with it; and local activities begin there and then. The run does not fit
its history any more, for ever, or has used another time than a replay will.

So a worker refuses such a query and lets go of the run, which its workflow task brings back; and clients with Baton's
plugin ask again by themselves.
"""

import asyncio
import threading
import time
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Interceptor, OutboundInterceptor, QueryWorkflowInput, WorkflowQueryFailedError

ASK_AGAIN = "the run has not been told yet what its next workflow task brings; ask again"
"""Why such a query is refused."""
IN_ITS_TASK = 10.0
"""The seconds after which the news belongs to no task any more: of a run that was closed with it."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_MOST_RUNS = 1000


class EarlyQueries:
    """What a worker has refused, by run."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._refused: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()  # runs are told things in threads

    def refuses(self, told: WorkflowActivation, length: int, at: int) -> bool:
        """Return whether this is news that a query brings.

        What a workflow task brings comes at a later time than what was told before, and this does not.

        Args:
            told: What the run is to be told.
            length: The length of its history when it was told something before.
            at: The time that it was told then, in nanoseconds.

        Example:
            >>> news = WorkflowActivation(run_id="01a2", history_length=10)
            >>> EarlyQueries().refuses(news, length=7, at=0)
            True
        """
        if told.is_replaying or told.history_length <= length or told.timestamp.ToNanoseconds() != at:
            return False
        now = time.monotonic()
        with self._lock:
            before, since = self._refused.pop(told.run_id, (0, now))
            again = before == told.history_length
            self._refused[told.run_id] = (told.history_length, since if again else now)
            if len(self._refused) > _MOST_RUNS:
                del self._refused[next(iter(self._refused))]
        return not again or now - since < IN_ITS_TASK


def refusal(told: WorkflowActivation) -> WorkflowActivationCompletion:
    """Return the answer that refuses the query and has the run leave the worker's cache.

    Example:
        >>> refusal(WorkflowActivation(run_id="01a2")).failed.failure.message == ASK_AGAIN
        True
    """
    completion = WorkflowActivationCompletion(run_id=told.run_id)
    completion.failed.failure.message = ASK_AGAIN
    completion.failed.failure.application_failure_info.type = "AskAgain"
    return completion


class AskingAgain(Interceptor):
    """Has a client ask again where a query came too early, for as long as it would wait for an answer.

    Example:
        ```python
        client = await Client.connect("localhost:7233", interceptors=[AskingAgain()])
        ```
    """

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """Have the client's queries looked after."""
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
