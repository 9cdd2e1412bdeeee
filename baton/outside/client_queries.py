"""Queries of runs that wait for an agent outside: what they offer it is in the workers' memory, and in no history."""

import asyncio
import time
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from baton.errors import HistoryError, PayloadError, PipelineError
from baton.runs.client_executions import Execution, unpause
from baton.runs.client_waiting import has_pollers

_ANSWER_WITHIN = timedelta(seconds=2)  # of one of many runs
_MAX_CONCURRENT = 8
_SILENT_FOR_SECONDS = 10.0


async def query_run(handle: WorkflowHandle[Any, Any], query: str, **options: Any) -> Any:
    """Return a run's answer to a query."""
    try:
        return await handle.query(query, **options)
    except (ApplicationError, PayloadError) as error:
        why = error.message if isinstance(error, ApplicationError) else str(error)
        raise HistoryError(
            f"the answer of {handle.id!r} cannot be read: {why}. Its workers may run a newer release of Baton, or "
            "have other keys"
        ) from error
    except ValueError as error:
        if "WorkflowExecutionStatus" not in str(error):  # the SDK cannot parse the status of a paused run
            raise
        raise PipelineError(
            f"{handle.id!r} is paused: nothing can be asked or decided until it is unpaused ({unpause(handle.id)})"
        ) from error


def is_unknown(query: str, error: WorkflowQueryFailedError) -> bool:
    """Return whether a query failed because the run's code has no query of that name."""
    return query in str(error)


class Asker:
    """Queries many runs, a few concurrently; skips a task queue without answers for a while."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._turn = asyncio.Semaphore(_MAX_CONCURRENT)
        self._silent: dict[str, float] = {}

    async def ask(self, run: Execution, query: str, of: type[Any]) -> list[Any] | None:
        """Return a run's answer to a query whose result is a list; None if there is none."""
        async with self._turn:
            if self._silent.get(run.task_queue, 0.0) > time.monotonic():
                return None
            if not await has_pollers(self._client, run.task_queue):
                self._silence(run)
                return None
            handle = self._client.get_workflow_handle(run.id, run_id=run.run_id)
            try:
                answer: list[Any] = await query_run(handle, query, result_type=list[of], rpc_timeout=_ANSWER_WITHIN)  # type: ignore[valid-type]
            except WorkflowQueryFailedError as error:
                return [] if is_unknown(query, error) else None
            except PipelineError:
                return None
            except RPCError as error:
                match error.status:
                    case RPCStatusCode.NOT_FOUND:  # it ended meanwhile
                        return []
                    case RPCStatusCode.FAILED_PRECONDITION:  # only this run cannot be queried: its code fails
                        return None
                    case RPCStatusCode.CANCELLED | RPCStatusCode.DEADLINE_EXCEEDED:
                        self._silence(run)
                        return None
                    case _:
                        raise
            return answer

    def _silence(self, run: Execution) -> None:
        self._silent[run.task_queue] = time.monotonic() + _SILENT_FOR_SECONDS
