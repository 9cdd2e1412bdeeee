"""The two commands of `python -m activities.project_init`."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from activities.project_init.__main__ import FOUND, MISUSE, NOTHING, main
from tests.unit.project_init.conftest import Run
from tests.unit.project_init.projects import PYTHON

RunOf = Callable[[Mapping[str, str | bytes]], Run]


class TestQuery:
    """Asking an index."""

    def test_prints_places_and_lines(self, run: RunOf, capsys: pytest.CaptureFixture[str]) -> None:
        """The best answer first, where it stands, and what it says."""
        done = run(PYTHON)
        assert main(["query", str(done.out), "how do I run the tests"]) == FOUND
        printed = capsys.readouterr().out
        assert printed.startswith("1. COMMANDS.md:")
        assert "    make test" in printed

    def test_prints_json_within_the_limit(self, run: RunOf, capsys: pytest.CaptureFixture[str]) -> None:
        """For programs: a list of hits; the index itself may be named."""
        done = run(PYTHON)
        assert main(["query", str(done.out / done.index.path), "orders", "--json", "--limit", "2"]) == FOUND
        hits = json.loads(capsys.readouterr().out)
        assert len(hits) == 2
        assert set(hits[0]) == {"score", "origin", "path", "title", "start", "end", "snippet"}

    def test_nothing_found_is_another_code(self, run: RunOf, capsys: pytest.CaptureFixture[str]) -> None:
        """A script can tell an answer from none."""
        assert main(["query", str(run(PYTHON).out), "xylophone"]) == NOTHING
        assert "Try other words" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            pytest.param(["query", "gone", "x"], "there is no index", id="no index"),
            pytest.param(["query", "gone", "x", "--limit", "0"], "from 1 to 100", id="a limit out of range"),
            pytest.param(["inspect", "gone"], "does not exist", id="no project"),
        ],
    )
    def test_misuse_says_what_to_do(
        self, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """One line on the error stream, no trace."""
        assert main(arguments) == MISUSE
        assert message in capsys.readouterr().err

    def test_controls_of_a_terminal_are_shown_not_sent(self, run: RunOf, capsys: pytest.CaptureFixture[str]) -> None:
        """A file cannot repaint the screen of whoever searches it."""
        assert main(["query", str(run({"a.py": "# needle \x1b[2J gone\n"}).out), "needle"]) == FOUND
        assert "\x1b" not in capsys.readouterr().out


class TestInspect:
    """Looking at a folder."""

    def test_prints_what_is_detected_and_writes_nothing(
        self, project: Callable[[Mapping[str, str | bytes]], Path], capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Summary, technology, commands, with their places."""
        folder = project(PYTHON)
        assert main(["inspect", str(folder)]) == FOUND
        printed = capsys.readouterr().out
        assert "web framework: FastAPI >=0.110 [pyproject.toml:12]" in printed
        assert "test: make test [declared, Makefile:2]" in printed
        assert not (folder / ".baton").exists()

    def test_prints_json(
        self, project: Callable[[Mapping[str, str | bytes]], Path], capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The whole result, for programs."""
        assert main(["inspect", str(project(PYTHON)), "--json"]) == FOUND
        assert json.loads(capsys.readouterr().out)["name"] == "shop"


class TestProgram:
    """As a program of its own."""

    def test_runs_as_a_module(self, project: Callable[[Mapping[str, str | bytes]], Path]) -> None:
        """`python -m` finds it, and its exit code is the answer."""
        root = Path(__file__).parents[3]
        done = subprocess.run(
            [sys.executable, "-m", "activities.project_init", "inspect", str(project({}))],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (FOUND, "")
        assert "Project directory is uninitialized" in done.stdout
