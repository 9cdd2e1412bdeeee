"""What the reviewers report: each to the coordinator, and the coordinator to whoever asked for the review."""

from collections.abc import Iterable, Sequence

from activities.code_review.records import (
    SEVERITIES,
    Finding,
    Review,
    Severity,
    Snapshot,
    Unread,
    count_by_severity,
    in_order,
    is_complete,
    verdict_of,
)
from activities.project_init.markdown import code, text
from activities.workbench.words import counted
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

COORDINATOR = "coordinate-review"
REVIEWERS = {"security": "audit-security", "performance": "review-performance"}
"""The reviewer's stage by its concern."""

_SCRIPTS = {
    "security": "bandit -q -r .\nruff check --isolated --select S .",
    "performance": "ruff check --isolated --select PERF,ASYNC,C4,B019,RUF015 .\nradon cc -s -n C .",
}
"""How to look again, in the source's folder."""

_MOST_FILES = 8
_MOST_SUPPRESSED = 50
_MOST_TOLD = 250  # findings; a report of more is longer than readers of reports take, and the SARIF file has them all
_LONGEST = 240
_SURE = 90
_LESS_SURE = 70  # some of the code was not analysed


def report_of(review: Review, snapshot: Snapshot, most: int | None = None) -> HandoffReport:
    """Return one reviewer's report to the coordinator; every discovery begins with its file and line.

    Args:
        review: What was found.
        snapshot: The code under review.
        most: How many findings to tell in short, the gravest; None for all, with their code and what to do instead.
    """
    told = review.open if most is None else review.open[:most]
    untold = len(review.open) - len(told)
    missed = [*review.unread, *(one for one in snapshot.unread if one.missed)]
    complete = not missed
    used = ", ".join(f"{one.name} {one.version}".strip() for one in review.analysers)
    summary = (
        f"Looked for {review.concern} findings in {review.files} of {counted(len(snapshot.files), 'file')}"
        f"{_scope(snapshot)} with {used}. Found {in_words(review.open)}"
        f"{f', the gravest {most} of them told here' if untold else ''}."
    )
    return HandoffReport(
        sender=REVIEWERS[review.concern],
        receiver=COORDINATOR,
        task=f"Review {snapshot.name} for {review.concern}",
        status=Status.COMPLETED if complete else Status.PARTIAL,
        confidence=_SURE if complete else _LESS_SURE,
        summary=summary,
        findings=ReportFindings(discoveries=[_discovery(one, with_code=most is None) for one in told]),
        context=ReportContext(relevant_files=_relevant(review.open)),
        blockers=[f"Not analysed: {text(_unread(one), 400)}" for one in missed],
        recommendations=_advice(told) if most is None else [],
        verification_script=_SCRIPTS[review.concern],
        readiness=Readiness.YES if complete else Readiness.WITH_CAVEATS,
    )


def completed(
    merged: HandoffReport, snapshot: Snapshot, reviews: Sequence[Review], fail_on: Severity, files: Sequence[str]
) -> HandoffReport:
    """Return the merged report with what the coordinator adds: the verdict, and what was not looked at.

    Args:
        merged: The reviewers' reports as one.
        snapshot: The code under review.
        reviews: What the reviewers found.
        fail_on: The least severity for which changes are requested.
        files: The names of the files that the review is written to.
    """
    findings = in_order([one for review in reviews for one in review.open])
    complete = is_complete(snapshot, reviews)
    verdict = verdict_of(list(findings), fail_on, complete=complete)
    grave = [one for one in findings if SEVERITIES.index(one.severity) <= SEVERITIES.index(fail_on)]
    reason = f"{fail_on} or graver: {counted(len(grave), 'finding')}" if grave else f"No finding is {fail_on} or graver"
    where = f": {', '.join(dict.fromkeys(code(one.place) for one in grave[:_MOST_FILES]))}" if grave else ""
    missed = "Not all of the programs were analysed" if snapshot.files else "No program is under review"
    size = f"{counted(len(snapshot.files), 'file')} with {counted(snapshot.lines, 'line')}"
    summary = f"Verdict: {verdict}. Under review: {size}{_scope(snapshot)}. Found {in_words(findings)}."
    decision = ReportDecision(
        decision=f"Verdict: {verdict}",
        rationale=f"{reason}{where}." + ("" if complete else f" {missed}."),
        alternatives=f"Request changes at another severity than {fail_on!r} (parameter `fail_on`)",
    )
    context = merged.context.model_copy(
        update={"relevant_files": _relevant(findings), "decisions": [*merged.context.decisions, decision]}
    )
    made = [f"`{name}` - the review" for name in files]
    # In the merged report one reviewer's discoveries stand before the other's, each with whom it is from at its end.
    gravity = {_discovery(one, with_code=True): SEVERITIES.index(one.severity) for one in findings}
    gravest_first = sorted(merged.findings.discoveries, key=lambda one: gravity[one.rpartition(" (from ")[0]])
    return merged.model_copy(
        update={
            "summary": summary,
            "context": context,
            "findings": merged.findings.model_copy(
                update={"artifacts_created": made, "discoveries": gravest_first[:_MOST_TOLD]}
            ),
            "notes": [*merged.notes, *_notes(snapshot, reviews, untold=len(gravest_first) - _MOST_TOLD)],
        }
    )


def in_words(findings: Iterable[Finding]) -> str:
    """Return how many findings there are of each severity.

    Example:
        >>> in_words([])
        'nothing'
    """
    every = list(findings)
    counts = [f"{count} {severity}" for severity, count in count_by_severity(every).items() if count]
    return f"{counted(len(every), 'finding')} ({', '.join(counts)})" if counts else "nothing"


def not_analysed(snapshot: Snapshot, reviews: Sequence[Review]) -> list[Unread]:
    """Return everything that nobody looked at, each reason once."""
    found = {one.reason: one for review in reviews for one in review.unread}
    return [*found.values(), *snapshot.unread]


def _discovery(finding: Finding, *, with_code: bool) -> str:
    by = " and ".join(finding.by)
    cwe = f", CWE-{finding.cwe}" if finding.cwe else ""
    shown = f": {code(finding.code, _LONGEST)}" if finding.code and with_code else ""
    return (
        f"{code(finding.place)} **{finding.severity}** {text(finding.message, _LONGEST)} "
        f"({finding.rule}{cwe}, by {by}, {finding.confidence} %){shown}"
    )


def _advice(findings: Iterable[Finding]) -> list[str]:
    """Return what to do, each once, with the places."""
    places: dict[str, list[str]] = {}
    for finding in findings:
        if finding.advice:
            places.setdefault(f"{text(finding.advice, _LONGEST)} ({finding.rule})", []).append(code(finding.place))
    return [
        f"{advice}: {', '.join(where[:_MOST_FILES])}"
        + (f" and {len(where) - _MOST_FILES} more" if len(where) > _MOST_FILES else "")
        for advice, where in places.items()
    ]


def _relevant(findings: Iterable[Finding]) -> list[RelevantFile]:
    """Return the files with the gravest findings."""
    lines: dict[str, list[Finding]] = {}
    for finding in findings:
        lines.setdefault(finding.path, []).append(finding)
    return [
        RelevantFile(
            file=path,
            lines=", ".join(str(line) for line in sorted({one.line for one in found})[:_MOST_FILES]),
            reason=f"{in_words(found)}, first {text(found[0].message)}",
        )
        for path, found in list(lines.items())[:_MOST_FILES]
    ]


def _notes(snapshot: Snapshot, reviews: Sequence[Review], untold: int) -> list[Note]:
    """Return the sections that the format of reports does not know."""
    unread = [text(_unread(one), 400) for one in not_analysed(snapshot, reviews)]
    hushed = [one for review in reviews for one in review.findings if one.suppressed]
    shown = [f"{code(one.place)} {text(one.message, _LONGEST)} ({one.rule})" for one in hushed[:_MOST_SUPPRESSED]]
    if len(hushed) > _MOST_SUPPRESSED:
        shown.append(f"and {len(hushed) - _MOST_SUPPRESSED} more, in the SARIF file")
    dropped = sum(review.rejected for review in reviews)
    claims = [f"{dropped} claims of a model were dropped: the code does not have the lines"] if dropped else []
    used = [
        f"{one.name} {one.version}".strip() + f": {one.looked_for}" for review in reviews for one in review.analysers
    ]
    sections = {
        "Further Findings": [f"{untold:,} more, none of them graver, in the SARIF file"] if untold > 0 else [],
        "Not Analysed": unread or ["Nothing: every file of the source is a program that was analysed"],
        "Suppressed in the Source": shown,
        "Dropped": claims,
        "Analysers": list(dict.fromkeys(used)),
    }
    return [Note(heading=heading, items=items) for heading, items in sections.items() if items]


def _unread(one: Unread) -> str:
    examples = ", ".join(one.examples)
    more = ", …" if one.count > len(one.examples) else ""
    return f"{one.count} × {one.reason}" + (f" ({examples}{more})" if examples else "")


def _scope(snapshot: Snapshot) -> str:
    return f", as far as they changed {text(snapshot.compared_with)}" if snapshot.compared_with else ""
