"""Failures of stages and pipelines in a few lines, as real scripts print them."""

import logging
import sys
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError

from baton.devserver import DevServer
from baton.plugin import BatonPlugin
from baton.sdk.failure_logs import MAX_LINES, short_failures
from baton.testing import pipeline_worker
from tests.codec.leaking import LEAKED, Leaks, leak_plainly
from tests.support import start
from tests.support.processes import ROOT, Ended, ran

SCRIPT = """
import sys
from datetime import timedelta

import baton
from baton import Baton, BatonPatch, Pipeline, Retries, StageFailedError, pipeline, stage

def price(goods):
    return {{}}[goods]

def deep(level):
    deep(level - 1) if level else price("rope")

@stage(retries=Retries(attempts=3, first=timedelta(seconds=0.1)))
async def single(baton: Baton) -> BatonPatch:
    try:
        deep(8)
    except KeyError as error:
        raise ValueError("no price") from error

@stage(retries=Retries(attempts=1))
async def group(baton: Baton) -> BatonPatch:
    raise ExceptionGroup("several", [ValueError(f"member {{number}}") for number in range(12)])

@pipeline
async def failing(p: Pipeline) -> str:
    await p.stage({stage})
    return "done"

@pipeline
async def handling(p: Pipeline) -> str:
    try:
        await p.stage({stage})
    except StageFailedError:
        return "handled"

if __name__ == "__main__":
    print(baton.run({pipeline}, "Sell", quiet={quiet}).output)
"""


async def run_script(
    server: DevServer, folder: Path, stage: str, pipeline: str, *, quiet: bool = True, **variables: str
) -> Ended:
    """Run the script against the server."""
    script = folder / "script.py"
    script.write_text(SCRIPT.format(stage=stage, pipeline=pipeline, quiet=quiet), encoding="utf-8")
    environment = {"TEMPORAL_ADDRESS": server.address, "PYTHONPATH": str(ROOT), "HOME": str(folder), **variables}
    return await ran(sys.executable, str(script), folder=folder, environment=environment)


@pytest.mark.parametrize("quiet", [True, False])
async def test_a_failure_shows_the_frames_of_the_user_and_ends_with_the_cause(
    server: DevServer, tmp_path: Path, quiet: bool
) -> None:
    """In ten lines with the run's progress: without the SDK, Baton, and repetitions of what is retried."""
    code, _, stderr = await run_script(server, tmp_path, "single", "failing", quiet=quiet)
    lines = [line for line in stderr.splitlines() if " ▶ " not in line and " ● " not in line]

    assert code == 1
    assert "'single'" in lines[0], "the step comes first"
    assert [f" in {name}: " in stderr for name in ("single", "deep", "price")] == [True, True, True]
    assert [word for word in ("site-packages", "Traceback", "local.py") if word in stderr] == []
    assert lines[-1].endswith("no price (from KeyError: 'rope')")
    assert len(lines) <= MAX_LINES, stderr


async def test_a_verbose_program_shows_whole_tracebacks(server: DevServer, tmp_path: Path) -> None:
    """Of the attempts, and of the error that ends it."""
    code, _, stderr = await run_script(server, tmp_path, "single", "failing", BATON_LOG_LEVEL="DEBUG")

    assert code == 1
    assert stderr.count("Traceback (most recent call last)") >= 4, stderr


async def test_a_failure_that_the_pipeline_handles_has_no_traceback(server: DevServer, tmp_path: Path) -> None:
    """The pipeline goes on, and the log names all members of the group."""
    code, output, stderr = await run_script(server, tmp_path, "group", "handling")

    assert (code, output.strip()) == (0, "handled"), stderr
    assert "Traceback" not in stderr
    assert [number for number in range(12) if f"member {number}" not in stderr] == []
    assert len(stderr.splitlines()) <= MAX_LINES + 1  # and the note that nothing was accepted


async def test_a_traceback_in_the_log_has_none(server: DevServer, caplog: pytest.LogCaptureFixture) -> None:
    """Also of an activity that is not a stage, and at level DEBUG."""
    client = await Client.connect(server.address, plugins=[BatonPlugin(safeguards="off")])
    with short_failures(), caplog.at_level(logging.DEBUG, "temporalio.activity"):
        async with pipeline_worker(client, [Leaks], [leak_plainly]) as worker:
            handle = await start(worker, Leaks, how="activity")
            with pytest.raises(WorkflowFailureError):
                await handle.result()

    assert "Traceback" in caplog.text
    assert LEAKED not in caplog.text


BROKEN = {
    "def deep(n:\n    pass\n": "SyntaxError: '(' was never closed",
    "import missing_module\n": "ModuleNotFoundError: No module named 'missing_module'",
    "def deep(n):\n    return deep(n - 1) if n else open('/none')\ndeep(9)\n": "No such file or directory: '/none'",
    "import json\ntry:\n    json.loads('{}}')\nexcept ValueError as error:\n    raise OSError('none') from error\n": (
        "OSError: none (from JSONDecodeError: Extra data: line 1 column 3 (char 2))"
    ),
}
"""Files that cannot be loaded, and how the last line about each ends."""


@pytest.mark.parametrize(("code", "cause"), BROKEN.items())
async def test_a_file_that_cannot_be_loaded_ends_its_worker_in_ten_lines(tmp_path: Path, code: str, cause: str) -> None:
    """As `baton dev FILE` runs it, again after each change."""
    flow = tmp_path / "flow.py"
    flow.write_text(code, encoding="utf-8")
    exit_code, _, stderr = await ran(
        sys.executable, "-m", "baton.worker", str(flow), folder=tmp_path, environment={"PYTHONPATH": str(ROOT)}
    )
    lines = stderr.splitlines()

    assert exit_code == 2
    assert [f"{flow}:" in stderr or f'"{flow}", line 1' in stderr, "Traceback" in stderr] == [True, False]
    assert lines[-1].endswith(cause)
    assert len(lines) <= MAX_LINES
