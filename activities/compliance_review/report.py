"""What was decided and why, for a person; what the deciding agent saw and from where, and what it did not see.

Claims and labels pass through `text` or `code`, so nothing in them becomes mark-up of the report.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from activities.compliance_review.records import ComplianceDecision, RuleOutcome
from activities.pages import bullets, code, page, table, text
from baton.contract.records import HandoffContract
from baton.wire.records import Record

REPORT, DATA = "COMPLIANCE.md", "decision.json"
_MARK = "<!-- written by baton compliance_review -->"
MARKS = {REPORT: _MARK, DATA: '"written_by":"baton compliance_review"'}
"""The files that are written, and how ours are recognised."""
_LISTED = 8
_VERDICTS = {
    "approved": "**Approved.** No rule is violated, and every rule is met by certain facts.",
    "needs_review": "**A person has to look.** Something is not certain, or needs a person's judgement.",
    "violates_policy": "**It may not be sent as it is.** At least one rule is violated.",
}
_RESULTS = {"violated": "Violated", "unknown": "Not certain", "met": "Met"}


class ToolUse(Record):
    """A call of the compliance agent."""

    event: str
    tool: str
    claim: str
    success: bool


class Review(Record):
    """What the compliance agent hands on: `decision.json` is this record."""

    written_by: Literal["baton compliance_review"] = "baton compliance_review"
    decision: ComplianceDecision
    contract: dict[str, Any]
    left_out: dict[str, str] = Field(default_factory=dict)
    used: tuple[ToolUse, ...] = ()


def to_markdown(review: Review) -> str:
    """Return the explanation of a decision as Markdown, what follows from it first."""
    contract, decision = HandoffContract.from_json_object(review.contract), review.decision
    return page(
        _MARK,
        "# Compliance review of an outbound e-mail",
        _VERDICTS[decision.verdict],
        "> This is an aid to its reader, not legal advice. The agent saw no word of the e-mail or of the thread.",
        "## Why",
        _outcomes(decision),
        "## Concerns of the model" if decision.concerns else "",
        bullets(f"{text(one.text)} ({_events(one.facts)}; {text(one.by)})" for one in decision.concerns),
        "## What it rests on",
        _facts(contract),
        _set_aside(decision),
        "## What the agent was not given",
        _left_out(review.left_out),
        "## Tools",
        _tools(contract, review.used),
        "## The handoff",
        _handoff(contract, decision),
    )


def _outcomes(decision: ComplianceDecision) -> str:
    order = ("violated", "unknown", "met")
    rows = [_row(one) for result in order for one in decision.outcomes if one.result == result]
    return table(("Rule", "Result", "Why", "Facts"), rows)


def _row(outcome: RuleOutcome) -> tuple[str, str, str, str]:
    result = _RESULTS[outcome.result]
    if outcome.result == "violated":
        result += " (blocks)" if outcome.severity == "block" else " (a person has to look)"
    rule = f"{code(outcome.rule)} {text(outcome.title)}"
    return rule, result, text(outcome.because), _events(outcome.facts) or "none"


def _facts(contract: HandoffContract) -> str:
    rows = [
        (
            code(fact.event_id),
            text(fact.claim),
            code(fact.source.source),
            fact.source.timestamp.isoformat(timespec="seconds"),
            fact.confidence.value,
        )
        for fact in contract.facts
    ]
    return table(("Event", "Fact", "From", "Retrieved", "How sure"), rows) if rows else "No fact crossed."


def _set_aside(decision: ComplianceDecision) -> str:
    if not decision.set_aside:
        return ""
    return (
        f"Not relied on: {_events(decision.set_aside)}. A rule rests only on what the right tool said with success, in "
        "words that leave no doubt, and on nothing that another fact contradicts."
    )


def _left_out(left_out: Mapping[str, str]) -> str:
    counts = Counter(left_out.values())
    if not counts:
        return "Nothing was left out."
    rows = []
    for label, count in sorted(counts.items()):
        events = [event for event, other in left_out.items() if other == label]
        more = f" and {count - _LISTED} more" if count > _LISTED else ""
        rows.append((code(label), str(count), _events(events[:_LISTED]) + more))
    return table(("Label", "Events", "Which"), rows)


def _tools(contract: HandoffContract, used: tuple[ToolUse, ...]) -> str:
    calls = bullets(
        f"{code(one.tool)} {'said' if one.success else 'failed'}: {text(one.claim)} ({code(one.event)})" for one in used
    )
    return page(
        f"It could use {_names(contract.allowed_tools)}. It could not use {_names(contract.forbidden_tools)}, whatever "
        "anybody said.",
        "It called:" if used else "It called none.",
        calls,
    ).rstrip("\n")


def _handoff(contract: HandoffContract, decision: ComplianceDecision) -> str:
    return bullets(
        [
            f"Task: {text(contract.task)}",
            f"Receiver: {code(contract.receiving_agent)}, handoff {code(contract.handoff_id)}, "
            f"trace {code(contract.trace_id)}",
            f"E-mail: {code(decision.message) if decision.message else 'not named by any certain fact'}",
            f"Policy: version {text(decision.policy_version) or 'unknown'}, "
            f"{code(decision.policy) if decision.policy else 'none was found'}",
        ]
    )


def _events(events: tuple[str, ...] | list[str]) -> str:
    return ", ".join(map(code, events))


def _names(tools: list[str]) -> str:
    return ", ".join(map(code, tools)) or "no tool"
