"""Pipelines with ordinary code at the top of their files, and what the sandbox still forbids them."""

import asyncio
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from temporalio.client import Client, WorkflowFailureError

from baton import PipelineInput
from baton.devserver import DevServer
from baton.testing import pipeline_worker, run_pipeline
from tests.support import GOAL

HELPER = """\
import random
COUNTS = []
def chance():
    return random.random()
"""
FLOW = """\
from datetime import datetime
from pathlib import Path

import httpx
import pydantic_ai
import rich.console

import loading_helper
from baton import Pipeline, pipeline

PROMPT = Path(__file__).with_name("prompt.md").read_text()
CONSOLE = rich.console.Console()


@pipeline
async def ordinary(p: Pipeline) -> object:
    loading_helper.COUNTS.append(1)
    for call in {"clock": [datetime.now], "helper": [loading_helper.chance], "file": [Path("x").read_text]}.get(
        str(p.params["how"]), []
    ):
        call()
    return [PROMPT, len(loading_helper.COUNTS)]
"""


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return the module of a pipeline beside a prompt and a helper of its own."""
    for name, text in {"loading_flow.py": FLOW, "loading_helper.py": HELPER, "prompt.md": "Be brief."}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module("loading_flow")
    for name in ("loading_flow", "loading_helper"):
        del sys.modules[name]


class TestOrdinaryFile:
    async def test_it_runs(self, client: Client, flow: ModuleType) -> None:
        """Packages are passed through, a prompt is read; the helper's state is each run's own."""
        async with pipeline_worker(client, [flow.ordinary], []) as worker:
            for _ in range(2):
                run = await run_pipeline(worker, flow.ordinary, PipelineInput(goal=GOAL, params={"how": "well"}))
                assert run.result.output == ["Be brief.", 1]

    @pytest.mark.parametrize("how", ["clock", "helper", "file"])
    async def test_its_pipeline_is_still_guarded(self, client: Client, flow: ModuleType, how: str) -> None:
        """In its file and in the helper."""
        async with pipeline_worker(client, [flow.ordinary], []) as worker:
            with pytest.raises(WorkflowFailureError) as raised:
                await run_pipeline(worker, flow.ordinary, PipelineInput(goal=GOAL, params={"how": how}))
        assert "use workflow.now()" in str(raised.value.cause)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("STARTED = datetime.now()", "in the workflow sandbox: datetime.datetime.now may not be used"),
        ("import no_such_module_of_mine", "No module named 'no_such_module_of_mine'"),
    ],
)
async def test_a_line_that_cannot_be_loaded_is_named_once(
    server: DevServer, tmp_path: Path, line: str, told: str
) -> None:
    """With its file and number and what to write, by a worker that ends with exit code 2."""
    text = FLOW.replace("import loading_helper\n", f"{line}\n")
    number = text.splitlines().index(line) + 1
    (tmp_path / "flow.py").write_text(text, encoding="utf-8")
    (tmp_path / "prompt.md").write_text("Be brief.", encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "baton.worker", str(tmp_path / "flow.py")),
        env={**os.environ, "TEMPORAL_ADDRESS": server.address, "BATON_LOG_LEVEL": "WARNING"},
        cwd=tmp_path,
        stderr=asyncio.subprocess.PIPE,
    )
    _, output = await process.communicate()

    lines = output.decode().strip().splitlines()
    assert (process.returncode, len(lines) <= 4) == (2, True), output.decode()
    assert f"line {number}" in output.decode() or f"flow.py:{number}" in output.decode()
    assert told in output.decode()
