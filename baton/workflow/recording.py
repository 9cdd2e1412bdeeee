"""What a pipeline itself puts on record, as a local activity of its worker (`baton.protocol.recording`)."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from baton.protocol.pending import HandoffDecision, PendingHandoff
from baton.protocol.recording import RECORD, EventKind, RecordedEvent
from baton.workflow.inbox import Inbox

ASKED_ON_RECORD = "that a person was asked about a handoff to another pipeline is on record"
"""Marks the runs of which that is so, in Temporal's way of changing workflow code (`workflow.patched`)."""
_LONGEST_DETAILS = 1_000
_LONGEST_SUMMARY = 200


async def put_on_record(event: RecordedEvent, seq: int) -> None:
    """Write an event to the ledger; tried until it is there.

    Args:
        event: What happened.
        seq: The number of the step in which it did.
    """
    await workflow.execute_local_activity(
        RECORD,
        event,
        result_type=str,
        start_to_close_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
        summary=f"step {seq}: {event.kind.value} on record"[:_LONGEST_SUMMARY],
    )


async def decided_on_record(
    inbox: Inbox, pending: PendingHandoff, within: timedelta, task_id: str, nth: int
) -> HandoffDecision:
    """Wait for a person's decision about a handoff; that it waited, and who decided what and why, is on record.

    Args:
        inbox: Where the person finds it.
        pending: The handoff.
        within: How long a decision may take.
        task_id: The task.
        nth: How often somebody was asked in this run, this time included.
    """

    async def tell(kind: EventKind, status: str, details: str, decision: HandoffDecision | None = None) -> None:
        event = RecordedEvent(
            kind=kind,
            task_id=task_id,
            event_id=f"{pending.handoff_id}.{nth}",
            status=status.upper(),
            details=details[:_LONGEST_DETAILS],
            actor=decision.who if decision else None,
            agent=pending.receiver,
            at=workflow.now(),
            message=decision.content if decision else {},
        )
        await put_on_record(event, pending.seq)

    record = asyncio.ensure_future(tell(EventKind.ROLLBACK, pending.fate.value, pending.details))
    try:
        decision = await inbox.wait(pending, within)
        await record
        await tell(EventKind.DECISION, decision.action.value, decision.why, decision)
    finally:
        record.cancel()
    return decision
