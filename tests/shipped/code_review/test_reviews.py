"""The reviewers on real code: what they find, what they are not misled by, and what their reports and SARIF say."""

import json
from pathlib import Path
from typing import Any

from activities.code_review.reports import (
    Concern,
    Finding,
    Review,
    Severity,
    Snapshot,
    SourceText,
    Unread,
    decide_verdict,
    merged_report,
    reviewer_report,
    sort_findings,
    to_sarif,
)
from activities.code_review.sources import read_tree, snapshot_project
from activities.code_review.stages import ANALYSERS, AnalyserResult, Claim, build_review, copy_files
from baton.report.parsing import parse_report
from baton.report.records import Readiness, Status
from baton.report.rendering import render_report
from baton.report.rules import lint_report
from tests.shipped.code_review.material import FILES, SLOW, WEAK, contents, write

PATH = "a`b|c.py"
SNAPSHOT = Snapshot(name="p", files=(SourceText(path=PATH, language="Python", text="x\n" * 20),))


async def reviewed(concern: Concern, snapshot: Snapshot) -> Review:
    """Return a reviewer's findings in a snapshot."""
    with copy_files(snapshot) as copies:
        return build_review(concern, snapshot, await ANALYSERS[concern][1](copies))


def snapshot_of(folder: Path, files: dict[str, str]) -> Snapshot:
    """Return the snapshot of these files in a folder."""
    return snapshot_project(read_tree(write(folder, files)))


def found(review: Review) -> list[tuple[str, str, str]]:
    """Return severity, place and rule of each finding."""
    return [(finding.severity, finding.place, finding.rule) for finding in review.findings]


def finding(line: int, severity: Severity, **members: Any) -> Finding:
    """Return a finding in the file with the hard name."""
    values: dict[str, Any] = {
        "path": PATH,
        "line": line,
        "end_line": line,
        "concern": "security",
        "severity": severity,
        "rule": "B602",
        "message": "It's <b>bad</b> | `really` *so*",
        "by": ("bandit",),
        "code": "x = `1` | y",
    }
    return Finding.model_validate({**values, **members})


def review(*findings: Finding, **members: Any) -> Review:
    values: dict[str, Any] = {"concern": "security", "analysers": ("bandit 1.9",), "examined": 1}
    return Review.model_validate({**values, "findings": sort_findings(findings), **members})


class TestReviewers:
    async def test_weaknesses_have_file_and_line(self, tmp_path: Path) -> None:
        """The most severe first."""
        result = await reviewed("security", snapshot_of(tmp_path, {"app/weak.py": WEAK}))
        assert found(result) == [
            ("high", "app/weak.py:8", "B602"),
            ("medium", "app/weak.py:12", "B301"),
            ("low", "app/weak.py:1", "B403"),
            ("low", "app/weak.py:2", "B404"),
            ("low", "app/weak.py:4", "B105"),
        ]
        shell = result.findings[0]
        assert (shell.by, shell.cwe) == (("bandit",), 78)
        assert shell.code == 'subprocess.call("ls " + folder, shell=True)'
        assert [finding.place for finding in result.findings if finding.suppressed] == ["app/weak.py:12"]

    async def test_slow_and_complex_code_is_found(self, tmp_path: Path) -> None:
        """Blocking and slow code, and functions with eleven paths or more; in a test all are low."""
        text = "def f(x):\n" + "".join(f"    if x == {n}:\n        return {n}\n" for n in range(11)) + "    return x\n"
        files = {"app/slow.py": SLOW, "f.py": text, "tests/test_slow.py": SLOW}
        assert found(await reviewed("performance", snapshot_of(tmp_path, files))) == [
            ("medium", "app/slow.py:5", "ASYNC251"),
            ("low", "app/slow.py:11", "PERF401"),
            ("low", "f.py:1", "C901"),
            ("low", "tests/test_slow.py:5", "ASYNC251"),
            ("low", "tests/test_slow.py:11", "PERF401"),
        ]

    async def test_the_source_cannot_hide_anything(self, tmp_path: Path) -> None:
        """Neither by its configuration, nor by comments, nor by the names of its files."""
        quiet = {
            ".bandit": "[bandit]\nskips = B602\nexclude = app\n",
            "ruff.toml": 'exclude = ["app"]\n[lint]\nignore = ["S"]\n',
            "pyproject.toml": '[tool.bandit]\nskips = ["B602"]\n[tool.ruff.lint]\nignore = ["S"]\n',
            "app/-e.py": WEAK.replace("shell=True)", "shell=True)  # noqa: S602"),
            "app/other.py": WEAK.replace("shell=True)", "shell=True)  # noqa: E501, S101 as agreed"),
            "bin/run": f"#!/usr/bin/env python3\n{WEAK}",
        }
        source = write(tmp_path, quiet)
        state_before = contents(source)
        result = await reviewed("security", snapshot_project(read_tree(source)))
        shells = {finding.place: finding.suppressed for finding in result.findings if finding.rule == "B602"}
        assert shells == {"app/-e.py:8": True, "app/other.py:8": False, "bin/run:9": False}
        assert contents(source) == state_before

    async def test_no_password_is_repeated(self, tmp_path: Path) -> None:
        """A report, a log and a history are read by more people than the source."""
        text = 'PASSWORD = "correct horse"\nlogin(password="correct horse")\n\n\ndef f(token="correct horse"): ...\n'
        result = await reviewed("security", snapshot_of(tmp_path, {"app/weak.py": text}))
        assert {finding.rule for finding in result.findings} == {"B105", "B106", "B107"}
        assert "correct horse" not in result.model_dump_json()

    async def test_an_assertion_in_a_test_is_not_a_finding(self, tmp_path: Path) -> None:
        """In a program it is a finding, because it can be disabled."""
        text = "def test_it():\n    assert 1\n"
        result = await reviewed("security", snapshot_of(tmp_path, {"tests/test_it.py": text, "app/it.py": text}))
        assert found(result) == [("low", "app/it.py:2", "B101")]

    async def test_what_was_not_analysed_is_named(self, tmp_path: Path) -> None:
        """A file that cannot be parsed, and files in other languages."""
        result = await reviewed("security", snapshot_of(tmp_path, FILES))
        assert [(entry.reason, entry.examples) for entry in result.unread] == [
            ("not to be parsed as Python", ("app/broken.py",)),
            ("in other languages, which these analysers do not read", ("bin/deploy.sh",)),
        ]
        assert ("high", "app/weak.py:8", "B602") in found(result)
        assert (await reviewed("security", snapshot_of(tmp_path / "go", {"main.go": "package main\n"}))).findings == ()

    async def test_of_a_change_only_its_lines_count(self) -> None:
        """Findings on unchanged lines do not count."""
        file = SourceText(path="a.py", language="Python", text=WEAK, changed=((7, 8),))
        result = await reviewed("security", Snapshot(name="p", compared_with="since main", files=(file,)))
        assert found(result) == [("high", "a.py:8", "B602")]

    def test_a_model_must_quote_the_code(self) -> None:
        """A claim is placed at the nearest matching line; without a match it is dropped and counted."""
        text = "def f(x):\n    return eval(x)\n\n\ndef g(x):\n    return eval(x)\n"
        snapshot = Snapshot(name="p", files=(SourceText(path="a.go", language="Go", text=text),))
        claim = Claim(path="a.go", line=5, quote="return eval(x)", severity="high", message="Runs its input")
        changes: list[dict[str, Any]] = [
            {},
            {"line": 1},
            {"path": "b.go"},
            {"quote": "return exec(x)"},
            {"quote": "       "},
        ]
        result = build_review(
            "security", snapshot, AnalyserResult("none", []), [claim.model_copy(update=change) for change in changes]
        )
        assert [(finding.line, finding.rule) for finding in result.findings] == [
            (2, "MODEL-security"),
            (6, "MODEL-security"),
        ]
        assert result.rejected == 3


class TestReports:
    def test_a_report_survives_markdown(self) -> None:
        """`parse(render(x)) == x` with difficult names and texts, without lint warnings."""
        report = reviewer_report(review(finding(3, "high"), finding(1, "low")), SNAPSHOT)
        assert parse_report(render_report(report)).report == report
        assert lint_report(report) == []
        short = reviewer_report(review(finding(3, "high"), finding(1, "low")), SNAPSHOT, limit=1)
        assert len(short.findings.discoveries) == 1
        assert "x = " not in render_report(short)

    def test_what_was_not_analysed_makes_it_unsure(self) -> None:
        """Partial status, lower confidence, caveats, and the files as an open question (S4-status-b)."""
        prose = Unread(reason="not a program", count=2)
        large = Unread(reason="too large", count=1, examples=("<b>*a*.py",), missed=True)
        report = reviewer_report(review(), SNAPSHOT.model_copy(update={"unread": (prose,)}))
        assert (report.status, report.readiness, report.confidence) == (Status.COMPLETED, Readiness.WITH_CAVEATS, 70)
        assert "neither a model nor a person" in report.blockers[0]
        read = reviewer_report(review(judged=True), SNAPSHOT.model_copy(update={"unread": (prose,)}))
        assert (read.readiness, read.confidence, read.blockers) == (Readiness.YES, 90, [])
        part = reviewer_report(review(), SNAPSHOT.model_copy(update={"unread": (prose, large)}))
        assert (part.status, part.readiness, part.confidence) == (Status.PARTIAL, Readiness.WITH_CAVEATS, 70)
        assert part.blockers == [r"Not analysed: 1 × too large (\<b>\*a\*.py)"]
        go = Unread(reason="in Go", count=7, examples=("a.go", "b.go"))
        assert reviewer_report(review(unread=(go,)), SNAPSHOT).blockers == ["Not analysed: 7 × in Go (a.go, b.go, …)"]

    def test_of_what_nobody_examined_nothing_is_said(self) -> None:
        """Neither completed nor ready, and the verdict says so; also beside files that a reviewer could not parse."""
        go = Unread(reason="in Go", count=1, examples=("a.go",))
        report = reviewer_report(review(examined=0, unread=(go,)), SNAPSHOT)
        assert (report.status, report.readiness, report.confidence) == (Status.BLOCKED, Readiness.NO, 0)
        assert report.summary.endswith("Nothing was examined.")
        prose = Unread(reason="not a program", count=1, examples=("a.md",))
        unread = SNAPSHOT.model_copy(update={"files": (), "unread": (prose,)})
        merged = merged_report(unread, [review(examined=0)], "high", ["REVIEW.md"])
        assert (merged.status, merged.readiness, merged.confidence) == (Status.BLOCKED, Readiness.NO, 0)
        assert merged.blockers == ["Not analysed: 1 × not a program (a.md) (from audit-security)"]
        assert lint_report(merged) == []

    def test_the_verdict(self) -> None:
        """By the most severe finding that is not suppressed; approved is only what was analysed and read by a model."""
        go = (Unread(reason="in Go", count=1),)
        empty = SNAPSHOT.model_copy(update={"files": ()})
        hidden = finding(1, "high", suppressed=True)
        table: list[tuple[list[Finding], Severity, Snapshot, tuple[Unread, ...], str]] = [
            ([finding(1, "high")], "high", SNAPSHOT, (), "request changes"),
            ([finding(1, "medium")], "high", SNAPSHOT, (), "comment"),
            ([finding(1, "medium")], "low", SNAPSHOT, (), "request changes"),
            ([hidden], "low", SNAPSHOT, (), "nothing found"),
            ([], "low", SNAPSHOT, (), "nothing found"),
            ([], "low", SNAPSHOT, go, "comment"),
            ([], "low", empty, (), "not reviewed"),
        ]
        for findings, fail_on, snapshot, unread, verdict in table:
            one = review(*findings, unread=unread, examined=len(snapshot.files))
            report = merged_report(snapshot, [one], fail_on, ["REVIEW.md"])
            assert report.summary.startswith(f"Verdict: {verdict}. ")
            assert report.context.decisions[-1].decision == f"Verdict: {verdict}"
            assert decide_verdict(snapshot, [one], fail_on) == verdict
            assert parse_report(render_report(report)).report == report
        assert decide_verdict(SNAPSHOT, [review(judged=True)], "low") == "approve"
        assert decide_verdict(SNAPSHOT, [review(judged=True), review()], "low") == "nothing found"

    def test_the_merged_report_has_the_gravest_first_and_can_be_read_back(self) -> None:
        """For any number of findings; suppressed ones are listed separately."""
        slow = review(finding(8, "high"), concern="performance")
        many = review(*(finding(line, "low") for line in range(1, 3_000)), finding(9, "high", suppressed=True))
        report = merged_report(SNAPSHOT, [many, slow], "high", ["REVIEW.md"])
        assert parse_report(render_report(report)).report == report
        severities = [discovery.split("**")[1] for discovery in report.findings.discoveries]
        assert severities == sorted(severities, key=["high", "medium", "low"].index)
        notes = {note.heading: note.items for note in report.notes}
        assert notes["Further Findings"] == [
            f"{3_000 - len(severities):,} more, none of them graver, in the SARIF file"
        ]
        assert "c.py:9 ``" in notes["Suppressed in the Source"][0]


class TestSarif:
    async def test_has_what_the_standard_requires_and_code_hosts_read(self, tmp_path: Path) -> None:
        """Of a log, a run, a tool, a rule, a result and a location (sections 3.13 to 3.49)."""
        snapshot = snapshot_of(tmp_path, {**FILES, "my app.py": WEAK + WEAK})
        reviews = [await reviewed(concern, snapshot) for concern in ANALYSERS]
        text = to_sarif(snapshot, reviews)
        assert to_sarif(snapshot, reviews) == text
        log = json.loads(text)
        assert (log["version"], len(log["runs"])) == ("2.1.0", 2)
        for run in log["runs"]:
            driver = run["tool"]["driver"]
            assert len({rule["id"] for rule in driver["rules"]}) == len(driver["rules"])
            for result in run["results"]:
                assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
                assert result["level"] in ("error", "warning", "note")
                [location] = result["locations"]
                place = location["physicalLocation"]
                assert place["artifactLocation"]["uriBaseId"] in run["originalUriBaseIds"]
                assert 1 <= place["region"]["startLine"] <= place["region"]["endLine"]
        security = log["runs"][0]
        rules = {rule["id"]: rule for rule in security["tool"]["driver"]["rules"]}
        assert rules["B602"]["properties"]["security-severity"] == "8.0"
        assert "external/cwe/cwe-078" in rules["B602"]["properties"]["tags"]
        suppressed = {result["ruleId"] for result in security["results"] if "suppressions" in result}
        assert suppressed == {"B301"}
        places = {
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in security["results"]
        }
        assert "my%20app.py" in places
        texts = [
            notification["message"]["text"] for notification in security["invocations"][0]["toolExecutionNotifications"]
        ]
        assert any("bin/deploy.sh" in item for item in texts)
