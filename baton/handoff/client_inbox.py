"""The inbox over all runs: pending handoffs, and people's decisions about them."""

import asyncio
import itertools
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from baton.core.messages import PipelineStatus, Waiting
from baton.errors import BatonError, HistoryError
from baton.handoff.pending import HandoffDecision, PendingHandoff, refusal
from baton.runs.client_decide import send_decision
from baton.runs.client_executions import Execution, describe, list_executions
from baton.runs.client_handoffs import UNKNOWN, read_handoffs
from baton.runs.client_list import label_of
from baton.runs.client_waiting import Asker
from baton.wire.names import (
    ATTRIBUTE_STAGE,
    ATTRIBUTE_STATUS,
    ATTRIBUTE_TASK,
    QUERY_INBOX,
    QUERY_WAITING,
    RESOLVE_HANDOFF,
)

MAX_RUNS = 100
"""How many runs are asked unless the caller says otherwise."""

_RUNNING_WITH_STATUS = f"{ATTRIBUTE_STATUS} = '%s' AND ExecutionStatus = 'Running'"

WAITING_RUNS = _RUNNING_WITH_STATUS % PipelineStatus.PENDING_HANDOFF.value
"""The open runs with a handoff that waits for a person, in the server's query language."""

ASKING_RUNS = _RUNNING_WITH_STATUS % PipelineStatus.WAITING.value
"""The open runs with an open approval, likewise."""


@dataclass(frozen=True)
class WaitingHandoff:
    """A handoff that waits for a person, and the run it belongs to.

    Attributes:
        workflow_id: The workflow.
        run_id: Its run.
        pipeline: The workflow's type.
        task_id: The task, as the server indexes it.
        handoff: The handoff; None if neither a worker nor the history could be read.
        stage: The stage that it was to begin, as the server indexes it.
        answered: Whether the run's worker answered; otherwise the handoff was read from the history.
        trouble: Why the run's answer, or its history, could not be read.
    """

    workflow_id: str
    run_id: str
    pipeline: str
    task_id: str | None
    handoff: PendingHandoff | None
    stage: str | None = None
    answered: bool = True
    trouble: str | None = None

    @property
    def since(self) -> datetime:
        """Since when it waits; the earliest time if unknown."""
        return self.handoff.since if self.handoff else datetime.min.replace(tzinfo=UTC)

    def to_json_object(self) -> dict[str, Any]:
        """Return it as JSON, with the possible decisions."""
        return {
            "workflow_id": self.workflow_id,
            "run_id": self.run_id,
            "pipeline": self.pipeline,
            "task_id": self.task_id,
            "stage": self.stage,
            "answered": self.answered,
            "trouble": self.trouble,
            "handoff": self.handoff.model_dump(mode="json") if self.handoff else None,
            "actions": [action.value for action in self.handoff.actions] if self.handoff and self.answered else [],
        }


async def inbox(client: Client, *, limit: int = MAX_RUNS) -> list[WaitingHandoff]:
    """Return the pending handoffs of all runs, the oldest first.

    Runs come from the server's index, which may lag behind by a moment, and each is queried. If no worker answers,
    its history is read instead.

    Args:
        client: A connected client.
        limit: How many runs are queried at most.

    Returns:
        The handoffs, without those decided meanwhile.

    Raises:
        BatonError: The namespace lacks Baton's search attributes.
        temporalio.service.RPCError: The server cannot be asked.
    """
    reader = _InboxReader(client)
    inboxes = await asyncio.gather(*(reader.read_or_trouble(run) for run in await _list_runs(client, limit)))
    return sorted(itertools.chain.from_iterable(inboxes), key=lambda entry: entry.since)


async def open_approvals(client: Client, *, limit: int = MAX_RUNS) -> list[tuple[str, Waiting]]:
    """Return the open approvals of all runs with a worker, each with its workflow, the oldest first.

    Args:
        client: A connected client.
        limit: How many runs are queried at most.

    Raises:
        BatonError: The namespace lacks Baton's search attributes.
        temporalio.service.RPCError: The server cannot be asked.
    """
    asker = Asker(client)

    async def approvals_of(run: Execution) -> list[tuple[str, Waiting]]:
        return [(run.id, approval) for approval in await _query_approvals(asker, run)]

    approvals = await asyncio.gather(*(approvals_of(run) for run in await _list_runs(client, limit, ASKING_RUNS)))
    return sorted(itertools.chain.from_iterable(approvals), key=lambda item: item[1].since)


async def run_approvals(client: Client, workflow_id: str, run_id: str | None = None) -> list[Waiting]:
    """Return the open approvals of one run; none if it has ended or no worker answers."""
    run = await describe(client, workflow_id, run_id)
    return [] if run.close_time is not None else await _query_approvals(Asker(client), run)


async def _query_approvals(asker: Asker, run: Execution) -> list[Waiting]:
    return [waiting for waiting in await asker.ask(run, QUERY_WAITING, Waiting) or [] if waiting.kind == "approval"]


async def run_inbox(client: Client, workflow_id: str, run_id: str | None = None) -> list[WaitingHandoff]:
    """Return the pending handoffs of one run, the oldest first.

    Args:
        client: A connected client.
        workflow_id: The workflow.
        run_id: Which of its runs; the newest by default.

    Returns:
        The handoffs; none if the run has ended.

    Raises:
        HistoryError: No worker answers, and the workflow is not a pipeline, or its payloads cannot be read.
        temporalio.service.RPCError: There is no such run, or the server cannot be asked.
    """
    run = await describe(client, workflow_id, run_id)
    return [] if run.close_time is not None else await _InboxReader(client).read(run)


async def resolve_handoff(
    client: Client, workflow_id: str, decision: HandoffDecision, run_id: str | None = None
) -> HandoffDecision:
    """Decide a pending handoff; who and why are recorded.

    Args:
        client: A connected client.
        workflow_id: The pipeline.
        decision: Which handoff, what to do, who and why.
        run_id: Which of its runs; the newest by default.

    Returns:
        The decision that counts: the first one, if it was repeated.

    Raises:
        PipelineError: The decision is refused: the handoff is not pending, does not allow the action, or is decided.
        temporalio.service.RPCError: There is no such run, or no worker answers.
    """
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)

    async def is_waiting() -> bool:
        pending = await handle.query(QUERY_INBOX, result_type=list[PendingHandoff])
        current = next((entry for entry in pending if entry.handoff_id == decision.handoff_id), None)
        return refusal(decision, current) is None

    return await send_decision(handle, RESOLVE_HANDOFF, decision, HandoffDecision, is_waiting)


async def _list_runs(client: Client, limit: int, query: str = WAITING_RUNS) -> list[Execution]:
    try:
        return [run async for run in list_executions(client, query, most=limit)]
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT and "Baton" in error.message:
            raise BatonError(
                "the namespace lacks Baton's search attributes, so pending handoffs cannot be found; `baton doctor "
                "--fix` adds them for new runs. `baton inbox show RUN` works without them"
            ) from error
        raise


class _InboxReader:
    """Reads a run's pending handoffs from its worker, or from its history if no worker answers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asker = Asker(client)

    async def read(self, run: Execution) -> list[WaitingHandoff]:
        trouble = None
        try:
            pending_handoffs = await self._asker.ask(run, QUERY_INBOX, PendingHandoff)
        except HistoryError as error:
            pending_handoffs, trouble = None, str(error)
        if pending_handoffs is not None:
            return [_waiting_handoff(run, pending) for pending in pending_handoffs]
        handoffs = await read_handoffs(self._client, run.id, run.run_id)
        return [_waiting_handoff(run, pending, answered=False, trouble=trouble) for pending in handoffs.waiting]

    async def read_or_trouble(self, run: Execution) -> list[WaitingHandoff]:
        """Return a run's pending handoffs, or one entry with the trouble if they cannot be read."""
        try:
            return await self.read(run)
        except HistoryError as error:
            return [_waiting_handoff(run, None, answered=False, trouble=str(error))]


def _waiting_handoff(
    run: Execution, pending: PendingHandoff | None, *, answered: bool = True, trouble: str | None = None
) -> WaitingHandoff:
    """Return a handoff with its run; the indexed stage stands for a receiver that the history does not name."""
    stage = label_of(run, ATTRIBUTE_STAGE)
    if pending is not None and pending.receiver == UNKNOWN and stage:
        pending = pending.model_copy(update={"receiver": stage})
    task_id = label_of(run, ATTRIBUTE_TASK)
    return WaitingHandoff(run.id, run.run_id, run.workflow_type, task_id, pending, stage, answered, trouble)
