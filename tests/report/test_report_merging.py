"""Merging several reports into one for the coordinator."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.report.merging import (
    MAX_DISPUTES,
    MORE,
    ComparedDecision,
    ReportedBranch,
    find_disputes,
    merge_branch_reports,
    merge_reports,
    pair_decisions,
)
from baton.report.parsing import parse_report
from baton.report.records import (
    HandoffReport,
    Note,
    Readiness,
    RelevantFile,
    ReportContext,
    ReportDecision,
    ReportFindings,
    Severity,
    Status,
)
from baton.report.rendering import render_report
from baton.report.rules import lint_report
from tests.report.report_material import report, reports

AUDIT = report(
    sender="security-auditor",
    task="Review the change",
    confidence=90,
    readiness=Readiness.YES,
    findings=ReportFindings(discoveries=["Key in `a.py:3`", "Slow loop in `b.py:9`"]),
    context=ReportContext(
        relevant_files=[RelevantFile(file="a.py", lines="3", reason="The key")],
        patterns=["Guards"],
        decisions=[ReportDecision(decision="Rotate", rationale="it leaked")],
    ),
    blockers=["Who rotates it?"],
    verification_script="bandit .",
    notes=[Note(heading="Tools", items=["bandit"])],
)
SPEED = report(
    sender="performance-opt",
    task="Review the change",
    status=Status.PARTIAL,
    confidence=70,
    handoff_confidence=60,
    readiness=Readiness.WITH_CAVEATS,
    findings=ReportFindings(discoveries=["Slow loop in `b.py:9`"]),
    context=ReportContext(relevant_files=[RelevantFile(file="a.py", lines="3", reason="The key")]),
    resolved_blockers=["Who rotates it?", "Is it hot?"],
    verification_script="bandit .",
)


def merged(*several: HandoffReport) -> HandoffReport:
    return merge_reports(several, sender="coordinator", receiver="code-reviewer")


class TestMergeReports:
    def test_entries_are_united_with_their_authors(self) -> None:
        """Merging is a union with provenance (S4-use-2)."""
        result = merged(AUDIT, SPEED)

        assert result.findings.discoveries == [
            "Key in `a.py:3` (from security-auditor)",
            "Slow loop in `b.py:9` (from security-auditor, performance-opt)",
        ]
        assert [file.reason for file in result.context.relevant_files] == [
            "The key (from security-auditor, performance-opt)"
        ]
        assert result.context.patterns == ["Guards (from security-auditor)"]
        assert result.context.decisions == [
            ReportDecision(decision="Rotate (from security-auditor, confidence 90)", rationale="it leaked")
        ]
        assert result.verification_script == "# From security-auditor, performance-opt\nbandit ."
        assert [note.heading for note in result.notes] == ["Tools (from security-auditor)"]
        assert result.task == "Review the change"
        assert result.summary.startswith("security-auditor: ")

    def test_the_worst_status_and_the_lowest_confidence_win(self) -> None:
        """S4-use-2: worst status, lowest confidences, ready only as far as all are."""
        result = merged(AUDIT, SPEED)

        assert (result.status, result.confidence, result.handoff_confidence) == (Status.PARTIAL, 70, 60)
        assert result.readiness is Readiness.WITH_CAVEATS

    def test_a_blocker_of_one_report_stays_open(self) -> None:
        """S4-use-2: another report's answer may be to another question."""
        result = merged(AUDIT, SPEED)

        assert result.blockers == ["Who rotates it? (from security-auditor)"]
        assert result.resolved_blockers == ["Is it hot? (from performance-opt)"]

    @pytest.mark.parametrize(("first", "second"), list(itertools.product(Status, repeat=2)))
    def test_status_gets_worse_only(self, first: Status, second: Status) -> None:
        """S4-use-2: completed, partial, blocked, failed, in that order."""
        order = ["completed", "partial", "blocked", "failed"]
        worst = max(first, second, key=order.index)

        assert merged(report(status=first), report(status=second)).status is worst

    @pytest.mark.parametrize(("first", "second"), list(itertools.product(Readiness, repeat=2)))
    def test_a_merged_report_is_ready_only_if_all_are(self, first: Readiness, second: Readiness) -> None:
        """S4-use-2, C-29: one No is enough."""
        result = merged(report(readiness=first), report(readiness=second))

        assert result.ready_for_next_phase == (Readiness.NO not in (first, second))
        assert (result.readiness is Readiness.YES) == (first is second is Readiness.YES)

    @given(st.lists(reports, min_size=1, max_size=3))
    def test_merging_consistent_reports_is_consistent(self, several: list[HandoffReport]) -> None:
        """S4-use-2: a merge adds no errors, loses nothing and can be parsed (C-33, C-34)."""
        result = merged(*several)

        assert Severity.ERROR not in {finding.severity for finding in lint_report(result)}
        assert parse_report(render_report(result)).report == result
        for source in several:
            assert all(any(text in entry for entry in result.blockers) for text in source.blockers)
            discoveries = result.findings.discoveries
            assert all(any(text in entry for entry in discoveries) for text in source.findings.discoveries)
            assert len(result.verification_commands) >= len(source.verification_commands)

    @pytest.mark.parametrize(
        ("mine", "theirs", "disputed"),
        [
            pytest.param("Use JWT", ("Use sessions", "JWT"), True, id="a word of it"),
            pytest.param("JWT", ("Use sessions", "Using JWT, or nothing"), True, id="in other words"),
            pytest.param("Use JWT", ("Use sessions", "Basic auth"), False, id="something else was rejected"),
            pytest.param("Use JWT", ("Use JWT", "JWT without expiry"), False, id="the same decision"),
            pytest.param("Use JWT", ("Use sessions", ""), False, id="nothing was rejected"),
            pytest.param("Refuse none of them", ("Use sessions", "None"), False, id="none was rejected"),
            pytest.param("Use the store", ("Use sessions", "the"), False, id="a common word was rejected"),
            pytest.param("Use", ("Take sessions", "use of cookies"), False, id="a common word was decided"),
        ],
    )
    def test_what_one_decided_and_another_rejected_is_an_open_question(
        self, mine: str, theirs: tuple[str, str], disputed: bool
    ) -> None:
        """S4-use-2: the coordinator, not the order of the reports, says which holds."""
        decided, instead = theirs
        first = report(sender="a", context=ReportContext(decisions=[ReportDecision(decision=mine)]))
        other = ReportDecision(decision=decided, alternatives=instead)
        second = report(sender="b", context=ReportContext(decisions=[other]))

        for order in ([first, second], [second, first]):
            blockers = merged(*order).blockers
            assert blockers == [f"a decided {mine!r}, and b rejected it for {decided!r}: which holds?"] * disputed

    @pytest.mark.parametrize(
        ("made", "rejected", "disputes", "incomplete"),
        [
            pytest.param("Use library {} for the thing", "the", 0, True, id="a common word"),
            pytest.param("Use library {} for the thing", "thing", MAX_DISPUTES, True, id="a word of all"),
            pytest.param(
                "aa " * 60 + "bcd {}", "aa " * 20 + "bcd, " + "aa " * 100, MAX_DISPUTES, True, id="repetitions"
            ),
            pytest.param("bcd " * 50 + "{}", ", ".join(["bcd " * 20 + "e"] * 20), 0, True, id="in vain"),
        ],
    )
    def test_reports_do_not_decide_how_much_is_compared(
        self, made: str, rejected: str, disputes: int, incomplete: bool
    ) -> None:
        """C-34's neighbour: the disputes are bounded, and a remark says that some are missing."""
        several = [
            report(
                sender=sender,
                context=ReportContext(
                    decisions=[
                        ReportDecision(decision=made.format(f"{sender}{number}"), alternatives=rejected)
                        for number in range(400)
                    ]
                ),
            )
            for sender in ("x", "y", "z")
        ]

        found = find_disputes([(one.sender, one) for one in several])
        merge = merge_branch_reports([ReportedBranch(one.sender, ["Decided"], report=one) for one in several])

        assert len(found.shown) == len(merge.disputes) == disputes
        assert any("too many to compare" in remark for remark in found.remarks) is incomplete
        assert any("more were rejected" in remark for remark in found.remarks) is (disputes > 0)
        assert merged(*several).blockers == [*map(str, found.shown), *found.remarks]
        assert merge.remarks == found.remarks

    def test_only_decisions_that_share_a_rare_word_are_compared(self) -> None:
        """Comparing each with each would take seconds in a workflow task."""
        decisions = [
            ComparedDecision(
                sender,
                ReportDecision(
                    decision=f"Use library number {sender} {number} for the thing",
                    alternatives=", ".join(f"option {sender} {number} {other}" for other in range(5)),
                ),
            )
            for sender in ("one", "two")
            for number in range(100, 300)
        ]

        assert len(list(pair_decisions(decisions))) <= 2 * len(decisions) * 5

    def test_a_dispute_quotes_the_beginning_of_a_long_decision(self) -> None:
        """It goes into the history."""
        first = report(sender="a", context=ReportContext(decisions=[ReportDecision(decision="Use JWT " * 10_000)]))
        other = ReportDecision(decision="Use sessions", alternatives="JWT")
        second = report(sender="b", context=ReportContext(decisions=[other]))

        [dispute] = find_disputes([("a", first), ("b", second)]).shown

        assert len(str(dispute)) < 1_000
        assert len(str(dispute.conflict.values)) < 1_000

    def test_reports_of_one_sender_are_told_apart(self) -> None:
        """Three runs of one reviewer are three authors, each with its own confidence."""
        decided = ReportContext(decisions=[ReportDecision(decision="Use JWT")])
        rejected = ReportContext(decisions=[ReportDecision(decision="Use sessions", alternatives="JWT")])
        several = [
            report(sender=sender, confidence=confidence, context=context)
            for sender, confidence, context in (("a", 90, decided), ("a", 60, decided), ("a (2)", 70, rejected))
        ]

        result = merged(*several)

        assert [decision.decision for decision in result.context.decisions] == [
            "Use JWT (from a, confidence 90; a (2), confidence 60)",
            "Use sessions (from a (2) (2), confidence 70)",
        ]
        assert len(result.blockers) == 2

    def test_merging_no_reports_is_an_error(self) -> None:
        """It is a misuse."""
        with pytest.raises(ValueError, match="at least one report"):
            merged()

    def test_task_and_summary_can_be_given(self) -> None:
        """A coordinator can give its own task and summary."""
        result = merge_reports([AUDIT], sender="a", receiver="b", task="All", summary="Both agree. It is slow.")

        assert (result.task, result.summary) == ("All", "Both agree. It is slow.")


class TestBranchReports:
    def test_a_long_state_is_shortened_in_turn(self) -> None:
        """S1's 3 to 8 bullets hold for a fan-out as well: each branch says how it went before any says what it saw."""
        states = [[f"{name}: completed", *(f"{name} saw {number}" for number in range(4))] for name in "abc"]
        branches = [ReportedBranch(name, (), state, report()) for name, state in zip("abc", states, strict=True)]

        state = merge_branch_reports(branches).state

        assert state == [
            *("a: completed", "b: completed", "c: completed", "a saw 0", "b saw 0", "c saw 0", "a saw 1"),
            MORE,
        ]

    def test_a_state_of_another_kind_of_branch_is_kept(self) -> None:
        """Only a report says elsewhere what is left out here."""
        long = [f"saw {number}" for number in range(9)]

        assert merge_branch_reports([ReportedBranch("a", state=long), ReportedBranch("b", report=report())]).state == []
