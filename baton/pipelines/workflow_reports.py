"""Handoff reports in a pipeline: what the next agent reads, how parallel ones merge, and when people are asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from baton.core.history import Outcome, StepKind
from baton.core.messages import StageReturn
from baton.core.stages import OnReport, StageSpec
from baton.core.state import MergedDecisions
from baton.report.merging import merge_decisions, merge_reports
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
    """Return the report of a step, of several branches merged."""
    entries = [entry for entry in outcome.entries if entry.kind is not StepKind.MERGE]
    values = outcome.value if outcome.kind is StepKind.MERGE and isinstance(outcome.value, list) else [outcome.value]
    pairs = zip(entries, values, strict=False)
    reports = [report for entry, value in pairs if entry.report and (report := _report_in(value)) is not None]
    if len(reports) < 2:
        return reports[0] if reports else None
    return merge_reports(reports, sender=outcome.name, receiver="next agent")


def _report_in(value: JsonValue) -> HandoffReport | None:
    """Return the report that a stage or an agent outside returned."""
    return find_report(value) or (find_report(value.get("report")) if isinstance(value, dict) else None)


def merged_decisions(branches: Sequence[StageReturn]) -> MergedDecisions:
    """Return the new decisions of branches that reported, with their authors, and the disputes among them."""
    logs = [_decisions_of(branch.baton_patch) for branch in branches]
    if any(log is None for log in logs):  # the merge says what is wrong
        return MergedDecisions()
    reports = [find_report(branch.output) if branch.report else None for branch in branches]
    names = [branch.stage for branch in branches]
    return merge_decisions([*zip(names, [log or [] for log in logs], reports, strict=True)])


def _decisions_of(patch: Mapping[str, JsonValue]) -> list[str] | None:
    """Return the decisions that a patch adds; None if they are malformed."""
    log = patch.get("decision_log", [])
    texts = [entry for entry in log if isinstance(entry, str)] if isinstance(log, list) else []
    return texts if isinstance(log, list) and len(texts) == len(log) else None


MAX_SHOWN = 60_000
"""The most characters of the report that the question shows."""
