"""The explanation of a decision: what was decided and why, what the agent saw, and what was withheld from it.

Claims and labels pass through `text` or `code`, so they cannot become mark-up.
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
"""The output files, and the mark that identifies this pipeline's own."""
_MAX_LISTED = 8
_VERDICTS = {
    "not_judged": "**Not judged.** Rules compared facts and gave no verdict; a person has to judge.",
    "approved": "**Approved by the model.** Every rule agrees with certain facts.",
    "needs_review": "**A person has to look,** the model says, or a rule lacks a fact or differs from one.",
    "violates_policy": "**It may not be sent as it is,** the model says, or the facts differ from a rule that blocks.",
}
_RESULTS = {"differs": "Differs", "not found": "Not found", "agrees": "Agrees"}


class ToolUse(Record):
    """A tool call of the compliance agent."""

    event: str
    tool: str
    claim: str
    success: bool


class Review(Record):
    """The result of the compliance agent; `decision.json` is this record."""

    written_by: Literal["baton compliance_review"] = "baton compliance_review"
    decision: ComplianceDecision
    contract: dict[str, Any]
    left_out: dict[str, str] = Field(default_factory=dict)
    used: tuple[ToolUse, ...] = ()


def to_markdown(review: Review) -> str:
    """Return the explanation of a decision as Markdown, the verdict first."""
    contract, decision = HandoffContract.from_json_object(review.contract), review.decision
    return page(
        _MARK,
        "# Compliance review of an outbound e-mail",
        _VERDICTS[decision.verdict],
        "> This is an aid to its reader, not legal advice. The agent saw no word of the e-mail or of the thread.",
        "## Why",
        _render_outcomes(decision),
        "## Concerns of the model" if decision.concerns else "",
        bullets(
            f"{text(concern.text)} ({_render_events(concern.facts)}; {text(concern.by)})"
            for concern in decision.concerns
        ),
        "## What it rests on",
        _render_facts(contract),
        _render_set_aside(decision),
        "## What the agent was not given",
        _render_left_out(review.left_out),
        "## Tools",
        _render_tool_calls(contract, review.used),
        "## The handoff",
        _render_handoff(contract, decision),
    )


def _render_outcomes(decision: ComplianceDecision) -> str:
    order = ("differs", "not found", "agrees")
    rows = [_outcome_row(outcome) for result in order for outcome in decision.outcomes if outcome.result == result]
    return table(("Rule", "Result", "Why", "Facts"), rows)


def _outcome_row(outcome: RuleOutcome) -> tuple[str, str, str, str]:
    result = _RESULTS[outcome.result]
    if outcome.result == "differs":
        result += " (blocks)" if outcome.severity == "block" else " (a person has to look)"
    rule = f"{code(outcome.rule)} {text(outcome.title)}"
    return rule, result, text(outcome.because), _render_events(outcome.facts) or "none"


def _render_facts(contract: HandoffContract) -> str:
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


def _render_set_aside(decision: ComplianceDecision) -> str:
    if not decision.set_aside:
        return ""
    return (
        f"Not relied on: {_render_events(decision.set_aside)}. A rule rests only on what the right tool said with "
        "success, in words that leave no doubt, and on nothing that another fact contradicts."
    )


def _render_left_out(left_out: Mapping[str, str]) -> str:
    counts = Counter(left_out.values())
    if not counts:
        return "Nothing was left out."
    rows = []
    for label, count in sorted(counts.items()):
        events = [event for event, other in left_out.items() if other == label]
        omitted = f" and {count - _MAX_LISTED} more" if count > _MAX_LISTED else ""
        rows.append((code(label), str(count), _render_events(events[:_MAX_LISTED]) + omitted))
    return table(("Label", "Events", "Which"), rows)


def _render_tool_calls(contract: HandoffContract, used: tuple[ToolUse, ...]) -> str:
    calls = bullets(
        f"{code(call.tool)} {'said' if call.success else 'failed'}: {text(call.claim)} ({code(call.event)})"
        for call in used
    )
    return page(
        f"It could use {_render_tools(contract.allowed_tools)}. "
        f"It could not use {_render_tools(contract.forbidden_tools)}, whatever anybody said.",
        "It called:" if used else "It called none.",
        calls,
    ).rstrip("\n")


def _render_handoff(contract: HandoffContract, decision: ComplianceDecision) -> str:
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


def _render_events(events: tuple[str, ...] | list[str]) -> str:
    return ", ".join(map(code, events))


def _render_tools(tools: list[str]) -> str:
    return ", ".join(map(code, tools)) or "no tool"
