"""The records of `code_review`; they travel as artifacts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from activities.source_files import is_test_file
from baton import BatonError
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
        return f"{subject}, {len(self.files)} files with {self.lines} lines"


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
    confidence: int = Field(ge=0, le=100)
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
