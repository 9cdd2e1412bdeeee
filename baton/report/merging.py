"""The reports of several agents as the one that their coordinator reads (agent-handoff, use case 2)."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from baton.report.records import (
    HandoffReport,
    Note,
    Readiness,
    RelevantFile,
    ReportContext,
    ReportDecision,
    ReportFindings,
    Status,
)

T = TypeVar("T")
_BEST_FIRST = (Status.COMPLETED, Status.PARTIAL, Status.BLOCKED, Status.FAILED)
_SUREST_FIRST = (Readiness.YES, Readiness.WITH_CAVEATS, Readiness.NO)


def merge_reports(
    reports: Sequence[HandoffReport], *, sender: str, receiver: str, task: str = "", summary: str = ""
) -> HandoffReport:
    """Return one report for those of several agents, none of which counts more than another.

    Every entry of every list is kept once, and says from whom it is. The status is the worst one, both confidences
    are the lowest ones, and the merged report is ready only if all are: Yes if all say Yes, No if one says No. A
    question that one settled and another leaves open is open.

    Args:
        reports: At least one, in the order in which their entries shall stand.
        sender: Who merges them, for example the coordinator's name.
        receiver: Who reads the merged report.
        task: What the task was; the tasks of the reports by default.
        summary: What was accomplished; by default each agent's summary, with its name before it.

    Returns:
        A report that keeps to all rules of reports if each of them does.

    Raises:
        ValueError: There are no reports.

    Example:
        >>> audit = HandoffReport(sender="security-auditor", receiver="code-reviewer", task="Review", summary="Fine.",
        ...                       status="completed", confidence=90, readiness="Yes", blockers=["Rotate the key?"])
        >>> speed = HandoffReport(sender="performance-opt", receiver="code-reviewer", task="Review", summary="Slow.",
        ...                       status="partial", confidence=70, readiness="With caveats")
        >>> merged = merge_reports([audit, speed], sender="coordinator", receiver="code-reviewer")
        >>> merged.status.value, merged.confidence, merged.readiness.value, merged.blockers
        ('partial', 70, 'With caveats', ['Rotate the key? (from security-auditor)'])
    """
    if not reports:
        raise ValueError("there are no reports to merge; hand over at least one")

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
