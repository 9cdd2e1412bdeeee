"""What a pipeline itself puts on record, by an activity of its worker (`baton.ledger.recording`)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import RetryPolicy

from baton.core.verdict import Code
from baton.handoff.pending import HandoffDecision, PendingHandoff
from baton.handoff.workflow_inbox import Inbox
from baton.ledger.recording import RECORD, EventKind, RecordedEvent
from baton.ledger.records import AuditCost

Tell = Callable[[EventKind, str, str, HandoffDecision | None], Awaitable[None]]

_LONGEST_DETAILS = 1_000
_LONGEST_SUMMARY = 200


async def put_on_record(  # noqa: PLR0913 - all of them are members of one event
    kind: EventKind,
    status: str,
    details: str,
    decision: HandoffDecision | None = None,
    *,
    task_id: str,
    event_id: str,
    agent: str,
    seq: int,
    reason: Code | None = None,
    cost: AuditCost | None = None,
    actor: str | None = None,
    message: Mapping[str, JsonValue] | None = None,
) -> bool:
    """Write an event of this moment to the ledger, retried until it is there; return False if the worker keeps none."""
    event = RecordedEvent(
        kind=kind,
        task_id=task_id,
        event_id=event_id,
        status=status.upper(),
        reason=None if reason is None else reason.value,
        details=details[:_LONGEST_DETAILS],
        actor=decision.who if decision else actor,
        agent=agent,
        at=workflow.now(),
        message=decision.content if decision else {**(message or {})},
        cost=cost,
    )
    head: str = await workflow.execute_activity(
        RECORD,
        event,
        result_type=str,
        start_to_close_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
        summary=f"step {seq}: {event.kind.value} on record"[:_LONGEST_SUMMARY],
    )
    return bool(head)


async def decided_on_record(inbox: Inbox, pending: PendingHandoff, within: timedelta, tell: Tell) -> HandoffDecision:
    """Wait for a person's decision about a handoff; that it waited, and who decided what and why, is on record."""
    record = asyncio.ensure_future(tell(EventKind.ROLLBACK, pending.fate.value, pending.details, None))
    try:
        decision = await inbox.wait(pending, within)
        await record
        await tell(EventKind.DECISION, decision.action.value, decision.why, decision)
    finally:
        record.cancel()
    return decision
