"""The explanation of a decision: what was decided and why, what the agent saw, and what was withheld from it.

Claims and labels pass through `text` or `code`, so they cannot become mark-up.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from activities.compliance_review.claims import ComplianceDecision, RuleOutcome
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
    order = ("differs", "not found", "agrees")
    outcomes = sorted(decision.outcomes, key=lambda outcome: order.index(outcome.result))
    concerns = [f"{text(item.text)} ({_render_codes(item.facts)}; {text(item.by)})" for item in decision.concerns]
    calls = [
        f"{code(call.tool)} {'said' if call.success else 'failed'}: {text(call.claim)} ({code(call.event)})"
        for call in review.used
    ]
    return page(
        _MARK,
        "# Compliance review of an outbound e-mail",
        _VERDICTS[decision.verdict],
        "> This is an aid to its reader, not legal advice. The agent saw no word of the e-mail or of the thread.",
        "## Why",
        table(("Rule", "Result", "Why", "Facts"), map(_outcome_row, outcomes)),
        "## Concerns of the model" if concerns else "",
        bullets(concerns),
        "## What it rests on",
        _render_facts(contract),
        f"Not relied on: {_render_codes(decision.set_aside)}. A rule rests only on what the right tool said with "
        "success, in words that leave no doubt, and on nothing that another fact contradicts."
        if decision.set_aside
        else "",
        "## What the agent was not given",
        _render_left_out(review.left_out),
        "## Tools",
        f"It could use {_render_codes(contract.allowed_tools) or 'no tool'}. It could not use "
        f"{_render_codes(contract.forbidden_tools) or 'no tool'}, whatever anybody said.",
        "It called:" if calls else "It called none.",
        bullets(calls),
        "## The handoff",
        bullets(
            (
                f"Task: {text(contract.task)}",
                f"Receiver: {code(contract.receiving_agent)}, handoff {code(contract.handoff_id)}, "
                f"trace {code(contract.trace_id)}",
                f"E-mail: {code(decision.message) if decision.message else 'not named by any certain fact'}",
                f"Policy: version {text(decision.policy_version) or 'unknown'}, "
                f"{code(decision.policy) if decision.policy else 'none was found'}",
            )
        ),
    )


def _outcome_row(outcome: RuleOutcome) -> tuple[str, str, str, str]:
    result = outcome.result.capitalize()
    if outcome.result == "differs":
        result += " (blocks)" if outcome.severity == "block" else " (a person has to look)"
    rule = f"{code(outcome.rule)} {text(outcome.title)}"
    return rule, result, text(outcome.because), _render_codes(outcome.facts) or "none"


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


def _render_left_out(left_out: Mapping[str, str]) -> str:
    by_label: dict[str, list[str]] = {}
    for event, label in left_out.items():
        by_label.setdefault(label, []).append(event)
    rows = [
        (code(label), str(len(events)), _render_codes(events[:_MAX_LISTED]) + (", …" if events[_MAX_LISTED:] else ""))
        for label, events in sorted(by_label.items())
    ]
    return table(("Label", "Events", "Which"), rows) if rows else "Nothing was left out."


def _render_codes(names: Sequence[str]) -> str:
    return ", ".join(map(code, names))
