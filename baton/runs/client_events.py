"""What single events of a history hold: their payloads as records, their times, their reasons."""

import json
import re
from collections.abc import Iterator, Sequence
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
from baton.errors import HistoryError
from baton.wire.names import HANDOFF_REFUSED, MEMO_FIELDS, MEMO_OUTCOME, MEMO_UNDONE, RESOLVE_HANDOFF, ROLLED_BACK
from baton.wire.records import Record

CHILD_ID = re.compile(r".*\.([^.]*)\.step(\d+)\.[0-9a-f]{8}")
"""The workflow id of a child, with the name and the number of its step."""
_STEP = re.compile(r'"step (\d+): ')

RecordT = TypeVar("RecordT", bound=Record)


@dataclass(frozen=True)
class Pausing:
    """Somebody paused or unpaused a run.

    Attributes:
        paused: Whether it stood still from then on.
        at: When.
        by: Who did it, as the server was told.
        why: The reason, as far as one was given.
    """

    paused: bool
    at: datetime
    by: str
    why: str


def pausings(events: Sequence[HistoryEvent]) -> Iterator[Pausing]:
    """Yield who paused and who unpaused a run, in order."""
    for event in events:
        if event.HasField("workflow_execution_paused_event_attributes"):
            paused = event.workflow_execution_paused_event_attributes
            yield Pausing(True, time_of(event), paused.identity, paused.reason)
        elif event.HasField("workflow_execution_unpaused_event_attributes"):
            unpaused = event.workflow_execution_unpaused_event_attributes
            yield Pausing(False, time_of(event), unpaused.identity, unpaused.reason)


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
        return StageInput.of_handoff(json.loads(text))
    except (ValueError, KeyError, TypeError):
        return None


def is_compression(event: HistoryEvent) -> bool:
    """Return whether an event schedules an activity that compresses a conversation."""
    return event.activity_task_scheduled_event_attributes.activity_type.name == COMPRESS


def is_refusal(event: HistoryEvent) -> bool:
    """Return whether an event is the answer of a stage that did not accept its handoff."""
    return event.activity_task_failed_event_attributes.failure.application_failure_info.type == HANDOFF_REFUSED


def is_settlement(event: HistoryEvent) -> bool:
    """Return whether an event schedules the activity that reads what a roll-back left."""
    return event.activity_task_scheduled_event_attributes.activity_type.name == ROLLED_BACK


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
