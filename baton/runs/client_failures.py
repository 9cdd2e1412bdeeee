"""Failures of a history as people read them: where they were encrypted, the history itself has a placeholder only."""

from collections.abc import Iterable
from typing import Any

from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DataConverter

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
    """Return what an event says of failures."""
    kind = event.WhichOneof("attributes")
    attributes: Any = getattr(event, kind) if kind else None
    return [
        getattr(attributes, name)
        for name in _MEMBERS
        if attributes is not None and name in attributes.DESCRIPTOR.fields_by_name and attributes.HasField(name)
    ]


def _is_encoded(failure: Failure) -> bool:
    """Return whether a failure, or one of its causes, is encoded."""
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
