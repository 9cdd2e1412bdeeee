"""What becomes of a contract that has expired when its receiver looks: it is compiled anew, never executed (C-36)."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from baton.contract.records import DEFAULT_EXPIRY_MINUTES
from baton.core.verdict import Code, Finding, Verdict

EXPIRED_AT = "/step/contract/createdAt"
"""Where the finding of an expired contract points; by it the sender knows that compiling anew is all it takes."""


def expiry_findings(contract: Mapping[str, Any] | None, now: datetime) -> list[Finding]:
    """Return a finding if a contract has expired.

    Args:
        contract: The contract as JSON, or None.
        now: The receiver's time.

    Example:
        >>> contract = {"createdAt": "2026-06-27T09:25:00Z", "expiresAfterMinutes": 30}
        >>> expiry_findings(contract, datetime(2026, 6, 27, 9, 55, tzinfo=UTC))
        []
        >>> expiry_findings(contract, datetime(2026, 6, 27, 9, 56, tzinfo=UTC))[0].text
        'the contract expired at 2026-06-27T09:55:00+00:00; compile it anew'
    """
    if not contract:
        return []
    try:
        minutes = int(contract.get("expiresAfterMinutes", DEFAULT_EXPIRY_MINUTES))
        created = datetime.fromisoformat(str(contract["createdAt"]))
        until = created.replace(tzinfo=created.tzinfo or UTC) + timedelta(minutes=minutes)
    except (KeyError, ValueError, OverflowError):
        text = "the contract does not say when it expires, so it counts as expired; compile it anew"
        return [Finding(code=Code.INCOMPLETE_CONTEXT, text=text, at=EXPIRED_AT)]
    if now <= until:
        return []
    text = f"the contract expired at {until.isoformat()}; compile it anew"
    return [Finding(code=Code.INCOMPLETE_CONTEXT, text=text, at=EXPIRED_AT)]


def is_expired_contract(verdict: Verdict) -> bool:
    """Return whether a handoff was not accepted for its expired contract, and for nothing else.

    Example:
        >>> finding = Finding(code=Code.INCOMPLETE_CONTEXT, text="the contract expired", at=EXPIRED_AT)
        >>> is_expired_contract(Verdict(valid=False, reason=Code.INCOMPLETE_CONTEXT, findings=[finding]))
        True
    """
    return bool(verdict.findings) and all(finding.at == EXPIRED_AT for finding in verdict.findings)
