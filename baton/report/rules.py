"""Rules for reports: their consistency, the patch of the baton, and merging."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import JsonValue

from baton.core.artifacts import ArtifactRef
from baton.core.baton import Baton
from baton.report.records import (
    HandoffReport,
    Note,
    Readiness,
    RelevantFile,
    ReportContext,
    ReportDecision,
    ReportError,
    ReportFinding,
    ReportFindings,
    Severity,
    Status,
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


def report_patch(
    report: HandoffReport,
    baton: Baton,
    artifacts: Sequence[ArtifactRef] = (),
    visible_fields: frozenset[str] | None = None,
) -> dict[str, JsonValue]:
    """Return the baton_patch for a report.

    Fields outside ``visible_fields`` are not patched; open blockers are then added to the current state.
    """
    errors = [finding for finding in lint_report(report) if finding.severity is Severity.ERROR]
    if errors:
        raise ReportError(errors)
    resolved = set(report.resolved_blockers)
    fields: dict[str, list[Any]] = {
        "open_questions": _union((text for text in baton.open_questions if text not in resolved), report.blockers),
        "work_scope": _union(baton.work_scope, _list_paths(report)),
        "artifacts": _union(baton.artifacts, artifacts),
    }
    hidden = set() if visible_fields is None else fields.keys() - visible_fields
    state = _list_state(report) + [f"Open: {blocker}" for blocker in report.blockers if "open_questions" in hidden]
    patch: dict[str, JsonValue] = {"current_state": [*state]}
    if report.context.decisions:
        patch["decision_log"] = [format_decision(decision) for decision in report.context.decisions]
    for name, entries in fields.items():
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


def _list_state(report: HandoffReport) -> list[str]:
    """Return the baton's current state from a report, the most important first."""
    return [
        *split_sentences(report.summary),
        *report.findings.discoveries,
        *(f"Pattern: {pattern}" for pattern in report.context.patterns),
        *(f"Next: {recommendation}" for recommendation in report.recommendations),
    ]


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


T = TypeVar("T")
_BEST_FIRST = (Status.COMPLETED, Status.PARTIAL, Status.BLOCKED, Status.FAILED)
_SUREST_FIRST = (Readiness.YES, Readiness.WITH_CAVEATS, Readiness.NO)


def merge_reports(
    reports: Sequence[HandoffReport], *, sender: str, receiver: str, task: str = "", summary: str = ""
) -> HandoffReport:
    """Merge reports of several agents into one; the worst status and the lowest confidence win."""
    if not reports:
        raise ValueError("expected at least one report to merge; found none")

    def union(pick: Callable[[HandoffReport], Iterable[str]]) -> list[str]:
        return [_attribute(text, names) for text, names in _group_entries(reports, pick).items()]

    open_blockers = _group_entries(reports, lambda report: report.blockers)
    resolved = _group_entries(reports, lambda report: report.resolved_blockers)
    return HandoffReport(
        sender=sender,
        receiver=receiver,
        task=task or "; ".join(dict.fromkeys(report.task for report in reports)),
        status=max((report.status for report in reports), key=_BEST_FIRST.index),
        confidence=min(report.confidence for report in reports),
        summary=summary or "\n".join(f"{report.sender}: {report.summary}" for report in reports),
        findings=ReportFindings(
            discoveries=union(lambda report: report.findings.discoveries),
            artifacts_created=union(lambda report: report.findings.artifacts_created),
            artifacts_modified=union(lambda report: report.findings.artifacts_modified),
        ),
        context=ReportContext(
            relevant_files=_merge_files(reports),
            patterns=union(lambda report: report.context.patterns),
            decisions=_merge_decisions(reports),
        ),
        blockers=[_attribute(text, names) for text, names in open_blockers.items()],
        resolved_blockers=[_attribute(text, names) for text, names in resolved.items() if text not in open_blockers],
        recommendations=union(lambda report: report.recommendations),
        verification_script=_merge_scripts(reports),
        handoff_confidence=min(report.handoff_confidence for report in reports),
        readiness=max((report.readiness for report in reports), key=_SUREST_FIRST.index),
        notes=[
            Note(heading=_attribute(note.heading, [report.sender]), items=note.items)
            for report in reports
            for note in report.notes
        ],
    )


def _group_entries(
    reports: Iterable[HandoffReport], pick: Callable[[HandoffReport], Iterable[T]]
) -> dict[T, list[str]]:
    """Return every picked entry once, in order, with its senders."""
    senders: dict[T, list[str]] = {}
    for report in reports:
        for entry in pick(report):
            names = senders.setdefault(entry, [])
            if report.sender not in names:
                names.append(report.sender)
    return senders


def _attribute(text: str, names: Iterable[str]) -> str:
    return f"{text} (from {', '.join(names)})"


def _merge_files(reports: Iterable[HandoffReport]) -> list[RelevantFile]:
    files = _group_entries(reports, lambda report: report.context.relevant_files)
    return [
        RelevantFile(file=file.file, lines=file.lines, reason=_attribute(file.reason, names).strip())
        for file, names in files.items()
    ]


def _merge_decisions(reports: Iterable[HandoffReport]) -> list[ReportDecision]:
    decisions = _group_entries(reports, lambda report: report.context.decisions)
    return [
        decision.model_copy(update={"decision": _attribute(decision.decision, names)})
        for decision, names in decisions.items()
    ]


def _merge_scripts(reports: Iterable[HandoffReport]) -> str:
    """Return all scripts, each below a comment with its senders."""
    scripts = _group_entries(reports, lambda report: list(filter(None, [report.verification_script])))
    return "\n\n".join(f"# From {', '.join(names)}\n{script}" for script, names in scripts.items())
