"""The inbox over all runs: the handoffs that wait for a person, and what people decide about them."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from baton.core.messages import PipelineStatus, Waiting
from baton.errors import BatonError, HistoryError
from baton.handoff.pending import HandoffDecision, PendingHandoff, refusal
from baton.runs.client_decide import decided_by_update
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

MOST_RUNS = 100
"""How many runs are asked unless the caller says otherwise."""

_OPEN = f"{ATTRIBUTE_STATUS} = '%s' AND ExecutionStatus = 'Running'"

WAITING_RUNS = _OPEN % PipelineStatus.PENDING_HANDOFF.value
"""The open runs with a handoff that waits for a person, in the server's query language."""

ASKING_RUNS = _OPEN % PipelineStatus.WAITING.value
"""The open runs with an open approval, likewise."""


@dataclass(frozen=True)
class WaitingHandoff:
    """A handoff that waits for a person, and the run it belongs to.

    Attributes:
        workflow_id: The workflow.
        run_id: Its run.
        pipeline: The workflow's type.
        task_id: The task, as the server indexes it.
        handoff: The handoff; None where neither a worker nor the history tells which one it is.
        stage: The stage that it was to begin, as the server indexes it.
        answered: Whether the run itself said so; otherwise it is what the history tells, because no worker answers, or
            none so that it can be read here.
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
        """Since when it waits; where that is not known, since long ago."""
        return self.handoff.since if self.handoff else datetime.min.replace(tzinfo=UTC)

    def to_json_object(self) -> dict[str, Any]:
        """Return it as JSON, with what may be decided."""
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


async def inbox(client: Client, *, limit: int = MOST_RUNS) -> list[WaitingHandoff]:
    """Return the handoffs that wait for a person, of all runs, the oldest first.

    Runs are found in what the server indexes, which may lag behind by a moment, and each is asked itself. Where no
    worker answers, its history is read instead.

    Args:
        client: A connected client.
        limit: How many runs are asked at most.

    Returns:
        The handoffs; one that was decided meanwhile is not among them.

    Raises:
        BatonError: The namespace lacks Baton's search attributes.
        temporalio.service.RPCError: The server cannot be asked.
    """
    asking = _Asking(client)
    found = await asyncio.gather(*(asking.about_or_trouble(run) for run in await _runs(client, limit)))
    return sorted((one for of_run in found for one in of_run), key=lambda one: one.since)


async def open_approvals(client: Client, *, limit: int = MOST_RUNS) -> list[tuple[str, Waiting]]:
    """Return the open approvals of all runs, each with its workflow, the oldest first; of runs that a worker answers.

    Args:
        client: A connected client.
        limit: How many runs are asked at most.

    Raises:
        BatonError: The namespace lacks Baton's search attributes.
        temporalio.service.RPCError: The server cannot be asked.
    """
    asker = Asker(client)

    async def of(run: Execution) -> list[tuple[str, Waiting]]:
        return [(run.id, one) for one in await _approvals(asker, run)]

    found = await asyncio.gather(*(of(run) for run in await _runs(client, limit, ASKING_RUNS)))
    return sorted((one for of_run in found for one in of_run), key=lambda one: one[1].since)


async def run_approvals(client: Client, workflow_id: str, run_id: str | None = None) -> list[Waiting]:
    """Return the open approvals of one run; none for a run that has ended, or whose worker does not answer."""
    run = await describe(client, workflow_id, run_id)
    return [] if run.close_time is not None else await _approvals(Asker(client), run)


async def _approvals(asker: Asker, run: Execution) -> list[Waiting]:
    """Return the open approvals of a run."""
    return [one for one in await asker.ask(run, QUERY_WAITING, Waiting) or [] if one.kind == "approval"]


async def run_inbox(client: Client, workflow_id: str, run_id: str | None = None) -> list[WaitingHandoff]:
    """Return the handoffs of one run that wait for a person, the oldest first.

    Args:
        client: A connected client.
        workflow_id: The workflow.
        run_id: Which of its runs; the newest by default.

    Returns:
        The handoffs; none for a run that has ended.

    Raises:
        HistoryError: No worker answers, and the workflow is not a pipeline, or its payloads cannot be read.
        temporalio.service.RPCError: There is no such run, or the server cannot be asked.
    """
    run = await describe(client, workflow_id, run_id)
    return [] if run.close_time is not None else await _Asking(client).about(run)


async def resolve_handoff(
    client: Client, workflow_id: str, decision: HandoffDecision, run_id: str | None = None
) -> HandoffDecision:
    """Decide about a handoff that waits; who and why are recorded.

    Args:
        client: A connected client.
        workflow_id: The pipeline.
        decision: Which handoff, what to do, who and why.
        run_id: Which of its runs; the newest by default.

    Returns:
        What counts; of a repeated decision the first answer.

    Raises:
        PipelineError: The decision is refused: the handoff does not wait, or not for this, or somebody has decided.
        temporalio.service.RPCError: There is no such run, or no worker answers.
    """
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)

    async def waits() -> bool:
        pending = await handle.query(QUERY_INBOX, result_type=list[PendingHandoff])
        about = next((one for one in pending if one.handoff_id == decision.handoff_id), None)
        return refusal(decision, about) is None

    return await decided_by_update(handle, RESOLVE_HANDOFF, decision, HandoffDecision, waits)


async def _runs(client: Client, limit: int, which: str = WAITING_RUNS) -> list[Execution]:
    """Return the runs with something that waits for a person, as the server indexes them."""
    try:
        return [run async for run in list_executions(client, which, most=limit)]
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT and "Baton" in error.message:
            raise BatonError(
                "the namespace lacks Baton's search attributes, so handoffs that wait cannot be found; `baton doctor "
                "--fix` adds them, and runs started from then on have them. Of a run that you know, "
                "`baton inbox show RUN` needs none"
            ) from error
        raise


class _Asking:
    """Asks runs what waits; where no worker answers, the history tells."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asker = Asker(client)

    async def about(self, run: Execution) -> list[WaitingHandoff]:
        """Return the handoffs of a run that wait."""
        trouble = None
        try:
            answer = await self._asker.ask(run, QUERY_INBOX, PendingHandoff)
        except HistoryError as error:
            answer, trouble = None, str(error)
        if answer is not None:
            return [_of(run, one) for one in answer]
        read = await read_handoffs(self._client, run.id, run.run_id)
        return [_of(run, one, answered=False, trouble=trouble) for one in read.waiting]

    async def about_or_trouble(self, run: Execution) -> list[WaitingHandoff]:
        """Return the handoffs of a run that wait; if they cannot be read, that something does, and the trouble."""
        try:
            return await self.about(run)
        except HistoryError as error:
            return [_of(run, None, answered=False, trouble=str(error))]


def _of(
    run: Execution, pending: PendingHandoff | None, *, answered: bool = True, trouble: str | None = None
) -> WaitingHandoff:
    """Return a handoff with its run; an agent that the history does not name is the stage that is indexed."""
    stage = label_of(run, ATTRIBUTE_STAGE)
    if pending is not None and pending.receiver == UNKNOWN and stage:
        pending = pending.model_copy(update={"receiver": stage})
    task_id = label_of(run, ATTRIBUTE_TASK)
    return WaitingHandoff(run.id, run.run_id, run.workflow_type, task_id, pending, stage, answered, trouble)
