"""Folds a workflow's events into a `RunRecord` and its news, with no worker."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from pydantic import ValidationError
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from baton.core.messages import PipelineInput
from baton.errors import BatonError, HistoryError, PipelineError, UnreadableRunError
from baton.runs.client_clock import measured_skew
from baton.runs.client_events import DecodedEvent, decode, split_at_tasks, time_of
from baton.runs.client_executions import describe, history
from baton.runs.client_fold import Fold
from baton.runs.client_list import label_of
from baton.runs.client_news import News, NewsKind, Reading, compare
from baton.runs.client_record import RunRecord, StepStream
from baton.wire.names import ATTRIBUTE_TASK
from baton.wire.text import describe_faults


async def find_task_id(client: Client, workflow_id: str, run_id: str | None = None) -> str | None:
    """Return the task of a run, as the server indexes it, or else from its history; None if it has none.

    Args:
        client: A connected client.
        workflow_id: The workflow.
        run_id: The run; the newest by default.

    Raises:
        temporalio.service.RPCError: The run does not exist.
    """
    task_id = label_of(await describe(client, workflow_id, run_id), ATTRIBUTE_TASK)
    if task_id is not None:
        return task_id
    try:  # a client without Baton started it
        return (await read_run(client, workflow_id, run_id)).task_id
    except HistoryError:  # not a pipeline
        return None


async def read_run(client: Client, workflow_id: str, run_id: str | None = None) -> RunRecord:
    """Return a run, rebuilt from its event history alone.

    Args:
        client: A client with Baton's data converter, as `BatonPlugin` sets it.
        workflow_id: The workflow.
        run_id: The run; the newest by default.

    Returns:
        The record.

    Raises:
        HistoryError: The workflow is not a pipeline.
        UnreadableRunError: It is, but the run's records are malformed.
        temporalio.service.RPCError: The workflow does not exist, or the server is unreachable.
    """
    run_id, events = await history(client, workflow_id, run_id)
    run = await rebuild(workflow_id, run_id, events, client.data_converter)
    run.first_began = await find_chain_start(client, run)
    if run.ended is None:
        run.skew = await measured_skew(client)
    return run


async def find_chain_start(client: Client, run: RunRecord) -> datetime | None:
    """Return when the first run of a chain that continued as new started; None if the server no longer has it."""
    if run.previous_run_id is None or run.first_run_id is None:
        return run.began
    try:
        return (await describe(client, run.workflow_id, run.first_run_id)).start_time
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


async def rebuild(workflow_id: str, run_id: str, events: Sequence[HistoryEvent], converter: DataConverter) -> RunRecord:
    """Return the run that ``events`` record.

    Args:
        workflow_id: The workflow of the events.
        run_id: The run; empty to take it from the first event.
        events: All events of the run so far, in order.
        converter: Decodes the payloads.

    Returns:
        The record.

    Raises:
        HistoryError: The events are not those of a pipeline.
        UnreadableRunError: They are, but the run's records are malformed.
    """
    reader = RunReader(workflow_id, run_id)
    reader.feed(await decode(events, converter))
    return reader.record


@dataclass(frozen=True)
class TaskNews:
    """The news of one workflow task.

    Attributes:
        closing: What happened because the run ended; not news of a run that another run continues.
    """

    event: int
    news: list[News]
    closing: list[News]
    streams: list[StepStream]


class RunReader:
    """Folds a run's events into its record and its news, each event once, as they arrive.

    What a workflow task has processed is committed, and never changes. The events after it are provisional: the
    server may replace them, and the next task decides what they mean. So the committed record and the news are the
    same, however the events are divided, if no division is within a workflow task.

    Args:
        workflow_id: The workflow.
        run_id: The run; empty to take it from the first event.
        previous: The run that this run continues; then only what differs from it is news.
    """

    def __init__(self, workflow_id: str, run_id: str, previous: RunRecord | None = None) -> None:
        self._workflow_id = workflow_id
        self._run_id = run_id
        self._previous = previous
        self._told: Reading | None = None
        self._fold: Fold | None = None
        self._tip: list[DecodedEvent] = []
        self.last_task = TaskNews(0, [], [], [])

    @property
    def last_event(self) -> int:
        """The last committed event; 0 before the first."""
        return self._fold.run.last_event if self._fold else 0

    @property
    def committed(self) -> RunRecord:
        """The run as its last workflow task left it."""
        return self._begun().copy().finish()

    @property
    def record(self) -> RunRecord:
        """The run after all events, as if a workflow task processed them now."""
        fold = self._begun().copy()
        with self._readable():
            fold.process(self._tip)
            return fold.apply_arrived().finish()

    def feed(self, events: Sequence[DecodedEvent]) -> list[TaskNews]:
        """Fold the next events, and return the news of each workflow task that ended.

        Args:
            events: The next events in order; an event with the number of a provisional one replaces it.

        Raises:
            HistoryError: The events are not those of a pipeline.
            UnreadableRunError: They are, but the run's records are malformed.
        """
        events = [decoded for decoded in events if decoded.event.event_id > self.last_event]
        if not events:
            return []
        if self._fold is None:
            start = _parse_start(self._workflow_id, events[0].text)
            with self._readable():
                self._fold = Fold(self._workflow_id, self._run_id, start, events[0].event)
        first = events[0].event.event_id
        kept = [decoded for decoded in self._tip if decoded.event.event_id < first]
        tasks, self._tip = split_at_tasks([*kept, *events])
        with self._readable():
            news = [self._commit(self._fold, task) for task in tasks]
        self.last_task = news[-1] if news else self.last_task
        return news

    def _begun(self) -> Fold:
        if self._fold is None:
            _parse_start(self._workflow_id, None)  # raises: nothing was started
        assert self._fold is not None  # noqa: S101 - see above
        return self._fold

    def _commit(self, fold: Fold, task: Sequence[DecodedEvent]) -> TaskNews:
        fold.process(task)
        fold.settle()
        changes, at = fold.take_changes(), time_of(task[-1].event)
        before, after = None, changes.after
        if self._previous is not None:
            if not fold.is_own:  # the copied events of the run that was reset
                return TaskNews(fold.run.last_event, [], [], [])
            before, after = Reading.of(self._previous), Reading.of(fold.copy().finish())
            self._previous = None
        elif self._told is not None:
            before = replace(self._told, steps=changes.before, entries=[], notes=[], pauses=[])
        self._told = after
        news, closing = list[News](), list[News]()
        for piece in compare(before, after, at):
            is_cut = piece.kind is NewsKind.STEP_FAILED and piece.step is not None and piece.step.seq in changes.cut
            (closing if is_cut or piece.kind is NewsKind.RUN_ENDED else news).append(piece)
        return TaskNews(fold.run.last_event, news, closing, changes.ended_streams)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except HistoryError:
            raise
        except (BatonError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise UnreadableRunError(
                f"the run of workflow {self._workflow_id!r} cannot be read: its records contradict each other "
                f"({type(error).__name__}: {str(error)[:_MAX_FAULT_LENGTH]})"
            ) from error


_MAX_FAULT_LENGTH = 300


def _parse_start(workflow_id: str, text: bytes | None) -> PipelineInput:
    """Return the input that a run was started with."""
    try:
        start = PipelineInput.model_validate_json(text or b"")
        start.check_past()
        return start.model_copy(update={"outcomes": start.recorded(), "pages": []})
    except ValidationError as error:
        faults = describe_faults(error, "input")
    except PipelineError as error:
        faults = str(error)
    try:
        members = json.loads(text or b"")
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict) or not members.keys() & PipelineInput.model_fields.keys():
        raise HistoryError(f"workflow {workflow_id!r} was not started with a PipelineInput; it is not a Baton pipeline")
    raise UnreadableRunError(f"workflow {workflow_id!r} was started with a malformed PipelineInput: {faults}")
