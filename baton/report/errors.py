"""What is wrong, or odd, with a handoff report, and the error that carries it.

A report is written by an agent or a person, so its reader gets every finding at once, with the lines they are on.
"""

from collections.abc import Sequence
from enum import StrEnum

from pydantic import Field

from baton.errors import BatonError
from baton.wire.records import CompactRecord

MOST_NAMED, LONGEST_NAMED = 20, 400
"""So many findings, of so many characters each, stand in an error's message: it goes into an agent's next prompt."""


class Severity(StrEnum):
    """How grave a finding about a report is."""

    ERROR = "error"
    """The report is refused."""
    WARNING = "warning"
    """The report is taken; a reader should know."""


class ReportFinding(CompactRecord):
    """One thing that is wrong or odd with a report.

    Attributes:
        severity: Whether it keeps the report from being taken.
        member: The member of the report it is about, as JSON spells it; empty for the report as a whole.
        text: A sentence that says what was found, what is expected and what to do.
        line: The line of the Markdown it is on, from 1; absent where there is none.
    """

    severity: Severity = Field(strict=False)
    member: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        """Return the finding on one line, its place first."""
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.member}: {self.text}" if self.member else f"{place}{self.text}"


class ReportError(BatonError):
    """A text is no handoff report, or a report contradicts itself; nothing of it was taken.

    Attributes:
        findings: Everything that is wrong, in the order of the lines; warnings are not among them.

    Example:
        >>> error = ReportError([ReportFinding(severity=Severity.ERROR, member="status", text="is missing", line=3)])
        >>> str(error)
        'line 3: status: is missing'
    """

    def __init__(self, findings: Sequence[ReportFinding]) -> None:
        named = [_short(str(one)) for one in findings[:MOST_NAMED]]
        more = [f"and {len(findings) - len(named)} more"] if len(findings) > len(named) else []
        super().__init__("; ".join([*named, *more]))
        self.findings = list(findings)


def _short(sentence: str) -> str:
    """Return a sentence at a length that a prompt can take."""
    return sentence if len(sentence) <= LONGEST_NAMED else f"{sentence[:LONGEST_NAMED]}…"
