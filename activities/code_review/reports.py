"""The reviewers' reports to the coordinator, the merged report with the verdict, and the findings as SARIF 2.1.0."""

import json
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from activities.code_review.records import (
    RUFF_RULES,
    SEVERITIES,
    Concern,
    Finding,
    Review,
    Severity,
    Snapshot,
    count_by_severity,
    in_order,
    is_complete,
    verdict_of,
)
from activities.pages import code, text
from baton import __version__
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
from baton.report.rules import merge_reports

COORDINATOR = "coordinate-review"
REVIEWERS: dict[Concern, str] = {"security": "audit-security", "performance": "review-performance"}
"""The reviewer's stage by its concern."""

_CHECKS = {"security": "bandit -q -r .", "performance": f"ruff check --isolated --select {RUFF_RULES} ."}
_MOST_REPORTED = 250
_MOST_FILES = 8
_MOST_SUPPRESSED = 50
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: dict[Severity, tuple[str, str]] = {
    "high": ("error", "8.0"),
    "medium": ("warning", "5.0"),
    "low": ("note", "2.0"),
}


def reviewer_report(review: Review, snapshot: Snapshot, most: int | None = None) -> HandoffReport:
    """Return one reviewer's report to the coordinator: ``most`` findings without code, or all with their code."""
    shown = review.open if most is None else review.open[:most]
    missed = [*review.unread, *(one for one in snapshot.unread if one.missed)]
    return HandoffReport(
        sender=REVIEWERS[review.concern],
        receiver=COORDINATOR,
        task=f"Review {snapshot.name} for {review.concern}",
        status=Status.PARTIAL if missed else Status.COMPLETED,
        confidence=70 if missed else 90,
        summary=f"Looked for {review.concern} findings in {text(snapshot.scope)} with {', '.join(review.analysers)}. "
        f"Found {in_words(review.open)}.",
        findings=ReportFindings(discoveries=[_discovery(one, with_code=most is None) for one in shown]),
        context=ReportContext(relevant_files=_relevant(review.open)),
        blockers=[f"Not analysed: {text(str(one))}" for one in missed],
        verification_script=_CHECKS[review.concern],
        readiness=Readiness.WITH_CAVEATS if missed else Readiness.YES,
    )


def merged_report(
    snapshot: Snapshot, reviews: Sequence[Review], fail_on: Severity, files: Sequence[str]
) -> HandoffReport:
    """Return the coordinator's report: what both reviewers found, the gravest first, and the verdict."""
    told = [reviewer_report(review, snapshot) for review in reviews]
    merged = merge_reports(told, sender=COORDINATOR, receiver="parent", task=f"Review {snapshot.name}")
    findings = in_order(one for review in reviews for one in review.open)
    complete = is_complete(snapshot, reviews)
    verdict = verdict_of(findings, fail_on, complete=complete)
    grave = [one for one in findings if SEVERITIES.index(one.severity) <= SEVERITIES.index(fail_on)]
    places = ", ".join(dict.fromkeys(code(one.place) for one in grave[:_MOST_FILES]))
    reason = (
        f"{len(grave)} findings are {fail_on} or graver: {places}." if grave else f"No finding is {fail_on} or graver."
    )
    decision = ReportDecision(
        decision=f"Verdict: {verdict}",
        rationale=reason if complete else f"{reason} Not everything was analysed.",
        alternatives=f"Request changes at another severity than {fail_on!r} (parameter `fail_on`)",
    )
    gravity = {_discovery(one, with_code=True): SEVERITIES.index(one.severity) for one in findings}
    ordered = sorted(merged.findings.discoveries, key=lambda one: gravity[one.rpartition(" (from ")[0]])
    return merged.model_copy(
        update={
            "summary": f"Verdict: {verdict}. Under review: {text(snapshot.scope)}. Found {in_words(findings)}.",
            "context": merged.context.model_copy(
                update={"relevant_files": _relevant(findings), "decisions": [*merged.context.decisions, decision]}
            ),
            "findings": merged.findings.model_copy(
                update={
                    "artifacts_created": [f"`{name}` - the review" for name in files],
                    "discoveries": ordered[:_MOST_REPORTED],
                }
            ),
            "notes": [*merged.notes, *_notes(snapshot, reviews, left=len(ordered) - _MOST_REPORTED)],
        }
    )


def to_sarif(snapshot: Snapshot, reviews: Sequence[Review]) -> str:
    """Return the findings as SARIF: one run for each reviewer; findings that the source suppresses are marked.

    The same snapshot gives the same log.
    """
    runs = [_sarif_run(snapshot, review) for review in reviews]
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": runs}, indent=1, ensure_ascii=False) + "\n"


def in_words(findings: Iterable[Finding]) -> str:
    """Return how many findings there are of each severity."""
    counts = {severity: count for severity, count in count_by_severity(findings).items() if count}
    words = ", ".join(f"{count} {severity}" for severity, count in counts.items())
    return f"{sum(counts.values())} findings ({words})" if counts else "nothing"


def _discovery(finding: Finding, *, with_code: bool) -> str:
    cwe = f", CWE-{finding.cwe}" if finding.cwe else ""
    shown = f": {code(finding.code)}" if finding.code and with_code else ""
    how = f"({finding.rule}{cwe}, by {' and '.join(finding.by)}, {finding.confidence} %)"
    return f"{code(finding.place)} **{finding.severity}** {text(finding.message)} {how}{shown}"


def _relevant(findings: Iterable[Finding]) -> list[RelevantFile]:
    by_file: dict[str, list[Finding]] = {}
    for finding in findings:
        by_file.setdefault(finding.path, []).append(finding)
    return [
        RelevantFile(
            file=path,
            lines=", ".join(map(str, sorted({one.line for one in found})[:_MOST_FILES])),
            reason=f"{in_words(found)}, first {text(found[0].message)}",
        )
        for path, found in list(by_file.items())[:_MOST_FILES]
    ]


def _notes(snapshot: Snapshot, reviews: Sequence[Review], left: int) -> list[Note]:
    """Return the sections that the format of reports does not have."""
    unread = {str(one): None for group in (*(review.unread for review in reviews), snapshot.unread) for one in group}
    suppressed = [one for review in reviews for one in review.findings if one.suppressed]
    hidden = [f"{code(one.place)} {text(one.message)} ({one.rule})" for one in suppressed[:_MOST_SUPPRESSED]]
    dropped = sum(review.rejected for review in reviews)
    sections = {
        "Further Findings": [f"{left:,} more, none of them graver, in the SARIF file"] if left > 0 else [],
        "Not Analysed": [text(one) for one in unread] or ["Nothing: every file was analysed"],
        "Suppressed in the Source": hidden,
        "Dropped": [f"{dropped} claims of a model were dropped: the code does not have the lines"] if dropped else [],
        "Analysers": list(dict.fromkeys(each for review in reviews for each in review.analysers)),
    }
    return [Note(heading=heading, items=items) for heading, items in sections.items() if items]


def _sarif_run(snapshot: Snapshot, review: Review) -> dict[str, Any]:
    rules: dict[str, dict[str, Any]] = {}
    results = []
    for finding in review.findings:  # the gravest come first
        level, score = _LEVELS[finding.severity]
        rules.setdefault(
            finding.rule,
            {
                "id": finding.rule,
                "defaultConfiguration": {"level": level},
                "properties": {
                    "tags": [finding.concern, *([f"external/cwe/cwe-{finding.cwe:03}"] if finding.cwe else [])],
                    **({"security-severity": score} if review.concern == "security" else {}),
                },
            },
        )
        region = {"startLine": finding.line, "endLine": finding.end_line}
        place = {"artifactLocation": {"uri": quote(finding.path), "uriBaseId": "SRCROOT"}, "region": region}
        results.append(
            {
                "ruleId": finding.rule,
                "ruleIndex": list(rules).index(finding.rule),
                "level": level,
                "message": {"text": finding.message},
                "locations": [{"physicalLocation": place}],
                "properties": {"analysers": [*finding.by], "confidence": finding.confidence},
                **({"suppressions": [{"kind": "inSource"}]} if finding.suppressed else {}),
            }
        )
    driver = {"name": f"Baton code_review: {review.concern}", "version": __version__, "rules": [*rules.values()]}
    unread = [
        {"level": "note", "message": {"text": f"Not analysed: {one}"}} for one in (*review.unread, *snapshot.unread)
    ]
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"code_review/{review.concern}/"},
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": f"The folder of {snapshot.name}"}}},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": unread}],
        "results": results,
    }
