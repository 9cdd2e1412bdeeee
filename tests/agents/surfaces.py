"""The events of a history as texts that can be searched for a marker."""

from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.converter import PayloadCodec

from tests.support.surfaces import payloads

Surfaces = dict[str, str]
"""The texts by the places where they are."""


async def in_history(client: Client, handle: WorkflowHandle[Any, Any]) -> Surfaces:
    """Return the texts of each event of a run's history, decoded, by number, kind and activity.

    A history as JSON would not do: its payloads are in base64, and compressed.
    """
    codec = client.data_converter.payload_codec
    names: dict[int, str] = {}
    surfaces: Surfaces = {}
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            names[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
        scheduled = event.activity_task_completed_event_attributes.scheduled_event_id
        kind = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")
        place = f"history {event.event_id} {kind} {names.get(scheduled or event.event_id, '')}".rstrip()
        texts = [await _text(payload, codec) for payload in payloads(event)]
        surfaces[place] = "\n".join([str(event), *texts])
    return surfaces


def with_marker(surfaces: Surfaces, marker: str) -> list[str]:
    return [place for place, text in surfaces.items() if marker in text]


async def _text(payload: Payload, codec: PayloadCodec | None) -> str:
    decoded = await codec.decode([payload]) if codec else [payload]
    return "\n".join(part.data.decode("utf-8", "replace") for part in decoded)
