"""The protocol's own activity: what a pipeline puts on record beside the answers of its receivers."""

from temporalio import activity

from baton.handoff.activity_receive import run_of_activity
from baton.ledger.records import RECORD, AuditEntry, RecordedEvent
from baton.pipelines.activity_context import current_parts


@activity.defn(name=RECORD)
async def record(event: RecordedEvent) -> str:
    """Write what happened to a handoff to the ledger; return the head of the task's chain, or "" without a ledger."""
    gate = current_parts().gate
    return "" if gate is None else await gate.record(entry_of(event, run_of_activity()))


def entry_of(event: RecordedEvent, run_id: str | None) -> AuditEntry:
    """Return the audit entry of an event."""
    return AuditEntry(
        kind=event.kind.value,
        task_id=event.task_id,
        event_id=event.event_id,
        status=event.status,
        timestamp=event.at,
        from_agent=event.sender,
        to_agent=event.agent,
        reason=event.reason,
        details=event.details,
        actor=event.actor,
        run_id=run_id,
        message={**event.message},
        cost=event.cost,
    )
