"""Merging the reports of several agents: every entry with its author, and where one rejects what another decided."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from baton.core.history import Conflict
from baton.core.patching import MAX_BULLETS
from baton.core.state import MergedReports
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
        reports: The reports, at least one; of several with the same sender, the later ones get a number.
        sender: Who merges them.
        receiver: Who gets the result.
        task: The task; those of the reports by default.
        summary: The summary; those of the reports with their senders by default.

    Raises:
        ValueError: The list of reports is empty.

    Example:
        >>> one = HandoffReport(sender="audit", receiver="lead", task="Review", status="completed", confidence=90,
        ...                     summary="It is sound.")
        >>> two = one.model_copy(update={"sender": "profile", "confidence": 60})
        >>> merge_reports([one, two], sender="lead", receiver="author").confidence
        60
    """
    if not reports:
        raise ValueError("expected at least one report to merge; found none")
    reports = _with_distinct_senders(reports)

    def union(pick: Callable[[HandoffReport], Iterable[str]]) -> list[str]:
        return [_attribute(text, names) for text, names in _group_entries(reports, pick).items()]

    disputes = find_disputes([(report.sender, report) for report in reports])
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
            *map(str, disputes.shown),
            *disputes.remarks,
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


def _with_distinct_senders(reports: Iterable[HandoffReport]) -> list[HandoffReport]:
    """Return the reports, with a number behind a sender that an earlier one has."""
    named: dict[str, HandoffReport] = {}
    for report in reports:
        numbered = (f"{report.sender} ({number})" for number in itertools.count(2))
        name = next(name for name in itertools.chain([report.sender], numbered) if name not in named)
        named[name] = report.model_copy(update={"sender": name})
    return [*named.values()]


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
        decided, instead = (_quote(" ".join(one.decision.split())) for one in (self.decision, self.instead))
        return f"{self.author} decided {decided!r}, and {self.rejecter} rejected it for {instead!r}: which holds?"

    @property
    def conflict(self) -> Conflict:
        """The dispute as a history entry has it; a union keeps both decisions."""
        decided, instead = (_quote(format_decision(one)) for one in (self.decision, self.instead))
        values = {self.author: decided, self.rejecter: instead}
        return Conflict(field="decision_log", strategy="union", values=values)


def _quote(text: str) -> str:
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"


@dataclass(frozen=True)
class Disputes:
    """The disputes among reports.

    Attributes:
        shown: The first `MAX_DISPUTES`.
        remarks: How many more were found, and whether some decisions were not compared.
    """

    shown: list[Dispute]
    remarks: list[str]


MAX_DISPUTES = 20
"""The most disputes that are shown; the others are counted."""
MAX_COMPARED, MAX_COMPARISONS = 100, 10_000
"""The most decisions of a report that are compared, and the most comparisons in all."""
_MAX_DECISION, _MAX_ALTERNATIVES, _MAX_PARTS = 200, 500, 20  # the characters and alternatives that are compared
_MAX_QUOTED = 500  # the characters of a decision that a dispute quotes


def find_disputes(reports: Sequence[tuple[str, HandoffReport]]) -> Disputes:
    """Return where an alternative that one agent rejected is what another decided, by their words.

    The rule compares words and judges nothing: alternatives are parted at commas, semicolons, lines and "or", and one
    is a decision if its words stand in it, or the other way round. Short and common words alone name nothing.
    """
    decided = [
        ComparedDecision(name, one) for name, report in reports for one in report.context.decisions[:MAX_COMPARED]
    ]
    pairs = pair_decisions(decided)
    compared = list(itertools.islice(pairs, MAX_COMPARISONS))
    rejected = dict.fromkeys(
        (made, instead)
        for made, part, instead in compared
        if made.author != instead.author and made.words != instead.words and (part in made.words or made.words in part)
    )
    found = [Dispute(made.author, made.decision, instead.author, instead.decision) for made, instead in rejected]
    remarks = []
    if len(found) > MAX_DISPUTES:
        remarks.append(f"decisions: {len(found) - MAX_DISPUTES:,} more were rejected by another agent")
    if next(pairs, None) or any(len(report.context.decisions) > MAX_COMPARED for _, report in reports):
        remarks.append("decisions: too many to compare all; more may have been rejected by another agent")
    return Disputes(found[:MAX_DISPUTES], remarks)


_PARTS = re.compile(r"[,;\n]|\bor\b|\boder\b|\bou\b|\bo\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")
_COMMON = frozenset(
    _WORD.findall(
        """about all also always and another any are but can for from has have into its keep new none not nothing off
        old one other our out same some than that the their them then there they this too two use used using via was
        were what when which will with without
        alle als andere auch auf aus bei das dem den der des die ein eine einen für ist kein keine mit nicht nichts
        oder sich sind und von vor wie wird zum zur
        aucun aucune autre avec cette dans des elle est les leur mais nous par pas plus pour que qui rien sans sur une
        como con del ella ellos las los más nada ninguna ninguno otra otro para pero por sin sobre son una uno"""
    )
)
"""Words of three letters and more that name nothing by themselves, in English, German, French and Spanish."""


def _normalized(text: str) -> str:
    """Return the words of a text, in lower case and with a blank around each; empty if they name nothing."""
    words = _WORD.findall(text.casefold())
    return f" {' '.join(words)} " if any(len(word) > 2 and word not in _COMMON for word in words) else ""


class ComparedDecision:
    """A decision of an agent, with its words and those of its alternatives."""

    def __init__(self, author: str, decision: ReportDecision) -> None:
        self.author = author
        self.decision = decision
        self.words = _normalized(decision.decision[:_MAX_DECISION])
        parts = _PARTS.split(decision.alternatives[:_MAX_ALTERNATIVES])[:_MAX_PARTS]
        self.rejected = list(dict.fromkeys(filter(None, map(_normalized, parts))))


def pair_decisions(decided: Sequence[ComparedDecision]) -> Iterator[tuple[ComparedDecision, str, ComparedDecision]]:
    """Yield decisions with the alternatives that may be the same, found by the rarest word of either."""
    made_with: dict[str, list[ComparedDecision]] = {}
    for made in decided:
        for word in dict.fromkeys(made.words.split()):
            made_with.setdefault(word, []).append(made)
    known_by: dict[str, list[ComparedDecision]] = {}
    for made in filter(lambda made: made.words, decided):
        rarest = min(made.words.split(), key=lambda word: len(made_with[word]))
        known_by.setdefault(rarest, []).append(made)
    for instead in decided:
        for part in instead.rejected:
            words = list(dict.fromkeys(part.split()))
            containing = min((made_with.get(word, []) for word in words), key=len)
            contained = (made for word in words for made in known_by.get(word, []))
            yield from ((made, part, instead) for made in itertools.chain(containing, contained))


@dataclass(frozen=True)
class ReportedBranch:
    """A branch of a fan-out.

    Attributes:
        name: Its name.
        decisions: The entries that it adds to the decision log.
        state: The current state that it writes, if any.
        report: Its report, if it has one.
    """

    name: str
    decisions: Sequence[str] = ()
    state: Sequence[str] = ()
    report: HandoffReport | None = None


def merge_branch_reports(branches: Sequence[ReportedBranch]) -> MergedReports:
    """Return the decisions of a fan-out's branches with their authors, their state, and the disputes.

    Nothing without reports. The state is a short one only if all branches that write it have reported.
    """
    reports = [(branch.name, branch.report) for branch in branches if branch.report is not None]
    if not reports:
        return MergedReports()
    names: dict[str, list[str]] = {}
    for branch in branches:
        for entry in dict.fromkeys(branch.decisions):
            names.setdefault(entry, []).append(branch.name)
    confidences = {name: report.confidence for name, report in reports}
    decisions = [_with_sources(entry, authors, confidences) for entry, authors in names.items()]
    have_reported = all(branch.report is not None for branch in branches if branch.state)
    state = _shorten_states([branch.state for branch in branches]) if have_reported else []
    if not decisions:
        return MergedReports(state=state)
    disputes = find_disputes(reports)
    return MergedReports(decisions, state, [dispute.conflict for dispute in disputes.shown], disputes.remarks)


MORE = "(more in the reports)"
"""The last bullet of a shortened state."""


def _shorten_states(states: Iterable[Sequence[str]]) -> list[str]:
    """Return the most important bullets of each branch, in turn; nothing if all have room."""
    turns = itertools.zip_longest(*states)
    bullets = [*dict.fromkeys(bullet for turn in turns for bullet in turn if bullet is not None)]
    return [*bullets[: MAX_BULLETS - 1], MORE] if len(bullets) > MAX_BULLETS else []
