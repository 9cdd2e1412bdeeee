"""The records of `code_review`, the reviewers' reports, the merged report with the verdict, and SARIF 2.1.0."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal
from urllib.parse import quote

from pydantic import Field

from activities.pages import code, text
from activities.source_files import is_test_file
from baton import BatonError, __version__
from baton.report.merging import merge_reports
from baton.report.records import HandoffReport, Note, Readiness, ReportDecision, ReportFindings, Status
from baton.wire.records import Record

Severity = Literal["high", "medium", "low"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low")
Concern = Literal["security", "performance"]
RUFF_RULES = "PERF,ASYNC,C4,C901,B019,RUF015"
"""Ruff's rules on slow, blocking and complex code."""
Verdict = Literal["request changes", "comment", "nothing found", "approve", "not reviewed"]
Passages = tuple[tuple[int, int], ...]
"""First and last lines, from 1."""


class CodeReviewError(BatonError):
    """A review cannot run with this code, parameter or worker; the message says what to do."""


class SourceText(Record):
    """A file under review; `changed` is None if the whole file is under review."""

    path: str
    language: str
    text: str
    changed: Passages | None = None

    def covers(self, first: int, last: int) -> bool:
        """Return whether any of these lines is under review."""
        return self.changed is None or any(begin <= last and first <= end for begin, end in self.changed)


class Unread(Record):
    """Files that were not reviewed, for one reason; `missed` if they may be programs, or are part of the change."""

    reason: str
    count: int = Field(ge=1)
    examples: tuple[str, ...] = ()
    missed: bool = False

    def __str__(self) -> str:
        more = ", …" if self.count > len(self.examples) else ""
        return f"{self.count} × {self.reason}" + (f" ({', '.join(self.examples)}{more})" if self.examples else "")


class Snapshot(Record):
    """The code under review, as it was when the review began."""

    name: str
    compared_with: str = ""
    files: tuple[SourceText, ...]
    unread: tuple[Unread, ...] = ()

    @property
    def lines(self) -> int:
        """The number of lines under review."""
        whole_files = sum(file.text.count("\n") for file in self.files if file.changed is None)
        return whole_files + sum(last - first + 1 for file in self.files for first, last in file.changed or ())

    @property
    def scope(self) -> str:
        """A description of what is under review."""
        subject = f"what changed {self.compared_with}" if self.compared_with else "the whole project"
        return f"{len(self.files)} programs with {self.lines} lines, of {subject}"


class Finding(Record):
    """An objection of a reviewer."""

    path: str
    line: int = Field(ge=1)
    end_line: int = Field(ge=1)
    concern: Concern
    severity: Severity
    rule: str
    message: str
    by: tuple[str, ...]
    cwe: int | None = None
    suppressed: bool = False
    code: str = ""

    @property
    def place(self) -> str:
        """File and line, as editors take them."""
        return f"{self.path}:{self.line}"


class Review(Record):
    """The findings of one reviewer in the files that it examined.

    `judged` is true if a model read all of it; `rejected` counts its claims whose quote is not in the code.
    """

    concern: Concern
    analysers: tuple[str, ...]
    examined: int = Field(ge=0)
    findings: tuple[Finding, ...]
    unread: tuple[Unread, ...] = ()
    judged: bool = False
    rejected: int = 0

    @property
    def open(self) -> list[Finding]:
        """The findings that are not suppressed in the source."""
        return [finding for finding in self.findings if not finding.suppressed]


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort by severity, tests last within each, then by place."""

    def rank(finding: Finding) -> tuple[int, bool, str, int, str]:
        return SEVERITIES.index(finding.severity), is_test_file(finding.path), finding.path, finding.line, finding.rule

    return tuple(sorted(findings, key=rank))


def is_complete(snapshot: Snapshot, reviews: Iterable[Review]) -> bool:
    """Return whether there was code to review and each reviewer analysed all of it."""
    missed = any(unread.missed for unread in snapshot.unread) or any(review.unread for review in reviews)
    return bool(snapshot.files) and not missed


def decide_verdict(snapshot: Snapshot, reviews: Sequence[Review], fail_on: Severity) -> Verdict:
    """Return the verdict of these reviews: none on what nothing examined, and approval only where a model read it."""
    if not any(review.examined for review in reviews):
        return "not reviewed"
    findings = [finding for review in reviews for finding in review.open]
    if any(SEVERITIES.index(finding.severity) <= SEVERITIES.index(fail_on) for finding in findings):
        return "request changes"
    if findings or not is_complete(snapshot, reviews):
        return "comment"
    return "approve" if all(review.judged for review in reviews) else "nothing found"


def count_by_severity(findings: Iterable[Finding]) -> dict[Severity, int]:
    """Return how many findings there are of each severity."""
    counts = Counter(finding.severity for finding in findings)
    return {severity: counts[severity] for severity in SEVERITIES}


COORDINATOR = "coordinate-review"
REVIEWERS: dict[Concern, str] = {"security": "audit-security", "performance": "review-performance"}
"""The stage of the reviewer for each concern."""

_CHECKS = {"security": "bandit -q -r .", "performance": f"ruff check --isolated --select {RUFF_RULES} ."}
_MAX_REPORTED = 250
_MAX_FILES = 8
_MAX_SUPPRESSED = 50
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: dict[Severity, tuple[str, str]] = {
    "high": ("error", "8.0"),
    "medium": ("warning", "5.0"),
    "low": ("note", "2.0"),
}


def reviewer_report(review: Review, snapshot: Snapshot, limit: int | None = None) -> HandoffReport:
    """Return a reviewer's report: ``limit`` findings without code, or all of them with code."""
    findings = review.open if limit is None else review.open[:limit]
    missed = [*review.unread, *(item for item in snapshot.unread if item.missed or not review.examined)]
    status, confidence, readiness = (
        (Status.BLOCKED, 0, Readiness.NO)
        if not review.examined
        else (Status.PARTIAL, 70, Readiness.WITH_CAVEATS)
        if missed
        else (Status.COMPLETED, 90, Readiness.YES)
        if review.judged
        else (Status.COMPLETED, 70, Readiness.WITH_CAVEATS)
    )
    return HandoffReport(
        sender=REVIEWERS[review.concern],
        receiver=COORDINATOR,
        task=f"Review {snapshot.name} for {review.concern}",
        status=status,
        confidence=confidence,
        summary=f"Looked for {review.concern} findings in {text(snapshot.scope)} with {', '.join(review.analysers)}. "
        f"{describe_result(snapshot, [review])}.",
        findings=ReportFindings(
            discoveries=[_render_discovery(finding, with_code=limit is None) for finding in findings]
        ),
        blockers=[f"Not analysed: {text(str(item))}" for item in missed]
        or ([] if review.examined else [f"Not analysed: {text(snapshot.scope)}"])
        or ([] if review.judged else ["Analysers know patterns: neither a model nor a person has read it"]),
        verification_script=_CHECKS[review.concern],
        readiness=readiness,
    )


def merged_report(
    snapshot: Snapshot, reviews: Sequence[Review], fail_on: Severity, files: Sequence[str]
) -> HandoffReport:
    """Return the coordinator's report: the verdict and all findings, most severe first."""
    reports = [reviewer_report(review, snapshot) for review in reviews]
    merged = merge_reports(reports, sender=COORDINATOR, receiver="parent", task=f"Review {snapshot.name}")
    findings = sort_findings(finding for review in reviews for finding in review.open)
    complete = is_complete(snapshot, reviews)
    verdict = decide_verdict(snapshot, reviews, fail_on)
    decisive = [finding for finding in findings if SEVERITIES.index(finding.severity) <= SEVERITIES.index(fail_on)]
    places = ", ".join(dict.fromkeys(code(finding.place) for finding in decisive[:_MAX_FILES]))
    reason = (
        f"{len(decisive)} findings are {fail_on} or graver: {places}."
        if decisive
        else f"No finding is {fail_on} or graver."
    )
    decision = ReportDecision(
        decision=f"Verdict: {verdict}",
        rationale="Nothing was examined."
        if verdict == "not reviewed"
        else reason
        if complete
        else f"{reason} Not everything was analysed.",
        alternatives=f"Request changes at another severity than {fail_on!r} (parameter `fail_on`)",
    )
    ordered = sorted(merged.findings.discoveries, key=_find_severity)
    return merged.model_copy(
        update={
            "summary": f"Verdict: {verdict}. Under review: {text(snapshot.scope)}. "
            f"{describe_result(snapshot, reviews)}.",
            "context": merged.context.model_copy(update={"decisions": [*merged.context.decisions, decision]}),
            "findings": merged.findings.model_copy(
                update={
                    "artifacts_created": [f"`{name}` - the review" for name in files],
                    "discoveries": ordered[:_MAX_REPORTED],
                }
            ),
            "notes": [*merged.notes, *_build_notes(snapshot, reviews, omitted=len(ordered) - _MAX_REPORTED)],
        }
    )


def to_sarif(snapshot: Snapshot, reviews: Sequence[Review]) -> str:
    """Return the findings as SARIF, one run per reviewer; suppressed findings are marked."""
    runs = [_build_sarif_run(snapshot, review) for review in reviews]
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": runs}, indent=1, ensure_ascii=False) + "\n"


def count_in_words(findings: Iterable[Finding]) -> str:
    """Return the number of findings of each severity as text."""
    counts = {severity: count for severity, count in count_by_severity(findings).items() if count}
    words = ", ".join(f"{count} {severity}" for severity, count in counts.items())
    return f"{sum(counts.values())} findings ({words})" if counts else "nothing"


def describe_result(snapshot: Snapshot, reviews: Sequence[Review]) -> str:
    """Return what reviews found, and in how many of the files under review they looked."""
    examined = max((review.examined for review in reviews), default=0)
    if not examined:
        return "Nothing was examined"
    findings = [finding for review in reviews for finding in review.open]
    return f"Found {count_in_words(findings)} in the {examined} of {len(snapshot.files)} files that were examined"


def _find_severity(discovery: str) -> int:
    match = re.search(r"\*\*(high|medium|low)\*\*", discovery)
    return [*SEVERITIES, match and match[1]].index(match and match[1])


def _render_discovery(finding: Finding, *, with_code: bool) -> str:
    cwe = f", CWE-{finding.cwe}" if finding.cwe else ""
    code_suffix = f": {code(finding.code)}" if finding.code and with_code else ""
    origin = f"({finding.rule}{cwe}, by {' and '.join(finding.by)})"
    return f"{code(finding.place)} **{finding.severity}** {text(finding.message)} {origin}{code_suffix}"


def _build_notes(snapshot: Snapshot, reviews: Sequence[Review], omitted: int) -> list[Note]:
    unread = {str(item): None for group in (*(review.unread for review in reviews), snapshot.unread) for item in group}
    suppressed = [finding for review in reviews for finding in review.findings if finding.suppressed]
    hidden = [
        f"{code(finding.place)} {text(finding.message)} ({finding.rule})" for finding in suppressed[:_MAX_SUPPRESSED]
    ]
    dropped = sum(review.rejected for review in reviews)
    sections = {
        "Further Findings": [f"{omitted:,} more, none of them graver, in the SARIF file"] if omitted > 0 else [],
        "Not Analysed": [text(item) for item in unread]
        or (["Nothing: every file was analysed"] if is_complete(snapshot, reviews) else [text(snapshot.scope)]),
        "Suppressed in the Source": hidden,
        "Dropped": [f"{dropped} claims of a model were dropped: the code does not have the lines"] if dropped else [],
        "Analysers": list(dict.fromkeys(analyser for review in reviews for analyser in review.analysers)),
    }
    return [Note(heading=heading, items=items) for heading, items in sections.items() if items]


def _build_sarif_run(snapshot: Snapshot, review: Review) -> dict[str, Any]:
    rules: dict[str, dict[str, Any]] = {}
    results = []
    for finding in review.findings:  # the most severe come first
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
        location = {"artifactLocation": {"uri": quote(finding.path), "uriBaseId": "SRCROOT"}, "region": region}
        results.append(
            {
                "ruleId": finding.rule,
                "ruleIndex": list(rules).index(finding.rule),
                "level": level,
                "message": {"text": finding.message},
                "locations": [{"physicalLocation": location}],
                "properties": {"analysers": [*finding.by]},
                **({"suppressions": [{"kind": "inSource"}]} if finding.suppressed else {}),
            }
        )
    driver = {"name": f"Baton code_review: {review.concern}", "version": __version__, "rules": [*rules.values()]}
    unread = [
        {"level": "note", "message": {"text": f"Not analysed: {item}"}} for item in (*review.unread, *snapshot.unread)
    ]
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"code_review/{review.concern}/"},
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": f"The folder of {snapshot.name}"}}},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": unread}],
        "results": results,
    }
