"""The examples run: as a script, and as a worker serves them."""

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

from baton import Baton, PipelineInput, PipelineResult, Safeguards, StageContext, StageResult, stage
from baton.client import OutsideAgents, read_run
from baton.devserver import DevServer
from baton.runs.client_explanation import explain
from baton.testing import pipeline_worker
from baton.worker import discover
from tests.acceptance.operating import Operator
from tests.support import approve
from tests.support.processes import ran

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


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


@pytest.mark.parametrize(
    ("file", "says"),
    [
        pytest.param("frameworks.py", ["Good: it names the risk."], id="two frameworks in one pipeline"),
        pytest.param("contract.py", ["look_up", "owes 20 USD since May"], id="a tool under a contract"),
        pytest.param("handoff.py", ["'checked_by': 'risk'", "Low risk"], id="handoff to another pipeline"),
    ],
)
async def test_a_script_runs_offline(server: DevServer, tmp_path: Path, file: str, says: list[str]) -> None:
    """It ends by itself, and prints what it made."""
    said = await script(server, tmp_path, str(EXAMPLES / file))
    assert [one for one in says if one not in said] == []
    assert "refund" not in said  # the contract does not allow that tool, so the agent was never shown it


async def test_a_notebook_runs_in_its_own_loop(server: DevServer, tmp_path: Path) -> None:
    """Its cells run in order while the loop of the notebook runs, as in Jupyter."""
    (tmp_path / "hello.py").write_text((EXAMPLES / "hello.py").read_text(encoding="utf-8"), encoding="utf-8")
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    body = f"import asyncio\nasync def run():\n    here = {{}}\n    for cell in {code!r}:\n        exec(cell, here)\n"
    (tmp_path / "cells.py").write_text(
        f"{body}    print(here['result'].output)\nasyncio.run(run())\n", encoding="utf-8"
    )
    assert "Good morning, Ada." in await script(server, tmp_path, "cells.py")


async def test_a_coding_agent_takes_the_task_and_returns_its_work(sealing: Client, safeguards: Safeguards) -> None:
    """As `baton mcp` does for it; the pipeline goes on with what it did."""
    served = discover(str(EXAMPLES / "coding_agent.py"))
    async with pipeline_worker(sealing, [*served.pipelines], []) as worker:
        start = PipelineInput(goal="Fix the total of an empty cart")
        handle = await sealing.start_workflow(
            "fix_bug", start, id="fix-bug", task_queue=worker.task_queue, result_type=PipelineResult
        )
        async with safeguards.shared().open() as guarded:
            agents = OutsideAgents(sealing, guarded.gate)
            while not (found := await agents.list_open("coder")):  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # the index of runs lags behind
            assert (await agents.accept(found[0], "coder")).verdict.valid
            await agents.return_patch(found[0], "coder", {"current_state": ["The total is 0", "A test shows it"]})
        assert (await handle.result()).output == ["The total is 0", "A test shows it"]


async def test_a_schedule_starts_its_pipeline(client: Client) -> None:
    """Started by hand here; the clock does the same."""
    served = discover(str(EXAMPLES / "schedule.py"))
    await sys.modules["schedule"].make(client)
    schedule = client.get_schedule_handle("digest")
    async with pipeline_worker(client, [*served.pipelines], [*served.stages], task_queue="baton"):
        await schedule.trigger()
        while not (actions := (await schedule.describe()).info.recent_actions):  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # the server tells no event
        started = actions[0].action
        assert isinstance(started, ScheduleActionExecutionStartWorkflow)
        result = await client.get_workflow_handle(started.workflow_id, result_type=PipelineResult).result()
    await schedule.delete()
    assert result.output == ["Two releases, no incident"]


async def test_a_run_is_rolled_back_and_forked_in_code(client: Client) -> None:
    """The roll-back executes the last stage again; the fork has the decision that its patch asks for."""
    served = discover(str(EXAMPLES / "repair.py"))
    repair = sys.modules["repair"]
    async with pipeline_worker(client, [*served.pipelines], [*served.stages]) as worker:
        start = PipelineInput(goal="Move the data")
        handle = await client.start_workflow("migration", start, id="migration-1", task_queue=worker.task_queue)
        await handle.result()
        await repair.go_back(client, "migration-1")
        await client.get_workflow_handle("migration-1").result()
        variant = await repair.try_variant(client, "migration-1", "SQLite")
    again = await read_run(client, "migration-1")
    assert again.resets[0].reason.endswith("the migration was wrong")
    assert variant == ["The migration is written. Use SQLite"]


async def test_a_prompt_change_is_evaluated_over_recorded_runs(client: Client) -> None:
    """The new stage is given what each run gave the old one; where it is worse, the case is named."""
    served = discover(str(EXAMPLES / "hello.py"))
    discover(str(EXAMPLES / "schedule.py"))  # puts the folder on the path
    evaluate = import_module("evaluate")

    @stage(name="greet")
    async def shorter(context: StageContext[Baton]) -> StageResult:
        return StageResult(output=f"Hi, {context.params['guest']}.")

    async with pipeline_worker(client, [*served.pipelines], [*served.stages]) as worker:
        for guest in ("Ada", "Grace"):
            start = PipelineInput(goal="Greet a guest", params={"guest": guest})
            handle = await client.start_workflow("hello", start, id=f"hello-{guest}", task_queue=worker.task_queue)
            await handle.result()
    cases = evaluate.compare(client, ["hello-Ada", "hello-Grace"], shorter)
    share, worse = await evaluate.share_better(cases, lambda answer: "Good morning" in str(answer))
    assert share == 0
    assert [(one.before, one.after) for one in worse] == [
        ("Good morning, Ada.", "Hi, Ada."),
        ("Good morning, Grace.", "Hi, Grace."),
    ]


async def test_a_service_starts_streams_and_decides(
    client: Client, server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser that reconnects with the last id that it saw is told the rest."""
    monkeypatch.delenv("EXAMPLE_MODEL", raising=False)
    monkeypatch.chdir(ROOT)
    served = discover(str(EXAMPLES / "summary.py"))
    port = free_port()
    variables = environment(server, tmp_path)
    serving = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "service:app", "--port", str(port)),
        cwd=tmp_path,
        env=variables,
        stderr=asyncio.subprocess.PIPE,
    )
    assert serving.stderr is not None
    while b"Uvicorn running" not in await serving.stderr.readline():
        pass
    browser = Browser(f"http://127.0.0.1:{port}")
    try:
        async with pipeline_worker(client, [*served.pipelines], [*served.stages], task_queue="baton"):
            run = (await browser.post("/summaries?document=CHANGELOG.md"))["run"]
            first, last = await browser.events(run, until="step_done")
            assert [one["what"] for one in first][:4] == ["run_started", "step_started", "tool_called", "tool_answered"]
            rest, last = await browser.events(run, after=last, until="approval")
            approved = await browser.post(f"/summaries/{run}/approval?who=ann&why=fine")
            end, _ = await browser.events(run, after=last, until="run_ended")
    finally:
        serving.terminate()
        await serving.wait()
    assert approved == {"approved": True}
    said = {name: "".join(one["text"] for one in [*first, *rest] if texts(one) == name) for name in ("write", "edit")}
    result = (await read_run(client, run)).result
    assert result is not None
    assert said["edit"] == result.output
    assert said["write"].startswith("- ")
    assert end[-1]["what"] == "run_ended"


def texts(event: dict[str, Any]) -> str | None:
    """Return the stage whose text an event has."""
    return event["name"] if event["what"] == "text" else None


class Browser:
    """Calls a service, and reads its events."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def post(self, path: str) -> dict[str, Any]:
        """Post, and return the answer."""

        def call() -> dict[str, Any]:
            request = urllib.request.Request(self._url + path, method="POST")
            with urllib.request.urlopen(request, timeout=60) as answer:
                return dict(json.load(answer))

        return await asyncio.to_thread(call)

    async def events(self, run: str, *, until: str, after: str = "") -> tuple[list[dict[str, Any]], str]:
        """Return the events up to one of a kind, and the last id."""

        def read() -> tuple[list[dict[str, Any]], str]:
            headers = {"Last-Event-ID": after} if after else {}
            request = urllib.request.Request(f"{self._url}/summaries/{run}/events", headers=headers)
            found: list[dict[str, Any]] = []
            last = after
            with urllib.request.urlopen(request, timeout=60) as answer:
                for line in answer:
                    if line.startswith(b"id: "):
                        last = line[4:].decode().strip()
                    elif line.startswith(b"data: "):
                        found.append(json.loads(line[6:]))
                        if until in (found[-1]["what"], found[-1].get("kind")):
                            break
            return found, last

        return await asyncio.to_thread(read)


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(server: DevServer, folder: Path) -> dict[str, str]:
    """Return the environment of a program that uses the tests' server."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "BATON_"))}
    path = os.pathsep.join([str(EXAMPLES.parent), str(folder)])
    return {**inherited, "TEMPORAL_ADDRESS": server.address, "PYTHONPATH": path, "OPENAI_AGENTS_DISABLE_TRACING": "1"}


async def script(server: DevServer, folder: Path, file: str) -> str:
    """Run a script in a folder, and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, file),
        cwd=folder,
        env=environment(server, folder),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, progress = await process.communicate()
    assert process.returncode == 0, progress.decode()
    return said.decode()
