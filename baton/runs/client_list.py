"""Finds runs by pipeline, status, stage, task and time in the server's index, page by page, and counts them."""

import asyncio
import base64
import contextlib
import dataclasses
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from baton.errors import BatonError
from baton.runs.client_events import is_failure_of_code, parse_child_id
from baton.runs.client_executions import PAUSED, Execution, describe, list_executions, list_some, map_concurrently
from baton.wire.json_values import JsonFields
from baton.wire.names import (
    ATTRIBUTE_PIPELINE,
    ATTRIBUTE_STAGE,
    ATTRIBUTE_STATUS,
    ATTRIBUTE_TASK,
    ATTRIBUTE_UNTIL,
    NOT_WAITING,
)

ReadT = TypeVar("ReadT")

SUSPENDED = "SUSPENDED"
"""The status of a run that cannot continue: its worker's code fails on it, or no worker can do its stage."""
_NEWEST_EVENTS = 40
_STALLED = ("WAITING", "PENDING_HANDOFF", SUSPENDED)
_LABELLED = ("WAITING", "PENDING_HANDOFF")
_OPEN = ("RUNNING", *_STALLED)
STATUSES = tuple(dict.fromkeys((*_OPEN, PAUSED, *WorkflowExecutionStatus.__members__)))
"""The statuses of a run: Temporal's own, `PAUSED` by an operator included. An open run may also be `WAITING` for a
person, have a `PENDING_HANDOFF` that waits for one, or be `SUSPENDED`: the server reports that its worker's code fails
(by default after five tries), or no worker has what a stage needs."""
NEEDS_YOU = ("PENDING_HANDOFF", "WAITING", PAUSED)
"""The statuses in which a run waits for a person."""
TROUBLE = (SUSPENDED, "FAILED", "TIMED_OUT")
"""The statuses of a run that somebody should look at."""
OTHERS = tuple(status for status in STATUSES if status not in (*NEEDS_YOU, *TROUBLE, "CONTINUED_AS_NEW"))
"""The statuses of all other runs."""
PAGE = 1_000
"""How many runs the server returns at once, at most."""
BEGINNING = "e30"
"""The place before the first run of a list in the server's order."""
MAX_SORTED = 1_000
"""How many runs of a list are sorted, at most: the server does not sort."""
BUILD = "TemporalWorkerDeploymentVersion"
BEHAVIOR = "TemporalWorkflowVersioningBehavior"
"""The server's search attributes with the build that a run is on, and whether it is pinned to it."""
_NO_PARENT = "ParentWorkflowId IS NULL"
_PROBLEMS = "TemporalReportedProblems"  # the server sets it, and removes it once the run continues


_UNTIL = SearchAttributeKey.for_datetime(ATTRIBUTE_UNTIL)


@dataclass(frozen=True)
class RunFilter:
    """A filter for runs; None matches any.

    Attributes:
        pipeline: The pipeline, that is the workflow's type.
        status: One of `STATUSES`, or several; a run matches if it has one of them. Without Baton's search attributes,
            what waits for a person is `RUNNING`.
        stage: The run's current or last stage.
        task: The task's id.
        children: Include runs that another run started. A filter by pipeline, by task, or by a status in which a run
            needs a person always includes them, because their parent's status does not show it.
        every: Include workflows without Baton's search attributes.
        id_prefix: A prefix of the workflow id.
        since: Leave out runs that ended before.
        before: Leave out runs that began then or later.
    """

    pipeline: str | None = None
    status: str | tuple[str, ...] | None = None
    stage: str | None = None
    task: str | None = None
    children: bool = False
    every: bool = False
    id_prefix: str | None = None
    since: datetime | None = None
    before: datetime | None = None

    @property
    def statuses(self) -> tuple[str, ...]:
        """The statuses that match; empty if all do."""
        return (self.status,) if isinstance(self.status, str) else self.status or ()

    def query(self, *, labelled: bool = True) -> str:
        """Return the filter in the server's query language."""
        terms, statuses = [], self.statuses
        if not labelled:
            statuses = tuple(status for status in statuses if status not in _LABELLED)
            if self.stage or self.task or (self.statuses and not statuses):
                raise BatonError(
                    "the namespace lacks Baton's search attributes, so runs cannot be found by stage, task or what "
                    "they wait for; `baton doctor --fix` adds them for later runs"
                )
        if self.pipeline:
            terms.append(equal(ATTRIBUTE_PIPELINE if labelled and not self.every else "WorkflowType", self.pipeline))
        elif labelled and not self.every:
            terms.append(f"{ATTRIBUTE_PIPELINE} IS NOT NULL")
        with_children = bool(self.children or self.pipeline or self.task or self.every)
        matches = [_status_query(status, labelled=labelled, with_children=with_children) for status in statuses]
        if len(matches) > 1:
            terms.append(f"({' OR '.join(f'({match})' for match in matches)})")
        else:
            terms += matches or ["ExecutionStatus != 'ContinuedAsNew'", *([] if with_children else [_NO_PARENT])]
        terms += [equal(ATTRIBUTE_STAGE, self.stage)] if self.stage else []
        terms += [equal(ATTRIBUTE_TASK, self.task)] if self.task else []
        terms += [f"WorkflowId STARTS_WITH {_quote(self.id_prefix)}"] if self.id_prefix else []
        terms += [f"(CloseTime IS NULL OR CloseTime >= '{spell_time(self.since)}')"] if self.since else []
        terms += [f"StartTime < '{spell_time(self.before)}'"] if self.before else []
        return " AND ".join(terms)


def _status_query(status: str, *, labelled: bool, with_children: bool) -> str:
    """Return the query for one status. Each run matches one of them, as `status_of` says."""
    terms = [equal("ExecutionStatus", "Running" if status in _OPEN else _spell_status(status))]
    if status == SUSPENDED:
        or_suspended = f" OR {equal(ATTRIBUTE_STATUS, SUSPENDED)}" if labelled else ""
        terms.append(f"({_PROBLEMS} IS NOT NULL{or_suspended})")
    elif status in _OPEN:
        terms.append(f"{_PROBLEMS} IS NULL")
        if status in _STALLED:
            terms.append(equal(ATTRIBUTE_STATUS, status))
        elif labelled:
            terms.append(f"({ATTRIBUTE_STATUS} IS NULL OR {equal(ATTRIBUTE_STATUS, 'FAILED')})")
    return " AND ".join(terms if with_children or status in (*_STALLED, PAUSED) else [*terms, _NO_PARENT])


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
        until: The nearest deadline of what it asks people, in whole seconds; None if it asks nothing.
    """

    workflow_id: str
    run_id: str
    pipeline: str
    status: str
    stage: str | None
    task_id: str | None
    began: datetime
    ended: datetime | None
    until: datetime | None = None


@dataclass(frozen=True)
class RunPage(JsonFields):
    """A page of the list of runs.

    Attributes:
        runs: The runs.
        next: What the page after it begins `after`; None if this is the last.
        searched: How many runs were sorted or looked at for it; 0 if the server answered it alone.
    """

    runs: list[ListedRun]
    next: str | None = None
    searched: int = 0


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
    run_filter, token, listed = run_filter or RunFilter(), b"", set[str]()
    while limit is None or len(listed) < limit:
        wanted = PAGE if limit is None else min(PAGE, 2 * (limit - len(listed)))
        runs, token = await _ask(partial(_read_runs, client, limit=wanted, token=token), run_filter)
        for run in runs:
            if run.workflow_id not in listed and (limit is None or len(listed) < limit):
                listed.add(run.workflow_id)
                yield run
        if not token:
            return


async def _ask(read: Callable[[str], Awaitable[ReadT]], run_filter: RunFilter) -> ReadT:
    """Return what the server answers to a filter's query, in a namespace without Baton's search attributes too."""
    try:
        return await read(run_filter.query())
    except RPCError as error:
        if not lacks_attributes(error):
            raise
    return await read(run_filter.query(labelled=False))


SORTS: Mapping[str, Callable[[ListedRun], datetime | timedelta | None]] = MappingProxyType(
    {
        "began": lambda run: run.began,
        "ended": lambda run: run.ended,
        "took": lambda run: run.ended and run.ended - run.began,
        "deadline": lambda run: run.until,
    }
)
"""What a list can be sorted by, with a minus for the largest first; runs without the value come last."""


async def list_page(
    client: Client,
    run_filter: RunFilter | None = None,
    *,
    limit: int = 50,
    after: str | None = None,
    sort: str | None = None,
) -> RunPage:
    """Return a page of what `list_runs` yields.

    Pages are correct while runs move: a run that ends meanwhile may be on two of them, and none is left out. Sorted,
    they are of the first `MAX_SORTED` runs of the list.

    Args:
        client: A connected client.
        run_filter: What the runs have in common; by default, that they are pipelines and no run started them.
        limit: How many at most, up to `PAGE`.
        after: The page before's `next`; None for the first page.
        sort: One of `SORTS`, with a minus for the largest first; the server's order by default.

    Raises:
        BatonError: `after` is not of such a page, or the namespace lacks Baton's search attributes.
        temporalio.service.RPCError: The server does not answer.
    """
    place = _decode_place(after, dict if sort is None else list)

    async def read(query: str) -> RunPage:
        if sort is not None:
            return await _read_sorted(client, query, limit, place, sort)
        token = json.dumps(place, separators=(",", ":")).encode() if place else b""
        runs, end = await _read_runs(client, query, limit, token)
        if token:
            runs = await _drop_superseded(client, runs)
        return RunPage(runs, _encode_place(end) if end else None)

    return await _ask(read, run_filter or RunFilter())


def _decode_place(after: str | None, kind: type) -> Any:
    """Return what the end of a page says of its place."""
    if not after:
        return None
    try:
        place = json.loads(base64.urlsafe_b64decode(after.encode("ascii") + b"=="))
    except (ValueError, RecursionError):
        place = None
    if not isinstance(place, kind):
        raise BatonError(f"no page begins after {after[:40]!r}; begin with the first page")
    return place


def _encode_place(place: bytes) -> str:
    return base64.urlsafe_b64encode(place).decode().rstrip("=")


async def _read_runs(client: Client, query: str, limit: int, token: bytes = b"") -> tuple[list[ListedRun], bytes]:
    """Return runs in the server's order from its token on, and the token after them; empty at the end."""
    runs: dict[str, ListedRun] = {}
    while True:
        found, token = await list_some(client, query, min(PAGE, limit - len(runs)), token)
        for run in map(to_listed_run, found):
            runs.setdefault(run.workflow_id, run)
        if not token or len(runs) >= limit:
            return [*runs.values()], token


async def _read_sorted(client: Client, query: str, limit: int, place: Any, sort: str) -> RunPage:
    """Return a page in another order, which begins after a value and a run."""
    value_of, is_descending = SORTS[sort.removeprefix("-")], sort.startswith("-")
    runs, _ = await _read_runs(client, query, MAX_SORTED)

    def order(run: ListedRun) -> list[Any]:
        value = value_of(run)
        number = 0.0 if value is None else value.timestamp() if isinstance(value, datetime) else value.total_seconds()
        return [value is None, -number if is_descending else number, run.run_id]

    try:
        rest = sorted((run for run in runs if place is None or order(run) > place), key=order)
    except TypeError:
        raise BatonError("the page's place is not one of this order; begin with the first page") from None
    end = _encode_place(json.dumps(order(rest[limit - 1])).encode()) if len(rest) > limit else None
    return RunPage(rest[:limit], end, len(runs))


async def _drop_superseded(client: Client, runs: list[ListedRun]) -> list[ListedRun]:
    """Return the runs that are the newest of their workflow, as those of an earlier page may be newer."""
    ended = {run.workflow_id for run in runs if run.ended is not None and run.status != "CONTINUED_AS_NEW"}
    if not ended:
        return runs
    query = f"WorkflowId IN ({', '.join(map(_quote, sorted(ended)))}) AND ExecutionStatus != 'ContinuedAsNew'"
    newest: dict[str, tuple[bool, datetime]] = {}
    async for execution in list_executions(client, query):
        age = (execution.close_time is None, execution.start_time)
        newest[execution.id] = max(newest.get(execution.id, age), age)
    return [
        run
        for run in runs
        if run.workflow_id not in ended or newest.get(run.workflow_id, (False, run.began)) <= (False, run.began)
    ]


async def count_statuses(client: Client, run_filter: RunFilter | None = None) -> dict[str, int]:
    """Return how many runs match a filter by their status, in the server's index; statuses without any are left out.

    A run that was rolled back counts as `TERMINATED` too, for the run before.

    Args:
        client: A connected client.
        run_filter: What the runs have in common; its statuses are not looked at.

    Raises:
        BatonError: The namespace lacks Baton's search attributes, and the filter needs them.
        temporalio.service.RPCError: The server does not answer.
    """
    run_filter = dataclasses.replace(run_filter or RunFilter(), status=None)
    apart = (*_OPEN, PAUSED)

    async def read(labelled: bool) -> dict[str, int]:
        statuses = apart if labelled else ("RUNNING", SUSPENDED, PAUSED)
        filters = [dataclasses.replace(run_filter, status=status) for status in statuses]
        ended, *counts = await asyncio.gather(
            client.count_workflows(f"{run_filter.query(labelled=labelled)} GROUP BY ExecutionStatus"),
            *(client.count_workflows(one.query(labelled=labelled)) for one in filters),
        )
        found = {status: counted.count for status, counted in zip(statuses, counts, strict=True)}
        for group in ended.groups:
            status = _parse_status(str(group.group_values[0]))
            found |= {} if status in apart else {status: group.count}
        return {status: found[status] for status in STATUSES if found.get(status)}

    try:
        return await read(True)
    except RPCError as error:
        if not lacks_attributes(error):
            raise
    return await read(False)


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
    return (await _ask(client.count_workflows, run_filter or RunFilter())).count


def lacks_attributes(error: RPCError) -> bool:
    """Return whether the namespace lacks Baton's search attributes."""
    return error.status is RPCStatusCode.INVALID_ARGUMENT and "Baton" in error.message


async def with_details(client: Client, runs: Sequence[ListedRun]) -> list[ListedRun]:
    """Add what the index lacks to runs.

    From the end of its history: the stage that each run began last, because the index is updated once a second at
    most, and whether its worker's code fails on it, which the server reports after some tries only. Also when the
    first run of its chain started, if the server still has it.
    """

    async def add_details(run: ListedRun) -> ListedRun:
        execution = WorkflowExecution(workflow_id=run.workflow_id, run_id=run.run_id)
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=client.namespace, execution=execution, maximum_page_size=_NEWEST_EVENTS
        )
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

    return await map_concurrently(add_details, runs)


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
    child_id = event.start_child_workflow_execution_initiated_event_attributes.workflow_id
    if started_by := parse_child_id(child_id):
        return started_by[0]
    return None if name.startswith("baton.") else name or None


def query_pinned_elsewhere(task_queue: str, builds: Collection[tuple[str, str]]) -> str:
    """Return the query for a task queue's open runs that are pinned to other builds."""
    terms = [equal("TaskQueue", task_queue), equal("ExecutionStatus", "Running"), equal(BEHAVIOR, "Pinned")]
    known_builds = ", ".join(_quote(f"{deployment}:{id}") for deployment, id in sorted(builds))
    return " AND ".join([*terms, f"{BUILD} NOT IN ({known_builds})"] if known_builds else terms)


def label_of(execution: Execution, name: str) -> str | None:
    """Return one of Baton's search attributes of a run; None if it is not indexed."""
    return execution.search_attributes.get(SearchAttributeKey.for_keyword(name))


def deadline_of(execution: Execution) -> datetime | None:
    """Return until when a run waits, as it is indexed."""
    return execution.search_attributes.get(_UNTIL)


def status_of(execution: Execution) -> str:
    """Return a run's status, one of `STATUSES`."""
    status = execution.status
    label = label_of(execution, ATTRIBUTE_STATUS)
    if status == "RUNNING" and any(pair.key.name == _PROBLEMS for pair in execution.search_attributes):
        return SUSPENDED
    if status == "RUNNING" and label in _STALLED:
        return label
    return status


def to_listed_run(execution: Execution) -> ListedRun:
    """Return a run as a list tells it."""
    until = deadline_of(execution)
    return ListedRun(
        workflow_id=execution.id,
        run_id=execution.run_id,
        pipeline=execution.workflow_type,
        status=status_of(execution),
        stage=label_of(execution, ATTRIBUTE_STAGE),
        task_id=label_of(execution, ATTRIBUTE_TASK),
        began=execution.start_time,
        ended=execution.close_time,
        until=until if until and until > NOT_WAITING and execution.close_time is None else None,
    )


def _spell_status(status: str) -> str:
    return "".join(word.capitalize() for word in status.split("_"))


def _parse_status(spelled: str) -> str:
    """Return a status as it is named here, such as `TIMED_OUT` for `TimedOut`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", spelled).upper()


def parse_moment(text: str, now: datetime) -> datetime:
    """Return the time that a person names: a date or time (UTC unless it says otherwise), or an age.

    Args:
        text: Such as `2026-11-27`, `2026-11-27 08:00`, `90m`, `24h` or `7d`.
        now: The time from which ages count.

    Raises:
        ValueError: It is neither.

    Example:
        >>> parse_moment("24h", datetime(2026, 11, 28, 8, tzinfo=UTC)).isoformat()
        '2026-11-27T08:00:00+00:00'
    """
    if age := re.fullmatch(r"(\d{1,6})([mhdw])", text.strip()):
        unit = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}[age[2]]
        return now - min(timedelta(**{unit: int(age[1])}), now - NOT_WAITING)
    try:
        at = datetime.fromisoformat(text.strip())
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        at.astimezone(UTC)  # the first and the last day have no time in UTC in every zone
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not a date, a time or an age, such as 2026-11-27, 2026-11-27T08:00 or 24h"
        ) from None
    return at


def spell_time(at: datetime) -> str:
    """Return a time for a query, in whole seconds: SQLite compares fractions of seconds as texts."""
    return at.astimezone(UTC).replace(microsecond=0).isoformat()


def equal(name: str, value: str) -> str:
    """Return a term of the server's query language: an attribute has this value."""
    return f"{name} = {_quote(value)}"


def _quote(value: str) -> str:
    """Return a text of the query language; in it a backslash would let the quotation mark after it end nothing."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
