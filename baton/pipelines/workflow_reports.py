"""Handoff reports in a pipeline: what the next agent reads, how parallel ones merge, and when people are asked."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from baton.core.history import Outcome, StepKind
from baton.core.messages import StageReturn
from baton.core.stages import OnReport, StageSpec
from baton.core.state import MergedReports
from baton.report.merging import ReportedBranch, merge_branch_reports, merge_reports
from baton.report.records import MAX_CHARACTERS, HandoffReport, find_report
from baton.report.rendering import render_for_agent
from baton.runtime.questions import MAX_ASKS_LENGTH


@dataclass(frozen=True)
class ReportQuestion:
    """What people are asked about reports that are not ready.

    Attributes:
        title: The title of the approval.
        asks: The question.
        shows: The report, as Markdown, if the step returned it.
    """

    title: str
    asks: str
    shows: dict[str, str]


class RunReports:
    """The reports of a run's steps.

    The last is kept as Markdown, because many stages that start at once read it.

    Attributes:
        on_report: What happens about a report that is not ready.
    """

    def __init__(self, on_report: OnReport) -> None:
        self.on_report = OnReport(on_report)
        self._last: tuple[Outcome, str] | None = None

    def last(self, outcomes: Sequence[Outcome], receiver: StageSpec) -> str:
        """Return what the last step of agents reported, as Markdown; empty if nothing, or if the receiver sees less.

        A stage that declares `reads` gets those fields of the baton alone.
        """
        steps = (outcome for outcome in reversed(outcomes) if outcome.kind in (StepKind.STAGE, StepKind.MERGE))
        last = next((outcome for outcome in steps if outcome.failure is None), None)
        return "" if last is None or receiver.reads is not None else self._markdown(last)

    def question(self, outcome: Outcome) -> ReportQuestion | None:
        """Return the question that a step's reports lead to, or None if the pipeline continues."""
        doubtful = [entry for entry in outcome.entries if entry.report is not None and not entry.report.may_proceed]
        if self.on_report is OnReport.CONTINUE or not doubtful:
            return None
        said = "; ".join(f"{entry.stage_id!r} reports: {entry.report}" for entry in doubtful)
        report = self._markdown(outcome)
        return ReportQuestion(
            title=f"continue after {outcome.name[:150]} (step {outcome.seq})",
            asks=f"{said}. Continue?"[:MAX_ASKS_LENGTH],
            shows={"report": report[:MAX_SHOWN]} if report else {},
        )

    def _markdown(self, outcome: Outcome) -> str:
        if self._last is None or self._last[0] is not outcome:
            report = _report_of(outcome)
            self._last = outcome, "" if report is None else render_for_agent(report)[:MAX_CHARACTERS]
        return self._last[1]


def _report_of(outcome: Outcome) -> HandoffReport | None:
    """Return the report of a step; those of several branches merged, each under the name of its branch."""
    entries = [entry for entry in outcome.entries if entry.kind is not StepKind.MERGE]
    values = outcome.value if outcome.kind is StepKind.MERGE and isinstance(outcome.value, list) else [outcome.value]
    pairs = zip(entries, values, strict=False)
    found = [(entry, report) for entry, value in pairs if entry.report and (report := _report_in(value)) is not None]
    if len(found) < 2:
        return found[0][1] if found else None
    reports = [report.model_copy(update={"sender": entry.stage_id}) for entry, report in found]
    return merge_reports(reports, sender=outcome.name, receiver="next agent")


def _report_in(value: JsonValue) -> HandoffReport | None:
    """Return the report that a stage or an agent outside returned."""
    return find_report(value) or (find_report(value.get("report")) if isinstance(value, dict) else None)


def merged_reports(branches: Sequence[StageReturn]) -> MergedReports:
    """Return what branches that reported make of the baton together."""
    lists = [[_texts_in(branch, field) for field in ("decision_log", "current_state")] for branch in branches]
    if any(texts is None for pair in lists for texts in pair):  # the merge says what is wrong
        return MergedReports()
    return merge_branch_reports(
        [
            ReportedBranch(
                name=branch.title,
                decisions=decisions or [],
                state=state or [],
                report=find_report(branch.output) if branch.report else None,
            )
            for branch, (decisions, state) in zip(branches, lists, strict=True)
        ]
    )


def _texts_in(branch: StageReturn, field: str) -> list[str] | None:
    """Return the texts of a list that a branch writes; None if it is malformed."""
    value = branch.baton_patch.get(field) or []
    texts = [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []
    return texts if isinstance(value, list) and len(texts) == len(value) else None


MAX_SHOWN = 60_000
"""The most characters of the report that the question shows."""
