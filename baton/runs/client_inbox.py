"""The inbox over all runs: what they ask people, the nearest deadline first.

The server's index says which runs ask until when, each run's memo what it asks: neither needs a worker or a query.
"""

import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from temporalio.client import Client
from temporalio.service import RPCError

from baton.core.history import StepKind
from baton.core.messages import PipelineStatus
from baton.core.pending import PendingHandoff
from baton.core.questions import OpenQuestions, Question
from baton.core.verdict import Code, Disposition
from baton.errors import BatonError, HistoryError
from baton.runs.client_executions import Execution, describe, first, list_executions, map_concurrently
from baton.runs.client_list import (
    ListedRun,
    RunFilter,
    RunPage,
    deadline_of,
    equal,
    label_of,
    lacks_attributes,
    list_page,
    to_listed_run,
)
from baton.runs.client_reader import read_run
from baton.runs.client_record import StepStatus
from baton.runs.client_waiting import describe_queue, indexed_build, is_served, pinned_build
from baton.wire.json_values import JsonFields, as_json
from baton.wire.names import (
    ATTRIBUTE_STAGE,
    ATTRIBUTE_STATUS,
    ATTRIBUTE_TASK,
    ATTRIBUTE_UNTIL,
    MEMO_QUESTIONS,
    NOT_WAITING,
)

PAGE = 100
"""How many runs a page of the inbox has unless the caller says otherwise."""
DEPTH = 1_000
"""Among how many runs a filter looks that the server has no index for, unless the caller says otherwise."""
SOON = timedelta(hours=1)
"""How near a deadline is that a person should see first."""

_SOME_TIME_AGO = NOT_WAITING + timedelta(days=1)  # any time between those that do not wait and those that do
_RUNNING_WITH_STATUS = f"{ATTRIBUTE_STATUS} = '%s' AND ExecutionStatus = 'Running'"

WAITING_RUNS = _RUNNING_WITH_STATUS % PipelineStatus.PENDING_HANDOFF.value
"""The open runs with a handoff that waits for a person, in the server's query language."""

_WAITING = _RUNNING_WITH_STATUS % PipelineStatus.WAITING.value
ASKING_RUNS = f"{_WAITING} AND {ATTRIBUTE_UNTIL} > '{_SOME_TIME_AGO.isoformat()}'"
"""The open runs with an open approval, likewise."""

OUTSIDE_RUNS = f"{_WAITING} AND {ATTRIBUTE_UNTIL} <= '{_SOME_TIME_AGO.isoformat()}'"
"""The open runs that wait for an agent outside, likewise."""

_FIRST_WINDOW = timedelta(minutes=1)
_WINDOW_FACTOR = 4
_PAGE_FACTOR = 4
_SECOND = timedelta(seconds=1)
_MAX_BOUNDS = 100
_bounds: WeakKeyDictionary[Client, dict[tuple[int, str], datetime]] = WeakKeyDictionary()
_LAST = datetime(2201, 1, 1, tzinfo=UTC)  # no deadline is later (`Visibility.show_waiting`)


class QuestionKind(StrEnum):
    """What a question to people is about."""

    APPROVAL = "approval"
    DEAD_LETTER = "dead-letter"
    """A rejected handoff that is not sent again, for example for a safety finding."""
    NEEDS_INPUT = "needs-input"
    """A handoff that lacks something which its sender does not know."""
    BUDGET = "budget-exhausted"
    """A handoff that the budget does not pay for."""
    ESCALATION = "escalation"
    """A handoff to an agent that failed, or out of attempts."""
    UNREADABLE = "unreadable"
    """It cannot be read here."""

    @property
    def words(self) -> str:
        """The kind in words."""
        return self.value.replace("-", " ")


_NEEDS_INPUT = (Code.SCHEMA_INVALID, Code.INCOMPLETE_CONTEXT)
_KINDS = {Disposition.DEAD_LETTER: QuestionKind.DEAD_LETTER, Disposition.TOP_UP: QuestionKind.BUDGET}


def kind_of(question: Question | None) -> QuestionKind:
    """Return what a question is about."""
    if question is None:
        return QuestionKind.UNREADABLE
    if question.handoff is None:
        return QuestionKind.APPROVAL
    if question.handoff.reason in _NEEDS_INPUT:
        return QuestionKind.NEEDS_INPUT
    return _KINDS.get(question.handoff.fate, QuestionKind.ESCALATION)


@dataclass(frozen=True)
class WaitingQuestion:
    """A question to people, and the run that asks it.

    Attributes:
        workflow_id: The workflow.
        run_id: Its run.
        pipeline: The workflow's type.
        task_id: The task, as the server indexes it.
        question: The question; in a list with long texts cut, and with the digest of when it was published, before
            which a decision would be refused once the baton has changed. None if it cannot be read.
        stage: The stage or approval that the run waits at, as the server indexes it.
        until: The nearest deadline of the run, as the server indexes it, in whole seconds.
        has_worker: Whether a worker polls for the run: without one, a decision has no effect before one does.
        trouble: Why the question cannot be read.
    """

    workflow_id: str
    run_id: str
    pipeline: str
    task_id: str | None
    question: Question | None
    stage: str | None = None
    until: datetime | None = None
    has_worker: bool = True
    trouble: str | None = None

    @property
    def handoff(self) -> PendingHandoff | None:
        """The handoff that it is about, if it is about one."""
        return self.question.handoff if self.question else None

    @property
    def approval(self) -> Question | None:
        """The question, if it is an approval."""
        return self.question if self.question and self.question.handoff is None else None

    @property
    def kind(self) -> QuestionKind:
        """What it is about."""
        return kind_of(self.question)

    @property
    def deadline(self) -> datetime | None:
        """Its deadline, or if it cannot be read the nearest of its run."""
        return self.question.until if self.question else self.until

    def to_json_object(self) -> dict[str, Any]:
        """Return it as JSON, with the possible decisions."""
        question = self.question
        return {
            "kind": self.kind.value,
            "workflow_id": self.workflow_id,
            "run_id": self.run_id,
            "pipeline": self.pipeline,
            "task_id": self.task_id,
            "stage": self.stage,
            "has_worker": self.has_worker,
            "trouble": self.trouble,
            "until": as_json(self.deadline),
            "question": as_json(question),
            "choices": [choice.name for choice in question.choices] if question else [],
        }


@dataclass(frozen=True)
class InboxFilter:
    """A filter for questions; None matches any.

    Attributes:
        pipeline: The pipeline, that is the workflow's type.
        kind: What they are about.
        who: A person who may decide and has not: anybody may, they are named, or a group is, since only the workers
            know who is in it.
        title: The approval's title, or the handoff's sender and receiver.
    """

    pipeline: str | None = None
    kind: QuestionKind | None = None
    who: str | None = None
    title: str | None = None

    @property
    def reads(self) -> bool:
        """Whether questions have to be read to know which fit: the server indexes pipelines and deadlines only."""
        return (self.kind, self.who, self.title) != (None, None, None)

    def fits(self, entry: WaitingQuestion) -> bool:
        """Return whether a question is one of them."""
        question = entry.question
        return (
            self.pipeline in (None, entry.pipeline)
            and self.kind in (None, entry.kind)
            and self.title in (None, question and question.title)
            and (self.who is None or (question is not None and question.is_for(self.who)))
        )


@dataclass(frozen=True)
class InboxPage(JsonFields):
    """A page of the inbox.

    Attributes:
        entries: The questions of the page's runs that fit, the nearest deadline first.
        total: How many open runs ask people something that fits.
        skipped: How many runs with nearer deadlines are on the pages before.
        runs: How many runs are on this page.
        soon: How many of them all have a deadline within the hour (`SOON`), or one that has passed.
        unsearched: How many runs with later deadlines were not looked at, for a filter that has to read questions.
    """

    entries: list[WaitingQuestion]
    total: int
    skipped: int
    runs: int
    soon: int = 0
    unsearched: int = 0

    @property
    def remaining(self) -> int:
        """How many runs are on later pages."""
        return max(0, self.total - self.skipped - self.runs)


@dataclass(frozen=True)
class OpenApproval(WaitingQuestion):
    """An approval that waits for people, and the run that asks for it; its question is always readable."""

    question: Question


async def inbox(
    client: Client, run: str | None = None, *, run_id: str | None = None, limit: int | None = None
) -> AsyncIterator[WaitingQuestion]:
    """Yield what runs ask people, approvals and handoffs that wait, the nearest deadline first; no worker is asked.

    Of all runs, they come from the server's index, which may lag behind by a moment, with long texts cut. Of one run,
    they come whole from its history; an ended run asks nothing.

    Args:
        client: A connected client.
        run: The workflow id of one run; all runs by default.
        run_id: Which run of that workflow; the newest by default.
        limit: How many at most; all by default.

    Raises:
        BatonError: The namespace lacks Baton's search attributes, and no run was named.
        HistoryError: The workflow is not a pipeline, or its payloads cannot be read.
        temporalio.service.RPCError: The run does not exist, or the server cannot be asked.

    Example:
        ```python
        async for waiting in inbox(client, limit=20):
            print(waiting.deadline, waiting.workflow_id, waiting.question.title if waiting.question else "?")
        ```
    """
    entries = _read_all(client, limit or PAGE) if run is None else _read_run(client, run, run_id)
    async for entry in first(entries, limit):
        yield entry


async def open_approvals(
    client: Client, run: str | None = None, *, run_id: str | None = None, limit: int | None = None
) -> AsyncIterator[OpenApproval]:
    """Yield the approvals that wait for people, of all runs or one, the nearest deadline first; as `inbox` does.

    Args:
        client: A connected client.
        run: The workflow id of one run; all runs by default.
        run_id: Which run of that workflow; the newest by default.
        limit: How many at most; all by default.

    Raises:
        BatonError: The namespace lacks Baton's search attributes, and no run was named.
        HistoryError: The workflow is not a pipeline, or its payloads cannot be read.
        temporalio.service.RPCError: The run does not exist, or the server cannot be asked.

    Example:
        ```python
        async for asked in open_approvals(client, "order-1"):
            answer = asked.question.answer("approve", who="ann", why="tests are green")
            await decide(client, asked.workflow_id, answer)
        ```
    """
    entries = (entry async for entry in inbox(client, run, run_id=run_id) if entry.approval is not None)
    async for entry in first(entries, limit):
        yield OpenApproval(**vars(entry))


async def inbox_page(
    client: Client, wanted: InboxFilter | None = None, *, limit: int = PAGE, skip: int = 0, depth: int = DEPTH
) -> InboxPage:
    """Return a page of the inbox over all runs, and how many runs ask something in all.

    Args:
        client: A connected client.
        wanted: Which questions; all by default.
        limit: How many runs the page has at most.
        skip: How many runs with nearer deadlines to leave out, for a later page.
        depth: Among how many runs, the nearest deadlines first, to look for what the server does not index.

    Raises:
        BatonError: The namespace lacks Baton's search attributes.
        temporalio.service.RPCError: The server cannot be asked.
    """
    wanted = wanted or InboxFilter()
    terms = _terms(wanted)
    total, runs = await _list_nearest(client, depth if wanted.reads else skip + limit, terms)
    bound = (datetime.now(UTC) + SOON).replace(microsecond=0)
    if not wanted.reads:
        soon = await _count(client, terms, bound)
        entries = await _read_questions(client, runs[skip:])
        return InboxPage(sorted(entries, key=_by_deadline), total, skip, len(runs[skip:]), soon)
    fitting = sorted(filter(wanted.fits, await _read_questions(client, runs)), key=_by_deadline)
    found = [*dict.fromkeys(entry.run_id for entry in fitting)]
    listed = {*found[skip : skip + limit]}
    entries = [entry for entry in fitting if entry.run_id in listed]
    soon = len({entry.run_id for entry in fitting if entry.deadline and entry.deadline <= bound})
    return InboxPage(entries, len(found), skip, len(listed), soon, total - len(runs))


async def urgent_page(client: Client, run_filter: RunFilter, *, limit: int) -> RunPage:
    """Return the most urgent runs of a filter: the nearest deadline first, then those without one, the oldest first.

    Its `next` is that of `list_page`, which also says what it raises.

    Args:
        client: A connected client.
        run_filter: What the runs have in common.
        limit: How many at most.
    """
    page = await list_page(client, run_filter, limit=limit)
    runs = {run.run_id: run for run in page.runs}
    if page.next is not None:
        with contextlib.suppress(BatonError):  # without the search attributes no deadline is known
            _, nearest = await _list_nearest(client, limit, f" AND {run_filter.query()}")
            runs = {run.run_id: to_listed_run(run) for run in nearest} | runs

    def order(run: ListedRun) -> tuple[datetime, datetime]:
        return run.until or _LAST, run.began

    return replace(page, runs=sorted(runs.values(), key=order)[:limit])


async def _read_all(client: Client, wanted: int) -> AsyncIterator[WaitingQuestion]:
    """Yield the questions of all runs, in pages that grow, so that the first ones come soon."""
    size, read, kept = min(PAGE, wanted), set[str](), list[WaitingQuestion]()
    while True:
        total, nearest = await _list_nearest(client, size)
        kept += await _read_questions(client, [run for run in nearest if run.run_id not in read])
        kept.sort(key=_by_deadline)
        read |= {run.run_id for run in nearest}
        is_last = len(nearest) < size or len(nearest) >= total
        bound = None if is_last else deadline_of(nearest[-1])
        count = sum(bound is None or (entry.deadline or bound) <= bound for entry in kept)
        for entry in kept[:count]:  # a later page has no earlier deadline
            yield entry
        kept = kept[count:]
        if is_last:
            return
        size *= _PAGE_FACTOR


async def _read_run(client: Client, workflow_id: str, run_id: str | None) -> AsyncIterator[WaitingQuestion]:
    """Yield the questions of one run."""
    run = await describe(client, workflow_id, run_id)
    if run.close_time is not None:
        return
    has_worker = is_served(await describe_queue(client, run.task_queue), pinned_build(run))
    record = await read_run(client, run.id, run.run_id)
    entries = [_entry(run, question) for question in record.questions]
    answered = {question.partition(":")[0] for question in record.settled}
    asks = any(
        step.kind is StepKind.APPROVAL and step.status is StepStatus.RUNNING and str(step.seq) not in answered
        for step in record.steps
    )
    if not entries and (asks or record.pending_handoffs):
        entries = [_entry(run, None, "what it asks cannot be read: a newer release of Baton may have written it")]
    for entry in entries:
        yield replace(entry, has_worker=has_worker)


async def _count(client: Client, terms: str, until: datetime | None = None) -> int:
    return (await client.count_workflows(_query(terms, until))).count


def _terms(wanted: InboxFilter) -> str:
    """Return what of a filter the server has an index for, as further terms of a query."""
    terms = f" AND {equal('WorkflowType', wanted.pipeline)}" if wanted.pipeline else ""
    is_of_handoff = wanted.kind not in (None, QuestionKind.APPROVAL, QuestionKind.UNREADABLE)
    return f"{terms} AND {equal(ATTRIBUTE_STATUS, PipelineStatus.PENDING_HANDOFF.value)}" if is_of_handoff else terms


def _query(terms: str, until: datetime | None) -> str:
    """Return the query for open runs that ask people something, with a deadline until then."""
    bound = "" if until is None else f" AND {ATTRIBUTE_UNTIL} <= '{until.isoformat()}'"
    return f"{ATTRIBUTE_UNTIL} > '{_SOME_TIME_AGO.isoformat()}'{bound} AND ExecutionStatus = 'Running'{terms}"


async def _list_nearest(client: Client, most: int, terms: str = "") -> tuple[int, list[Execution]]:
    """Return how many runs ask something, and those with the nearest deadlines in order.

    The server filters and counts, but does not sort.
    """
    try:
        total = await _count(client, terms)
        until = None if total <= most else await _find_bound(client, most, terms)
        runs = [run async for run in list_executions(client, _query(terms, until))]
    except RPCError as error:
        if lacks_attributes(error):
            raise BatonError(
                "the namespace lacks Baton's search attributes, so what waits for people cannot be found; `baton "
                "doctor --fix` adds them for new runs. `baton inbox show RUN` works without them"
            ) from error
        raise
    return total, sorted(runs, key=lambda run: (deadline_of(run) or NOT_WAITING, run.id))[:most]


async def _find_bound(client: Client, most: int, terms: str) -> datetime:
    """Return a time until which there are ``most`` deadlines, and hardly more, except for equal ones.

    Who looks again soon, as a page that follows does, finds the same one: it is tried first.
    """
    known = _bounds.setdefault(client, {})
    latest = known.get((most, terms))
    if latest is None or not most <= await _count(client, terms, latest) < 2 * most:
        if len(known) > _MAX_BOUNDS:
            known.clear()
        latest = known[most, terms] = await _search_bound(client, most, terms)
    return latest


async def _search_bound(client: Client, most: int, terms: str) -> datetime:
    # In whole seconds, as the attribute is: SQLite compares times as texts, and '….5Z' is more than '….51Z' there.
    now, window = datetime.now(UTC).replace(microsecond=0), _FIRST_WINDOW
    after, before = _SOME_TIME_AGO, 0
    until = now + window
    while (counted := await _count(client, terms, until)) < most and until < _LAST:
        after, before, window = until, counted, window * _WINDOW_FACTOR
        until = min(now + window, _LAST)
    while counted - before > most and until - after > _SECOND:
        middle = after + (until - after) // _SECOND // 2 * _SECOND
        if (within := await _count(client, terms, middle)) < most:
            after, before = middle, within
        else:
            until, counted = middle, within
    return until


async def _read_questions(client: Client, runs: list[Execution]) -> list[WaitingQuestion]:
    """Return the questions in the memos of runs, and whether a worker polls for each."""
    names = sorted({run.task_queue for run in runs})

    async def read(run: Execution) -> list[WaitingQuestion]:
        try:
            return [_entry(run, question) for question in await _questions_of(client, run)]
        except HistoryError as error:
            return [_entry(run, None, trouble=str(error))]

    queues = dict(zip(names, await map_concurrently(partial(describe_queue, client), names), strict=True))
    entries = itertools.chain.from_iterable(await map_concurrently(read, runs))
    served = {run.run_id: is_served(queues[run.task_queue], indexed_build(run)) for run in runs}
    return [replace(entry, has_worker=served[entry.run_id]) for entry in entries]


async def _questions_of(client: Client, run: Execution) -> list[Question]:
    """Return the questions in a run's memo, or if they do not fit there in its history."""
    payload = run.info.memo.fields.get(MEMO_QUESTIONS)
    if payload is None:
        raise HistoryError("what it asks is not in its memo")
    try:
        [published] = await client.data_converter.decode([payload], [OpenQuestions])
    except Exception as error:  # codecs and stores raise errors of any type
        raise HistoryError(
            f"what it asks cannot be decoded: {error}; the client needs the codec and the keys of the workers"
        ) from error
    questions: list[Question] = published.questions
    return (await read_run(client, run.id, run.run_id)).questions if published.more else questions


def _entry(run: Execution, question: Question | None, trouble: str | None = None) -> WaitingQuestion:
    return WaitingQuestion(
        workflow_id=run.id,
        run_id=run.run_id,
        pipeline=run.workflow_type,
        task_id=label_of(run, ATTRIBUTE_TASK),
        question=question,
        stage=label_of(run, ATTRIBUTE_STAGE),
        until=deadline_of(run),
        trouble=trouble,
    )


def _by_deadline(entry: WaitingQuestion) -> tuple[datetime, str]:
    return entry.deadline or NOT_WAITING, entry.workflow_id
