"""The handoffs of a run as its event history tells them: the messages, and which of them wait for a person.

Needs no worker. What waits is known by its deadline (`baton.runs.client_events`), and why it waits by what its receiver
answered; so of a handoff that was never sent the history knows only when.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from baton.core.messages import StageReturn
from baton.core.verdict import MAX_ATTEMPTS, Code, Disposition, Verdict, disposition_of
from baton.handoff.pending import PendingHandoff
from baton.runs.client_events import (
    HandoffDeadline,
    decoded,
    innermost,
    is_refusal,
    parsed,
)
from baton.runs.client_executions import history
from baton.runs.client_reader import rebuild
from baton.runs.client_record import RunRecord
from baton.safety.scan import found_at

UNTOLD = "the history alone does not tell why; a worker does"
"""The details of a handoff that was never sent, or not as an activity."""
UNKNOWN = "?"
"""An agent that the history does not name."""

_ENVELOPE = frozenset(
    {"schemaVersion", "handoffId", "taskId", "fromAgent", "toAgent", "timestamp", "traceparent", "parentHandoffId"}
    | {"signature", "keyId", "audience", "expiresAt", "trail", "step", "personalDataPayload"}
)

Message = dict[str, Any]


@dataclass
class RunHandoffs:
    """What a history tells of handoffs.

    Attributes:
        run: The run.
        waiting: The handoffs that wait for a person, the oldest first.
        messages: The message of each handoff as it was sent last, by the handoff's id. Its seal is not verified:
            who reads a history trusts the server it came from. Light stages leave none.
    """

    run: RunRecord
    waiting: list[PendingHandoff] = field(default_factory=list)
    messages: dict[str, Message] = field(default_factory=dict)


async def read_handoffs(client: Client, workflow_id: str, run_id: str | None = None) -> RunHandoffs:
    """Return the handoffs of a run, read from its event history alone."""
    run_id, events = await history(client, workflow_id, run_id)
    run = await rebuild(workflow_id, run_id, events, client.data_converter)
    texts = await decoded(events, client.data_converter)
    read = _Read(texts, await _signalled(events, client.data_converter))
    for event in events:
        read.take(event)
    return RunHandoffs(run, [read.pending(one) for one in run.pending_handoffs], read.messages)


def without_envelope(message: Mapping[str, Any]) -> Message:
    """Return what a message says: its members without those about its way, and without empty ones.

    Args:
        message: The message, as JSON.
    """
    return {name: value for name, value in message.items() if name not in _ENVELOPE and value not in ("", [], {}, None)}


def text_at(message: Mapping[str, Any], pointer: str) -> str | None:
    """Return the text that a finding is about, or None where it cannot be found."""
    found = found_at(message, pointer)
    if found is None:
        return None
    keys, value = found
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"{keys[-1]}: {text}" if keys and pointer.endswith("}") else text


class _Read:
    """Goes over the events once, in order."""

    def __init__(self, texts: dict[int, bytes], signalled: dict[int, Message]) -> None:
        self._texts = texts
        self._signalled = signalled
        self._sent: dict[int, str] = {}
        self._refused: dict[str, Verdict] = {}
        self.messages: dict[str, Message] = {}

    def take(self, event: HistoryEvent) -> None:
        """Take over what an event tells."""
        attributes: Any = getattr(event, event.WhichOneof("attributes") or "", None)
        text = self._texts.get(event.event_id)
        match event.WhichOneof("attributes"):
            case "activity_task_scheduled_event_attributes":
                self._send(event.event_id, _message(text))
            case "signal_external_workflow_execution_initiated_event_attributes":
                self._send(event.event_id, self._signalled.get(event.event_id))
            case "activity_task_failed_event_attributes" if is_refusal(event):
                self._answer(self._sent.get(attributes.scheduled_event_id), parsed(StageReturn, text))
            case "activity_task_failed_event_attributes" | "activity_task_timed_out_event_attributes":
                self._fail(self._sent.get(attributes.scheduled_event_id), innermost(attributes.failure) or "timed out")

    def _send(self, event_id: int, message: Message | None) -> None:
        if message is not None:
            handoff_id = str(message["handoffId"])
            self._sent[event_id] = handoff_id
            self.messages[handoff_id] = message

    def _answer(self, handoff_id: str | None, returned: StageReturn | None) -> None:
        if handoff_id is not None and returned is not None and returned.verdict is not None:
            self._refused[handoff_id] = returned.verdict

    def _fail(self, handoff_id: str | None, reason: str) -> None:
        if handoff_id is not None:
            self._refused[handoff_id] = Verdict(valid=False, details=reason)

    def pending(self, one: HandoffDeadline) -> PendingHandoff:
        """Return a handoff that waits, as far as it is known."""
        message = self.messages.get(one.handoff_id, {})
        verdict = self._refused.get(one.handoff_id)
        if verdict is None:  # it was never sent, for want of money for example: its timer has the code
            code = next((code for code in Code if one.why.endswith(code.value)), None)
            verdict = Verdict(valid=False, reason=code)
        return PendingHandoff(
            handoff_id=one.handoff_id,
            seq=one.seq,
            sender=message.get("fromAgent", {}).get("agentId", UNKNOWN),
            receiver=message.get("toAgent", {}).get("agentType", UNKNOWN),
            reason=verdict.reason,
            fate=Disposition.ESCALATE if verdict.reason is None else disposition_of(verdict.reason, MAX_ATTEMPTS),
            details=verdict.details or UNTOLD,
            findings=verdict.findings,
            attempts=_attempt(message),
            since=one.since,
            until=one.until,
        )


async def _signalled(events: Sequence[HistoryEvent], converter: DataConverter) -> dict[int, Message]:
    """Return the handoffs that were sent to other pipelines by signal, by event id."""
    found: dict[int, Message] = {}
    for event in events:
        if event.HasField("signal_external_workflow_execution_initiated_event_attributes"):
            payloads = event.signal_external_workflow_execution_initiated_event_attributes.input.payloads
            values = await converter.decode(list(payloads[:1]), [RawValue]) if payloads else []
            message = _message(values[0].payload.data) if values else None
            if message is not None:
                found[event.event_id] = message
    return found


def _attempt(message: Message) -> int:
    """Return how often a message was sent, as it says itself; what a pipeline did not send says nothing."""
    step = message.get("step")
    attempt = step.get("attempt") if isinstance(step, dict) else None
    return attempt if isinstance(attempt, int) and attempt > 0 else 1


def _message(text: bytes | None) -> Message | None:
    """Return the handoff in a payload, or None where it holds something else."""
    try:
        message = json.loads(text or b"null")
    except ValueError:
        return None
    is_handoff = isinstance(message, dict) and {"handoffId", "fromAgent", "toAgent"} <= message.keys()
    whole = is_handoff and isinstance(message["fromAgent"], dict) and isinstance(message["toAgent"], dict)
    return message if whole else None
