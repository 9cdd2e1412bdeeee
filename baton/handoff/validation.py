"""The receiver's validation of a handoff, the same for a stage, a pipeline and an outside agent.

The seal is verified before anything in here sees the message. Then the schema; and once that holds, completeness,
destination, safety and budget, all of them, so that a sender learns everything at once. Safety is looked at
even in a message that breaks the schema, for a malformed injection is one as well.
"""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

from pydantic import ValidationError

from baton.core.verdict import MOST_FINDINGS, Code, Finding, Verdict
from baton.handoff.records import Handoff, begins_task
from baton.handoff.routing import ReceiverRequirements, misdelivery
from baton.handoff.schema import handoff_schema
from baton.safety.scan import Unsafe
from baton.wire.money import micro_usd
from baton.wire.schemas import SchemaReader, parsed, unreadable
from baton.wire.text import faults, single_line

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
"""A check of a message's shape: `schema_findings`, or the compiled `baton.handoff.store_schema.handoff_gate()`."""


def validate_handoff(
    message: Any,
    receiver: ReceiverRequirements,
    scan: Scan,
    *,
    check_schema: SchemaCheck | None = None,
    further: Iterable[Check] = (),
) -> Verdict:
    """Return a receiver's verdict on a message, with everything that is wrong with it."""
    findings = _version_findings(message, receiver) or (check_schema or schema_findings)(message)
    whole = not findings
    findings = [*findings, *_safety_findings(message, scan)]
    if whole:
        findings += _routing_findings(message, receiver)
        findings += _completeness_findings(message, receiver)
        findings += budget_findings(message)
        for check in further:
            findings += check(message)
    return Verdict.of(findings)


def schema_findings(message: Any) -> list[Finding]:
    """Return where a message breaks the schema, by reading it as a record; needs no schema library."""
    try:
        Handoff.from_json_object(message)
    except ValidationError as error:
        places = dict.fromkeys(one["loc"] for one in faults(error))
        return [_reader().finding(message, place) for place in list(places)[:MOST_FINDINGS]]
    return []


def budget_findings(message: Mapping[str, Any]) -> list[Finding]:
    """Return BUDGET_EXHAUSTED if a message says that nothing is left."""
    left = message["costTracking"]["costBudgetRemainingUSD"]
    if micro_usd(Decimal(repr(left))) > 0:
        return []
    return [Finding(code=Code.BUDGET_EXHAUSTED, text=NO_BUDGET, at="/costTracking/costBudgetRemainingUSD")]


@cache
def _reader() -> SchemaReader:
    return SchemaReader(handoff_schema())


def _version_findings(message: Any, receiver: ReceiverRequirements) -> list[Finding]:
    """Return a finding for a readable version number that this receiver does not read; others are the schema's."""
    version = message.get("schemaVersion") if isinstance(message, Mapping) else None
    try:
        reason = unreadable(version, receiver.schema_version) if isinstance(version, str) else None
    except ValueError:
        parsed(receiver.schema_version)
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
    for step in place.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
