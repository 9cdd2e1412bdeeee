"""Whether a report is consistent and keeps to the soft rules."""

from typing import Any

import pytest

from baton.report.parsing import parse_report
from baton.report.records import ReportFindings, Severity
from baton.report.rules import lint_report
from tests.report.report_material import EXAMPLE, report


def found(**members: Any) -> list[tuple[str, str]]:
    """Return severity and member of what is found in a report."""
    return [(finding.severity.value, finding.member) for finding in lint_report(report(**members))]


class TestLintReport:
    def test_a_consistent_report_has_no_findings(self) -> None:
        """It follows all rules."""
        findings = ReportFindings(
            discoveries=["Sessions in `src/auth.ts:1-5`"],
            artifacts_created=["`plan.md` - the plan"],
            artifacts_modified=["`src/auth.ts:50-75` — calls it"],
        )

        assert found(findings=findings, readiness="Yes") == []

    @pytest.mark.parametrize("status", ["blocked", "failed"])
    def test_work_that_does_not_deliver_is_not_ready(self, status: str) -> None:
        """C-34: the one contradiction that is an error; with caveats it is a warning (C-29)."""
        members = {"status": status, "blockers": ["x"]}

        assert found(readiness="Yes", **members) == [("error", "readiness")]
        assert found(readiness="With caveats", **members) == [("warning", "readiness")]
        assert found(readiness="No", **members) == []

    @pytest.mark.parametrize(
        ("members", "member"),
        [
            pytest.param({"confidence": 49}, "confidence", id="completed with little confidence"),
            pytest.param({"status": "blocked"}, "blockers", id="blocked by nothing"),
            pytest.param({"handoff_confidence": 84}, "handoffConfidence", id="two confidences"),
            pytest.param({"handoff_confidence": 86}, "handoffConfidence", id="two confidences, the second higher"),
            pytest.param({"summary": "One sentence."}, "summary", id="one sentence"),
            pytest.param({"summary": "A is. B is. C is. D is."}, "summary", id="four sentences"),
        ],
    )
    def test_unusual_reports_have_warnings(self, members: dict[str, Any], member: str) -> None:
        """C-28, C-30, C-34, S4-fmt-h: warnings only, one for each."""
        assert found(**members) == [("warning", member)]

    def test_moderate_confidence_in_completed_work_is_accepted(self) -> None:
        """C-34: little confidence is less than 50."""
        assert found(confidence=50) == []

    @pytest.mark.parametrize("summary", ["A is. B is.", "A is. B is! C is?"])
    def test_two_and_three_sentences_are_advised(self, summary: str) -> None:
        """S4-fmt-h, C-30: the edges of the advice."""
        assert found(summary=summary) == []

    def test_open_questions_do_not_keep_work_from_being_ready(self) -> None:
        """S4-ex-d: the document's own example has two and is ready."""
        members = [finding.member for finding in lint_report(parse_report(EXAMPLE).report)]

        assert "blockers" not in members
        assert "readiness" not in members

    def test_placeholders_are_an_error(self) -> None:
        """An unfilled format is not a handoff."""
        assert found(sender="[agent-name]") == [("error", "")]
        assert found(summary="We say [agent-name] where a name is missing. It is clear.") == []

    def test_no_text_of_the_report_is_quoted(self) -> None:
        """Findings go into prompts and logs, so they quote no text."""
        secret = "MARKER-7"
        texts = {"task": secret, "summary": secret, "findings": ReportFindings(discoveries=[secret])}

        assert secret not in repr(lint_report(report(status="failed", readiness="Yes", **texts)))
        assert {finding.severity for finding in lint_report(report(**texts))} == {Severity.WARNING}
