"""What the stages of `code_review` find and hand on, as frozen records that travel as artifacts."""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from baton import BatonError
from baton.wire.records import Record

Severity = Literal["high", "medium", "low"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low")
Concern = Literal["security", "performance"]
RUFF_RULES = "PERF,ASYNC,C4,C901,B019,RUF015"
"""Ruff's rules on slow, blocking and complex code."""
Verdict = Literal["request changes", "comment", "approve"]
Passages = tuple[tuple[int, int], ...]
"""First and last lines, from 1."""


class CodeReviewError(BatonError):
    """The code, a parameter or the worker is not what a review needs; the message says what to do."""


class SourceText(Record):
    """One file under review: `changed` has the changed lines, or is None if the whole file is under review."""

    path: str
    language: str
    text: str
    changed: Passages | None = None

    def covers(self, first: int, last: int) -> bool:
        """Return whether any of these lines is under review."""
        return self.changed is None or any(begin <= last and first <= end for begin, end in self.changed)


class Unread(Record):
    """Files that were not reviewed, for one reason; `missed` if programs are among them."""

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
        """How many lines are under review."""
        whole = sum(file.text.count("\n") for file in self.files if file.changed is None)
        return whole + sum(last - first + 1 for file in self.files for first, last in file.changed or ())

    @property
    def scope(self) -> str:
        """What is under review, in words."""
        what = f"what changed {self.compared_with}" if self.compared_with else "the whole project"
        return f"{what}, {len(self.files)} files with {self.lines} lines"


class Finding(Record):
    """One thing that a reviewer objects to."""

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
    """What one reviewer found; `rejected` counts claims of a model whose quoted lines the code does not have."""

    concern: Concern
    analysers: tuple[str, ...]
    findings: tuple[Finding, ...]
    unread: tuple[Unread, ...] = ()
    rejected: int = 0

    @property
    def open(self) -> list[Finding]:
        """The findings that the source does not suppress."""
        return [finding for finding in self.findings if not finding.suppressed]


def is_test(path: str) -> bool:
    """Return whether a file is a test, by its path."""
    *folders, name = path.split("/")
    return bool({"test", "tests"} & {*folders}) or name.startswith("test_") or name.endswith("_test.py")


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings with the gravest first, of these tests' last, then by place."""

    def rank(one: Finding) -> tuple[int, bool, str, int, str]:
        return SEVERITIES.index(one.severity), is_test(one.path), one.path, one.line, one.rule

    return tuple(sorted(findings, key=rank))


def is_complete(snapshot: Snapshot, reviews: Iterable[Review]) -> bool:
    """Return whether there were programs to review, and each reviewer analysed all of them."""
    missed = any(one.missed for one in snapshot.unread) or any(review.unread for review in reviews)
    return bool(snapshot.files) and not missed


def verdict_of(findings: Iterable[Finding], fail_on: Severity, *, complete: bool) -> Verdict:
    """Return the verdict on code with these findings."""
    found = list(findings)
    if any(SEVERITIES.index(one.severity) <= SEVERITIES.index(fail_on) for one in found):
        return "request changes"
    return "approve" if complete and not found else "comment"


def count_by_severity(findings: Iterable[Finding]) -> dict[Severity, int]:
    """Return how many findings there are of each severity."""
    found = list(findings)
    return {severity: sum(one.severity == severity for one in found) for severity in SEVERITIES}
