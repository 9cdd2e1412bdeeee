"""What stages say while they work: from heartbeats while they do, from their answers afterwards.

A follower has heard up to a place in the stream of each activity. A heartbeat has the newest part of a stream and an
answer has all of it, so the pieces after that place are the same wherever they are read, and none is told twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import DataConverter

from baton.core.messages import StageInput, StageReturn
from baton.core.streaming import Streamed, parts_of
from baton.runs.client_events import time_of
from baton.runs.client_executions import describe

Heard = Mapping[str, tuple[int, int]]
"""By activity, which of its runs was heard last, and up to which place."""


@dataclass(frozen=True)
class StepStream:
    """The stream of one activity.

    Attributes:
        activity: The activity's id.
        seq: The step.
        stage: The stage.
        event: The event that tells its end; None while it is open.
        at: When it was scheduled, told more, or ended.
        said: What was said, as far as it is known.
    """

    activity: str
    seq: int
    stage: str
    event: int | None
    at: datetime
    said: Streamed | None = None


def streams_of(
    events: Sequence[HistoryEvent], given: Mapping[int, StageInput], returned: Mapping[int, StageReturn]
) -> list[StepStream]:
    """Return the streams that a history tells of, in the order in which their activities were scheduled.

    Args:
        events: The history.
        given: What stages were sent, by the event that schedules them.
        returned: What they returned, by the event that tells it.
    """
    streams: dict[int, StepStream] = {}
    attempts: dict[int, int] = {}
    for event in events:
        attributes = getattr(event, event.WhichOneof("attributes") or "", None)
        scheduled: int = getattr(attributes, "scheduled_event_id", 0)
        if (sent := given.get(event.event_id)) is not None and sent.stream:
            id = event.activity_task_scheduled_event_attributes.activity_id
            streams[event.event_id] = StepStream(id, sent.seq, sent.stage, None, time_of(event))
        elif scheduled not in streams:
            continue
        elif event.HasField("activity_task_started_event_attributes"):
            attempts[scheduled] = event.activity_task_started_event_attributes.attempt
        elif not event.HasField("activity_task_cancel_requested_event_attributes"):
            one, answer = streams[scheduled], returned.get(event.event_id)
            said = None if answer is None else Streamed(attempts.get(scheduled, 1), parts_of(answer.streamed))
            streams[scheduled] = StepStream(one.activity, one.seq, one.stage, event.event_id, time_of(event), said)
    return [*streams.values()]


async def live(client: Client, workflow_id: str, run_id: str, streams: Sequence[StepStream]) -> list[StepStream]:
    """Return what the open ones of some streams have said by now."""
    wanted = {one.activity: one for one in streams if one.event is None}
    found = []
    for pending in (await describe(client, workflow_id, run_id)).details.pending_activities:
        one = wanted.get(pending.activity_id)
        if one is not None and (said := await _said(pending.heartbeat_details.payloads, client.data_converter)):
            at = pending.last_heartbeat_time.ToDatetime(one.at.tzinfo)
            found.append(StepStream(one.activity, one.seq, one.stage, None, at, said))
    return found


async def _said(payloads: Sequence[object], converter: DataConverter) -> Streamed | None:
    """Return the stream in the details of a heartbeat, if it has one."""
    details = await converter.decode(payloads) if payloads else []  # type: ignore[arg-type]
    return next((said for one in details if (said := Streamed.of_json(one))), None)


def unheard(stream: StepStream, heard: Heard) -> Iterator[tuple[bool, str, str, str, tuple[int, int]]]:
    """Yield what is new in a stream.

    Yields:
        Whether it begins again, what kind of part it is, its text, its tool, and up to where it was heard with it.
    """
    if stream.said is None:
        return
    attempt, place = heard.get(stream.activity, (0, 0))
    if stream.said.attempt < attempt:  # the heartbeat of a run before the one that was heard
        return
    again = stream.said.attempt > attempt
    for part, end in stream.said.after(0 if again else place):
        yield again and place > 0, part.kind.value, part.text, part.tool, (stream.said.attempt, end)
        again = False
