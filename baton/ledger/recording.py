"""What a pipeline itself puts on record, beside the answers of receivers: roll-backs, decisions, paid summaries."""

from enum import StrEnum

from pydantic import Field, JsonValue

from baton.ledger.records import AuditCost
from baton.wire.records import CompactRecord, Timestamp

RECORD = "baton.record"
"""The activity that writes a `RecordedEvent` to the ledger."""


class EventKind(StrEnum):
    """What happened; the kind of the audit record."""

    ROLLBACK = "rollback"
    DECISION = "decision"
    COMPLETION = "completion"
    SUMMARY = "summary"


class RecordedEvent(CompactRecord):
    """Something that happened to a handoff or a task, for the ledger.

    Attributes:
        kind: What happened.
        task_id: The task whose chain it goes into.
        event_id: Names it; the same event is on record once.
        status: How things stand now, for example `"PENDING_HANDOFF"`.
        reason: The code of a verdict, if one was the cause.
        details: A sentence.
        actor: The person who decided, if one did.
        agent: The agent it is about.
        sender: Of a summary: the agent whose conversation it is of.
        at: When (workflow time).
        message: Anything further, as JSON.
        cost: Of a receiver that failed, or was lost: what it had spent, as far as it told. Of a summary: the figures
            before it; its writer adds its bill.
    """

    kind: EventKind = Field(strict=False)
    task_id: str
    event_id: str
    status: str
    reason: str | None = None
    details: str | None = None
    actor: str | None = None
    agent: str | None = None
    sender: str | None = None
    at: Timestamp
    message: dict[str, JsonValue] = Field(default_factory=dict)
    cost: AuditCost | None = None
