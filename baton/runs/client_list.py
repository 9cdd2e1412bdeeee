"""Finding runs: by pipeline, status, stage and task, in what the server indexes."""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from baton.errors import BatonError
from baton.runs.client_events import CHILD_ID
from baton.runs.client_executions import PAUSED, Execution, describe, list_executions
from baton.wire.names import ATTRIBUTE_PIPELINE, ATTRIBUTE_STAGE, ATTRIBUTE_STATUS, ATTRIBUTE_TASK

SUSPENDED = "SUSPENDED"
_AT_ONCE = 8
_NEWEST_EVENTS = 40
_STANDING_STILL = ("WAITING", "PENDING_HANDOFF", SUSPENDED)
_OPEN = ("RUNNING", *_STANDING_STILL)
STATUSES = (*_OPEN, PAUSED, *(one.name for one in WorkflowExecutionStatus if one.name not in ("RUNNING", PAUSED)))
"""What a run's status may be: Temporal's, `PAUSED` by an operator among them; and of an open run, `WAITING` for
a person, `PENDING_HANDOFF` if a handoff of its does, and `SUSPENDED` once the server reports that its worker's code
failed, by default five times, or once a stage of it waits for a worker that has what the stage needs."""
_BUILD = "TemporalWorkerDeploymentVersion"
_BEHAVIOR = "TemporalWorkflowVersioningBehavior"
_PROBLEMS = "TemporalReportedProblems"  # the server sets it, and removes it once the run continues


@dataclass(frozen=True)
class RunFilter:
    """Which runs are asked for; None is "any".

    Attributes:
        pipeline: The pipeline, that is the workflow's type.
        status: One of `STATUSES`.
        stage: The stage the run is at, or ended at.
        task: The task's id.
        children: Also runs that another run started; a filter by pipeline, by task, or by a status in which a run
            needs somebody finds them anyway, because the run that started them only seems to be at work.
        every: Also workflows that were started without Baton's search attributes.
        id_prefix: What the workflow id begins with.
    """

    pipeline: str | None = None
    status: str | None = None
    stage: str | None = None
    task: str | None = None
    children: bool = False
    every: bool = False
    id_prefix: str | None = None

    def query(self, *, labelled: bool = True) -> str:
        """Return the filter in the server's query language."""
        terms = []
        by_label = self.status in ("WAITING", "PENDING_HANDOFF")
        if not labelled and (self.stage or self.task or by_label):
            raise BatonError(
                "the namespace lacks Baton's search attributes, so runs cannot be found by stage, task or what they "
                "wait for; `baton doctor --fix` adds them, and runs started from then on have them"
            )
        if self.pipeline:
            terms.append(_equal(ATTRIBUTE_PIPELINE if labelled and not self.every else "WorkflowType", self.pipeline))
        elif labelled and not self.every:
            terms.append(f"{ATTRIBUTE_PIPELINE} IS NOT NULL")
        if self.status:
            terms.append(_equal("ExecutionStatus", "Running" if self.status in _OPEN else _in_queries(self.status)))
            if by_label:
                terms.append(_equal(ATTRIBUTE_STATUS, self.status))
            elif self.status == SUSPENDED:
                lacks = f" OR {_equal(ATTRIBUTE_STATUS, SUSPENDED)}" if labelled else ""
                terms.append(f"({_PROBLEMS} IS NOT NULL{lacks})")
        else:
            terms.append("ExecutionStatus != 'ContinuedAsNew'")
        with_children = self.children or self.status in (*_STANDING_STILL, PAUSED)
        if not (self.pipeline or self.task or with_children or self.every):
            terms.append("ParentWorkflowId IS NULL")
        terms += [_equal(ATTRIBUTE_STAGE, self.stage)] if self.stage else []
        terms += [_equal(ATTRIBUTE_TASK, self.task)] if self.task else []
        terms += [f"WorkflowId STARTS_WITH {_quoted(self.id_prefix)}"] if self.id_prefix else []
        return " AND ".join(terms)


@dataclass(frozen=True)
class ListedRun:
    """A run as the server's index knows it; the index may lag behind by a moment.

    Attributes:
        workflow_id: The workflow.
        run_id: Its newest run.
        pipeline: The workflow's type.
        status: One of `STATUSES`.
        stage: The stage it is at, or ended at; None where it is not indexed.
        task_id: The task's id; None where it is not indexed.
        began: When the run started; of one that continued as new, the first run, once `with_details` was asked.
        ended: When it ended.
    """

    workflow_id: str
    run_id: str
    pipeline: str
    status: str
    stage: str | None
    task_id: str | None
    began: datetime
    ended: datetime | None


async def list_runs(client: Client, wanted: RunFilter, limit: int) -> list[ListedRun]:
    """Return runs, open ones first, then the latest to end; of each workflow its newest run."""
    try:
        return await _found(client, wanted, wanted.query(), limit)
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT or "Baton" not in error.message:
            raise
    return await _found(client, wanted, wanted.query(labelled=False), limit)


async def _found(client: Client, wanted: RunFilter, query: str, limit: int) -> list[ListedRun]:
    runs: dict[str, ListedRun] = {}
    async for found in list_executions(client, query, page=min(1000, 2 * limit)):
        run = _listed(found)
        # To the server a run that waits is open.
        if wanted.status in (None, run.status):
            runs.setdefault(run.workflow_id, run)
        if len(runs) == limit:
            break
    return list(runs.values())


async def with_details(client: Client, runs: Sequence[ListedRun]) -> list[ListedRun]:
    """Return the runs with what the index does not have.

    The stage that each began last, by its history: the index has it once a second at most. And when the first run of
    a chain started that continued as new, if the server still has it.
    """
    turn = asyncio.Semaphore(_AT_ONCE)

    async def told(run: ListedRun) -> ListedRun:
        execution = WorkflowExecution(workflow_id=run.workflow_id, run_id=run.run_id)
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=client.namespace, execution=execution, maximum_page_size=_NEWEST_EVENTS
        )
        async with turn:
            try:
                answer = await client.workflow_service.get_workflow_execution_history_reverse(request, retry=True)
            except RPCError:  # the index knows runs for a moment longer than there is a history
                return run
            began = run.began
            with contextlib.suppress(RPCError):
                first = (await describe(client, run.workflow_id, run.run_id)).info.first_run_id or run.run_id
                if first != run.run_id:
                    began = (await describe(client, run.workflow_id, first)).start_time
        found = (_begins(event) for event in answer.history.events)
        stage = next(filter(None, found), run.stage) or run.stage
        return dataclasses.replace(run, stage=stage, began=began)

    return [*await asyncio.gather(*(told(run) for run in runs))]


def _begins(event: HistoryEvent) -> str | None:
    """Return the step that an event begins, None if it begins none; of an approval the index has the name at once."""
    indexed = event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
    if ATTRIBUTE_STAGE in indexed:
        value: Any = json.loads(indexed[ATTRIBUTE_STAGE].data)
        return value if isinstance(value, str) else None
    name = event.activity_task_scheduled_event_attributes.activity_type.name
    child = CHILD_ID.match(event.start_child_workflow_execution_initiated_event_attributes.workflow_id)
    if child:
        return child[1]
    return None if name.startswith("baton.") else name or None


def pinned_elsewhere(task_queue: str, builds: Collection[tuple[str, str]]) -> str:
    """Return the query for open runs of a task queue that are pinned to other builds than these."""
    terms = [_equal("TaskQueue", task_queue), _equal("ExecutionStatus", "Running"), _equal(_BEHAVIOR, "Pinned")]
    known = ", ".join(_quoted(f"{deployment}:{id}") for deployment, id in sorted(builds))
    return " AND ".join([*terms, f"{_BUILD} NOT IN ({known})"] if known else terms)


def label_of(found: Execution, name: str) -> str | None:
    """Return one of Baton's search attributes of a run; None where the server does not index it."""
    return found.search_attributes.get(SearchAttributeKey.for_keyword(name))


def status_of(found: Execution) -> str:
    """Return how a run stands, as one of `STATUSES`: Temporal's own status does not tell that it needs somebody."""
    status = found.status
    label = label_of(found, ATTRIBUTE_STATUS)
    if status == "RUNNING" and any(pair.key.name == _PROBLEMS for pair in found.search_attributes):
        return SUSPENDED
    if status == "RUNNING" and label in _STANDING_STILL:
        return label
    return status


def _listed(found: Execution) -> ListedRun:
    """Return what the index says of a run."""
    return ListedRun(
        workflow_id=found.id,
        run_id=found.run_id,
        pipeline=found.workflow_type,
        status=status_of(found),
        stage=label_of(found, ATTRIBUTE_STAGE),
        task_id=label_of(found, ATTRIBUTE_TASK),
        began=found.start_time,
        ended=found.close_time,
    )


def _in_queries(status: str) -> str:
    """Return a status as the query language spells it."""
    return "".join(word.capitalize() for word in status.split("_"))


def _equal(name: str, value: str) -> str:
    return f"{name} = {_quoted(value)}"


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
