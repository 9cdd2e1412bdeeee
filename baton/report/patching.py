"""From a report to the baton, and back: the baton is the source, the report its telling (X-3).

A report says what the stage did; the patch says what is true now. Decisions, blockers and artifacts have members of
their own in both; the summary, the discoveries and the advice become the current state.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import JsonValue

from baton.artifacts.records import ArtifactRef
from baton.core.baton import Baton
from baton.report.errors import ReportError, Severity
from baton.report.escaping import code_span
from baton.report.lint import lint_report
from baton.report.paths import path_entry
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
from baton.wire.sentences import sentences

_BECAUSE, _REJECTED = " — because ", " (rejected: "
_IN_A_SUMMARY = 3


def report_patch(
    report: HandoffReport,
    baton: Baton,
    artifacts: Sequence[ArtifactRef] = (),
    shown: frozenset[str] | None = None,
) -> dict[str, JsonValue]:
    """Return the baton_patch that a report amounts to.

    Decisions become `"X — because Y (rejected: Z)"` in `decision_log`; blockers are added to `open_questions`,
    and settled ones taken out of them; paths of artifacts and relevant files are added to `work_scope`; the summary,
    the discoveries, patterns and recommendations are the new `current_state`. A list that the sender was not shown
    cannot be extended, because a patch replaces it whole: it is left alone, and its blockers go into the state.

    Args:
        report: What a stage, or an agent, reports.
        baton: The baton that it was given.
        artifacts: References to what was stored; the report itself has paths only, never content.
        shown: The fields of the baton that it was given, or None for all.

    Returns:
        A patch that holds the fields that change, and no others.

    Raises:
        ReportError: The report contradicts itself, for example failed work that is ready (C-34).

    Example:
        >>> report = HandoffReport(sender="a", receiver="b", task="t", status="partial", confidence=70,
        ...                        summary="Tests run.", blockers=["Which port?"])
        >>> report_patch(report, Baton(goal="g"))
        {'current_state': ['Tests run.'], 'open_questions': ['Which port?']}
    """
    errors = [one for one in lint_report(report) if one.severity is Severity.ERROR]
    if errors:
        raise ReportError(errors)
    settled = set(report.resolved_blockers)
    fields: dict[str, list[Any]] = {
        "open_questions": _union((one for one in baton.open_questions if one not in settled), report.blockers),
        "work_scope": _union(baton.work_scope, _paths(report)),
        "artifacts": _union(baton.artifacts, artifacts),
    }
    hidden = set() if shown is None else fields.keys() - shown
    state = _state(report) + [f"Open: {one}" for one in report.blockers if "open_questions" in hidden]
    patch: dict[str, JsonValue] = {"current_state": [*state]}
    if report.context.decisions:
        patch["decision_log"] = [logged(one) for one in report.context.decisions]
    for name, value in fields.items():
        if name not in hidden and value != getattr(baton, name):
            patch[name] = [one.model_dump(mode="json") if isinstance(one, ArtifactRef) else one for one in value]
    return patch


def logged(decision: ReportDecision) -> str:
    """Return a decision as the baton's log has it.

    Example:
        >>> logged(ReportDecision(decision="Use JWT", rationale="no session store", alternatives="cookies"))
        'Use JWT — because no session store (rejected: cookies)'
    """
    because = f"{_BECAUSE}{decision.rationale}" if decision.rationale else ""
    rejected = f"{_REJECTED}{decision.alternatives})" if decision.alternatives else ""
    return f"{decision.decision}{because}{rejected}"


def from_log(entry: str) -> ReportDecision:
    """Return the decision that an entry of the baton's log tells of; one of another form is the decision as it is.

    Example:
        >>> from_log("Use JWT — because no session store (rejected: cookies)").rationale
        'no session store'
    """
    rest, separator, alternatives = entry.partition(_REJECTED)
    if not (separator and alternatives.endswith(")")):
        rest, alternatives = entry, ")"
    decision, _, rationale = rest.partition(_BECAUSE)
    if not _said([decision]):
        return ReportDecision(decision=entry)
    return ReportDecision(decision=decision, rationale=rationale, alternatives=alternatives[:-1])


def baton_report(
    baton: Baton,
    *,
    sender: str,
    receiver: str,
    status: Status,
    confidence: int,
    task: str = "",
    summary: str = "",
    readiness: Readiness | None = None,
    verification: str = "",
) -> HandoffReport:
    """Return the report that tells of a baton.

    Args:
        baton: What is true now.
        sender: The agent that reports.
        receiver: The agent, or the parent, that it reports to.
        status: How far the task got.
        confidence: How sure the sender is, 0 to 100.
        task: What the task was; the baton's goal by default.
        summary: What was accomplished; the beginning of the current state by default.
        readiness: Whether the next phase may begin. By default Yes for completed work, With caveats for completed
            work with open questions and for partial work, else No.
        verification: A script that verifies the work.

    Returns:
        A report with everything that the baton has; what the format has no section for is in its notes.

    Raises:
        pydantic.ValidationError: A name or the confidence is none.

    Example:
        >>> report = baton_report(Baton(goal="Add login", open_questions=["Which port?"]), sender="planner",
        ...                       receiver="coder", status=Status.COMPLETED, confidence=90)
        >>> report.task, report.readiness.value, report.blockers
        ('Add login', 'With caveats', ['Which port?'])
    """
    state = _said(baton.current_state)
    blockers = _said(baton.open_questions)
    further = (("Constraints", baton.constraints), ("Acceptance Criteria", baton.acceptance))
    return HandoffReport(
        sender=sender,
        receiver=receiver,
        task=task or baton.goal,
        status=status,
        confidence=confidence,
        summary=summary or _sentences(state[:_IN_A_SUMMARY]) or _sentences([baton.goal]),
        findings=ReportFindings(discoveries=state, artifacts_created=[_entry(one) for one in baton.artifacts]),
        context=ReportContext(
            relevant_files=[
                RelevantFile(file=one, lines="All", reason="Work scope") for one in _said(baton.work_scope)
            ],
            decisions=[from_log(one) for one in _said(baton.decision_log)],
        ),
        blockers=blockers,
        verification_script=verification,
        readiness=readiness or _readiness(status, blockers),
        notes=[Note(heading=heading, items=_said(items)) for heading, items in further if _said(items)],
    )


def _state(report: HandoffReport) -> list[str]:
    """Return the current state that a report tells of, what matters most first."""
    return [
        *sentences(report.summary),
        *report.findings.discoveries,
        *(f"Pattern: {one}" for one in report.context.patterns),
        *(f"Next: {one}" for one in report.recommendations),
    ]


def _paths(report: HandoffReport) -> list[str]:
    """Return the paths that a report names, without lines."""
    entries = (*report.findings.artifacts_created, *report.findings.artifacts_modified)
    paths = [*(path_entry(one).path for one in entries), *(one.file for one in report.context.relevant_files)]
    return [path for path in paths if path]


def _union(*lists: Iterable[Any]) -> list[Any]:
    """Return every entry once, in order."""
    found: list[Any] = []
    seen: set[Any] = set()
    for one in (one for entries in lists for one in entries):
        key = one.id if isinstance(one, ArtifactRef) else one
        if key not in seen:
            seen.add(key)
            found.append(one)
    return found


def _said(items: Iterable[str]) -> list[str]:
    """Return the entries that have something to see."""
    return [one for one in items if any(sign.isprintable() and not sign.isspace() for sign in one)]


def _sentences(items: Sequence[str]) -> str:
    """Return bullets as running text."""
    return " ".join(one if one.endswith((".", "!", "?", "…")) else f"{one}." for one in items)


def _entry(ref: ArtifactRef) -> str:
    """Return a reference as a report lists it."""
    return f"{code_span(ref.path or ref.id)} - {ref.summary or ref.type} ({ref.id}, {ref.short_hash})"


def _readiness(status: Status, blockers: Sequence[str]) -> Readiness:
    """Return whether the next phase may begin, if the sender does not say so."""
    if not status.delivers:
        return Readiness.NO
    return Readiness.WITH_CAVEATS if blockers or status is Status.PARTIAL else Readiness.YES
