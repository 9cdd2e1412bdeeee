"""The pytest plugin as its users meet it: a new folder, their own test files, pytest as a program."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FILE = re.compile(r"^```python\n# (?P<name>[\w/]+\.py)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)

CASSETTE = """
import asyncio
import os

def test_the_model_is_asked(baton_cassette):
    async def model():
        return {"plan": "Use JWT"}

    prompt = os.environ.get("PROMPT", "Add login\\nNo new service")
    assert asyncio.run(baton_cassette.answer("planner", prompt, model)) == {"plan": "Use JWT"}
"""
ALIKE = """
import asyncio
import pytest

@pytest.mark.parametrize("question", ["a b", "a/b", "a-b", "a::b", "a.b", "a-", "a", "ü", "long " * 60])
def test_the_model_is_asked(baton_cassette, question):
    async def model():
        return question

    assert asyncio.run(baton_cassette.answer("planner", question, model)) == question
"""
LEFT_OVER = """
def test_nobody_asks(baton_scripts):
    baton_scripts.agent("planner", {"current_state": ["Planned"]})
"""
BROKEN_OFF = """
import pytest

@pytest.mark.parametrize("reason", [pytest.skip.Exception("no key"), KeyboardInterrupt()], ids=str)
def test_it_breaks_off(baton_scripts, reason):
    baton_scripts.agent("planner", {"current_state": ["Planned"]})
    raise reason
"""
DEAD_SERVER = """
import os
import signal
import pytest

@pytest.mark.parametrize("number", range(5))
def test_it_serves(baton_server, baton_loop, number):
    os.kill(baton_server.process.pid, signal.SIGABRT)
    baton_loop.run(baton_server.process.wait())
    raise AssertionError
"""
NO_ASYNC_PLUGIN = """
import asyncio

from baton import BatonPatch, PipelineInput
from baton.testing import run_pipeline
from pipeline import Release
from stages import collect, write

def test_a_plain_test_runs_a_pipeline(baton_worker, baton_scripts):
    writer = baton_scripts.stage(write, BatonPatch(current_state=["Written"]))

    async def whole():
        async with baton_worker([Release], [collect, writer]) as worker:
            return await run_pipeline(worker, Release.run, PipelineInput(goal="Notes for 1.2"))

    assert asyncio.run(whole()).result.steps == 2
"""


def run_pytest(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder as a user would, with warnings as errors and without this project's settings."""
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "BATON_", "TEMPORAL_"))
    }
    plain.pop("CI", None)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *arguments]
    command += ["-p", "no:langsmith_plugin"]  # not this project's, and Python 3.14 warns about it
    command += ["-p", "no:asyncio"]
    return subprocess.run(
        command, cwd=folder, env={**plain, **variables}, capture_output=True, text=True, timeout=300, check=False
    )


class TestServer:
    def test_no_asyncio_plugin_is_needed(self, tmp_path: Path) -> None:
        """No fixture is asynchronous, so a plain test can call `asyncio.run`."""
        guide = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
        for block in FILE.finditer(guide):
            if block["name"] in ("stages.py", "pipeline.py"):
                (tmp_path / block["name"]).write_text(block["text"], encoding="utf-8")
        (tmp_path / "test_plain.py").write_text(NO_ASYNC_PLUGIN, encoding="utf-8")

        result = run_pytest(tmp_path)

        assert result.returncode == 0, result.stdout + result.stderr

    def test_a_server_that_exits_ends_the_session(self, tmp_path: Path) -> None:
        """Only one test fails, with the end of the server's log."""
        (tmp_path / "test_it.py").write_text(DEAD_SERVER, encoding="utf-8")
        for arguments in ((), ("-n", "1")):
            result = run_pytest(tmp_path, *arguments)
            assert "1 failed" in result.stdout, result.stdout
            assert re.search(r"the Temporal server .* exited with code -?\d+ while they ran; the end of", result.stdout)
            assert "Temporal Server:" in result.stdout
            assert "2 failed" not in result.stdout


class TestRecording:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Return a folder with a test that uses a cassette."""
        (tmp_path / "test_model.py").write_text(CASSETTE, encoding="utf-8")
        return tmp_path

    def test_a_cassette_is_recorded_played_missed_and_pruned(self, folder: Path) -> None:
        """A test before, during and after a change of its prompt."""
        unrecorded = run_pytest(folder)
        recorded = run_pytest(folder, BATON_RECORD="1")
        played = run_pytest(folder)
        changed = {"PROMPT": "Add login\nNo new dependency"}
        missed = run_pytest(folder, **changed)
        rerecorded = run_pytest(folder, "--baton-record", **changed)

        assert [item.returncode for item in (unrecorded, recorded, played, missed, rerecorded)] == [1, 0, 0, 1, 0]
        assert "has no answer of 'planner'" in unrecorded.stdout
        file = folder / "cassettes" / "test_model" / "test_the_model_is_asked.json"
        assert "baton recorded answers: review them before you commit them" in recorded.stdout
        assert f"1 in {file.relative_to(folder)}" in recorded.stdout
        assert "baton recorded" not in played.stdout
        assert "-No new service" in missed.stdout
        assert "+No new dependency" in missed.stdout
        [answer] = json.loads(file.read_text(encoding="utf-8"))["answers"]
        assert answer["prompt"] == ["Add login", "No new dependency"]

    def test_tests_with_similar_parameters_have_separate_cassettes(self, tmp_path: Path) -> None:
        """They do not overwrite each other, and a long parameter does not make the file name too long."""
        (tmp_path / "test_model.py").write_text(ALIKE, encoding="utf-8")

        recorded = run_pytest(tmp_path, "--baton-record")
        played = run_pytest(tmp_path)

        assert [recorded.returncode, played.returncode] == [0, 0], recorded.stdout + played.stdout
        files = [file.name for file in (tmp_path / "cassettes" / "test_model").iterdir()]
        assert len(files) == 9
        assert "test_the_model_is_asked-a-b.json" in files

    @pytest.mark.parametrize(
        ("arguments", "variables"),
        [
            pytest.param(("--baton-record",), {"CI": "true"}, id="by the option"),
            pytest.param((), {"CI": "1", "BATON_RECORD": "1"}, id="by the environment"),
        ],
    )
    def test_nothing_is_recorded_in_ci(
        self, folder: Path, arguments: tuple[str, ...], variables: Mapping[str, str]
    ) -> None:
        """The session stops before the first test, and the message says what to do."""
        ended = run_pytest(folder, *arguments, **variables)

        assert ended.returncode == pytest.ExitCode.USAGE_ERROR
        assert "and CI is set; record on your own machine" in ended.stderr
        assert not (folder / "cassettes").exists()


class TestScripts:
    def test_an_unused_answer_of_a_script_fails_its_test(self, tmp_path: Path) -> None:
        """No assertion is needed."""
        (tmp_path / "test_left_over.py").write_text(LEFT_OVER, encoding="utf-8")

        ended = run_pytest(tmp_path)

        assert ended.returncode == 1
        assert "'planner' was called 0 times; its script has 1 call" in ended.stdout

    def test_a_skipped_or_interrupted_test_does_not_fail_for_unused_answers(self, tmp_path: Path) -> None:
        """An error for unused answers would hide the actual outcome."""
        (tmp_path / "test_broken_off.py").write_text(BROKEN_OFF, encoding="utf-8")

        ended = run_pytest(tmp_path)

        assert (ended.returncode, "1 skipped" in ended.stdout) == (pytest.ExitCode.INTERRUPTED, True), ended.stdout
