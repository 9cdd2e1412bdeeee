"""Which handoffs of a run wait for a person, told by their deadlines: timers named after them that still run."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from temporalio.api.history.v1 import HistoryEvent

from baton.client.events import time_of

_DEADLINE = re.compile(r"step ([1-9]\d*): deadline of handoff (.+)")


@dataclass(frozen=True)
class HandoffDeadline:
    """A handoff that waits for a person.

    Attributes:
        seq: The number of the step that it was to begin.
        handoff_id: Its id.
        since: Since when it waits.
        until: The deadline, after which its step fails.
    """

    seq: int
    handoff_id: str
    since: datetime
    until: datetime

    def to_json_object(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "seq": self.seq,
            "handoff_id": self.handoff_id,
            "since": self.since.isoformat(),
            "until": self.until.isoformat(),
        }


def pending_handoffs(events: Iterable[HistoryEvent], texts: Mapping[int, bytes]) -> list[HandoffDeadline]:
    """Return the handoffs that wait for a person after these events, the oldest first.

    Args:
        events: All events of a run so far, in order.
        texts: The decoded payload of each event, by its id; of a timer, its name.
    """
    found: dict[int, HandoffDeadline] = {}
    for event in events:
        attributes: Any = getattr(event, event.WhichOneof("attributes") or "", None)
        match event.WhichOneof("attributes"):
            case "timer_started_event_attributes":
                name = texts.get(event.event_id, b"").decode("utf-8", "replace").strip('"')
                if named := _DEADLINE.fullmatch(name):
                    since = time_of(event)
                    until = since + attributes.start_to_fire_timeout.ToTimedelta()
                    found[event.event_id] = HandoffDeadline(int(named[1]), named[2], since, until)
            case "timer_canceled_event_attributes" | "timer_fired_event_attributes":
                found.pop(attributes.started_event_id, None)
    return list(found.values())
