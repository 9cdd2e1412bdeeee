"""The examples run, as scripts and on a worker."""

import asyncio
import json
import os
import re
import socket
import sys
import urllib.request
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, ScheduleActionExecutionStartWorkflow

from baton import BatonPlugin, PipelineInput, PipelineResult, Safeguards
from baton.client import Connection, OutsideAgents, connect, read_run
from baton.devserver import DevServer
from baton.testing import pipeline_worker
from baton.worker import discover
from tests.acceptance.operating import Operator
from tests.support.processes import ran

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


async def test_hello_runs_as_a_script(server: DevServer, tmp_path: Path) -> None:
    """It needs nothing but a server."""
    environment = {**os.environ, "TEMPORAL_ADDRESS": server.address, "PYTHONPATH": str(EXAMPLES.parent)}
    ended = await ran(sys.executable, str(EXAMPLES / "hello.py"), folder=tmp_path, environment=environment)
    assert (ended.code, ended.said.strip()) == (0, "Good morning, Ada."), ended.beside


async def test_three_reviewers_report_at_once(server: DevServer, tmp_path: Path) -> None:
    """Their decisions have authors, the lowest confidence counts, and the disputed decision is asked about."""
    environment = {**os.environ, "TEMPORAL_ADDRESS": server.address, "PYTHONPATH": str(EXAMPLES.parent)}
    ended = await ran(sys.executable, str(EXAMPLES / "reviewers.py"), folder=tmp_path, environment=environment)

    assert ended.code == 0, ended.beside
    for text in (
        "'confidence': 60",
        "Keep the tests (from security, confidence 90; speed, confidence 60; style, confidence 75)",
        "and security rejected it for",
    ):
        assert text in ended.said


async def test_three_agents_write_an_article_in_one_file(tmp_path: Path) -> None:
    """With a tool, an approval, a ledger, a budget and an embedded server, in at most 45 lines."""
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
        assert line, "the program ended without asking for approval"
        address = match[1] if (match := re.search(r"TEMPORAL_ADDRESS=(\S+)", line)) else address
        run_id = match[1] if (match := re.search(r"baton approve (\S+)", line)) else ""
    baton = Operator(tmp_path, {**environment, "TEMPORAL_ADDRESS": address})
    await baton("approve", run_id, "--why", "it is right", "--yes")
    output, progress = await process.communicate()

    assert (process.returncode, output.decode().splitlines()[0]) == (0, "# Batons"), progress.decode()
    assert (tmp_path / ".baton" / "ledger.db").exists()


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        pytest.param("openai_agent.py", ["Move the logins first."], id="the OpenAI Agents SDK"),
        pytest.param("langgraph_agent.py", ["Move the logins first."], id="LangGraph"),
        pytest.param("chat_endpoint.py", ["Logins first."], id="a chat-completions endpoint"),
        pytest.param("program.py", ["Imports sorted", "'understood': True"], id="a program, called by a stage"),
        pytest.param("mcp_tools.py", ["look_up", "owes 20 USD since May"], id="tools of an MCP server"),
        pytest.param("handoff.py", ["'checked_by': 'risk'", "Low risk"], id="handoff to another pipeline"),
    ],
)
async def test_a_script_runs_offline(server: DevServer, tmp_path: Path, file: str, expected: list[str]) -> None:
    """It ends by itself and prints its result."""
    output = await script(server, tmp_path, str(EXAMPLES / file))
    assert [text for text in expected if text not in output] == []
    assert "refund" not in output  # the contract does not allow this tool, so the agent never saw it


async def test_a_notebook_runs_in_its_own_loop(server: DevServer, tmp_path: Path) -> None:
    """Its cells run in order inside a running event loop, as in Jupyter."""
    (tmp_path / "hello.py").write_text((EXAMPLES / "hello.py").read_text(encoding="utf-8"), encoding="utf-8")
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    body = f"import asyncio\nasync def run():\n    names = {{}}\n    for cell in {code!r}:\n        exec(cell, names)\n"
    (tmp_path / "cells.py").write_text(
        f"{body}    print(names['result'].output)\nasyncio.run(run())\n", encoding="utf-8"
    )
    assert "Good morning, Ada." in await script(server, tmp_path, "cells.py")


async def test_a_coding_agent_accepts_a_task_and_returns_its_work(sealing: Client, safeguards: Safeguards) -> None:
    """The pipeline continues with the agent's patch."""
    served = discover(str(EXAMPLES / "coding_agent.py"))
    async with pipeline_worker(sealing, [*served.pipelines], []) as worker:
        start = PipelineInput(goal="Fix the total of an empty cart")
        handle = await sealing.start_workflow(
            "fix_bug", start, id="fix-bug", task_queue=worker.task_queue, result_type=PipelineResult
        )
        async with safeguards.shared().open() as guarded:
            agents = OutsideAgents(sealing, guarded.gate)
            while not (tasks := [task async for task in agents.list_open("coder")]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # the index of runs lags behind
            assert (await agents.accept(tasks[0], "coder")).verdict.valid
            await agents.return_patch(tasks[0], "coder", {"current_state": ["The total is 0", "A test shows it"]})
        assert (await handle.result()).output == ["The total is 0", "A test shows it"]


async def test_a_schedule_starts_its_pipeline(client: Client) -> None:
    """A manual trigger stands for the clock."""
    served = discover(str(EXAMPLES / "hello.py"))
    await import_module("schedule").create_schedule(client)
    schedule = client.get_schedule_handle("hello")
    async with pipeline_worker(client, [*served.pipelines], [*served.stages], task_queue="baton"):
        await schedule.trigger()
        while not (actions := (await schedule.describe()).info.recent_actions):  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # the server has no event to await
        started = actions[0].action
        assert isinstance(started, ScheduleActionExecutionStartWorkflow)
        result = await client.get_workflow_handle(started.workflow_id, result_type=PipelineResult).result()
    await schedule.delete()
    assert result.output == "Good morning, Ada."


async def test_a_run_is_rolled_back_and_forked_in_code(client: Client) -> None:
    """The roll-back repeats the last stage; the fork decides by its patch."""
    served = discover(str(EXAMPLES / "repair.py"))
    repair = sys.modules["repair"]
    async with pipeline_worker(client, [*served.pipelines], [*served.stages]) as worker:
        start = PipelineInput(goal="Move the data")
        handle = await client.start_workflow("migration", start, id="migration-1", task_queue=worker.task_queue)
        await handle.result()
        await repair.go_back(client, "migration-1")
        await client.get_workflow_handle("migration-1").result()
        variant = await repair.try_variant(client, "migration-1", "SQLite")
    rolled_back = await read_run(client, "migration-1")
    assert rolled_back.resets[0].reason.endswith("the migration was wrong")
    assert variant == ["The migration is written. Use SQLite"]


async def test_a_service_starts_works_streams_and_decides(server: DevServer, tmp_path: Path) -> None:
    """A browser that reconnects with its last event id gets the remaining events; the worker is in the service."""
    (tmp_path / "CHANGELOG.md").write_text((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), encoding="utf-8")
    port = free_port()
    variables = {name: value for name, value in environment(server, tmp_path).items() if name != "EXAMPLE_MODEL"}
    service = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "web_service:app", "--port", str(port)),
        cwd=tmp_path,
        env=variables,
        stderr=asyncio.subprocess.PIPE,
    )
    assert service.stderr is not None
    while b"Uvicorn running" not in await service.stderr.readline():
        pass
    browser = Browser(f"http://127.0.0.1:{port}")
    try:
        run = (await browser.post("/summaries?document=CHANGELOG.md"))["run"]
        first, last = await browser.events(run, until="step_done")
        assert [event["what"] for event in first][:4] == [
            "run_started",
            "step_started",
            "tool_called",
            "tool_answered",
        ]
        rest, last = await browser.events(run, after=last, until="approval")
        approved = await browser.post(f"/summaries/{run}/approval?who=ann&why=fine")
        end, _ = await browser.events(run, after=last, until="run_ended")
    finally:
        service.terminate()
        await service.wait()
    assert approved == {"approved": True}
    streamed = {
        name: "".join(event["text"] for event in [*first, *rest] if texts(event) == name) for name in ("write", "edit")
    }
    result = (await read_run(await connect(Connection(address=server.address), plugins=[BatonPlugin()]), run)).result
    assert result is not None
    assert streamed["edit"].rstrip() == result.output
    assert streamed["write"].startswith("- ")
    assert end[-1]["what"] == "run_ended"


def texts(event: dict[str, Any]) -> str | None:
    """Return the stage whose text the event carries."""
    return event["name"] if event["what"] == "text" else None


class Browser:
    """A client of the service and its event stream."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def post(self, path: str) -> dict[str, Any]:
        """Post and return the JSON response."""

        def call() -> dict[str, Any]:
            request = urllib.request.Request(self._url + path, method="POST")
            with urllib.request.urlopen(request, timeout=60) as response:
                return dict(json.load(response))

        return await asyncio.to_thread(call)

    async def events(self, run: str, *, until: str, after: str = "") -> tuple[list[dict[str, Any]], str]:
        """Return the events up to the first of a kind, and the last event id."""

        def read() -> tuple[list[dict[str, Any]], str]:
            headers = {"Last-Event-ID": after} if after else {}
            request = urllib.request.Request(f"{self._url}/summaries/{run}/events", headers=headers)
            events: list[dict[str, Any]] = []
            last = after
            with urllib.request.urlopen(request, timeout=60) as response:
                for line in response:
                    if line.startswith(b"id: "):
                        last = line[4:].decode().strip()
                    elif line.startswith(b"data: "):
                        events.append(json.loads(line[6:]))
                        if until in (events[-1]["what"], events[-1].get("kind")):
                            break
            return events, last

        return await asyncio.to_thread(read)


def free_port() -> int:
    """Return a free TCP port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(server: DevServer, folder: Path) -> dict[str, str]:
    """Return environment variables for a program that uses the test server."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "BATON_"))}
    path = os.pathsep.join([str(EXAMPLES.parent), str(folder)])
    return {**inherited, "TEMPORAL_ADDRESS": server.address, "PYTHONPATH": path, "OPENAI_AGENTS_DISABLE_TRACING": "1"}


async def script(server: DevServer, folder: Path, file: str) -> str:
    """Run a script in a folder and return its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, file),
        cwd=folder,
        env=environment(server, folder),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, progress = await process.communicate()
    assert process.returncode == 0, progress.decode()
    return output.decode()
