"""What is put on record, made of what happened: a receiver's answer, the end of a task, an erasure.

A rejected message may be anything at all, and must be on record all the same. So nothing here trusts it: a
member that is missing or of a wrong type is left out of the header, and stands in the message as it came.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from baton.core.history import Spend
from baton.core.verdict import HandoffStatus
from baton.ledger.records import AuditCost, AuditEntry, Kind
from baton.wire.canonical import digest
from baton.wire.money import micro_usd

LONGEST_NAME = 255
_LONGEST_WORKFLOW_ID = 200  # Temporal takes 1,000 characters, the ledger 255 with the run behind it
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
AGAIN = "#"
"""Behind an event's id: something else of an event that is on record already, with the beginning of its digest."""
LONGEST_DETAILS = 16_000


def handoff_entry(
    message: dict[str, Any],
    *,
    task_id: str,
    status: HandoffStatus,
    timestamp: datetime,
    kind: str = Kind.HANDOFF,
    attempt: int = 1,
    reason: str | None = None,
    details: str | None = None,
    actor: str | None = None,
    run_id: str | None = None,
) -> AuditEntry:
    """Return the entry of a receiver's answer to a handoff (EAAPL-MAG006 §6.2, §7.2)."""
    return AuditEntry(
        kind=kind,
        task_id=task_id,
        event_id=usable_name(message.get("handoffId")) or digest(message),
        attempt=attempt,
        status=status,
        timestamp=timestamp,
        from_agent=usable_name(_inner(message, "fromAgent", "agentId")),
        to_agent=usable_name(_inner(message, "toAgent", "agentType")),
        reason=reason,
        details=details if details is None else details[:LONGEST_DETAILS],
        actor=actor,
        run_id=run_id,
        cost=cost_of(message),
        message=message,
    )


def erasure_entry(
    erasure_id: str,
    *,
    task_id: str,
    subject: str,
    removed: Mapping[str, int],
    timestamp: datetime,
    actor: str | None = None,
) -> AuditEntry:
    """Return the entry, in one task's chain, of the erasure of a data subject (§12.3)."""
    return AuditEntry(
        kind=Kind.ERASURE,
        task_id=task_id,
        event_id=erasure_id,
        status="ERASED",
        timestamp=timestamp,
        actor=actor,
        message={"removed": dict(removed), "subject": subject},
    )


def cost_of(message: Mapping[str, Any]) -> AuditCost | None:
    """Return what `costTracking` of a handoff message says, or None if it says nothing that can be read."""
    try:
        tracking = message["costTracking"]
        tokens = tracking["tokenSpent"]
        return AuditCost(
            spent_micro_usd=_micro(tracking["costSpentSoFarUSD"]),
            remaining_micro_usd=_micro(tracking["costBudgetRemainingUSD"]),
            prompt_tokens=tokens["prompt"],
            completion_tokens=tokens["completion"],
        )
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None


def cost_after(message: Mapping[str, Any], spend: Spend) -> AuditCost | None:
    """Return the figures of a handoff after its receiver's own cost, or None if it says none that can be read."""
    cost = cost_of(message)
    return None if cost is None else cost_with(cost, spend)


def cost_with(cost: AuditCost, spend: Spend) -> AuditCost:
    """Return the figures of a task after somebody's own cost."""
    left = cost.remaining_micro_usd
    return cost.model_copy(
        update={
            "spent_micro_usd": cost.spent_micro_usd + spend.micro_usd,
            "remaining_micro_usd": None if left is None else left - spend.micro_usd,
            "own_micro_usd": spend.micro_usd,
            "own_prompt_tokens": spend.prompt_tokens,
            "own_completion_tokens": spend.completion_tokens,
            "prompt_tokens": cost.prompt_tokens + spend.prompt_tokens,
            "completion_tokens": cost.completion_tokens + spend.completion_tokens,
        }
    )


def _micro(amount: Any) -> int:
    if isinstance(amount, bool) or not isinstance(amount, int | float | Decimal):
        raise TypeError("an amount of money is a number")
    return micro_usd(Decimal(repr(amount)) if isinstance(amount, float) else Decimal(amount))


def _inner(message: Mapping[str, Any], outer: str, member: str) -> Any:
    holder = message.get(outer)
    return holder.get(member) if isinstance(holder, dict) else None


def run_name(workflow_id: str, run_id: str | None = None) -> str:
    """Return the name under which a header tells a workflow, and its run: who starts one may choose any id."""
    shown = _CONTROL.sub("\ufffd", workflow_id[:_LONGEST_WORKFLOW_ID])
    return shown if run_id is None else f"{shown}/{run_id}"


def usable_name(value: Any) -> str | None:
    """Return a value that can stand in a header as a name, or None: the sender may have put anything there."""
    usable = isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable()
    return value if usable else None
