"""The handoff report, the titles of its sections, and findings about reports."""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError, WithJsonSchema, model_validator

from baton.core.history import DELIVERS, Reported
from baton.errors import BatonError
from baton.wire.json_values import find_excess
from baton.wire.records import CamelRecord, CompactRecord, Integer, Statement, has_text
from baton.wire.text import LINE_BREAKS, describe_faults, single_line

MAX_CHARACTERS = 256 * 1024
"""The most characters of a report; larger content belongs in an artifact."""
MAX_LINES = 5_000
"""The most lines of a report as Markdown, and of all its texts together."""
MAX_LISTED, MAX_FINDING_LENGTH = 20, 400
"""The limits of an error's message, because it goes into an agent's next prompt."""


class Severity(StrEnum):
    """The severity of a finding about a report."""

    ERROR = "error"
    """The report is rejected."""
    WARNING = "warning"
    """The report is accepted."""


class ReportFinding(CompactRecord):
    """An error or warning about a report.

    Attributes:
        severity: Whether the report is rejected.
        member: The report's member in its JSON spelling; empty for the whole report.
        text: A sentence that says what was found, what is expected and what to do.
        line: The line in the Markdown, from 1, if any.
    """

    severity: Severity = Field(strict=False)
    member: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        """Return the finding on one line, its location first."""
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.member}: {self.text}" if self.member else f"{place}{self.text}"


class ReportError(BatonError):
    """A text is not a handoff report, or a report contradicts itself. Correct what the message names."""

    def __init__(self, findings: Sequence[ReportFinding]) -> None:
        listed = [_shorten(str(finding)) for finding in findings[:MAX_LISTED]]
        more = [f"and {len(findings) - len(listed)} more"] if len(findings) > len(listed) else []
        super().__init__("; ".join([*listed, *more]))
        self.findings = list(findings)


def _shorten(sentence: str) -> str:
    return sentence if len(sentence) <= MAX_FINDING_LENGTH else f"{sentence[:MAX_FINDING_LENGTH]}…"


TITLE = "Agent Handoff Report"
_DISCOVERIES = "findings.discoveries"
SECTIONS = {
    "findings": _DISCOVERIES,  # a group title; text directly below it is a discovery
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
"""The member of a report by the normalized title of its section."""
GROUP_TITLE = "context for next agent"
"""A heading for a group of sections, without text of its own."""


def normalize_title(title: str) -> str:
    """Return a title in lower case, without punctuation and numbers."""
    return " ".join(re.sub("[^a-z]+", " ", title.casefold()).split())


def _split_lines(text: str) -> list[str]:
    """Return the lines of a text without trailing blanks."""
    return [line.rstrip(" \t") for line in LINE_BREAKS.split(text.replace("\0", "\ufffd"))]


def _clean_block(text: str) -> str:
    """Return a text with line feeds, without surrounding blanks."""
    return "\n".join(_split_lines(text)).strip(" \t\n")


def _clean_line(text: str) -> str:
    """Return a text on one line."""
    return " ".join(line.strip(" \t") for line in _split_lines(text) if line)


def _clean_script(text: str) -> str:
    """Return a script without surrounding blank lines."""
    return "\n".join(_split_lines(text)).strip("\n")


Text = Annotated[Statement, AfterValidator(_clean_block)]
"""Non-empty Markdown of one or more lines; its line breaks become line feeds."""

Line = Annotated[Statement, AfterValidator(_clean_line)]
"""A non-empty text on one line; line breaks become blanks."""

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
        return self.value in DELIVERS


class Readiness(StrEnum):
    """Whether the next phase may begin."""

    YES = "Yes"
    WITH_CAVEATS = "With caveats"
    NO = "No"


class Band(StrEnum):
    """The meaning of a confidence."""

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
    lines: Annotated[str, AfterValidator(_clean_line)] = ""
    reason: Annotated[str, AfterValidator(_clean_line)] = ""


class ReportDecision(ReportRecord):
    """A decision that was made.

    Attributes:
        decision: What was decided.
        rationale: Why.
        alternatives: What else was possible.
    """

    decision: Text
    rationale: Annotated[str, AfterValidator(_clean_block)] = ""
    alternatives: Annotated[str, AfterValidator(_clean_block)] = ""


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
    verification_script: Annotated[str, AfterValidator(_clean_script)] = ""
    verification_commands: list[Text] = Field(default_factory=list)
    handoff_confidence: Percent = 0
    readiness: Readiness = Field(default=Readiness.NO, strict=False)
    ready_for_next_phase: bool = False
    notes: list[Note] = Field(default_factory=list)

    @model_validator(mode="after")
    def _fill_defaults(self) -> Self:
        """Set the members that follow from others."""
        fields_set = self.model_fields_set
        if "handoff_confidence" not in fields_set:
            object.__setattr__(self, "handoff_confidence", self.confidence)
        if "readiness" not in fields_set and self.ready_for_next_phase:
            object.__setattr__(self, "readiness", Readiness.YES)
        object.__setattr__(self, "ready_for_next_phase", self.readiness is not Readiness.NO)
        if "verification_script" not in fields_set and self.verification_commands:
            object.__setattr__(self, "verification_script", _clean_script("\n".join(self.verification_commands)))
        object.__setattr__(self, "verification_commands", split_commands(self.verification_script))
        return self

    @property
    def band(self) -> Band:
        """The meaning of the confidence."""
        return band(self.confidence)

    @property
    def reported(self) -> Reported:
        """What it says in brief."""
        return Reported(status=self.status.value, confidence=self.confidence, readiness=self.readiness.value)

    @property
    def stop_reason(self) -> str:
        """Why it stops the relay, as one line: what it says, and what is missing."""
        missing = f" Open: {'; '.join(self.blockers)}" if self.blockers else ""
        return single_line(f"its report says {self.reported}. {self.summary}{missing}")[:MAX_FINDING_LENGTH]

    @property
    def may_proceed(self) -> bool:
        """Whether a pipeline continues by itself: the report is ready, perhaps with caveats, and delivers work."""
        return self.reported.may_proceed


def find_report(value: object) -> HandoffReport | None:
    """Return the report that a JSON value is, such as the output of a stage that answered with one; else None.

    A value that is too large for a report is none.
    """
    report = _read_report(value)
    return report if isinstance(report, HandoffReport) else None


def report_faults(value: object) -> str | None:
    """Return what is wrong with a value that is meant as a report; None if it is one, or something else."""
    faults = _read_report(value)
    return faults if isinstance(faults, str) else None


def _read_report(value: object) -> HandoffReport | str | None:
    """Return the report that a value is, what is wrong with one that is meant as a report, or None."""
    if not isinstance(value, dict) or not value.keys() >= _REQUIRED:
        return None
    if excess := find_report_excess(value):
        return excess
    try:
        return HandoffReport.from_json_object(value)
    except ValidationError as error:
        return describe_faults(error)


def find_report_excess(value: Mapping[str, Any]) -> str:
    """Return which limit a report as JSON exceeds, or an empty string.

    A script counts twice, because its commands are listed too.
    """
    if excess := find_excess(value):
        return str(excess)
    characters, lines, level = 0, 0, [*value.values()]
    while level:
        texts = [text for text in level if isinstance(text, str)]
        characters += sum(map(len, texts))
        lines += sum(max(len(text.splitlines()), 1) for text in texts)
        level = [member for one in level if isinstance(one, dict | list) for member in _members(one)]
    if characters > 2 * MAX_CHARACTERS:
        return f"has {characters:,} characters with its commands; at most {2 * MAX_CHARACTERS:,} are allowed"
    if lines > MAX_LINES:
        return f"has {lines:,} lines of text; at most {MAX_LINES:,} are allowed"
    return ""


def _members(container: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


_REQUIRED = {"from", "to", "task", "status", "confidence", "summary"}


def band(confidence: int) -> Band:
    """Return the meaning of a confidence from 0 to 100."""
    if not 0 <= confidence <= 100:
        raise ValueError(f"a confidence must be a whole number from 0 to 100; found {confidence}")
    floors = ((90, Band.HIGH), (70, Band.GOOD), (50, Band.MODERATE), (0, Band.LOW))
    return next(meaning for floor, meaning in floors if confidence >= floor)


def contract_confidence(confidence: int) -> str:
    """Return a report's confidence on the contract's scale."""
    labels = {Band.HIGH: "high", Band.GOOD: "medium", Band.MODERATE: "low", Band.LOW: "unverified"}
    return labels[band(confidence)]


def split_commands(script: str) -> list[str]:
    """Return the commands of a script, without blank lines and comments."""
    commands: list[str] = []
    parts: list[str] = []
    for line in script.split("\n"):
        if parts or (has_text(line) and not line.lstrip().startswith("#")):
            parts.append(line)
        if parts and not line.endswith("\\"):
            commands.append("\n".join(parts).strip())
            parts = []
    unfinished = "\n".join(parts).strip()
    return [command for command in (*commands, unfinished) if has_text(command)]
