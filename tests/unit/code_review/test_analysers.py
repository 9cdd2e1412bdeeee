"""The analysers on real code: what they find, what they are not misled by, and what they say they did not read."""

import importlib.metadata
from pathlib import Path

import pytest

from activities.code_review.analysers import ANALYSERS, review_of
from activities.code_review.laying_out import check_installed
from activities.code_review.records import CodeReviewError, Concern, Finding, Review, Snapshot, SourceText
from activities.code_review.sources import read_tree, snapshot_of_project
from tests.unit.code_review.material import FILES, SLOW, WEAK, contents, write


async def reviewed(concern: Concern, snapshot: Snapshot) -> Review:
    """Return what a reviewer finds in a snapshot."""
    return review_of(concern, snapshot, [await analyse(snapshot) for analyse in ANALYSERS[concern].values()])


def snapshot_of(folder: Path, files: dict[str, str]) -> Snapshot:
    """Return the snapshot of these files in a folder."""
    return snapshot_of_project(read_tree(write(folder, files), lambda _: None))


def found(review: Review) -> list[tuple[str, str, str]]:
    """Return severity, place and rule of each finding."""
    return [(one.severity, one.place, one.rule) for one in review.findings]


class TestAuditSecurity:
    """The security auditor."""

    async def test_finds_weaknesses_with_file_and_line(self, tmp_path: Path) -> None:
        """The gravest first; what bandit and ruff both find is one finding, and surer."""
        review = await reviewed("security", snapshot_of(tmp_path, {"app/weak.py": WEAK}))
        assert found(review) == [
            ("high", "app/weak.py:8", "B602"),
            ("medium", "app/weak.py:12", "B301"),
            ("low", "app/weak.py:1", "B403"),
            ("low", "app/weak.py:2", "B404"),
            ("low", "app/weak.py:4", "B105"),
        ]
        shell = review.findings[0]
        assert (shell.by, shell.confidence, shell.cwe) == (("bandit", "ruff"), 98, 78)
        assert shell.code == 'subprocess.call("ls " + folder, shell=True)'

    async def test_counts_columns_in_characters(self, tmp_path: Path) -> None:
        """Python's parser counts bytes, so behind an umlaut editors and code hosts marked the wrong place."""
        text = 'def f(ids, db):\n    for id in ids:\n        x = "äöü€"; db.execute("select ?", eval(id))\n'
        snapshot = snapshot_of(tmp_path, {"a.py": text})
        findings = [
            *(await reviewed("security", snapshot)).findings,
            *(await reviewed("performance", snapshot)).findings,
        ]
        line = text.splitlines()[2]
        assert {one.by: line[one.column - 1 :][:6] for one in findings if one.line == 3} == {
            ("bandit", "ruff"): "eval(i",
            ("loops",): "db.exe",
        }

    async def test_reports_what_the_source_suppresses_as_suppressed(self, tmp_path: Path) -> None:
        """`# nosec` and `# noqa` cannot hide a finding from the reader, and do not count against the code."""
        text = WEAK.replace("shell=True)", "shell=True)  # noqa: S602")
        review = await reviewed("security", snapshot_of(tmp_path, {"app/weak.py": text}))
        hushed = [one.place for one in review.findings if one.suppressed]
        assert hushed == ["app/weak.py:8", "app/weak.py:12"]
        assert {one.line for one in review.open} == {1, 2, 4}

    async def test_repeats_no_password(self, tmp_path: Path) -> None:
        """It is in the source already; a report, a log and a history are read by more people."""
        text = 'PASSWORD = "correct horse"\nlogin(password="correct horse")\n\n\ndef f(token="correct horse"): ...\n'
        review = await reviewed("security", snapshot_of(tmp_path, {"app/weak.py": text}))
        assert {one.rule for one in review.findings} == {"B105", "B106", "B107"}
        assert "correct horse" not in review.model_dump_json()

    async def test_takes_an_assertion_in_a_test_for_what_it_is(self, tmp_path: Path) -> None:
        """In a program it can be switched off, so there it is a finding."""
        text = "def test_it():\n    assert 1\n"
        review = await reviewed("security", snapshot_of(tmp_path, {"tests/test_it.py": text, "app/it.py": text}))
        assert found(review) == [("low", "app/it.py:2", "B101")]

    async def test_obeys_no_configuration_of_the_source(self, tmp_path: Path) -> None:
        """A project cannot exclude itself, by its files or by where they lie."""
        quiet = {
            ".bandit": "[bandit]\nskips = B602\nexclude = app\n",
            "ruff.toml": 'exclude = ["app"]\n[lint]\nignore = ["S"]\n',
            "pyproject.toml": '[tool.bandit]\nskips = ["B602"]\n[tool.ruff.lint]\nignore = ["S"]\n',
            "setup.cfg": "[bandit]\nskips = B602\n",
        }
        review = await reviewed("security", snapshot_of(tmp_path, {**quiet, "app/-e.py": WEAK, "site/run.py": WEAK}))
        assert [one.place for one in review.findings if one.rule == "B602"] == ["app/-e.py:8", "site/run.py:8"]

    async def test_says_what_it_could_not_read(self, tmp_path: Path) -> None:
        """A file that is no Python, and files in other languages, are named."""
        review = await reviewed("security", snapshot_of(tmp_path, FILES))
        assert [(one.reason, one.examples) for one in review.unread] == [
            ("not to be parsed as Python", ("app/broken.py",)),
            ("written in Shell, which these analysers do not read", ("bin/deploy.sh",)),
        ]
        assert review.files == 3

    async def test_goes_on_without_a_file_that_an_analyser_crashes_at(self, tmp_path: Path) -> None:
        """The one file is named as not analysed; what is found in the others stands, and so do their suppressions."""
        long = "x = " + "a + " * 30_000 + "a\n"
        files = {"app/a.py": "eval(x)  # noqa: S307\n", "app/long.py": long, "app/weak.py": WEAK}
        review = await reviewed("security", snapshot_of(tmp_path, files))
        assert [(one.reason, one.examples) for one in review.unread] == [
            ("not to be parsed as Python", ("app/long.py",)),
        ]
        by_both = {one.place: one.suppressed for one in review.findings if one.by == ("bandit", "ruff")}
        assert (by_both["app/a.py:1"], by_both["app/weak.py:8"]) == (True, False)

    async def test_counts_only_what_changed(self, tmp_path: Path) -> None:
        """Of a change, a finding in the lines around it is not its author's."""
        file = SourceText(path="a.py", language="Python", text=WEAK, changed=((7, 8),))
        review = await reviewed("security", Snapshot(name="p", compared_with="main", files=(file,)))
        assert found(review) == [("high", "a.py:8", "B602")]

    async def test_reads_a_script_without_an_ending(self, tmp_path: Path) -> None:
        """Its first line says that it is Python."""
        review = await reviewed("security", snapshot_of(tmp_path, {"bin/run": f"#!/usr/bin/env python3\n{WEAK}"}))
        assert ("high", "bin/run:9", "B602") in found(review)

    async def test_leaves_the_source_as_it_is(self, tmp_path: Path) -> None:
        """No cache, no compiled file, nothing."""
        snapshot = snapshot_of(tmp_path, FILES)
        before = contents(tmp_path)
        for concern in ANALYSERS:
            await reviewed(concern, snapshot)
        assert contents(tmp_path) == before


class TestReviewPerformance:
    """The performance reviewer."""

    async def test_finds_blocking_and_repeated_work(self, tmp_path: Path) -> None:
        """Each finding says what to do instead."""
        review = await reviewed("performance", snapshot_of(tmp_path, {"app/slow.py": SLOW}))
        assert found(review) == [
            ("medium", "app/slow.py:5", "ASYNC251"),
            ("medium", "app/slow.py:11", "LOOP302"),
            ("low", "app/slow.py:11", "PERF401"),
        ]
        assert review.findings[1].advice

    async def test_finds_functions_that_are_too_complex(self, tmp_path: Path) -> None:
        """Eleven ways through a function are too many, and a function is under review as a whole."""
        text = "def f(x):\n" + "".join(f"    if x == {n}:\n        return {n}\n" for n in range(11)) + "    return x\n"
        review = await reviewed("performance", snapshot_of(tmp_path, {"f.py": text}))
        assert [(one.rule, one.line, one.message) for one in review.findings] == [
            ("CC-C", 1, "f has a cyclomatic complexity of 12 (rank C)")
        ]

    async def test_grades_what_is_slow_in_a_test_low(self, tmp_path: Path) -> None:
        """Nobody waits for a test as for a program."""
        review = await reviewed("performance", snapshot_of(tmp_path, {"tests/test_slow.py": SLOW}))
        assert {one.severity for one in review.findings} == {"low"}


class TestReviewOf:
    """What becomes of the analysers' findings."""

    async def test_is_the_same_for_the_same_code(self, tmp_path: Path) -> None:
        """Neither clock nor chance nor place is in it."""
        one = await reviewed("security", snapshot_of(tmp_path / "x", FILES))
        two = await reviewed("security", snapshot_of(tmp_path / "y", FILES))
        assert one == two

    async def test_of_no_python_finds_nothing_and_says_so(self, tmp_path: Path) -> None:
        """No analyser is started for nothing."""
        snapshot = snapshot_of(tmp_path, {"main.go": "package main\n"})
        review = await reviewed("security", snapshot)
        assert (review.files, review.findings) == (0, ())
        assert review.unread[0].examples == ("main.go",)

    def test_places_a_finding_in_every_line_it_covers(self) -> None:
        """One that begins before the change and reaches into it counts."""
        file = SourceText(path="a.py", language="Python", text="x\n" * 9, changed=((4, 4),))
        assert [file.covers(2, last) for last in (3, 4, 5)] == [False, True, True]
        assert isinstance(Finding.model_json_schema(), dict)


class TestCheckInstalled:
    """What a worker needs."""

    def test_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The packages and the extra are named."""
        real = importlib.metadata.version

        def version(name: str) -> str:
            if name == "radon":
                raise importlib.metadata.PackageNotFoundError(name)
            return real(name)

        check_installed()
        monkeypatch.setattr(importlib.metadata, "version", version)
        with pytest.raises(CodeReviewError, match=r"missing: radon\. Install them with: pip install 'temporal-baton"):
            check_installed()
