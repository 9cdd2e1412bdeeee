"""What single events of a history hold: payloads as records, times, reasons, timers, and failures in clear."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from baton.compression.rules import COMPRESS
from baton.core.baton import AnyBaton, Baton
from baton.core.messages import PipelineInput, StageInput
from baton.errors import ConfigurationError, HistoryError
from baton.wire.names import (
    HANDOFF_REFUSED,
    MEMO_FIELDS,
    MEMO_OUTCOME,
    MEMO_UNDONE,
    RESOLVE_HANDOFF,
)
from baton.wire.records import Record

CHILD_ID = re.compile(r".*\.([^.]*)\.step(\d+)\.[0-9a-f]{8}")
"""The workflow id of a child, with the name and the number of its step."""
_STEP = re.compile(r'"step (\d+): ')

RecordT = TypeVar("RecordT", bound=Record)


async def decoded(events: Sequence[HistoryEvent], converter: DataConverter) -> dict[int, bytes]:
    """Return the decoded payload of each event that may hold one of Baton's records, by event id."""
    found = {event.event_id: payload for event in events if (payload := _payload(event)) is not None}
    try:
        return dict(zip(found, await _texts(list(found.values()), converter), strict=True))
    except Exception:  # find out which one it is; there are as many kinds of error as codecs and stores
        texts: dict[int, bytes] = {}
        for event in events:
            if event.event_id not in found:
                continue
            try:
                texts[event.event_id] = (await _texts([found[event.event_id]], converter))[0]
            except Exception as error:
                if not event.HasField("workflow_execution_signaled_event_attributes"):
                    raise HistoryError(
                        f"the payload of event {event.event_id} cannot be decoded: {error}; the client needs the "
                        "codec and the artifact store of the workers"
                    ) from error
        return texts


async def _texts(payloads: list[Payload], converter: DataConverter) -> list[bytes]:
    """Return the data of payloads once they are decoded."""
    values = await converter.decode(payloads, [RawValue] * len(payloads)) if payloads else []
    return [value.payload.data for value in values]


def _payload(event: HistoryEvent) -> Payload | None:
    """Return the payload of an event that may be one of Baton's records."""
    attributes: Any = getattr(event, event.WhichOneof("attributes") or "", None)
    match event.WhichOneof("attributes"):
        case "timer_started_event_attributes":
            return event.user_metadata.summary if event.user_metadata.HasField("summary") else None
        case "activity_task_scheduled_event_attributes" if is_compression(event):
            return event.user_metadata.summary if event.user_metadata.HasField("summary") else None
        case "workflow_properties_modified_event_attributes":
            fields = attributes.upserted_memo.fields
            payloads = [fields[name] for name in (MEMO_OUTCOME, MEMO_FIELDS, MEMO_UNDONE) if name in fields]
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
        case "workflow_execution_update_accepted_event_attributes" if is_resolved_handoff(event):
            payloads = attributes.accepted_request.input.args.payloads
        case (
            "workflow_execution_started_event_attributes"
            | "activity_task_scheduled_event_attributes"
            | "workflow_execution_signaled_event_attributes"
        ):
            payloads = attributes.input.payloads
        case _:
            return None
    return payloads[0] if payloads else None


def parsed(kind: type[RecordT], text: bytes | None) -> RecordT | None:
    """Return the record in a payload, or None where it is something else."""
    if text is None:
        return None
    try:
        return kind.model_validate_json(text)
    except ValidationError:
        return None


def detail(text: bytes | None) -> list[Any]:
    """Return what the payload of a failure's details says, if it has any."""
    try:
        return [] if text is None else [json.loads(text)]
    except ValueError:
        return []


def stage_input(text: bytes | None) -> StageInput | None:
    """Return what a stage was sent, as a handoff or plainly; None where it is something else."""
    plain = parsed(StageInput, text)
    if plain is not None or text is None:
        return plain
    try:
        return StageInput.from_handoff(json.loads(text))
    except (ValueError, KeyError, TypeError):
        return None


def is_compression(event: HistoryEvent) -> bool:
    """Return whether an event schedules an activity that compresses a conversation."""
    return event.activity_task_scheduled_event_attributes.activity_type.name == COMPRESS


def is_missing(event: HistoryEvent) -> bool:
    """Return whether an event tells that a worker lacked what a stage needs, which is not a failure of the stage."""
    failure = event.activity_task_failed_event_attributes.failure
    return failure.application_failure_info.type == ConfigurationError.__name__


def is_refusal(event: HistoryEvent) -> bool:
    """Return whether an event is the answer of a stage that did not accept its handoff."""
    return event.activity_task_failed_event_attributes.failure.application_failure_info.type == HANDOFF_REFUSED


def is_resolved_handoff(event: HistoryEvent) -> bool:
    """Return whether an event is a person's decision about a handoff that waits."""
    return event.workflow_execution_update_accepted_event_attributes.accepted_request.input.name == RESOLVE_HANDOFF


def step_of_summary(text: bytes | None) -> int:
    """Return the number of the step for which the summary of an activity says that it runs; 0 if it does not say."""
    named = _STEP.match((text or b"").decode(errors="replace"))
    return int(named[1]) if named else 0


def first_baton(start: PipelineInput, events: Sequence[HistoryEvent], texts: dict[int, bytes]) -> Baton:
    """Return the baton the run began with, with the further fields that its type gave it."""
    for event in events:
        fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if MEMO_FIELDS in fields:
            further = json.loads(texts[event.event_id])
            return start.model_copy(update={"baton": {**start.baton, **further}}).first_baton(AnyBaton)
    return start.first_baton(AnyBaton)


def innermost(failure: Failure) -> str:
    """Return the innermost message of a failure, which says what happened."""
    while failure.HasField("cause"):
        failure = failure.cause
    return words_of(failure)


def words_of(failure: Failure) -> str:
    """Return what a failure itself says: its message, and before it the type of exception that a program raised."""
    kind = failure.application_failure_info.type
    return f"{kind}: {failure.message}" if kind else failure.message


def time_of(event: HistoryEvent) -> datetime:
    """Return when the event happened."""
    return _workflow_time(event.event_time.ToNanoseconds())


def _workflow_time(nanoseconds: int) -> datetime:
    """Return a time as `workflow.now()` gives it, rounded in the same way."""
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)


APPROVAL_TIMER = re.compile(r"step (\d+): deadline of approval (.*)", re.DOTALL)
"""The name of the timer that ends an approval: its step, and its title."""
SLEEP_TIMER = re.compile(r"step (\d+): sleeps: (.*)", re.DOTALL)
"""The name of the timer of a sleep: its step, and the step's name."""
_HANDOFF_TIMER = re.compile(r"step ([1-9]\d*): deadline of handoff ([^:]+)(?:: (.+))?")


@dataclass(frozen=True)
class Timer:
    """A timer that runs."""

    name: str
    since: datetime
    until: datetime

    @property
    def is_of_a_step(self) -> bool:
        """Whether an approval, a sleep, or the wait for a person ends with it; each is shown as such."""
        return any(kind.fullmatch(self.name) for kind in (APPROVAL_TIMER, SLEEP_TIMER, _HANDOFF_TIMER))


@dataclass(frozen=True)
class HandoffDeadline:
    """A handoff that waits for a person."""

    seq: int
    handoff_id: str
    since: datetime
    until: datetime
    why: str = ""


def timer_name(text: bytes | None) -> str:
    """Return the name of a timer, out of the decoded payload of its event; empty if it has none."""
    try:
        name = json.loads(text or b"")
    except ValueError:
        return ""
    return name if isinstance(name, str) else ""


def open_timers(events: Iterable[HistoryEvent], texts: Mapping[int, bytes]) -> list[Timer]:
    """Return the timers that run after these events, the oldest first."""
    found: dict[int, Timer] = {}
    for event in events:
        attributes: Any = getattr(event, event.WhichOneof("attributes") or "", None)
        match event.WhichOneof("attributes"):
            case "timer_started_event_attributes":
                name = timer_name(texts.get(event.event_id))
                since = time_of(event)
                found[event.event_id] = Timer(name, since, since + attributes.start_to_fire_timeout.ToTimedelta())
            case "timer_canceled_event_attributes" | "timer_fired_event_attributes":
                found.pop(attributes.started_event_id, None)
    return list(found.values())


def pending_handoffs(timers: Iterable[Timer]) -> list[HandoffDeadline]:
    """Return the handoffs that wait for a person."""
    named = ((one, _HANDOFF_TIMER.fullmatch(one.name)) for one in timers)
    return [
        HandoffDeadline(int(found[1]), found[2], one.since, one.until, found[3] or "") for one, found in named if found
    ]


def made_ready(events: Iterable[HistoryEvent], texts: Mapping[int, bytes]) -> dict[int, int]:
    """Return, by step, the workflow task in which its handoff was made, where that was before it was first sent."""
    found: dict[int, int] = {}
    for event in events:
        attributes: Any = getattr(event, event.WhichOneof("attributes") or "", None)
        text, seq = texts.get(event.event_id), 0
        if event.HasField("timer_started_event_attributes"):
            named = _HANDOFF_TIMER.fullmatch(timer_name(text))
            seq = int(named[1]) if named else 0
        elif event.HasField("activity_task_scheduled_event_attributes") and is_compression(event):
            seq = step_of_summary(text)
        if seq:
            found.setdefault(seq, attributes.workflow_task_completed_event_id)
    return found


_MEMBERS = ("failure", "last_failure")


async def with_failures(events: Iterable[HistoryEvent], converter: DataConverter) -> list[HistoryEvent]:
    """Return the events of a history, their failures with messages and stack traces in clear."""
    return [await _readable(event, converter) for event in events]


async def _readable(event: HistoryEvent, converter: DataConverter) -> HistoryEvent:
    if not any(_is_encoded(failure) for failure in _failures(event)):
        return event
    copy = HistoryEvent()
    copy.CopyFrom(event)
    for failure in _failures(copy):
        await _reveal(failure, converter)
    return copy


def _failures(event: HistoryEvent) -> list[Failure]:
    kind = event.WhichOneof("attributes")
    attributes: Any = getattr(event, kind) if kind else None
    return [
        getattr(attributes, name)
        for name in _MEMBERS
        if attributes is not None and name in attributes.DESCRIPTOR.fields_by_name and attributes.HasField(name)
    ]


def _is_encoded(failure: Failure) -> bool:
    return failure.HasField("encoded_attributes") or (failure.HasField("cause") and _is_encoded(failure.cause))


async def _reveal(failure: Failure, converter: DataConverter) -> None:
    """Put the message and the stack trace where they are in clear; what cannot be read stays a placeholder."""
    if failure.HasField("encoded_attributes"):
        [said] = await converter.decode([failure.encoded_attributes])
        if isinstance(said, dict):
            failure.message = str(said.get("message", failure.message))
            failure.stack_trace = str(said.get("stack_trace", failure.stack_trace))
    if failure.HasField("cause"):
        await _reveal(failure.cause, converter)
