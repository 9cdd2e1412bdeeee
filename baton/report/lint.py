"""Whether a report is consistent and keeps to the format's soft rules (C-30, C-34)."""

import re
from collections.abc import Iterator

from baton.report.errors import ReportFinding, Severity
from baton.report.paths import path_entry
from baton.report.records import HandoffReport, Readiness, Status
from baton.wire.sentences import sentences

FEWEST_SENTENCES, MOST_SENTENCES = 2, 3
LOW = 50
"""Below it a confidence says that the uncertainty is significant (S4-conf-d)."""

_REFERENCE = re.compile(r"\.\w{1,12}:L?[0-9]")  # bounded, so that no text is slow to search
_PLACEHOLDER = re.compile(r"\[(?:agent-name|target-agent or parent|brief description)\]|<2-3 sentences [a-z ]+>")


def lint_report(report: HandoffReport) -> list[ReportFinding]:
    """Return what is inconsistent, which is an error, or odd, which is a warning.

    Args:
        report: Any report.

    Returns:
        The findings; without an error among them, the report may be acted on.

    Example:
        >>> report = HandoffReport(sender="a", receiver="b", task="t", status="blocked", confidence=40,
        ...                        summary="It is stuck. The key is missing.", readiness="Yes", blockers=["Which key?"])
        >>> [(one.severity.value, one.member) for one in lint_report(report)]
        [('error', 'readiness')]
    """
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
    """Yield what can both be true, but seldom is (C-28, C-34)."""
    if not report.status.delivers and report.readiness is Readiness.WITH_CAVEATS:
        yield "readiness", f"is With caveats, but the status is {report.status.value}; nobody will go on by itself"
    if report.status is Status.COMPLETED and report.confidence < LOW:
        yield "confidence", f"is {report.confidence}, which is low for completed work"
    if report.status is Status.BLOCKED and not report.blockers:
        yield "blockers", "are none, but the status is blocked; name what is missing"
    if report.handoff_confidence != report.confidence:
        yield "handoffConfidence", f"is {report.handoff_confidence}, and the confidence is {report.confidence}"


def _soft_rules(report: HandoffReport) -> Iterator[tuple[str, str]]:
    """Yield where the report leaves the format's own advice."""
    count = len(sentences(report.summary))
    if not FEWEST_SENTENCES <= count <= MOST_SENTENCES:
        yield "summary", f"has {count} sentences; {FEWEST_SENTENCES} or {MOST_SENTENCES} are advised"
    bare = sum(not _REFERENCE.search(one) for one in report.findings.discoveries)
    if bare:
        yield "findings.discoveries", f"has {bare} without a reference such as src/auth.ts:10-20"
    for member, entries in (
        ("findings.artifactsCreated", report.findings.artifacts_created),
        ("findings.artifactsModified", report.findings.artifacts_modified),
    ):
        bare = sum(not (entry.startswith("`") and path_entry(entry).remark) for entry in entries)
        if bare:
            yield member, f"has {bare} not of the form `path` - description"
