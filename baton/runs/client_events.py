"""Reads single history events: payloads, times, timers, and decoded failures."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import TimeoutType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from baton.compression.rules import COMPRESS
from baton.core.artifacts import find_confirmed_loss
from baton.core.history import Outcome, StepKind
from baton.core.messages import StageInput
from baton.core.people import normalize_name
from baton.core.questions import Answer, Question, Settled
from baton.errors import ConfigurationError, HistoryError
from baton.handoff.records import Handoff
from baton.wire.names import (
    HAND_OFF,
    HANDOFF_REFUSED,
    MEMO_OUTCOME,
    MEMO_QUESTIONS,
    MEMO_TERMS,
    MEMO_UNDONE,
    OUTSIDE,
    RECEIVE_AS,
    STREAM_TO,
)
from baton.wire.records import Record

_CHILD_ID = re.compile(r"(?:.*\.)?([^.]*)\.step(\d+)\.[0-9a-f]{8}", re.DOTALL)  # as `run_child` makes it
_STEP = re.compile(r'"step (\d+): ')

_SIGNALS = (
    "workflow_execution_signaled_event_attributes",
    "signal_external_workflow_execution_initiated_event_attributes",
)
_MEMBERS = (MEMO_OUTCOME, MEMO_QUESTIONS, MEMO_TERMS, MEMO_UNDONE)  # never two in one event

_UNHANDLED_COMMAND = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND  # a signal arrived meanwhile

RecordT = TypeVar("RecordT", bound=Record)


@dataclass(frozen=True)
class DecodedEvent:
    """An event with its failures decoded, and its payload if that may be one of Baton's records."""

    event: HistoryEvent
    text: bytes | None


async def decode(events: Sequence[HistoryEvent], converter: DataConverter) -> list[DecodedEvent]:
    """Return the events decoded, in order."""
    texts = await decode_payloads(events, converter)
    return [DecodedEvent(event, texts.get(event.event_id)) for event in await decode_failures(events, converter)]


_ENDS = frozenset(
    f"{name}_event_attributes"
    for name in (
        "workflow_execution_started",
        "workflow_task_failed",
        *(f"workflow_execution_{end}" for end in ("completed", "failed", "terminated", "canceled", "timed_out")),
        *(f"workflow_execution_{change}" for change in ("continued_as_new", "paused", "unpaused")),
    )
)
"""The events that end what is committed, besides a completed workflow task and its commands."""


def split_at_tasks(events: Iterable[DecodedEvent]) -> tuple[list[list[DecodedEvent]], list[DecodedEvent]]:
    """Return the events up to the end of each workflow task, and those after the last.

    The start, a pause and the end of a run count as tasks. A task ends with its commands: they decide what the events
    before them were. A reset is part of the task after it, which processes again what the reset kept.
    """
    tasks: list[list[DecodedEvent]] = []
    rest: list[DecodedEvent] = []
    completed = 0
    for decoded in events:
        event = decoded.event
        if completed and not _is_command(event, completed):
            tasks.append(rest)
            rest, completed = [], 0
        rest.append(decoded)
        if event.HasField("workflow_task_completed_event_attributes"):
            completed = event.event_id
        elif event.WhichOneof("attributes") in _ENDS and not event.workflow_task_failed_event_attributes.base_run_id:
            tasks.append(rest)
            rest, completed = [], 0
    if completed:
        tasks.append(rest)
        rest = []
    return tasks, rest


def _is_command(event: HistoryEvent, task: int) -> bool:
    """Return whether a completed workflow task made an event."""
    kind = event.WhichOneof("attributes") or ""
    is_of_update = kind.startswith("workflow_execution_update_")
    return is_of_update or getattr(getattr(event, kind, None), "workflow_task_completed_event_id", 0) == task


async def decode_payloads(events: Sequence[HistoryEvent], converter: DataConverter) -> dict[int, bytes]:
    """Return the decoded payload of each event that may contain one of Baton's records, by event id."""
    payloads = {event.event_id: payload for event in events if (payload := _find_payload(event)) is not None}
    try:
        return dict(zip(payloads, await _decode(list(payloads.values()), converter), strict=True))
    except Exception:  # find the event; codecs and stores raise errors of any type
        texts: dict[int, bytes] = {}
        for event in events:
            if event.event_id not in payloads:
                continue
            try:
                texts[event.event_id] = (await _decode([payloads[event.event_id]], converter))[0]
            except Exception as error:
                if event.WhichOneof("attributes") not in _SIGNALS:
                    raise HistoryError(
                        f"the payload of event {event.event_id} cannot be decoded: {error}; the client needs the "
                        "codec and the artifact store of the workers"
                    ) from error
        return texts


async def _decode(payloads: list[Payload], converter: DataConverter) -> list[bytes]:
    values = await converter.decode(payloads, [RawValue] * len(payloads)) if payloads else []
    return [value.payload.data for value in values]


def _find_payload(event: HistoryEvent) -> Payload | None:
    attributes: Any = getattr(event, event.WhichOneof("attributes") or "", None)
    match event.WhichOneof("attributes"):
        case "timer_started_event_attributes":
            return event.user_metadata.summary if event.user_metadata.HasField("summary") else None
        case "activity_task_scheduled_event_attributes" if is_compression(event):
            return event.user_metadata.summary if event.user_metadata.HasField("summary") else None
        case "workflow_properties_modified_event_attributes":
            fields = attributes.upserted_memo.fields
            payloads = [fields[name] for name in _MEMBERS if name in fields]
        case (
            "activity_task_failed_event_attributes"
            | "child_workflow_execution_failed_event_attributes"
            | "workflow_execution_failed_event_attributes"
        ):
            payloads = attributes.failure.application_failure_info.details.payloads[-1:]  # the bill comes last
        case "activity_task_timed_out_event_attributes":
            payloads = attributes.failure.timeout_failure_info.last_heartbeat_details.payloads[-1:]
        case "activity_task_completed_event_attributes" | "workflow_execution_completed_event_attributes":
            payloads = attributes.result.payloads
        case "workflow_execution_update_completed_event_attributes":
            payloads = attributes.outcome.success.payloads
        case (
            "workflow_execution_started_event_attributes"
            | "activity_task_scheduled_event_attributes"
            | "workflow_execution_signaled_event_attributes"
            | "signal_external_workflow_execution_initiated_event_attributes"
        ):
            payloads = attributes.input.payloads
        case _:
            return None
    return payloads[0] if payloads else None


def parse_record(kind: type[RecordT], text: bytes | None) -> RecordT | None:
    """Return the record in a payload, or None if it contains something else."""
    if text is None:
        return None
    try:
        return kind.model_validate_json(text)
    except ValidationError:
        return None


def parse_details(text: bytes | None) -> list[Any]:
    """Return the value in the payload of a failure's details, if any, as a list."""
    try:
        return [] if text is None else [json.loads(text)]
    except ValueError:
        return []


def parse_stage_input(text: bytes | None) -> StageInput | None:
    """Return a stage's input, sent plainly or as a handoff; None if the payload is something else."""
    plain = parse_record(StageInput, text)
    if plain is not None or text is None:
        return plain
    handoff = parse_record(Handoff, text)
    try:
        return None if handoff is None else handoff.stage_input()
    except ValidationError:
        return None


def is_compression(event: HistoryEvent) -> bool:
    """Return whether an event schedules the compression of a conversation."""
    return event.activity_task_scheduled_event_attributes.activity_type.name == COMPRESS


def lacks_part(event: HistoryEvent, seq: int, awaited: Set[tuple[int, str | None]]) -> bool:
    """Return whether an activity failed for want of something that its run waits for.

    Args:
        event: The failure.
        seq: The step.
        awaited: The lost artifacts that were waited for, by step: for each of them a run waits once.
    """
    chain = [event.activity_task_failed_event_attributes.failure]
    if chain[0].application_failure_info.type == ConfigurationError.__name__:
        return True
    while chain[-1].HasField("cause"):
        chain.append(chain[-1].cause)
    lost = find_confirmed_loss((it.application_failure_info.type, it.message) for it in chain)
    return lost is not None and (seq, lost) not in awaited


def is_refusal(event: HistoryEvent) -> bool:
    """Return whether an activity failed because the stage refused its handoff."""
    return event.activity_task_failed_event_attributes.failure.application_failure_info.type == HANDOFF_REFUSED


def parse_child_id(workflow_id: str) -> tuple[str, int] | None:
    """Return the name and the number of the step that started a child, from its workflow id; None if it is no such id.

    Example:
        >>> parse_child_id("order-1.quote.step2.0a1b2c3d.ship.step5.4e5f6a7b")
        ('ship', 5)
    """
    match = _CHILD_ID.fullmatch(workflow_id)
    return None if match is None else (match[1], int(match[2]))


def update_name(event: HistoryEvent) -> str:
    """Return the name of an accepted update."""
    return event.workflow_execution_update_accepted_event_attributes.accepted_request.input.name


def parse_step_number(text: bytes | None) -> int:
    """Return the step's number from an activity's summary; 0 if it has none."""
    match = _STEP.match((text or b"").decode(errors="replace"))
    return int(match[1]) if match else 0


def parse_text(text: bytes | None) -> str:
    """Return the text that a decoded payload holds; empty if it holds none."""
    try:
        value = json.loads(text or b"null")
    except ValueError:
        return ""
    return value if isinstance(value, str) else ""


def innermost_message(failure: Failure) -> str:
    """Return the text of a failure's innermost cause."""
    while failure.HasField("cause"):
        failure = failure.cause
    return failure_text(failure)


def failure_reason(failure: Failure) -> str:
    """Return why a try of an activity failed."""
    if failure.HasField("server_failure_info") and failure.HasField("cause"):
        return failure_reason(failure.cause)
    return failure_text(failure)


def failure_text(failure: Failure) -> str:
    """Return a failure's own message, after the type of the exception that was raised."""
    if failure.timeout_failure_info.timeout_type == TimeoutType.TIMEOUT_TYPE_HEARTBEAT:
        return "its worker stopped responding"
    kind = failure.application_failure_info.type
    return f"{kind}: {failure.message}" if kind else failure.message


def time_of(event: HistoryEvent) -> datetime:
    """Return the time of an event, rounded as `workflow.now()` rounds it."""
    return datetime.fromtimestamp(event.event_time.ToNanoseconds() / 1e9, UTC)


APPROVAL_TIMER = re.compile(r"step (\d+): deadline of approval (.*)", re.DOTALL)
"""The name of an approval's timer: its step, and its title."""
SLEEP_TIMER = re.compile(r"step (\d+): sleeps: (.*)", re.DOTALL)
"""The name of a sleep's timer: its step, and the step's name."""
OUTSIDE_TIMER = re.compile(r"answer of (.*) outside", re.DOTALL)
"""The name of the timer of a handoff to an agent outside: the agent."""
_HANDOFF_TIMER = re.compile(r"step ([1-9]\d*): deadline of handoff (\S+) to ([^:]+): (.*)")


_ATTEMPT = re.compile(r", attempt \d+$")
_HANDOFF_IDS = frozenset({"handoffId", "handoff_id"})
_HANDOFF_ID = re.compile(r"handoff ([0-9a-f-]{36})")  # in the words of a failure


def without_attempt(name: str) -> str:
    """Return the name of the timer of an answer without its attempt: each time that it is sent has a timer."""
    return _ATTEMPT.sub("", name)


def waits_of(outcome: Outcome) -> list[str]:
    """Return the names of the timers of a step that waited for another pipeline, or for an agent outside."""
    name = outcome.name
    if outcome.kind is not StepKind.STAGE:
        return []
    if name.startswith(RECEIVE_AS):
        return [f"a handoff to {name.removeprefix(RECEIVE_AS)}"]
    if name.startswith(HAND_OFF) and name.endswith(OUTSIDE):
        return [f"answer of {name.removeprefix(HAND_OFF)}"]
    if not name.startswith((HAND_OFF, STREAM_TO)):
        return []
    ids = _handoff_ids(outcome.value) if outcome.failure is None else _HANDOFF_ID.findall(outcome.failure)
    return [f"answer to handoff {id}" for id in ids]


def _handoff_ids(value: Any) -> Iterator[str]:
    """Yield the handoffs in an answer, or in the answers of a broadcast."""
    for name, member in value.items() if isinstance(value, dict) else ():
        if name in _HANDOFF_IDS and isinstance(member, str):
            yield member
        else:
            yield from _handoff_ids(member)


@dataclass(frozen=True)
class Timer:
    """A running timer."""

    name: str
    since: datetime
    until: datetime

    @property
    def is_of_a_step(self) -> bool:
        """Whether it ends an approval, a sleep, or the wait for a person."""
        return any(kind.fullmatch(self.name) for kind in (APPROVAL_TIMER, SLEEP_TIMER, _HANDOFF_TIMER))


@dataclass(frozen=True)
class HandoffDeadline:
    """A handoff that is waiting for a person."""

    seq: int
    handoff_id: str
    receiver: str
    since: datetime
    until: datetime
    why: str = ""


def pending_handoffs(timers: Iterable[Timer]) -> list[HandoffDeadline]:
    """Return the handoffs that are waiting for a person."""
    return [
        HandoffDeadline(int(match[1]), match[2], match[3], timer.since, timer.until, match[4])
        for timer in timers
        if (match := _HANDOFF_TIMER.fullmatch(timer.name))
    ]


def open_questions(questions: Iterable[Question], timers: Iterable[Timer]) -> list[Question]:
    """Return the questions whose deadlines are running, the nearest first."""
    timers = [*timers]
    approvals = {int(match[1]) for timer in timers if (match := APPROVAL_TIMER.fullmatch(timer.name))}
    handoffs = {handoff.handoff_id for handoff in pending_handoffs(timers)}
    running = [
        question
        for question in questions
        if (question.handoff.handoff_id in handoffs if question.handoff else question.seq in approvals)
    ]
    return sorted(running, key=lambda question: question.until)


def find_signal(settled: Settled, signals: Iterable[tuple[int, Answer]]) -> int | None:
    """Return the event of the signal that decided: the last such answer of the last person; they may replace theirs."""
    who, found = normalize_name(settled.votes[-1].who if settled.votes else settled.who), None
    for event, answer in signals:
        is_about_it = (answer.question, answer.digest) == (settled.question, settled.digest)
        if is_about_it and answer.choice == settled.choice and normalize_name(answer.who) == who:
            found = event
    return found


def is_failure_of_code(event: HistoryEvent) -> bool:
    """Return whether a failed workflow task is one of the worker's code: no reset, and no signal came meanwhile."""
    attributes = event.workflow_task_failed_event_attributes
    return not attributes.base_run_id and attributes.cause != _UNHANDLED_COMMAND


def handoff_step(name: str) -> int:
    """Return the step of the handoff whose deadline a timer is; 0 for any other timer."""
    match = _HANDOFF_TIMER.fullmatch(name)
    return int(match[1]) if match else 0


async def decode_failures(events: Iterable[HistoryEvent], converter: DataConverter) -> list[HistoryEvent]:
    """Return the events with decoded messages and stack traces in their failures."""
    return [await _with_decoded_failures(event, converter) for event in events]


async def _with_decoded_failures(event: HistoryEvent, converter: DataConverter) -> HistoryEvent:
    if not any(_is_encoded(failure) for failure in _find_failures(event)):
        return event
    copy = HistoryEvent()
    copy.CopyFrom(event)
    for failure in _find_failures(copy):
        await _decode_failure(failure, converter)
    return copy


def _find_failures(event: HistoryEvent) -> list[Failure]:
    kind = event.WhichOneof("attributes")
    attributes: Any = getattr(event, kind) if kind else None
    return [
        getattr(attributes, name)
        for name in ("failure", "last_failure")
        if attributes is not None and name in attributes.DESCRIPTOR.fields_by_name and attributes.HasField(name)
    ]


def _is_encoded(failure: Failure) -> bool:
    return failure.HasField("encoded_attributes") or (failure.HasField("cause") and _is_encoded(failure.cause))


async def _decode_failure(failure: Failure, converter: DataConverter) -> None:
    """Set the decoded message and stack trace; unreadable ones stay placeholders."""
    if failure.HasField("encoded_attributes"):
        [attributes] = await converter.decode([failure.encoded_attributes])
        if isinstance(attributes, dict):
            failure.message = str(attributes.get("message", failure.message))
            failure.stack_trace = str(attributes.get("stack_trace", failure.stack_trace))
    if failure.HasField("cause"):
        await _decode_failure(failure.cause, converter)
