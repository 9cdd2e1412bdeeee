"""From reports to batons and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton import Baton, apply_patch
from baton.report.parsing import parse_report
from baton.report.records import (
    HandoffReport,
    Readiness,
    ReportDecision,
    ReportError,
    ReportFindings,
    Status,
)
from baton.report.rendering import render_for_agent
from baton.report.rules import format_decision, report_patch
from tests.core.material import batons, ref
from tests.report.report_material import EXAMPLE, report, reports


class TestReportPatch:
    def test_the_example_becomes_a_patch(self) -> None:
        """X-3: decisions, blockers and paths get their fields, and the rest is the current state."""
        patch = report_patch(parse_report(EXAMPLE).report, Baton(goal="Add OAuth"))

        assert patch["decision_log"] == [
            "OAuth should be added to existing NextAuth setup — because Minimal changes, follows existing patterns "
            "(rejected: Separate OAuth flow, rejected as duplicative)"
        ]
        assert patch["open_questions"] == [
            "Which OAuth providers to support? (Google, GitHub, both?)",
            "Should we add email/password fallback?",
            "Next: Add OAuth providers to `src/lib/auth.ts` providers array",
            "Next: Follow existing `withAuth` HOC pattern for protected routes",
            "Next: Avoid modifying session handling - current JWT approach is solid",
        ]
        assert patch["work_scope"] == ["src/lib/auth.ts", "src/middleware.ts", "src/components/withAuth.tsx"]
        state = patch["current_state"]
        assert isinstance(state, list)
        assert state[:2] == [
            "code-explorer: completed, confidence 85, ready: Yes",
            "Explored existing authentication implementation.",
        ]
        assert len(state) == 8
        assert sorted(patch) == ["acceptance", "current_state", "decision_log", "open_questions", "work_scope"]

    def test_of_a_long_report_advice_and_checks_are_kept(self) -> None:
        """S4-purpose-b: however much was found, the next agent is told what to do, and what was advised before goes."""
        advice = [f"Look at {number}" for number in range(100)]
        result = report(
            findings=ReportFindings(discoveries=[f"Found {number}" for number in range(400)]),
            recommendations=advice,
            verification_commands=["npm test"],
        )
        baton = Baton(goal="g", open_questions=["A?", "Next: Look at the old one"], acceptance=["npm run lint"])

        patched = apply_patch(baton, report_patch(result, baton))

        assert patched.open_questions == ["A?", *(f"Next: {text}" for text in advice)]
        assert patched.acceptance == ["npm run lint", "npm test"]
        assert (len(patched.current_state), patched.current_state[-1]) == (8, "(+396 more in the report)")
        shown = render_for_agent(result)
        assert shown.index("Look at 99") < shown.index("npm test") < shown.index("Found 0")

    @given(original=reports, fields=st.sampled_from([None, frozenset({"current_state"})]))
    def test_the_state_has_three_to_eight_bullets(self, original: HandoffReport, fields: frozenset[str] | None) -> None:
        """S1's guidelines, for a report of one sentence as for a long one, whatever its stage may write."""
        state = report_patch(original, Baton(goal="g"), fields=fields)["current_state"]

        assert isinstance(state, list)
        assert 3 <= len(state) <= 8

    @given(original=reports, baton=batons)
    def test_every_consistent_report_can_be_applied(self, original: HandoffReport, baton: Baton) -> None:
        """S4-use-1: for any report the chain continues with a valid baton, and no decision is lost."""
        patched = apply_patch(baton, report_patch(original, baton))

        assert patched.decision_log[: len(baton.decision_log)] == baton.decision_log
        assert {format_decision(decision) for decision in original.context.decisions} <= set(patched.decision_log)
        assert set(original.blockers) <= set(patched.open_questions)

    def test_existing_entries_are_kept_once(self) -> None:
        """X-3: a report covers its own stage, and removes nothing of others."""
        baton = Baton(
            goal="g", open_questions=["A?", "B?"], work_scope=["src/a.ts"], artifacts=[ref("art-0"), ref("art-1")]
        )
        result = report(
            blockers=["B?", "C?"],
            findings=ReportFindings(
                artifacts_created=["`src/b.ts` - new"], artifacts_modified=["src/a.ts:5-9 — changed", "`c d.ts:1` - x"]
            ),
        )
        patch = report_patch(result, baton, [ref("art-1"), ref("art-2")])

        assert patch["open_questions"] == ["A?", "B?", "C?"]
        assert patch["work_scope"] == ["src/a.ts", "src/b.ts", "c d.ts"]
        patched = apply_patch(baton, patch)
        assert [artifact.id for artifact in patched.artifacts] == ["art-0", "art-1", "art-2"]

    def test_resolved_questions_are_removed(self) -> None:
        """C-33: a checked box is resolved."""
        baton = Baton(goal="g", open_questions=["Which port?"])

        assert report_patch(report(resolved_blockers=["Which port?"]), baton)["open_questions"] == []

    def test_unchanged_fields_are_not_patched(self) -> None:
        """S1 L50-64: a patch holds what the stage changed."""
        assert list(report_patch(report(), Baton(goal="g", open_questions=["x"]))) == ["current_state"]

    def test_hidden_lists_are_not_patched(self) -> None:
        """S4-purpose-b: a stage that sees a part of the baton cannot erase the rest, and its blockers are not lost."""
        baton = Baton(goal="g", open_questions=["A?"], work_scope=["src/a.ts"], artifacts=[ref("art-1")])
        visible_fields = frozenset({"current_state"})
        findings = ReportFindings(artifacts_created=["`src/b.ts` - new"])
        advice = [f"Look at {number}" for number in range(100)]
        result = report(
            blockers=["B?", "C?"], findings=findings, verification_commands=["npm test"], recommendations=advice
        )

        patched = apply_patch(
            baton, report_patch(result, baton.restricted(visible_fields, None), fields=visible_fields)
        )

        assert (patched.open_questions, patched.work_scope) == (["A?"], ["src/a.ts"])
        assert [artifact.id for artifact in patched.artifacts] == ["art-1"]
        assert patched.current_state[1:] == [
            "Open: B?; C?",
            f"Next: {'; '.join(advice)}",
            "Verify: npm test",
            "The plan is written.",
            "It has three steps.",
        ]

    def test_caveats_keep_their_questions(self) -> None:
        """C-29: blockers of work that is ready with caveats are copied into open_questions."""
        result = report(readiness=Readiness.WITH_CAVEATS, blockers=["Slow?"])

        assert result.may_proceed
        assert report_patch(result, Baton(goal="g"))["open_questions"] == ["Slow?"]

    def test_a_report_that_contradicts_itself_is_refused(self) -> None:
        """C-34: blocked and ready is an error wherever a report comes from."""
        with pytest.raises(ReportError, match="readiness: is Yes, but the status is failed"):
            report_patch(report(status=Status.FAILED, readiness=Readiness.YES), Baton(goal="g"))


class TestLogged:
    @pytest.mark.parametrize(
        ("decision", "entry"),
        [
            (ReportDecision(decision="X"), "X"),
            (ReportDecision(decision="X", rationale="Y"), "X — because Y"),
            (ReportDecision(decision="X", alternatives="Z (z)"), "X (rejected: Z (z))"),
            (ReportDecision(decision="X", rationale="Y", alternatives="Z"), "X — because Y (rejected: Z)"),
        ],
    )
    def test_a_decision_is_an_entry_of_the_log(self, decision: ReportDecision, entry: str) -> None:
        """X-3: with its reason and what was rejected."""
        assert format_decision(decision) == entry
