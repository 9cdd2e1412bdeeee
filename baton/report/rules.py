"""What a report amounts to: its contradictions, the patch of the baton, and several reports as one."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import JsonValue

from baton.artifacts.records import ArtifactRef
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
from baton.report.rendering import path_entry
from baton.wire.text import split_sentences

FEWEST_SENTENCES, MOST_SENTENCES = 2, 3
LOW = 50
"""Below it a confidence says that the uncertainty is significant."""

_PLACEHOLDER = re.compile(r"\[(?:agent-name|target-agent or parent|brief description)\]|<2-3 sentences [a-z ]+>")


def lint_report(report: HandoffReport) -> list[ReportFinding]:
    """Return what is inconsistent, which is an error, or odd, which is a warning."""
    found = [(Severity.ERROR, *one) for one in _contradictions(report)]
    found += [(Severity.WARNING, *one) for one in (*_doubts(report), *_soft_rules(report))]
    return [ReportFinding(severity=severity, member=member, text=text) for severity, member, text in found]


def _contradictions(report: HandoffReport) -> Iterator[tuple[str, str]]:
    """Yield what cannot both be true."""
    if not report.status.delivers and report.readiness is Readiness.YES:
        yield "readiness", f"is Yes, but the status is {report.status.value}; one of them is wrong"
    values = (report.sender, report.receiver, report.task, report.summary)
    if any(map(_PLACEHOLDER.fullmatch, values)):
        yield "", "placeholders of the format are left in it; fill them in"


def _doubts(report: HandoffReport) -> Iterator[tuple[str, str]]:
    """Yield what can both be true, but seldom is."""
    if not report.status.delivers and report.readiness is Readiness.WITH_CAVEATS:
        yield "readiness", f"is With caveats, but the status is {report.status.value}; no stage continues from it"
    if report.status is Status.COMPLETED and report.confidence < LOW:
        yield "confidence", f"is {report.confidence}, which is low for completed work"
    if report.status is Status.BLOCKED and not report.blockers:
        yield "blockers", "are none, but the status is blocked; name what is missing"
    if report.handoff_confidence != report.confidence:
        yield "handoffConfidence", f"is {report.handoff_confidence}, and the confidence is {report.confidence}"


def _soft_rules(report: HandoffReport) -> Iterator[tuple[str, str]]:
    """Yield where the report leaves the format's own advice."""
    count = len(split_sentences(report.summary))
    if not FEWEST_SENTENCES <= count <= MOST_SENTENCES:
        yield "summary", f"has {count} sentences; {FEWEST_SENTENCES} or {MOST_SENTENCES} are advised"


_BECAUSE, _REJECTED = " — because ", " (rejected: "


def report_patch(
    report: HandoffReport,
    baton: Baton,
    artifacts: Sequence[ArtifactRef] = (),
    shown: frozenset[str] | None = None,
) -> dict[str, JsonValue]:
    """Return the baton_patch that a report amounts to."""
    errors = [one for one in lint_report(report) if one.severity is Severity.ERROR]
    if errors:
        raise ReportError(errors)
    settled = set(report.resolved_blockers)
    fields: dict[str, list[Any]] = {
        "open_questions": _union((one for one in baton.open_questions if one not in settled), report.blockers),
        "work_scope": _union(baton.work_scope, _paths(report)),
        "artifacts": _union(baton.artifacts, artifacts),
    }
    hidden = set() if shown is None else fields.keys() - shown
    state = _state(report) + [f"Open: {one}" for one in report.blockers if "open_questions" in hidden]
    patch: dict[str, JsonValue] = {"current_state": [*state]}
    if report.context.decisions:
        patch["decision_log"] = [logged(one) for one in report.context.decisions]
    for name, value in fields.items():
        if name not in hidden and value != getattr(baton, name):
            patch[name] = [one.model_dump(mode="json") if isinstance(one, ArtifactRef) else one for one in value]
    return patch


def logged(decision: ReportDecision) -> str:
    """Return a decision as the baton's log has it."""
    because = f"{_BECAUSE}{decision.rationale}" if decision.rationale else ""
    rejected = f"{_REJECTED}{decision.alternatives})" if decision.alternatives else ""
    return f"{decision.decision}{because}{rejected}"


def _state(report: HandoffReport) -> list[str]:
    """Return the current state that a report tells of, what matters most first."""
    return [
        *split_sentences(report.summary),
        *report.findings.discoveries,
        *(f"Pattern: {one}" for one in report.context.patterns),
        *(f"Next: {one}" for one in report.recommendations),
    ]


def _paths(report: HandoffReport) -> list[str]:
    """Return the paths that a report names, without lines."""
    entries = (*report.findings.artifacts_created, *report.findings.artifacts_modified)
    paths = [*(path_entry(one).path for one in entries), *(one.file for one in report.context.relevant_files)]
    return [path for path in paths if path]


def _union(*lists: Iterable[Any]) -> list[Any]:
    """Return every entry once, in order."""
    found: list[Any] = []
    seen: set[Any] = set()
    for one in (one for entries in lists for one in entries):
        key = one.id if isinstance(one, ArtifactRef) else one
        if key not in seen:
            seen.add(key)
            found.append(one)
    return found


T = TypeVar("T")
_BEST_FIRST = (Status.COMPLETED, Status.PARTIAL, Status.BLOCKED, Status.FAILED)
_SUREST_FIRST = (Readiness.YES, Readiness.WITH_CAVEATS, Readiness.NO)


def merge_reports(
    reports: Sequence[HandoffReport], *, sender: str, receiver: str, task: str = "", summary: str = ""
) -> HandoffReport:
    """Return one report for those of several agents; all count alike."""
    if not reports:
        raise ValueError("expected at least one report to merge; found none")

    def union(pick: Callable[[HandoffReport], Iterable[str]]) -> list[str]:
        return [_from(text, names) for text, names in _by_entry(reports, pick).items()]

    open_ones = _by_entry(reports, lambda one: one.blockers)
    settled = _by_entry(reports, lambda one: one.resolved_blockers)
    return HandoffReport(
        sender=sender,
        receiver=receiver,
        task=task or "; ".join(dict.fromkeys(one.task for one in reports)),
        status=max((one.status for one in reports), key=_BEST_FIRST.index),
        confidence=min(one.confidence for one in reports),
        summary=summary or "\n".join(f"{one.sender}: {one.summary}" for one in reports),
        findings=ReportFindings(
            discoveries=union(lambda one: one.findings.discoveries),
            artifacts_created=union(lambda one: one.findings.artifacts_created),
            artifacts_modified=union(lambda one: one.findings.artifacts_modified),
        ),
        context=ReportContext(
            relevant_files=_files(reports),
            patterns=union(lambda one: one.context.patterns),
            decisions=_decisions(reports),
        ),
        blockers=[_from(text, names) for text, names in open_ones.items()],
        resolved_blockers=[_from(text, names) for text, names in settled.items() if text not in open_ones],
        recommendations=union(lambda one: one.recommendations),
        verification_script=_scripts(reports),
        handoff_confidence=min(one.handoff_confidence for one in reports),
        readiness=max((one.readiness for one in reports), key=_SUREST_FIRST.index),
        notes=[
            Note(heading=_from(note.heading, [one.sender]), items=note.items) for one in reports for note in one.notes
        ],
    )


def _by_entry(reports: Iterable[HandoffReport], pick: Callable[[HandoffReport], Iterable[T]]) -> dict[T, list[str]]:
    """Return every entry of a list once, in order, with the names of those who wrote it."""
    found: dict[T, list[str]] = {}
    for report in reports:
        for entry in pick(report):
            names = found.setdefault(entry, [])
            if report.sender not in names:
                names.append(report.sender)
    return found


def _from(text: str, names: Iterable[str]) -> str:
    """Return an entry that says from whom it is."""
    return f"{text} (from {', '.join(names)})"


def _files(reports: Iterable[HandoffReport]) -> list[RelevantFile]:
    """Return every relevant file, each reason saying whose it is."""
    return [
        RelevantFile(file=one.file, lines=one.lines, reason=_from(one.reason, names).strip())
        for one, names in _by_entry(reports, lambda one: one.context.relevant_files).items()
    ]


def _decisions(reports: Iterable[HandoffReport]) -> list[ReportDecision]:
    """Return every decision, with who made it; two that differ in their reasons are two."""
    return [
        ReportDecision(decision=_from(one.decision, names), rationale=one.rationale, alternatives=one.alternatives)
        for one, names in _by_entry(reports, lambda one: one.context.decisions).items()
    ]


def _scripts(reports: Iterable[HandoffReport]) -> str:
    """Return the scripts of all, each below a comment that says whose it is."""
    names = _by_entry(reports, lambda one: [one.verification_script] if one.verification_script else [])
    return "\n\n".join(f"# From {', '.join(whose)}\n{script}" for script, whose in names.items())
