"""The session that a pipeline's contracts are compiled from: events that may still cross, and counts of the others.

What a compilation leaves out for good is counted from then on and not looked at again, so a contract costs the same
however long its run is.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pydantic import Field, JsonValue, ValidationError, field_validator

from baton.contract.compiler import Compiled, rank_fact
from baton.contract.draft import BUDGET, EXPLICIT, FAILED, STALE, TYPE, UNSUPPORTED, Disposition, make_label
from baton.contract.prohibitions import MAX_PROHIBITIONS, find_prohibitions
from baton.contract.records import ContractError, EventType, SessionEvent
from baton.wire.json_values import sha256
from baton.wire.records import MAX_NAME_LENGTH, CompactRecord, Count
from baton.wire.text import describe_faults

MAX_OPEN_EVENTS = 500
"""The most events that stay open; beyond it, events that were left out are so for good, the oldest first."""

_ID_PREFIX = "imported."  # no stage gives its own events such an id
_FINAL = frozenset({EXPLICIT, TYPE, FAILED, STALE, UNSUPPORTED})  # with time, nothing of these crosses again


def imported_events(events: Iterable[Mapping[str, Any]]) -> list[SessionEvent]:
    """Return the events that a run starts from, all of them marked as imported, whatever they say of themselves.

    Their ids get a prefix, and of their prohibitions those stay that a user's message has.

    Raises:
        ContractError: One is malformed, or two have the same id.
    """
    found: dict[str, SessionEvent] = {}
    for place, members in enumerate(events, 1):
        try:
            event = SessionEvent.from_json_object(members)
        except ValidationError as error:
            raise ContractError(
                f"the run cannot start from its session: event {place}: {describe_faults(error)}; "
                "`baton import` writes one"
            ) from None
        id = _imported_id(event.id)
        if id in found:
            raise ContractError(f"the run cannot start from its session: two events have the id {event.id!r}")
        changes: dict[str, Any] = {
            "id": id,
            "call_id": event.call_id and _imported_id(event.call_id),
            "rests_on": event.rests_on and [*map(_imported_id, event.rests_on)],
            "imported": True,
            "prohibitions": _own_prohibitions(event) or None,
            "whole": None,  # an artifact or a handoff that it names is not its own
            "handoff_id": None,
        }
        found[id] = event.model_copy(update=changes)
    return [*found.values()]


def _imported_id(id: str) -> str:
    """Return an id of the session as one that no event of the run has; of a long one its beginning and a digest."""
    digest = sha256(id.encode()).hex()[:32]
    whole = _ID_PREFIX + id
    return whole if len(whole) <= MAX_NAME_LENGTH else f"{whole[: MAX_NAME_LENGTH - 33]}.{digest}"


def _own_prohibitions(event: SessionEvent) -> list[str]:
    """Return an event's prohibitions that its content has; one of the part that was cut off must forbid something."""
    if event.type is not EventType.USER_MESSAGE or not event.prohibitions:
        return []
    said = find_prohibitions(event.content)
    is_cut = event.ref is not None
    own = (text for text in event.prohibitions if text in said or (is_cut and find_prohibitions(text) == [text]))
    return [*dict.fromkeys(own)][:MAX_PROHIBITIONS]


class SessionState(CompactRecord):
    """The session, for the run that continues this one: open events, and labels by whether a message has named them."""

    events: list[dict[str, JsonValue]] = Field(default_factory=list)
    settled: dict[str, Count] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    unsent: dict[str, str] = Field(default_factory=dict)
    read: Count = 0

    @field_validator("events")
    @classmethod
    def _check_events(cls, events: list[dict[str, JsonValue]]) -> list[dict[str, JsonValue]]:
        for event in events:
            SessionEvent.from_json_object(event)
        return events


class Session:
    """The session of a pipeline: open events in order, and how many events are settled by label."""

    def __init__(self, state: SessionState | None = None, imported: Iterable[SessionEvent] = ()) -> None:
        state = state or SessionState()
        self.events = [*imported, *map(SessionEvent.from_json_object, state.events)]
        self.settled = dict(state.settled)
        self.read = state.read
        self._labels = dict(state.labels)
        self._unsent = dict(state.unsent)

    def state(self) -> SessionState:
        """Return the session for the next run."""
        return SessionState(
            events=[event.to_json_object() for event in self.events],
            settled=self.settled,
            labels=self._labels,
            unsent=self._unsent,
            read=self.read,
        )

    def settle(self, compiled: Compiled, now: datetime) -> None:
        """Note the labels of a compilation, and settle the events that no later one lets cross."""
        events = {event.id: event for event in self.events}
        dispositions = {entry.event_id: entry for entry in compiled.report.dispositions}
        labels = {id: entry.label for id, entry in dispositions.items() if entry.label is not None}
        self._unsent |= {id: label for id, label in labels.items() if self._labels.get(id) != label}
        self._labels |= labels
        leaving = {id for id, label in labels.items() if _is_final(events[id], label, now)}
        if (excess := len(events) - len(leaving) - MAX_OPEN_EVENTS) > 0:
            least_first = sorted(compiled.contract.facts, key=rank_fact, reverse=True)
            order = [*(id for id in labels if id not in leaving), *(fact.event_id for fact in least_first)]
            order.sort(key={rule.event_id for rule in compiled.contract.constraints or ()}.__contains__)  # these last
            leaving |= {*order[:excess]}
        for id in leaving:
            if id not in labels:  # a fact that crossed for the last time
                labels[id] = self._unsent[id] = make_label(BUDGET, events[id].tool_name or "", events[id].type)
        for label in (labels[id] for id in dispositions if id in leaving):
            self.settled[label] = self.settled.get(label, 0) + 1
        leaving |= _calls_of(leaving, dispositions.values())
        self.events = [event for event in self.events if event.id not in leaving]
        for id in leaving:
            self._labels.pop(id, None)

    def left_out(self, *, persisted: bool) -> dict[str, str]:
        """Return the labels that no message has named; those of a message that is not kept are named again."""
        unsent = self._unsent
        if persisted:
            self._unsent = {}
        return unsent


def _is_final(event: SessionEvent, label: str, now: datetime) -> bool:
    """Return whether an event never crosses again; a call waits for its result, an event of the future for its time."""
    is_due = event.at is None or event.at <= now
    return label.partition(":")[0] in _FINAL and event.type is not EventType.TOOL_CALL and is_due


def _calls_of(results: set[str], dispositions: Iterable[Disposition]) -> set[str]:
    """Return the calls that these results consumed; they leave together, so that the others still match."""
    return {entry.event_id for entry in dispositions if entry.consumed_by in results}
