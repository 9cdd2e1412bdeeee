"""Finds runs by pipeline, status, stage and task in the server's index."""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
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
from baton.runs.client_events import CHILD_ID, is_failure_of_code
from baton.runs.client_executions import PAUSED, Execution, describe, list_executions
from baton.wire.json_values import JsonFields
from baton.wire.names import ATTRIBUTE_PIPELINE, ATTRIBUTE_STAGE, ATTRIBUTE_STATUS, ATTRIBUTE_TASK

SUSPENDED = "SUSPENDED"
"""The status of a run that cannot continue: its worker's code fails on it, or no worker can do its stage."""
_MAX_CONCURRENT = 8
_NEWEST_EVENTS = 40
_STALLED = ("WAITING", "PENDING_HANDOFF", SUSPENDED)
_OPEN = ("RUNNING", *_STALLED)
STATUSES = tuple(dict.fromkeys((*_OPEN, PAUSED, *WorkflowExecutionStatus.__members__)))
"""The statuses of a run: Temporal's own, `PAUSED` by an operator included. An open run may also be `WAITING` for a
person, have a `PENDING_HANDOFF` that waits for one, or be `SUSPENDED`: the server reports that its worker's code fails
(by default after five tries), or no worker has what a stage needs."""
_BUILD = "TemporalWorkerDeploymentVersion"
_BEHAVIOR = "TemporalWorkflowVersioningBehavior"
_PROBLEMS = "TemporalReportedProblems"  # the server sets it, and removes it once the run continues


@dataclass(frozen=True)
class RunFilter:
    """A filter for runs; None matches any.

    Attributes:
        pipeline: The pipeline, that is the workflow's type.
        status: One of `STATUSES`.
        stage: The run's current or last stage.
        task: The task's id.
        children: Include runs that another run started. A filter by pipeline, by task, or by a status in which a run
            needs a person always includes them, because their parent's status does not show it.
        every: Include workflows without Baton's search attributes.
        id_prefix: A prefix of the workflow id.
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
                "wait for; `baton doctor --fix` adds them for later runs"
            )
        if self.pipeline:
            terms.append(_equal(ATTRIBUTE_PIPELINE if labelled and not self.every else "WorkflowType", self.pipeline))
        elif labelled and not self.every:
            terms.append(f"{ATTRIBUTE_PIPELINE} IS NOT NULL")
        if self.status:
            terms.append(_equal("ExecutionStatus", "Running" if self.status in _OPEN else _spell_status(self.status)))
            if by_label:
                terms.append(_equal(ATTRIBUTE_STATUS, self.status))
            elif self.status == SUSPENDED:
                or_suspended = f" OR {_equal(ATTRIBUTE_STATUS, SUSPENDED)}" if labelled else ""
                terms.append(f"({_PROBLEMS} IS NOT NULL{or_suspended})")
        else:
            terms.append("ExecutionStatus != 'ContinuedAsNew'")
        with_children = self.children or self.status in (*_STALLED, PAUSED)
        if not (self.pipeline or self.task or with_children or self.every):
            terms.append("ParentWorkflowId IS NULL")
        terms += [_equal(ATTRIBUTE_STAGE, self.stage)] if self.stage else []
        terms += [_equal(ATTRIBUTE_TASK, self.task)] if self.task else []
        terms += [f"WorkflowId STARTS_WITH {_quote(self.id_prefix)}"] if self.id_prefix else []
        return " AND ".join(terms)


@dataclass(frozen=True)
class ListedRun(JsonFields):
    """A run in the server's index, which may lag behind by a moment.

    Attributes:
        workflow_id: The workflow.
        run_id: Its newest run.
        pipeline: The workflow's type.
        status: One of `STATUSES`.
        stage: Its current or last stage; None if it is not indexed.
        task_id: The task's id; None if it is not indexed.
        began: When the run started; after `with_details`, when the first run of its chain started.
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


async def list_runs(
    client: Client, run_filter: RunFilter | None = None, *, limit: int | None = None
) -> AsyncIterator[ListedRun]:
    """Yield the newest run of each workflow, open runs first, then the last to end.

    Args:
        client: A connected client.
        run_filter: What the runs have in common; by default, that they are pipelines and no run started them.
        limit: How many at most; all by default.

    Raises:
        BatonError: The namespace lacks Baton's search attributes, and the filter needs them.
        temporalio.service.RPCError: The server does not answer.

    Example:
        ```python
        async for run in list_runs(client, RunFilter(status="WAITING"), limit=20):
            print(run.workflow_id, run.stage)
        ```
    """
    run_filter = run_filter or RunFilter()
    if limit is not None and limit <= 0:
        return
    try:
        async for run in _list_newest(client, run_filter, run_filter.query(), limit):
            yield run
    except RPCError as error:
        if not lacks_attributes(error):
            raise
    else:
        return
    async for run in _list_newest(client, run_filter, run_filter.query(labelled=False), limit):
        yield run


async def count_runs(client: Client, run_filter: RunFilter | None = None) -> int:
    """Return how many runs match a filter, in the server's index.

    A run that is to be `WAITING`, to have a `PENDING_HANDOFF` or to be `SUSPENDED` counts as the server labels it.

    Args:
        client: A connected client.
        run_filter: What the runs have in common.

    Raises:
        BatonError: The namespace lacks Baton's search attributes, and the filter needs them.
        temporalio.service.RPCError: The server does not answer.
    """
    run_filter = run_filter or RunFilter()
    try:
        return (await client.count_workflows(run_filter.query())).count
    except RPCError as error:
        if not lacks_attributes(error):
            raise
    return (await client.count_workflows(run_filter.query(labelled=False))).count


def lacks_attributes(error: RPCError) -> bool:
    """Return whether the namespace lacks Baton's search attributes."""
    return error.status is RPCStatusCode.INVALID_ARGUMENT and "Baton" in error.message


async def _list_newest(
    client: Client, run_filter: RunFilter, query: str, limit: int | None
) -> AsyncIterator[ListedRun]:
    listed = set[str]()
    page = 1_000 if limit is None else min(1_000, 2 * limit)
    async for execution in list_executions(client, query, page=page):
        run = _to_listed_run(execution)
        # The server counts waiting runs as running.
        if run_filter.status in (None, run.status) and run.workflow_id not in listed:
            listed.add(run.workflow_id)
            yield run
        if len(listed) == limit:
            return


async def with_details(client: Client, runs: Sequence[ListedRun]) -> list[ListedRun]:
    """Add what the index lacks to runs.

    From the end of its history: the stage that each run began last, because the index is updated once a second at
    most, and whether its worker's code fails on it, which the server reports after some tries only. Also when the
    first run of its chain started, if the server still has it.
    """
    turn = asyncio.Semaphore(_MAX_CONCURRENT)

    async def add_details(run: ListedRun) -> ListedRun:
        execution = WorkflowExecution(workflow_id=run.workflow_id, run_id=run.run_id)
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=client.namespace, execution=execution, maximum_page_size=_NEWEST_EVENTS
        )
        async with turn:
            try:
                response = await client.workflow_service.get_workflow_execution_history_reverse(request, retry=True)
            except RPCError:  # the index keeps runs for a moment longer than their history
                return run
            began = run.began
            with contextlib.suppress(RPCError):
                first = (await describe(client, run.workflow_id, run.run_id)).info.first_run_id or run.run_id
                if first != run.run_id:
                    began = (await describe(client, run.workflow_id, first)).start_time
        stages = (_started_step(event) for event in response.history.events)
        stage = next(filter(None, stages), run.stage) or run.stage
        fails = run.ended is None and run.status != PAUSED and _is_failing(response.history.events)
        return dataclasses.replace(run, stage=stage, began=began, status=SUSPENDED if fails else run.status)

    return [*await asyncio.gather(*(add_details(run) for run in runs))]


def _is_failing(newest_first: Iterable[HistoryEvent]) -> bool:
    """Return whether a run's last workflow task failed, and not because a person reset the run."""
    for event in newest_first:
        if event.HasField("workflow_task_completed_event_attributes"):
            return False
        if event.HasField("workflow_task_failed_event_attributes"):
            return is_failure_of_code(event)
    return False


def _started_step(event: HistoryEvent) -> str | None:
    """Return the step that an event starts, or None; an approval's name is in the index at once."""
    indexed = event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
    if ATTRIBUTE_STAGE in indexed:
        value: Any = json.loads(indexed[ATTRIBUTE_STAGE].data)
        return value if isinstance(value, str) else None
    name = event.activity_task_scheduled_event_attributes.activity_type.name
    child = CHILD_ID.match(event.start_child_workflow_execution_initiated_event_attributes.workflow_id)
    if child:
        return child[1]
    return None if name.startswith("baton.") else name or None


def query_pinned_elsewhere(task_queue: str, builds: Collection[tuple[str, str]]) -> str:
    """Return the query for a task queue's open runs that are pinned to other builds."""
    terms = [_equal("TaskQueue", task_queue), _equal("ExecutionStatus", "Running"), _equal(_BEHAVIOR, "Pinned")]
    known_builds = ", ".join(_quote(f"{deployment}:{id}") for deployment, id in sorted(builds))
    return " AND ".join([*terms, f"{_BUILD} NOT IN ({known_builds})"] if known_builds else terms)


def label_of(execution: Execution, name: str) -> str | None:
    """Return one of Baton's search attributes of a run; None if it is not indexed."""
    return execution.search_attributes.get(SearchAttributeKey.for_keyword(name))


def status_of(execution: Execution) -> str:
    """Return a run's status, one of `STATUSES`."""
    status = execution.status
    label = label_of(execution, ATTRIBUTE_STATUS)
    if status == "RUNNING" and any(pair.key.name == _PROBLEMS for pair in execution.search_attributes):
        return SUSPENDED
    if status == "RUNNING" and label in _STALLED:
        return label
    return status


def _to_listed_run(execution: Execution) -> ListedRun:
    return ListedRun(
        workflow_id=execution.id,
        run_id=execution.run_id,
        pipeline=execution.workflow_type,
        status=status_of(execution),
        stage=label_of(execution, ATTRIBUTE_STAGE),
        task_id=label_of(execution, ATTRIBUTE_TASK),
        began=execution.start_time,
        ended=execution.close_time,
    )


def _spell_status(status: str) -> str:
    return "".join(word.capitalize() for word in status.split("_"))


def _equal(name: str, value: str) -> str:
    return f"{name} = {_quote(value)}"


def _quote(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
