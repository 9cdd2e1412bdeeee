"""What a pipeline itself puts on record, by an activity of its worker (`baton.ledger.records`)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from baton.handoff.pending import HandoffDecision, PendingHandoff
from baton.handoff.workflow_inbox import Inbox
from baton.ledger.records import RECORD, Kind, RecordedEvent

Tell = Callable[[Kind, str, str, HandoffDecision | None], Awaitable[None]]

_LONGEST_DETAILS = 1_000
_LONGEST_SUMMARY = 200


async def put_on_record(event: RecordedEvent, seq: int, decision: HandoffDecision | None = None) -> bool:
    """Write an event to the ledger, with the person's decision if it is one; return False if the worker keeps none.

    It is retried until it is recorded.
    """
    said = {"status": event.status.upper(), "details": (event.details or "")[:_LONGEST_DETAILS]}
    decided = {"actor": decision.who, "message": decision.content} if decision else {}
    head: str = await workflow.execute_activity(
        RECORD,
        event.model_copy(update=said | decided),
        result_type=str,
        start_to_close_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
        summary=f"step {seq}: {event.kind.value} on record"[:_LONGEST_SUMMARY],
    )
    return bool(head)


async def decided_on_record(inbox: Inbox, pending: PendingHandoff, within: timedelta, tell: Tell) -> HandoffDecision:
    """Wait for a person's decision about a handoff; that it waited, and who decided what and why, is on record."""
    record = asyncio.ensure_future(tell(Kind.ROLLBACK, pending.fate.value, pending.details, None))
    try:
        decision = await inbox.wait(pending, within)
        await record
        await tell(Kind.DECISION, decision.action.value, decision.why, decision)
    finally:
        record.cancel()
    return decision
