"""The timers of a run that still run, and what their names tell: which handoffs wait for a person, and until when."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from temporalio.api.history.v1 import HistoryEvent

from baton.runs.client_events import is_compression, step_of_summary, time_of

APPROVAL_TIMER = re.compile(r"step (\d+): deadline of approval (.*)", re.DOTALL)
"""The name of the timer that ends an approval: its step, and its title."""
SLEEP_TIMER = re.compile(r"step (\d+): sleeps: (.*)", re.DOTALL)
"""The name of the timer of a sleep: its step, and the step's name."""
_HANDOFF_TIMER = re.compile(r"step ([1-9]\d*): deadline of handoff ([^:]+)(?:: (.+))?")


@dataclass(frozen=True)
class Timer:
    """A timer that runs.

    Attributes:
        name: What it is for, as the pipeline says; empty if it does not.
        since: When it was started.
        until: When it fires.
    """

    name: str
    since: datetime
    until: datetime

    @property
    def is_of_a_step(self) -> bool:
        """Whether an approval, a sleep, or the wait for a person ends with it; each is shown as such."""
        return any(kind.fullmatch(self.name) for kind in (APPROVAL_TIMER, SLEEP_TIMER, _HANDOFF_TIMER))


@dataclass(frozen=True)
class HandoffDeadline:
    """A handoff that waits for a person.

    Attributes:
        seq: The number of the step that it was to begin.
        handoff_id: Its id.
        since: Since when it waits.
        until: The deadline, after which its step fails.
        why: What became of it and the code, as `PendingHandoff.why` says it.
    """

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
