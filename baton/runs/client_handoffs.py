"""Reads a run's handoffs from its event history, with no worker: the messages, and those that wait for a person."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client

from baton.runs.client_events import DecodedEvent, decode
from baton.runs.client_executions import history
from baton.runs.client_reader import RunReader
from baton.runs.client_record import RunRecord
from baton.safety.scan import resolve_path
from baton.wire.json_values import JsonFields

_ENVELOPE = frozenset(
    {"schemaVersion", "handoffId", "taskId", "fromAgent", "toAgent", "timestamp", "traceparent", "parentHandoffId"}
    | {"signature", "keyId", "audience", "expiresAt", "trail", "step", "personalDataPayload"}
)

Message = dict[str, Any]


@dataclass
class RunHandoffs(JsonFields):
    """The handoffs in a run's history.

    Attributes:
        run: The run.
        messages: The last message of each handoff, by the handoff's id. Seals are not verified: reading a history
            means trusting its server. Light stages leave no messages.
    """

    run: RunRecord
    messages: dict[str, Message] = field(default_factory=dict)


async def read_handoffs(client: Client, workflow_id: str, run_id: str | None = None) -> RunHandoffs:
    """Return the handoffs of a run, read from its event history alone."""
    run_id, events = await history(client, workflow_id, run_id)
    decoded = await decode(events, client.data_converter)
    reader = RunReader(workflow_id, run_id)
    reader.feed(decoded)
    run = reader.record
    return RunHandoffs(run, {handoff_id: message for handoff_id, message, _ in _sent(decoded)})


async def read_handoff_bytes(client: Client, workflow_id: str, run_id: str | None = None) -> dict[str, bytes]:
    """Return the last message of each handoff of a run, by the handoff's id, byte for byte as its seal covers it."""
    _, events = await history(client, workflow_id, run_id)
    return {handoff_id: raw for handoff_id, _, raw in _sent(await decode(events, client.data_converter))}


def _sent(decoded: Iterable[DecodedEvent]) -> Iterator[tuple[str, Message, bytes]]:
    """Yield the id, the message and the bytes of each handoff that was sent, in order."""
    for item in decoded:
        if item.event.WhichOneof("attributes") in _SENDING and (message := _parse_message(item.text)) is not None:
            yield str(message["handoffId"]), message, item.text or b""


def without_envelope(message: Mapping[str, Any]) -> Message:
    """Return a message without its envelope and without empty members.

    Args:
        message: The message, as JSON.
    """
    return {name: value for name, value in message.items() if name not in _ENVELOPE and value not in ("", [], {}, None)}


def text_at(message: Mapping[str, Any], pointer: str) -> str | None:
    """Return the text that a finding points at, or None if there is none."""
    match = resolve_path(message, pointer)
    if match is None:
        return None
    keys, value = match
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"{keys[-1]}: {text}" if keys and pointer.endswith("}") else text


_SENDING = (
    "activity_task_scheduled_event_attributes",
    "signal_external_workflow_execution_initiated_event_attributes",
)


def _parse_message(text: bytes | None) -> Message | None:
    try:
        message = json.loads(text or b"null")
    except ValueError:
        return None
    is_handoff = isinstance(message, dict) and {"handoffId", "fromAgent", "toAgent"} <= message.keys()
    is_whole = is_handoff and isinstance(message["fromAgent"], dict) and isinstance(message["toAgent"], dict)
    return message if is_whole else None
