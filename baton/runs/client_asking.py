"""Asking many runs at once, without waiting long for those that no worker serves."""

import asyncio
import time
from typing import Any

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from baton.errors import PipelineError
from baton.runs.client_executions import ANSWER_WITHIN, Execution, asked, is_unknown
from baton.runs.client_waiting import has_pollers

_AT_ONCE = 8
_SILENT_FOR_SECONDS = 10.0


class Asker:
    """Sends queries to runs, a few at once; a task queue without answers is skipped for a while."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._silent: dict[str, float] = {}

    async def ask(self, run: Execution, query: str, of: type[Any]) -> list[Any] | None:
        """Return what a run answers to a query that is answered with a list."""
        async with self._turn:
            if self._silent.get(run.task_queue, 0.0) > time.monotonic():
                return None
            if not await has_pollers(self._client, run.task_queue):
                self._silence(run)
                return None
            handle = self._client.get_workflow_handle(run.id, run_id=run.run_id)
            try:
                answer: list[Any] = await asked(handle, query, result_type=list[of], rpc_timeout=ANSWER_WITHIN)  # type: ignore[valid-type]
            except WorkflowQueryFailedError as error:
                return [] if is_unknown(query, error) else None
            except PipelineError:
                return None
            except RPCError as error:
                match error.status:
                    case RPCStatusCode.NOT_FOUND:  # it ended meanwhile
                        return []
                    case RPCStatusCode.FAILED_PRECONDITION:  # this run alone cannot be asked: its code fails
                        return None
                    case RPCStatusCode.CANCELLED | RPCStatusCode.DEADLINE_EXCEEDED:
                        self._silence(run)
                        return None
                    case _:
                        raise
            return answer

    def _silence(self, run: Execution) -> None:
        """Note that no worker answers on a run's task queue."""
        self._silent[run.task_queue] = time.monotonic() + _SILENT_FOR_SECONDS
