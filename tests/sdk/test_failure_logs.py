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
import os
import baton
from baton import Baton, BatonPatch, Pipeline, Retries, StageFailedError, pipeline, stage

def price(goods):
    return {{}}[goods]

@stage(retries=Retries(attempts=1))
async def single(baton: Baton) -> BatonPatch:
    try:
        price("rope")
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
    print(baton.run({pipeline}, "Sell", quiet=True).output)
"""


async def run_script(server: DevServer, folder: Path, stage: str, pipeline: str) -> Ended:
    """Run the script against the server."""
    script = folder / "script.py"
    script.write_text(SCRIPT.format(stage=stage, pipeline=pipeline), encoding="utf-8")
    environment = {"TEMPORAL_ADDRESS": server.address, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    return await ran(sys.executable, str(script), folder=folder, environment=environment)


async def test_a_failure_shows_the_frames_of_the_user_and_ends_with_the_cause(
    server: DevServer, tmp_path: Path
) -> None:
    """Nothing of the SDK, of Baton or of a failure's internal context is printed."""
    code, _, stderr = await run_script(server, tmp_path, "single", "failing")
    log, _, raised = stderr.partition("Traceback")

    assert code == 1
    assert "'single'" in log.splitlines()[0], "the step comes first"
    assert [f" in {name}: " in log for name in ("single", "price")] == [True, True]
    assert "site-packages" not in stderr
    assert stderr.splitlines()[-1].endswith("no price (from KeyError: 'rope')")
    assert len(log.splitlines()) <= MAX_LINES
    assert len(raised.splitlines()) <= MAX_LINES


async def test_a_failure_that_the_pipeline_handles_has_no_traceback(server: DevServer, tmp_path: Path) -> None:
    """The pipeline goes on, and the log names all members of the group."""
    code, output, stderr = await run_script(server, tmp_path, "group", "handling")

    assert (code, output.strip()) == (0, "handled"), stderr
    assert "Traceback" not in stderr
    assert [number for number in range(12) if f"member {number}" not in stderr] == []
    assert len(stderr.splitlines()) <= MAX_LINES + 1  # and the note that nothing was accepted


async def test_a_traceback_in_the_log_has_none(server: DevServer, caplog: pytest.LogCaptureFixture) -> None:
    """Also of an activity that is not a stage, and at level DEBUG."""
    client = await Client.connect(server.address, plugins=[BatonPlugin()])
    with short_failures(), caplog.at_level(logging.DEBUG, "temporalio.activity"):
        async with pipeline_worker(client, [Leaks], [leak_plainly]) as worker:
            handle = await start(worker, Leaks, how="activity")
            with pytest.raises(WorkflowFailureError):
                await handle.result()

    assert "Traceback" in caplog.text
    assert LEAKED not in caplog.text
