"""Whether anything crosses that was left out: a contract against the compiler's report and the session (C-41).

Labels alone prove nothing. A fact leads back to an event, and a claim is compared with the text of every event that
did not cross, so a claim that was copied out of a brainstorm under another event's id is found as well.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from baton.contract.compiler import CompileReport
from baton.contract.draft import EXPLICIT, FAILED, TYPE, UNSUPPORTED, EventFate, label_of
from baton.contract.records import Confidence
from baton.contract.request import EXCLUDED_TYPES
from baton.contract.session import EventType, SessionEvent
from baton.contract.verdict import Check, ContractFinding


def objects(value: Any) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the objects in a list with their positions, or nothing where there is no list.

    Example:
        >>> objects([{}, 3]), objects(None)
        ([(0, {})], [])
    """
    return [(at, one) for at, one in enumerate(value) if isinstance(one, Mapping)] if isinstance(value, list) else []


def texts(value: Any) -> list[tuple[int, str]]:
    """Return the texts in a list with their positions, or nothing where there is no list.

    Example:
        >>> texts(["a", 3]), texts(None)
        ([(0, 'a')], [])
    """
    return [(at, one) for at, one in enumerate(value) if isinstance(one, str)] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """Return a text, or the empty one for anything else.

    Example:
        >>> text_of("a"), text_of(3)
        ('a', '')
    """
    return value if isinstance(value, str) else ""


def context_findings(
    members: Mapping[str, Any], report: CompileReport | None, events: Sequence[SessionEvent] | None
) -> list[ContractFinding]:
    """Return what crosses although it was left out, and labels that do not tell what was (S5-valid-d).

    Without a report, the marks and types of the events say what must not cross, whatever the policy was.

    Args:
        members: The contract as JSON.
        report: The compiler's evidence.
        events: The session.

    Returns:
        An error for each fact and each label.

    Example:
        >>> events = [SessionEvent(id="e1", type="brainstorm", content="Skip the check?")]
        >>> leaked = {"facts": [{"claim": "Skip the check?", "eventId": "e9"}], "excludedContext": ["type:brainstorm"]}
        >>> context_findings(leaked, None, events)[0].text
        "'/facts/0' says what the event 'e1' says, which does not cross; take it out"
    """
    findings = [] if report is None else _label_findings(members, report)
    labels = {label for _, label in texts(members.get("excludedContext"))}
    kept_back = _kept_back(report, events)
    crossed = None if report is None else report.ids(EventFate.FACT)
    known = {event.id: event for event in events or ()}
    said = _said(known, kept_back)
    if report is None:
        missing = {label for label in kept_back.values() if label and label not in labels}
        findings += [_missing_label(label) for label in sorted(missing)]
    for number, fact in objects(members.get("facts")):
        findings += _fact_findings(f"/facts/{number}", fact, kept_back, crossed, known, said)
    task = text_of(members.get("task")).strip()
    if task and (source := said.get(task)):
        text = f"'/task' says what the event {source!r} says, which does not cross; put it in other words"
        findings.append(ContractFinding(check=Check.CONTEXT, text=text, at="/task"))
    return findings


def never_crosses(event: SessionEvent) -> str | None:
    """Return the label under which an event is left out whatever the policy is, or None if it may cross.

    Example:
        >>> never_crosses(SessionEvent(id="e1", type="decision", accepted=False))
        'unsupported:decision'
    """
    if event.exclude_from_handoff:
        return label_of(EXPLICIT, "", event.type)
    if event.type in EXCLUDED_TYPES:
        return label_of(TYPE, "", event.type)
    if event.type is EventType.TOOL_RESULT and event.success is False:
        return label_of(FAILED, event.tool_name or "", event.type)
    if event.type is EventType.DECISION and event.accepted is not True:
        return label_of(UNSUPPORTED, "", event.type)
    return None


def _label_findings(members: Mapping[str, Any], report: CompileReport) -> list[ContractFinding]:
    """Return where a contract's labels are not those of what was left out."""
    counts = report.label_counts
    labels = texts(members.get("excludedContext"))
    there = {label for _, label in labels}
    findings = [_missing_label(label) for label in counts if label not in there]
    for number, label in labels:
        if label not in counts:
            text = f"the label {label!r} stands for nothing that was left out; take it out"
            findings.append(ContractFinding(check=Check.CONTEXT, text=text, at=f"/excludedContext/{number}"))
    if "excludedCounts" in members and members["excludedCounts"] != dict(counts):
        text = "'/excludedCounts' does not count what was left out; copy it from the report"
        findings.append(ContractFinding(check=Check.CONTEXT, text=text, at="/excludedCounts"))
    return findings


def _missing_label(label: str) -> ContractFinding:
    text = f"the label {label!r} is missing, and something was left out under it; add it"
    return ContractFinding(check=Check.CONTEXT, text=text, at="/excludedContext")


def _kept_back(report: CompileReport | None, events: Sequence[SessionEvent] | None) -> dict[str, str | None]:
    """Return the events that must not cross, each with its label."""
    if report is not None:
        return {one.event_id: one.label for one in report.dispositions if one.fate is EventFate.EXCLUDED}
    return {event.id: label for event in events or () if (label := never_crosses(event))}


def _said(known: Mapping[str, SessionEvent], kept_back: Mapping[str, str | None]) -> dict[str, str]:
    """Return what the events that were kept back say, as text or as its digest, each with the event."""
    said: dict[str, str] = {}
    for event_id in kept_back:
        if event := known.get(event_id):
            if text := event.content.strip():
                said.setdefault(text, event_id)
            if event.ref:
                said.setdefault(event.ref, event_id)
    return said


def _fact_findings(
    at: str,
    fact: Mapping[str, Any],
    kept_back: Mapping[str, str | None],
    crossed: frozenset[str] | None,
    known: Mapping[str, SessionEvent],
    said: Mapping[str, str],
) -> list[ContractFinding]:
    """Return what is wrong with a fact: its event, its text, or its confidence."""
    findings = []
    event_id, claim = text_of(fact.get("eventId")), text_of(fact.get("claim"))
    own = known.get(event_id)
    texts_of_claim = (claim.strip(), "sha256:" + hashlib.sha256(claim.encode()).hexdigest())
    its_own = own is not None and event_id not in kept_back and own.content.strip() == claim.strip()
    copied = None if its_own else next((said[text] for text in texts_of_claim if text in said), None)
    if event_id in kept_back:
        reason = kept_back[event_id] or "left out"
        findings.append(f"{at!r} is of the event {event_id!r}, which was left out as {reason!r}; take it out")
    elif copied:
        findings.append(f"{at!r} says what the event {copied!r} says, which does not cross; take it out")
    if (known and own is None) or (crossed is not None and event_id not in crossed and event_id not in kept_back):
        findings.append(f"{at!r} names the event {event_id!r}, which is no event that crossed; name its own")
    succeeded = own is not None and own.type is EventType.TOOL_RESULT and own.success is True
    if own is not None and fact.get("confidence") == Confidence.HIGH.value and not succeeded:
        findings.append(f"{at!r} is of high confidence, and its event is no tool's success; say how sure it is")
    return [ContractFinding(check=Check.CONTEXT, text=text, at=at) for text in findings]
