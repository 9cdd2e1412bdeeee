"""The handoff report as a record, the titles of its sections, and what is wrong with one."""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from baton.errors import BatonError
from baton.wire.records import CamelRecord, CompactRecord, Integer, Statement, has_text
from baton.wire.text import LINE_BREAKS

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
    """A text is not a handoff report, or a report contradicts itself; nothing of it was taken."""

    def __init__(self, findings: Sequence[ReportFinding]) -> None:
        named = [_short(str(one)) for one in findings[:MOST_NAMED]]
        more = [f"and {len(findings) - len(named)} more"] if len(findings) > len(named) else []
        super().__init__("; ".join([*named, *more]))
        self.findings = list(findings)


def _short(sentence: str) -> str:
    """Return a sentence at a length that a prompt can take."""
    return sentence if len(sentence) <= LONGEST_NAMED else f"{sentence[:LONGEST_NAMED]}…"


TITLE = "Agent Handoff Report"
_DISCOVERIES = "findings.discoveries"
SECTIONS = {
    "findings": _DISCOVERIES,  # a heading over others; what stands directly below it is what was found
    "summary": "summary",
    **dict.fromkeys(("key discoveries", "discoveries", "key findings"), _DISCOVERIES),
    **dict.fromkeys(("artifacts created", "files created"), "findings.artifactsCreated"),
    **dict.fromkeys(("artifacts modified", "files modified"), "findings.artifactsModified"),
    **dict.fromkeys(("relevant files", "key files"), "context.relevantFiles"),
    **dict.fromkeys(("patterns identified", "patterns"), "context.patterns"),
    **dict.fromkeys(("decisions made", "decisions", "key decisions"), "context.decisions"),
    **dict.fromkeys(
        ("blockers open questions", "blockers and open questions", "blockers", "open questions"), "blockers"
    ),
    **dict.fromkeys(("recommendations for next agent", "recommendations", "next steps"), "recommendations"),
    **dict.fromkeys(("verification commands", "verification", "how to verify"), "verificationCommands"),
}
"""The member of a report by the name of its section, as `plain` writes it."""
ABOVE = "context for next agent"
"""A heading over others, with nothing of its own below it."""


def plain(title: str) -> str:
    """Return a heading in lower case, without marks and numbers."""
    return " ".join(re.sub("[^a-z]+", " ", title.casefold()).split())


def _lines(text: str) -> list[str]:
    """Return the lines of a text, whatever ends them, without blanks at their ends."""
    return [line.rstrip(" \t") for line in LINE_BREAKS.split(text.replace("\0", "\ufffd"))]


def _block(text: str) -> str:
    """Return a text with one kind of line break, and no blanks around it."""
    return "\n".join(_lines(text)).strip(" \t\n")


def _line(text: str) -> str:
    """Return a text on one line."""
    return " ".join(line.strip(" \t") for line in _lines(text) if line)


def _script(text: str) -> str:
    """Return a script without blank lines around it."""
    return "\n".join(_lines(text)).strip("\n")


Text = Annotated[Statement, AfterValidator(_block)]
"""Markdown of one or more lines that says something; its line breaks are line feeds, whatever they were."""

Line = Annotated[Statement, AfterValidator(_line)]
"""A text that says something, on one line; a line break in it becomes a blank."""

Percent = Annotated[
    Integer, Field(ge=0, le=100), WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 100, "examples": [85]})
]
"""A confidence: a whole number from 0 to 100."""


class Status(StrEnum):
    """How far the task got."""

    COMPLETED = "completed"
    """The task is fully accomplished, all objectives are met."""
    PARTIAL = "partial"
    """Some objectives are met, others are pending."""
    BLOCKED = "blocked"
    """It cannot continue without input or a resolution."""
    FAILED = "failed"
    """The task could not be completed."""

    @property
    def delivers(self) -> bool:
        """Whether it delivers work: completed or partial."""
        return self in (Status.COMPLETED, Status.PARTIAL)


class Readiness(StrEnum):
    """Whether the next phase may begin, as the report says it."""

    YES = "Yes"
    WITH_CAVEATS = "With caveats"
    NO = "No"


class Band(StrEnum):
    """What a confidence means."""

    HIGH = "high"
    GOOD = "good"
    MODERATE = "moderate"
    LOW = "low"


class ReportRecord(CamelRecord):
    """A part of a report."""

    def to_json_object(self) -> dict[str, Any]:
        """Return the record as a JSON object with all its members."""
        return self.model_dump(mode="json", by_alias=True)


class ReportFindings(ReportRecord):
    """What was found and made.

    Attributes:
        discoveries: Key discoveries, with references to files and lines.
        artifacts_created: What is new, each as a path in backticks, ` - ` and a description.
        artifacts_modified: What was changed, each as a path with its lines in backticks, ` - ` and what changed.
    """

    discoveries: list[Text] = Field(default_factory=list)
    artifacts_created: list[Text] = Field(default_factory=list)
    artifacts_modified: list[Text] = Field(default_factory=list)


class RelevantFile(ReportRecord):
    """A file that the next agent should know.

    Attributes:
        file: Its path.
        lines: Which lines, for example `"1-45"` or `"All"`.
        reason: Why it matters.
    """

    file: Line
    lines: Annotated[str, AfterValidator(_line)] = ""
    reason: Annotated[str, AfterValidator(_line)] = ""


class ReportDecision(ReportRecord):
    """A decision that was made.

    Attributes:
        decision: What was decided.
        rationale: Why.
        alternatives: What else was possible.
    """

    decision: Text
    rationale: Annotated[str, AfterValidator(_block)] = ""
    alternatives: Annotated[str, AfterValidator(_block)] = ""


class ReportContext(ReportRecord):
    """What the next agent needs to know.

    Attributes:
        relevant_files: The files that matter, and why.
        patterns: Patterns that were identified.
        decisions: Decisions that were made.
    """

    relevant_files: list[RelevantFile] = Field(default_factory=list)
    patterns: list[Text] = Field(default_factory=list)
    decisions: list[ReportDecision] = Field(default_factory=list)


class Note(ReportRecord):
    """A section that the format does not know, kept so that nothing an author wrote is lost.

    Attributes:
        heading: Its heading.
        items: What it says.
    """

    heading: Line
    items: list[Text] = Field(default_factory=list)


class HandoffReport(ReportRecord):
    """A handoff report: who did what for whom, how sure, and what the next one needs.

    Attributes:
        sender: The agent that reports.
        receiver: The agent, or the parent, that it reports to.
        task: What the task was, in brief.
        status: How far it got.
        confidence: How sure the sender is of its work, 0 to 100.
        summary: What was accomplished, in two or three sentences.
        findings: What was found and made.
        context: What the next agent needs to know.
        blockers: Open questions, and what could not be resolved.
        resolved_blockers: Questions and blockers that are settled.
        recommendations: What the next agent should do, look at or avoid.
        verification_script: The commands that verify the work, with their comments.
        verification_commands: The same without comments and blank lines.
        handoff_confidence: How sure the sender is that the next phase can begin, 0 to 100; `confidence` by default.
        readiness: Whether the next phase may begin; No by default.
        ready_for_next_phase: True for Yes and for With caveats, false for No.
        notes: Further sections.
    """

    sender: Line = Field(alias="from")
    receiver: Line = Field(alias="to")
    task: Line
    status: Status = Field(strict=False)
    confidence: Percent
    summary: Text
    findings: ReportFindings = Field(default_factory=ReportFindings)
    context: ReportContext = Field(default_factory=ReportContext)
    blockers: list[Text] = Field(default_factory=list)
    resolved_blockers: list[Text] = Field(default_factory=list)
    recommendations: list[Text] = Field(default_factory=list)
    verification_script: Annotated[str, AfterValidator(_script)] = ""
    verification_commands: list[Text] = Field(default_factory=list)
    handoff_confidence: Percent = 0
    readiness: Readiness = Field(default=Readiness.NO, strict=False)
    ready_for_next_phase: bool = False
    notes: list[Note] = Field(default_factory=list)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        """Fill in what follows from other members; frozen records are completed as frozen dataclasses are."""
        given = self.model_fields_set
        if "handoff_confidence" not in given:
            object.__setattr__(self, "handoff_confidence", self.confidence)
        if "readiness" not in given and self.ready_for_next_phase:
            object.__setattr__(self, "readiness", Readiness.YES)
        object.__setattr__(self, "ready_for_next_phase", self.readiness is not Readiness.NO)
        if "verification_script" not in given and self.verification_commands:
            object.__setattr__(self, "verification_script", _script("\n".join(self.verification_commands)))
        object.__setattr__(self, "verification_commands", commands_of(self.verification_script))
        return self

    @property
    def band(self) -> Band:
        """What the confidence means."""
        return band(self.confidence)

    @property
    def may_proceed(self) -> bool:
        """Whether a pipeline continues by itself: it is ready, with caveats or without, and delivers something."""
        return self.ready_for_next_phase and self.status.delivers


def band(confidence: int) -> Band:
    """Return what a confidence from 0 to 100 means."""
    if not 0 <= confidence <= 100:
        raise ValueError(f"a confidence is a whole number from 0 to 100; found {confidence}")
    floors = ((90, Band.HIGH), (70, Band.GOOD), (50, Band.MODERATE), (0, Band.LOW))
    return next(meaning for floor, meaning in floors if confidence >= floor)


def contract_confidence(confidence: int) -> str:
    """Return the label of the contract's scale that a report's confidence is shown as."""
    labels = {Band.HIGH: "high", Band.GOOD: "medium", Band.MODERATE: "low", Band.LOW: "unverified"}
    return labels[band(confidence)]


def commands_of(script: str) -> list[str]:
    """Return the commands of a script: its lines without blank ones and comments."""
    commands: list[str] = []
    parts: list[str] = []
    for line in script.split("\n"):
        if parts or (has_text(line) and not line.lstrip().startswith("#")):
            parts.append(line)
        if parts and not line.endswith("\\"):
            commands.append("\n".join(parts).strip())
            parts = []
    unfinished = "\n".join(parts).strip()
    return [one for one in (*commands, unfinished) if has_text(one)]
