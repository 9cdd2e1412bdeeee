"""The reviewers' reports: short for the coordinator, whole for the reader, and parseable both ways."""

import pytest

from activities.code_review.records import Analyser, Finding, Review, Severity, Snapshot, SourceText, Unread, in_order
from activities.code_review.reporting import COORDINATOR, completed, report_of
from baton.report.lint import lint_report
from baton.report.merging import merge_reports
from baton.report.parsing import parse_report
from baton.report.records import HandoffReport, Readiness, Status
from baton.report.rendering import render_report

FILE = SourceText(path="a`b|c.py", language="Python", text="x = 1\n" * 9)
BANDIT = Analyser(name="bandit", version="1.9.4", looked_for="weaknesses")
SNAPSHOT = Snapshot(name="p*r_o_ject", files=(FILE,))


def finding(line: int, severity: Severity, *, suppressed: bool = False) -> Finding:
    """Return a finding whose words are hard on Markdown."""
    return Finding(
        path=FILE.path,
        line=line,
        end_line=line,
        concern="security",
        severity=severity,
        rule="B1",
        name="n",
        message="1. uses `x` | **y** <b> and _z_",
        by=("bandit",),
        confidence=90,
        advice="Do not",
        code="x = `1` | 2",
        suppressed=suppressed,
    )


def review(*findings: Finding, unread: tuple[Unread, ...] = ()) -> Review:
    """Return a security review."""
    return Review(concern="security", analysers=(BANDIT,), files=1, findings=in_order([*findings]), unread=unread)


class TestInOrder:
    """What is told first."""

    def test_of_equally_grave_findings_those_in_tests_come_last(self) -> None:
        """The product's own are what a reader looks for; a grave one in a test stays before them."""
        places: list[tuple[str, Severity]] = [
            ("tests/t.py", "medium"),
            ("web/w.py", "medium"),
            ("tests/u.py", "high"),
            ("a.py", "low"),
        ]
        found = [finding(1, severity).model_copy(update={"path": path}) for path, severity in places]
        assert [one.path for one in in_order(found)] == ["tests/u.py", "web/w.py", "tests/t.py", "a.py"]


class TestReportOf:
    """One reviewer's report."""

    def test_survives_markdown_whatever_the_code_is_called(self) -> None:
        """`parse(render(x)) == x` with names and words that are hard on it, and no soft rule is broken."""
        report = report_of(review(finding(3, "high"), finding(1, "low")), SNAPSHOT)
        assert parse_report(render_report(report)).report == report
        assert lint_report(report) == []
        assert [one.partition(" **")[0] for one in report.findings.discoveries] == [
            "`` a`b|c.py:3 ``",
            "`` a`b|c.py:1 ``",
        ]

    def test_tells_the_gravest_in_words_of_the_analyser(self) -> None:
        """What travels in the baton has no line of the code; how many are untold is said."""
        found = [finding(line, "low") for line in range(1, 6)]
        report = report_of(review(*found, finding(7, "high")), SNAPSHOT, most=2)
        assert len(report.findings.discoveries) == 2
        assert "c.py:7 ``" in report.findings.discoveries[0]
        assert "`1`" not in render_report(report)
        assert "the gravest 2 of them told here" in report.summary

    def test_is_unsure_of_what_was_not_analysed(self) -> None:
        """Partial, less sure, with caveats, and the files named as an open question (S4-status-b)."""
        unread = Unread(reason="written in Go", count=7, examples=("a.go", "b.go"))
        report = report_of(review(unread=(unread,)), SNAPSHOT)
        assert (report.status, report.readiness, report.confidence) == (Status.PARTIAL, Readiness.WITH_CAVEATS, 70)
        assert report.blockers == ["Not analysed: 7 × written in Go (a.go, b.go, …)"]

    def test_is_unsure_where_a_program_could_not_be_read(self) -> None:
        """What is no program at all does not make the review partial; a program that is too large does."""
        prose = Unread(reason="no program, but prose", count=2)
        large = Unread(reason="too large", count=1, examples=("a.py",), missed=True)
        whole = report_of(review(), SNAPSHOT.model_copy(update={"unread": (prose,)}))
        assert (whole.status, whole.readiness) == (Status.COMPLETED, Readiness.YES)
        part = report_of(review(), SNAPSHOT.model_copy(update={"unread": (prose, large)}))
        assert (part.status, part.readiness, part.confidence) == (Status.PARTIAL, Readiness.WITH_CAVEATS, 70)
        assert part.blockers == ["Not analysed: 1 × too large (a.py)"]
        odd = report_of(review(unread=(Unread(reason="too large", count=1, examples=("<b>*a*.sh",)),)), SNAPSHOT)
        assert odd.blockers == [r"Not analysed: 1 × too large (\<b>\*a\*.sh)"]


class TestCompleted:
    """The coordinator's report."""

    @pytest.mark.parametrize(
        ("findings", "fail_on", "verdict"),
        [
            pytest.param([finding(1, "high")], "high", "request changes", id="grave enough"),
            pytest.param([finding(1, "medium")], "high", "comment", id="not grave enough"),
            pytest.param([finding(1, "medium")], "low", "request changes", id="graver than asked for"),
            pytest.param([finding(1, "high", suppressed=True)], "low", "approve", id="suppressed in the source"),
            pytest.param([], "low", "approve", id="nothing"),
        ],
    )
    def test_has_the_verdict(self, findings: list[Finding], fail_on: Severity, verdict: str) -> None:
        """As a decision with its reason, and first in the summary."""
        report = self.merged([review(*findings)], fail_on)
        assert report.summary.startswith(f"Verdict: {verdict}. ")
        assert report.context.decisions[-1].decision == f"Verdict: {verdict}"
        assert parse_report(render_report(report)).report == report

    def test_names_places_as_code(self) -> None:
        """A file called `<b>.py` was a tag there, and what followed it was bold."""
        odd = finding(3, "high").model_copy(update={"path": "[x](y)<b>.py"})
        report = self.merged([review(odd)], "high")
        assert report.context.decisions[-1].rationale == "high or graver: 1 finding: `[x](y)<b>.py:3`."

    @pytest.mark.parametrize(
        ("snapshot", "unread", "reason"),
        [
            pytest.param(
                SNAPSHOT,
                (Unread(reason="written in Go", count=7),),
                "No finding is high or graver. Not all of the programs were analysed.",
                id="another language",
            ),
            pytest.param(
                SNAPSHOT.model_copy(update={"unread": (Unread(reason="too large", count=1, missed=True),)}),
                (),
                "No finding is high or graver. Not all of the programs were analysed.",
                id="too large to be read",
            ),
            pytest.param(
                SNAPSHOT.model_copy(update={"files": ()}),
                (),
                "No finding is high or graver. No program is under review.",
                id="no program",
            ),
        ],
    )
    def test_approves_nothing_that_was_not_analysed(
        self, snapshot: Snapshot, unread: tuple[Unread, ...], reason: str
    ) -> None:
        """That nothing was found where nobody looked is no approval."""
        report = self.merged([review(unread=unread)], "high", snapshot)
        assert report.summary.startswith("Verdict: comment. ")
        assert report.context.decisions[-1].rationale == reason

    def test_lists_what_the_source_suppresses(self) -> None:
        """It is no discovery, and it is not lost."""
        report = self.merged([review(finding(2, "high", suppressed=True))], "high")
        assert report.findings.discoveries == []
        [note] = [one for one in report.notes if one.heading == "Suppressed in the Source"]
        assert "c.py:2 ``" in note.items[0]

    def test_can_be_read_back_however_much_was_found(self) -> None:
        """A report of every finding in a large project was longer than a report may be; the gravest are told."""
        found = review(*(finding(line, "low") for line in range(1, 3_000)), finding(3_000, "high"))
        merged = merge_reports([report_of(found, SNAPSHOT)], sender=COORDINATOR, receiver="parent")
        report = completed(merged, SNAPSHOT, [found], "high", ["REVIEW.md"])
        assert parse_report(render_report(report)).report == report
        assert "c.py:3000 ``" in report.findings.discoveries[0]
        told = len(report.findings.discoveries)
        assert report.notes[0].items == [f"{3_000 - told:,} more, none of them graver, in the SARIF file"]

    def test_tells_the_gravest_of_all_reviewers_first(self) -> None:
        """What the verdict rests on is not behind the lesser findings of the reviewer that comes before."""
        slow = review(finding(8, "high"), finding(9, "low")).model_copy(update={"concern": "performance"})
        report = self.merged([review(finding(1, "medium"), finding(2, "low")), slow], "high")
        severities = [one.split("**")[1] for one in report.findings.discoveries]
        assert severities == ["high", "medium", "low", "low"]

    @staticmethod
    def merged(reviews: list[Review], fail_on: Severity, snapshot: Snapshot = SNAPSHOT) -> HandoffReport:
        """Return the whole report of these reviews."""
        told = [report_of(one, snapshot) for one in reviews]
        merged = merge_reports(told, sender=COORDINATOR, receiver="parent")
        return completed(merged, snapshot, reviews, fail_on, ["REVIEW.md"])
