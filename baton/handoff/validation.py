"""The receiver's validation of a handoff, the same for a stage, a pipeline and an outside agent.

The seal is verified before. Validation checks the schema; if it holds, also destination, completeness and budget, and
reports all findings at once. Safety is scanned even in a message that breaks the schema.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from baton.core.receivers import ReceiverRequirements, misdelivery
from baton.core.verdict import CLOCK, EXPIRES_AT, Code, Finding, Verdict
from baton.handoff.records import Handoff
from baton.wire.schemas import MISSING, find_at, parse_version, version_mismatch


def staleness_finding(
    handoff: Handoff, now: datetime, max_age: timedelta | None, tolerance: timedelta
) -> Finding | None:
    """Return the finding of a handoff that is too old, expired or from the future, or None."""
    sent_at, expires = handoff.timestamp, handoff.expires_at
    if expires is not None and now >= expires:
        return _stale(f"it expired at {expires.isoformat()}, {now - expires} ago", EXPIRES_AT)
    if sent_at - now > tolerance:
        return _stale(
            f"its timestamp {sent_at.isoformat()} is {sent_at - now} in the future, and clocks may differ by "
            f"{tolerance}; have a time service set both",
            rule=CLOCK,
        )
    if max_age is not None and now - sent_at > max_age:
        return _stale(
            f"it was written at {sent_at.isoformat()}, {now - sent_at} ago; the receiver's limit is {max_age}"
        )
    return None


def _stale(text: str, at: str = "/timestamp", rule: str = "") -> Finding:
    return Finding(code=Code.SIGNATURE_INVALID, text=text, at=at, rule=rule)


NO_WORK = "No completed subtasks in non-initial handoff"
NO_BUDGET = "No remaining budget"
"""The document's own words for two findings."""


Scan = Callable[[Any], Iterable[Finding]]
"""A safety scan of a whole message."""
Check = Callable[[Handoff], Iterable[Finding]]
"""A further check of a handoff, for example of its contract."""
SchemaCheck = Callable[[Any], list[Finding]]
"""A check against a schema, such as `baton.handoff.store_gate.handoff_gate()`."""


def check_handoff(
    message: Any,
    receiver: ReceiverRequirements,
    scan: Scan,
    *,
    check_schema: SchemaCheck,
    extra_checks: Iterable[Check] = (),
) -> tuple[Verdict, Handoff | None]:
    """Return a receiver's verdict on a message, with all findings, and the handoff, None if it breaks the schema."""
    findings = _version_findings(message, receiver) or check_schema(message)
    handoff = None if findings else Handoff.from_json_object(message)
    findings = [*findings, *scan(message)]
    if handoff is not None:
        findings += _routing_findings(handoff, receiver)
        findings += _completeness_findings(handoff, receiver)
        findings += _budget_findings(handoff)
        for check in extra_checks:
            findings += check(handoff)
    return Verdict.of(findings), handoff


def _budget_findings(handoff: Handoff) -> list[Finding]:
    """Return a finding if a handoff has no budget left."""
    if handoff.cost_tracking.remaining_micro_usd > 0:
        return []
    return [Finding(code=Code.BUDGET_EXHAUSTED, text=NO_BUDGET, at="/costTracking/costBudgetRemainingUSD")]


def _version_findings(message: Any, receiver: ReceiverRequirements) -> list[Finding]:
    """Return a finding if the receiver cannot read the version; the schema finds malformed ones."""
    version = message.get("schemaVersion") if isinstance(message, Mapping) else None
    try:
        reason = version_mismatch(version, receiver.schema_version) if isinstance(version, str) else None
    except ValueError:
        parse_version(receiver.schema_version)
        return []
    return [Finding(code=Code.SCHEMA_INVALID, text=reason, at="/schemaVersion")] if reason else []


def _routing_findings(handoff: Handoff, receiver: ReceiverRequirements) -> list[Finding]:
    target = handoff.to_agent
    reason = misdelivery(target.agent_type, target.agent_version, handoff.receiver_list or (), receiver)
    return [Finding(code=Code.ROUTING_ERROR, text=reason, at="/toAgent")] if reason else []


def _completeness_findings(handoff: Handoff, receiver: ReceiverRequirements) -> list[Finding]:
    findings = []
    if receiver.expects_work and not handoff.completed_subtasks and not handoff.begins_task:
        findings.append(Finding(code=Code.INCOMPLETE_CONTEXT, text=NO_WORK, at="/completedSubtasks"))
    for name, path in receiver.state_paths:
        value = find_at(handoff.current_state, path)
        if value in (MISSING, None, "", [], {}):  # not False or 0, which say something
            problem, remedy = ("lacks", "send") if value in (MISSING, None) else ("has an empty", "fill")
            text = f"currentState {problem} {name!r}, which {receiver.agent_type!r} requires; {remedy} it"
            findings.append(Finding(code=Code.INCOMPLETE_CONTEXT, text=text, at=f"/currentState{path}"))
    return findings
