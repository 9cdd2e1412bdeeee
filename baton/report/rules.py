"""Rules for reports: their consistency, and the patch of the baton."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import JsonValue

from baton.core.artifacts import ArtifactRef
from baton.core.baton import Baton
from baton.core.patching import MAX_BULLETS, MIN_BULLETS
from baton.report.records import (
    HandoffReport,
    Readiness,
    ReportDecision,
    ReportError,
    ReportFinding,
    Severity,
    Status,
    find_report_excess,
)
from baton.report.rendering import parse_path_entry
from baton.wire.text import split_sentences

MIN_SENTENCES, MAX_SENTENCES = 2, 3
LOW = 50
"""A confidence below this means significant uncertainty."""

_PLACEHOLDER = re.compile(r"\[(?:agent-name|target-agent or parent|brief description)\]|<2-3 sentences [a-z ]+>")


def lint_report(report: HandoffReport) -> list[ReportFinding]:
    """Return the inconsistencies of a report as errors, and what is unusual as warnings."""
    findings = [(Severity.ERROR, *problem) for problem in _find_contradictions(report)]
    findings += [(Severity.WARNING, *problem) for problem in (*_find_doubts(report), *_check_advice(report))]
    return [ReportFinding(severity=severity, member=member, text=text) for severity, member, text in findings]


def _find_contradictions(report: HandoffReport) -> Iterator[tuple[str, str]]:
    if excess := find_report_excess(report.to_json_object()):
        yield "", f"{excess}; put large content in artifacts"
    if not report.status.delivers and report.readiness is Readiness.YES:
        yield "readiness", f"is Yes, but the status is {report.status.value}; one of them is wrong"
    values = (report.sender, report.receiver, report.task, report.summary)
    if any(map(_PLACEHOLDER.fullmatch, values)):
        yield "", "the format's placeholders are still in it; fill them in"


def _find_doubts(report: HandoffReport) -> Iterator[tuple[str, str]]:
    """Yield combinations that are possible but unlikely."""
    if not report.status.delivers and report.readiness is Readiness.WITH_CAVEATS:
        yield (
            "readiness",
            f"is With caveats, but the status is {report.status.value}; the pipeline does not continue from it",
        )
    if report.status is Status.COMPLETED and report.confidence < LOW:
        yield "confidence", f"is {report.confidence}, which is low for completed work"
    if report.status is Status.BLOCKED and not report.blockers:
        yield "blockers", "is empty, but the status is blocked; name what is missing"
    if report.handoff_confidence != report.confidence:
        yield "handoffConfidence", f"is {report.handoff_confidence}, and the confidence is {report.confidence}"


def _check_advice(report: HandoffReport) -> Iterator[tuple[str, str]]:
    """Yield deviations from the format's advice."""
    count = len(split_sentences(report.summary))
    if not MIN_SENTENCES <= count <= MAX_SENTENCES:
        yield "summary", f"has {count} sentences; {MIN_SENTENCES} or {MAX_SENTENCES} are advised"


NEXT = "Next: "
"""The prefix of a recommendation among the open questions; the next report's replace them."""


def report_patch(
    report: HandoffReport,
    baton: Baton,
    artifacts: Sequence[ArtifactRef] = (),
    fields: frozenset[str] | None = None,
) -> dict[str, JsonValue]:
    """Return the baton_patch for a report.

    The lists of questions, checks, paths and artifacts are patched if ``fields`` has them, that is if the stage sees
    and writes them; otherwise blockers, recommendations and commands are added to the current state, a bullet for each
    kind. The current state has 3 to 8 bullets.
    """
    errors = [finding for finding in lint_report(report) if finding.severity is Severity.ERROR]
    if errors:
        raise ReportError(errors)
    resolved = set(report.resolved_blockers)
    kept = [text for text in baton.open_questions if text not in resolved and not text.startswith(NEXT)]
    advice, commands = report.recommendations, report.verification_commands
    lists: dict[str, list[Any]] = {
        "open_questions": _union(kept, report.blockers, (f"{NEXT}{text}" for text in advice)),
        "acceptance": _union(baton.acceptance, commands),
        "work_scope": _union(baton.work_scope, _list_paths(report)),
        "artifacts": _union(baton.artifacts, artifacts),
    }
    hidden = set() if fields is None else lists.keys() - fields
    unseen = [
        *((("Open: ", report.blockers), (NEXT, advice)) if "open_questions" in hidden else ()),
        *((("Verify: ", commands),) if "acceptance" in hidden else ()),
    ]
    state = [f"{report.sender}: {report.reported}", *(f"{kind}{'; '.join(texts)}" for kind, texts in unseen if texts)]
    found = _list_found(report, MAX_BULLETS - len(state))
    if len(state) + len(found) < MIN_BULLETS:
        found.insert(0, f"Task: {report.task}")
    patch: dict[str, JsonValue] = {"current_state": [*state, *found]}
    if report.context.decisions:
        patch["decision_log"] = [format_decision(decision) for decision in report.context.decisions]
    for name, entries in lists.items():
        if name not in hidden and entries != getattr(baton, name):
            patch[name] = [
                entry.model_dump(mode="json") if isinstance(entry, ArtifactRef) else entry for entry in entries
            ]
    return patch


def format_decision(decision: ReportDecision) -> str:
    """Return a decision as an entry of the baton's log."""
    rationale = f" — because {decision.rationale}" if decision.rationale else ""
    alternatives = f" (rejected: {decision.alternatives})" if decision.alternatives else ""
    return f"{decision.decision}{rationale}{alternatives}"


def _list_found(report: HandoffReport, room: int) -> list[str]:
    """Return what a report says of the state, the most important first; the last bullet counts what has no room."""
    found = [
        *split_sentences(report.summary),
        *report.findings.discoveries,
        *(f"Pattern: {pattern}" for pattern in report.context.patterns),
    ]
    if len(found) <= room:
        return found
    shown = found[: room - 1]
    return [*shown, f"(+{len(found) - len(shown)} more in the report)"]


def _list_paths(report: HandoffReport) -> list[str]:
    """Return the paths in a report, without lines."""
    entries = (*report.findings.artifacts_created, *report.findings.artifacts_modified)
    paths = [parse_path_entry(entry).path for entry in entries]
    return [path for path in (*paths, *(file.file for file in report.context.relevant_files)) if path]


def _union(*lists: Iterable[Any]) -> list[Any]:
    """Return every entry once, in order; artifacts with the same id are the same entry."""
    merged: dict[Any, Any] = {}
    for entry in itertools.chain.from_iterable(lists):
        merged.setdefault(entry.id if isinstance(entry, ArtifactRef) else entry, entry)
    return list(merged.values())
