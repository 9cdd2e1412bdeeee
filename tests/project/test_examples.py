"""The examples run: as a script, and as a worker serves them."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from temporalio.client import Client

from baton import PipelineInput
from baton.client import read_run
from baton.devserver import DevServer
from baton.runs.client_explanation import explain
from baton.testing import pipeline_worker
from baton.worker import discover
from tests.acceptance.operating import Operator
from tests.support import approve
from tests.support.processes import ran

EXAMPLES = Path(__file__).parents[2] / "examples"


async def test_hello_runs_as_a_script(server: DevServer, tmp_path: Path) -> None:
    """It needs nothing but a server, or starts one."""
    environment = {**os.environ, "TEMPORAL_ADDRESS": server.address, "PYTHONPATH": str(EXAMPLES.parent)}
    ended = await ran(sys.executable, str(EXAMPLES / "hello.py"), folder=tmp_path, environment=environment)
    assert (ended.code, ended.said.strip()) == (0, "Good morning, Ada."), ended.beside


async def test_three_agents_write_an_article_in_one_file(tmp_path: Path) -> None:
    """With a tool, a person, a ledger and a budget, in at most 45 lines; the server is an embedded one."""
    text = (EXAMPLES / "article.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 45
    (tmp_path / "article.py").write_text(text, encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "BATON_"))}
    environment = {**inherited, "PYTHONPATH": str(EXAMPLES.parent), "HOME": str(tmp_path), "BATON_USER": "ann"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "article.py"),
        cwd=tmp_path,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    address = run_id = ""
    while not run_id:
        line = (await process.stderr.readline()).decode()
        assert line, "it ended without asking anybody"
        address = found[1] if (found := re.search(r"TEMPORAL_ADDRESS=(\S+)", line)) else address
        run_id = found[1] if (found := re.search(r"baton approve (\S+)", line)) else ""
    baton = Operator(tmp_path, {**environment, "TEMPORAL_ADDRESS": address})
    await baton("approve", run_id, "--why", "it is right", "--yes")
    said, progress = await process.communicate()

    assert (process.returncode, said.decode().splitlines()[0]) == (0, "# Batons"), progress.decode()
    assert (tmp_path / ".baton" / "ledger.db").exists()


@pytest.mark.parametrize("approved", [True, False])
async def test_two_agents_write_and_an_editor_decides(
    client: Client, approved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline each agent gives its scripted answer; the reviewer sees the writer's decision as a fact."""
    monkeypatch.delenv("EXAMPLE_MODEL", raising=False)
    served = discover(str(EXAMPLES / "release_notes"))
    async with pipeline_worker(client, [*served.pipelines], [*served.stages]) as worker:
        handle = await client.start_workflow(
            "release_notes",
            PipelineInput(goal="Notes for 1.2"),
            id=f"release-notes-{approved}",
            task_queue=worker.task_queue,
            result_type=dict,
        )
        await approve(client, handle, "editor", yes=approved)
        result = await handle.result()
    assert result["output"]["published"] is approved
    assert result["baton"]["open_questions"] == ["Does the CSV export need a guide?"]
    run = await read_run(client, handle.id)
    assert explain(run, "review").stage == "review"
