"""Merging the reports of several agents: every entry with its author, and where one rejects what another decided."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TypeVar

from baton.core.history import Conflict
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
from baton.report.rules import format_decision

T = TypeVar("T")
_BEST_FIRST = (Status.COMPLETED, Status.PARTIAL, Status.BLOCKED, Status.FAILED)
_SUREST_FIRST = (Readiness.YES, Readiness.WITH_CAVEATS, Readiness.NO)


def merge_reports(
    reports: Sequence[HandoffReport], *, sender: str, receiver: str, task: str = "", summary: str = ""
) -> HandoffReport:
    """Merge reports of several agents into one; the worst status and the lowest confidence win.

    Equal entries become one, with all their authors. A decision that another report rejects becomes a blocker.

    Args:
        reports: The reports, at least one.
        sender: Who merges them.
        receiver: Who gets the result.
        task: The task; those of the reports by default.
        summary: The summary; those of the reports with their senders by default.

    Raises:
        ValueError: There is no report.

    Example:
        >>> one = HandoffReport(sender="audit", receiver="lead", task="Review", status="completed", confidence=90,
        ...                     summary="It is sound.")
        >>> two = one.model_copy(update={"sender": "profile", "confidence": 60})
        >>> merge_reports([one, two], sender="lead", receiver="author").confidence
        60
    """
    if not reports:
        raise ValueError("expected at least one report to merge; found none")

    def union(pick: Callable[[HandoffReport], Iterable[str]]) -> list[str]:
        return [_attribute(text, names) for text, names in _group_entries(reports, pick).items()]

    open_blockers = _group_entries(reports, lambda report: report.blockers)
    resolved = _group_entries(reports, lambda report: report.resolved_blockers)
    return HandoffReport(
        sender=sender,
        receiver=receiver,
        task=task or "; ".join(dict.fromkeys(report.task for report in reports)),
        status=max((report.status for report in reports), key=_BEST_FIRST.index),
        confidence=min(report.confidence for report in reports),
        summary=summary or "\n".join(f"{report.sender}: {report.summary}" for report in reports),
        findings=ReportFindings(
            discoveries=union(lambda report: report.findings.discoveries),
            artifacts_created=union(lambda report: report.findings.artifacts_created),
            artifacts_modified=union(lambda report: report.findings.artifacts_modified),
        ),
        context=ReportContext(
            relevant_files=_merge_files(reports),
            patterns=union(lambda report: report.context.patterns),
            decisions=_merge_decisions(reports),
        ),
        blockers=[
            *(_attribute(text, names) for text, names in open_blockers.items()),
            *(str(dispute) for dispute in find_disputes([(report.sender, report) for report in reports])),
        ],
        resolved_blockers=[_attribute(text, names) for text, names in resolved.items() if text not in open_blockers],
        recommendations=union(lambda report: report.recommendations),
        verification_script=_merge_scripts(reports),
        handoff_confidence=min(report.handoff_confidence for report in reports),
        readiness=max((report.readiness for report in reports), key=_SUREST_FIRST.index),
        notes=[
            Note(heading=_attribute(note.heading, [report.sender]), items=note.items)
            for report in reports
            for note in report.notes
        ],
    )


def _group_entries(
    reports: Iterable[HandoffReport], pick: Callable[[HandoffReport], Iterable[T]]
) -> dict[T, list[str]]:
    """Return every picked entry once, in order, with its senders."""
    senders: dict[T, list[str]] = {}
    for report in reports:
        for entry in pick(report):
            names = senders.setdefault(entry, [])
            if report.sender not in names:
                names.append(report.sender)
    return senders


def _attribute(text: str, names: Iterable[str]) -> str:
    return f"{text} (from {', '.join(names)})"


def _merge_files(reports: Iterable[HandoffReport]) -> list[RelevantFile]:
    files = _group_entries(reports, lambda report: report.context.relevant_files)
    return [
        RelevantFile(file=file.file, lines=file.lines, reason=_attribute(file.reason, names).strip())
        for file, names in files.items()
    ]


def _merge_decisions(reports: Sequence[HandoffReport]) -> list[ReportDecision]:
    decisions = _group_entries(reports, lambda report: report.context.decisions)
    confidences = {report.sender: report.confidence for report in reports}
    return [
        decision.model_copy(update={"decision": _with_sources(decision.decision, names, confidences)})
        for decision, names in decisions.items()
    ]


def _with_sources(text: str, names: Iterable[str], confidences: Mapping[str, int]) -> str:
    """Return a decision with its authors and how sure each was."""
    sources = (f"{name}, confidence {confidences[name]}" if name in confidences else name for name in names)
    return f"{text} (from {'; '.join(sources)})"


def _merge_scripts(reports: Iterable[HandoffReport]) -> str:
    """Return all scripts, each below a comment with its senders."""
    scripts = _group_entries(reports, lambda report: list(filter(None, [report.verification_script])))
    return "\n\n".join(f"# From {', '.join(names)}\n{script}" for script, names in scripts.items())


@dataclass(frozen=True)
class Dispute:
    """A decision of one agent, and that by which another rejects it.

    Attributes:
        author: Who decided.
        decision: What.
        rejecter: Who decided otherwise.
        instead: What, with what it rejects.
    """

    author: str
    decision: ReportDecision
    rejecter: str
    instead: ReportDecision

    def __str__(self) -> str:
        """Return it as a question for the next agent or a person."""
        decided, instead = (" ".join(one.decision.split()) for one in (self.decision, self.instead))
        return f"{self.author} decided {decided!r}, and {self.rejecter} rejected it for {instead!r}: which holds?"

    @property
    def conflict(self) -> Conflict:
        """The dispute as a history entry has it; a union keeps both decisions."""
        values = {self.author: format_decision(self.decision), self.rejecter: format_decision(self.instead)}
        return Conflict(field="decision_log", strategy="union", values=values)


def find_disputes(reports: Sequence[tuple[str, HandoffReport]]) -> list[Dispute]:
    """Return where an alternative that one agent rejected is what another decided, by their words.

    The rule compares words and judges nothing: alternatives are parted at commas, semicolons, lines and "or", and one
    is a decision if its words stand in it, or the other way round.
    """
    return [
        Dispute(author, decision, rejecter, instead)
        for (author, report), (rejecter, other) in permutations(reports, 2)
        for decision in report.context.decisions
        for instead in other.context.decisions
        if author != rejecter and _words(decision.decision) != _words(instead.decision)
        if _rejects(instead.alternatives, _words(decision.decision))
    ]


_PARTS = re.compile(r"[,;\n]|\bor\b|\boder\b|\bou\b|\bo\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")
_NOTHING = frozenset({"none", "n a", "na", "nothing", "keine", "aucune", "ninguna"})


def _words(text: str) -> str:
    """Return the words of a text, in lower case and with a blank around each."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def _rejects(alternatives: str, decided: str) -> bool:
    parts = [part for part in map(_words, _PARTS.split(alternatives)) if len(part) > 4]  # two letters between blanks
    return any(part in decided or decided in part for part in parts if part.strip() not in _NOTHING and decided.strip())


def merge_decisions(
    branches: Sequence[tuple[str, Iterable[str], HandoffReport | None]],
) -> tuple[list[str], list[Conflict]] | None:
    """Return the new decisions of a fan-out's branches with their authors, and the disputes; None without reports.

    Args:
        branches: The name of each branch, the entries that it adds to the decision log, and its report, if it has one.
    """
    reports = [(name, report) for name, _, report in branches if report is not None]
    if not reports:
        return None
    names: dict[str, list[str]] = {}
    for name, entries, _ in branches:
        for entry in dict.fromkeys(entries):
            names.setdefault(entry, []).append(name)
    confidences = {name: report.confidence for name, report in reports}
    decisions = [_with_sources(entry, authors, confidences) for entry, authors in names.items()]
    return decisions, [dispute.conflict for dispute in find_disputes(reports)]
