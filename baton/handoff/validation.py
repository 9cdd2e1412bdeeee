"""The receiver's validation of a handoff, the same for a stage, a pipeline and an outside agent.

The seal is verified before anything in here sees the message. Then the schema; and once that holds, completeness,
destination, safety and budget, all of them, so that a sender learns everything at once. Safety is looked at
even in a message that breaks the schema, for a malformed injection is one as well.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

from pydantic import Field

from baton.contract.records import instant
from baton.core.verdict import Code, Finding, Verdict
from baton.errors import RoutingError
from baton.handoff.records import CURRENT, begins_task
from baton.safety.scan import Unsafe
from baton.wire.money import to_micro_usd
from baton.wire.records import CompactRecord, Digest, Integer, Timestamp, newest_first, satisfies
from baton.wire.schemas import format_pointer, parse_pointer, parse_version, version_mismatch
from baton.wire.text import single_line

TOLERANCE = timedelta(seconds=60)
"""How far the sender's clock may be ahead of the receiver's."""


def stale(message: Mapping[str, Any], now: datetime, max_age: timedelta | None, tolerance: timedelta) -> str | None:
    """Return why a message may not be accepted now, or None if it may."""
    if "expiresAt" in message:
        expires = instant(message["expiresAt"])
        if expires is None:
            return "its expiresAt is not a time with an offset from UTC"
        if now >= expires:
            return f"it expired at {message['expiresAt']}, {now - expires} ago"
    written = instant(message.get("timestamp"))
    if written is None:
        return "its timestamp is missing, or no time with an offset from UTC"
    if written - now > tolerance:
        return (
            f"its timestamp {message['timestamp']} is {written - now} in the future, and clocks may differ by "
            f"{tolerance}; have a time service set both"
        )
    if max_age is not None and now - written > max_age:
        return (
            f"it was written at {message['timestamp']}, {now - written} ago, and the receiver takes nothing older "
            f"than {max_age}"
        )
    return None


@dataclass(frozen=True)
class ReceiverRequirements:
    """What an agent needs of a handoff: its entry in the registry of agents.

    Attributes:
        agent_type: What kind of agent it is; a handoff's `toAgent.agentType` names it.
        agent_version: Its version, by semver.org.
        state: The members that it needs in `currentState`: names, or JSON pointers such as `/review/score`.
        expects_work: Whether a handoff without completed subtasks is a likely error.
        schema_version: The version of the message schema that it speaks.

    Example:
        >>> ReceiverRequirements("risk-scoring-agent", "1.6.0", frozenset({"extractedClauses"})).expects_work
        True
    """

    agent_type: str
    agent_version: str
    state: frozenset[str] = frozenset()
    expects_work: bool = True
    schema_version: str = CURRENT

    @cached_property
    def places(self) -> tuple[tuple[str, str], ...]:
        """What it needs in `currentState`, by name, and where in it that is, as a JSON pointer."""
        return tuple((name, name if name.startswith("/") else format_pointer([name])) for name in sorted(self.state))


def choose_receiver(agent_type: str, wanted: str, known: Iterable[ReceiverRequirements]) -> ReceiverRequirements:
    """Return the newest known agent that fits a target."""
    agents = list(known)
    of_type = {agent.agent_version: agent for agent in agents if agent.agent_type == agent_type}
    if not of_type:
        types = sorted({agent.agent_type for agent in agents})
        near = difflib.get_close_matches(agent_type, types, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(types) or 'none'}"
        raise RoutingError(f"there is no agent {agent_type!r}; {hint}")
    fitting = [version for version in newest_first(of_type) if satisfies(version, wanted)]
    if not fitting:
        raise RoutingError(
            f"no version of {agent_type!r} lies in {wanted!r}; there are {', '.join(newest_first(of_type))}"
        )
    return of_type[fitting[0]]


def misdelivery(agent_type: str, wanted: str, receivers: Iterable[str], own: ReceiverRequirements) -> str | None:
    """Return why a message is not meant for an agent, or None if it is."""
    if agent_type != own.agent_type:
        if own.agent_type in receivers:
            return None
        return f"meant for {agent_type!r}, received by {own.agent_type!r}; send it to the agent it names"
    if not satisfies(own.agent_version, wanted):
        return (
            f"asks for {agent_type!r} {wanted!r}, received by its version {own.agent_version}; "
            "start that version, or widen the range"
        )
    return None


NO_WORK = "No completed subtasks in non-initial handoff"
NO_BUDGET = "No remaining budget"
INJECTION = "Injection pattern detected in context"
"""The document's own words for three findings."""

_LONGEST_PLACE = 200


Scan = Callable[[Any], Iterable[Unsafe]]
"""A safety detector: it is given the whole message and names what a receiver must not be given."""
Check = Callable[[Mapping[str, Any]], Iterable[Finding]]
"""A further check of a message whose schema holds, for example against its contract."""
SchemaCheck = Callable[[Any], list[Finding]]
"""A check of a message's shape, such as `baton.handoff.store_gate.handoff_gate()`."""


def validate_handoff(
    message: Any,
    receiver: ReceiverRequirements,
    scan: Scan,
    *,
    check_schema: SchemaCheck,
    further: Iterable[Check] = (),
) -> Verdict:
    """Return a receiver's verdict on a message, with everything that is wrong with it."""
    findings = _version_findings(message, receiver) or check_schema(message)
    whole = not findings
    findings = [*findings, *_safety_findings(message, scan)]
    if whole:
        findings += _routing_findings(message, receiver)
        findings += _completeness_findings(message, receiver)
        findings += budget_findings(message)
        for check in further:
            findings += check(message)
    return Verdict.of(findings)


def budget_findings(message: Mapping[str, Any]) -> list[Finding]:
    """Return BUDGET_EXHAUSTED if a message says that nothing is left."""
    left = message["costTracking"]["costBudgetRemainingUSD"]
    if to_micro_usd(Decimal(repr(left))) > 0:
        return []
    return [Finding(code=Code.BUDGET_EXHAUSTED, text=NO_BUDGET, at="/costTracking/costBudgetRemainingUSD")]


def _version_findings(message: Any, receiver: ReceiverRequirements) -> list[Finding]:
    """Return a finding for a readable version number that this receiver does not read; others are the schema's."""
    version = message.get("schemaVersion") if isinstance(message, Mapping) else None
    try:
        reason = version_mismatch(version, receiver.schema_version) if isinstance(version, str) else None
    except ValueError:
        parse_version(receiver.schema_version)
        return []
    return [Finding(code=Code.SCHEMA_INVALID, text=reason, at="/schemaVersion")] if reason else []


def _safety_findings(message: Any, scan: Scan) -> list[Finding]:
    """Return what the detector names; a place can be a sender's text as well, so it is cut and kept on one line."""
    return [
        Finding(
            code=Code.SAFETY_VIOLATION, text=INJECTION, at=single_line(unsafe.at)[:_LONGEST_PLACE], rule=unsafe.rule
        )
        for unsafe in scan(message)
    ]


def _routing_findings(message: Mapping[str, Any], receiver: ReceiverRequirements) -> list[Finding]:
    """Return why a message is not meant for this receiver."""
    to = message["toAgent"]
    reason = misdelivery(to["agentType"], to["agentVersion"], message.get("receiverList", ()), receiver)
    return [Finding(code=Code.ROUTING_ERROR, text=reason, at="/toAgent")] if reason else []


def _completeness_findings(message: Mapping[str, Any], receiver: ReceiverRequirements) -> list[Finding]:
    """Return what a message lacks of the work and the state that this receiver needs."""
    findings = []
    if receiver.expects_work and not message["completedSubtasks"] and not begins_task(message):
        findings.append(Finding(code=Code.INCOMPLETE_CONTEXT, text=NO_WORK, at="/completedSubtasks"))
    for name, place in receiver.places:
        if _at(message["currentState"], place) is None:
            text = f"currentState lacks {name!r}, which {receiver.agent_type!r} requires; send it"
            findings.append(Finding(code=Code.INCOMPLETE_CONTEXT, text=text, at=f"/currentState{place}"))
    return findings


def _at(value: Any, place: str) -> Any:
    """Return what stands at a JSON pointer, or None; what is null is not there."""
    for name in parse_pointer(place):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


class Receipt(CompactRecord):
    """A receiver's answer to a handoff, after it was written to the ledger.

    Attributes:
        handoff_id: The handoff; empty if the message could not be read.
        task_id: The task whose audit chain has the answer.
        digest: The digest of the message's bytes as they were received.
        attempt: Which attempt of the handoff it is.
        verdict: Accepted, or why not.
        flags: What the safety scan noticed and let pass, a label each.
        anchor: The head of the task's audit chain right after the answer was written.
        at: When the receiver answered, by its own clock.
        again: Whether the same answer was on record before, as when a stage that failed runs again; not in its JSON.
    """

    handoff_id: str
    task_id: str
    digest: Digest
    attempt: Integer = Field(default=1, ge=1)
    verdict: Verdict
    flags: list[str] = Field(default_factory=list)
    anchor: str | None = None
    at: Timestamp
    again: bool = Field(default=False, exclude=True)
