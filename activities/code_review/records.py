"""What the stages of `code_review` find and hand on, as frozen records that cross process borders as JSON."""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from activities.project_init.roles import role_of
from baton.errors import BatonError
from baton.wire.records import Record

Severity = Literal["high", "medium", "low"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low")
"""The gravest first."""

Concern = Literal["security", "performance"]
Verdict = Literal["request changes", "comment", "approve"]


class CodeReviewError(BatonError):
    """The code, a parameter or the worker is not what a review needs; the message says what to do."""


class SourceText(Record):
    """One file under review.

    Attributes:
        path: Relative to the source, with forward slashes.
        language: What it is written in.
        text: Its content; every line end is a newline.
        changed: First and last line of each changed passage, from 1; None where the whole file is under review.
        is_test: Whether it is a test by its path.
    """

    path: str
    language: str
    text: str
    changed: tuple[tuple[int, int], ...] | None = None
    is_test: bool = False

    def covers(self, first: int, last: int) -> bool:
        """Return whether a passage of lines is under review.

        Example:
            >>> one = SourceText(path="a.py", language="Python", text="", changed=((3, 5),))
            >>> one.covers(5, 9), one.covers(6, 9)
            (True, False)
        """
        return self.changed is None or any(begin <= last and first <= end for begin, end in self.changed)


class Unread(Record):
    """Files that nobody looked at, for one reason.

    Attributes:
        reason: Why, as a short clause.
        count: How many.
        examples: Up to five of them.
        missed: Whether programs are among them that should have been looked at.
    """

    reason: str
    count: int = Field(ge=1)
    examples: tuple[str, ...] = ()
    missed: bool = False


class Snapshot(Record):
    """The code under review, as it was when the review began; every analyser reads this and nothing else.

    Attributes:
        name: The source folder's own name.
        compared_with: What the changes are counted from, as `since main` or `by fix.diff`; empty where everything
            is under review.
        files: The files under review.
        unread: What is not among them, and why.
    """

    name: str
    compared_with: str = ""
    files: tuple[SourceText, ...]
    unread: tuple[Unread, ...] = ()

    def written_in(self, language: str) -> list[SourceText]:
        """Return the files in one language."""
        return [file for file in self.files if file.language == language]

    @property
    def lines(self) -> int:
        """How many lines are under review."""
        whole = sum(file.text.count("\n") for file in self.files if file.changed is None)
        return whole + sum(last - first + 1 for file in self.files for first, last in file.changed or ())


class Finding(Record):
    """One thing that a reviewer objects to.

    Attributes:
        path: The file.
        line: Its first line.
        end_line: Its last line.
        column: Where it begins in the line, from 1.
        concern: Which reviewer's business it is.
        severity: How grave it is.
        rule: The rule's id: the analyser's own, such as `B602` or `PERF401`.
        name: The rule's name.
        message: What is wrong, in one sentence.
        by: The analysers that found it; the first one's rule and message are given.
        confidence: How sure they are, 0 to 100.
        help: Where the rule is explained, or "".
        cwe: The weakness's number in the Common Weakness Enumeration, or None.
        advice: What to do instead, or "".
        suppressed: Whether a comment in the source (`# nosec`, `# noqa`) says not to mind.
        code: The first line's text.
    """

    path: str
    line: int = Field(ge=1)
    end_line: int = Field(ge=1)
    column: int = Field(default=1, ge=1)
    concern: Concern
    severity: Severity
    rule: str
    name: str
    message: str
    by: tuple[str, ...]
    confidence: int = Field(ge=0, le=100)
    help: str = ""
    cwe: int | None = None
    advice: str = ""
    suppressed: bool = False
    code: str = ""

    @property
    def place(self) -> str:
        """File and line, as editors take them."""
        return f"{self.path}:{self.line}"


def column_at(line: str, offset: int) -> int:
    """Return the column, from 1, of what Python's parser sees in a line, for it counts bytes of UTF-8.

    Args:
        line: The line's text.
        offset: How many bytes are before it.

    Example:
        >>> column_at("ä = eval(x)", len("ä = ".encode()))
        5
    """
    return len(line.encode("utf-8", "replace")[:offset].decode("utf-8", "ignore")) + 1


class Analyser(Record):
    """A program or model that looked for findings.

    Attributes:
        name: What it is called.
        version: Its version; "" where it has none.
        looked_for: What it looks for, in a few words.
        every_language: Whether it reads every language, and not Python alone.
    """

    name: str
    version: str
    looked_for: str
    every_language: bool = False


class Review(Record):
    """What one reviewer found.

    Attributes:
        concern: What the reviewer looks for.
        analysers: What was used.
        files: How many files were analysed.
        findings: Gravest first, then by place.
        unread: Files under review that could not be analysed, and why.
        rejected: How many claims of a model were dropped, because the code does not bear them out.
    """

    concern: Concern
    analysers: tuple[Analyser, ...]
    files: int
    findings: tuple[Finding, ...]
    unread: tuple[Unread, ...] = ()
    rejected: int = 0

    @property
    def open(self) -> list[Finding]:
        """The findings that no comment in the source suppresses."""
        return [finding for finding in self.findings if not finding.suppressed]


def in_order(findings: list[Finding]) -> tuple[Finding, ...]:
    """Return findings with the gravest first, of these tests' last, then by place and rule."""
    return tuple(sorted(findings, key=_rank))


def _rank(one: Finding) -> tuple[int, bool, str, int, int, str]:
    is_test = role_of(one.path) == "test"
    return SEVERITIES.index(one.severity), is_test, one.path, one.line, one.column, one.rule


def verdict_of(findings: list[Finding], fail_on: Severity, *, complete: bool) -> Verdict:
    """Return what to do about a change with these findings.

    Args:
        findings: All that are not suppressed.
        fail_on: The least severity for which changes are requested.
        complete: Whether all that should have been looked at was (`is_complete`).

    Example:
        >>> verdict_of([], "high", complete=True), verdict_of([], "high", complete=False)
        ('approve', 'comment')
    """
    if any(SEVERITIES.index(one.severity) <= SEVERITIES.index(fail_on) for one in findings):
        return "request changes"
    return "approve" if complete and not findings else "comment"


def is_complete(snapshot: Snapshot, reviews: Iterable[Review]) -> bool:
    """Return whether there were programs to look at, and each reviewer looked at all of them.

    Example:
        >>> is_complete(Snapshot(name="prose", files=()), [])
        False
    """
    missed = any(one.missed for one in snapshot.unread) or any(review.unread for review in reviews)
    return bool(snapshot.files) and not missed


def count_by_severity(findings: list[Finding]) -> dict[str, int]:
    """Return how many findings there are of each severity, the gravest first, zeros included."""
    return {severity: sum(one.severity == severity for one in findings) for severity in SEVERITIES}
