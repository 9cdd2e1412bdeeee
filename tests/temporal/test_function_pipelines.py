"""`@pipeline`: a pipeline that is one async function."""

import asyncio
import sys
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError

import baton
from baton import BatonPlugin, PipelineInput
from baton.devserver import DevServer
from baton.testing import assert_replays, pipeline_worker, run_pipeline
from tests.temporal import function_pipelines as kinds

STAGES = [kinds.gather, kinds.compose]
HELLO = """
import baton
from baton import Baton, BatonPatch, Pipeline, pipeline, stage

@stage
async def greet(baton: Baton) -> BatonPatch:
    return BatonPatch(current_state=["greeted"])

@pipeline
async def hello(p: Pipeline) -> str:
    await p.stage(greet)
    return p.baton.goal

if __name__ == "__main__":
    print(baton.run(hello, "Say hello").output)
"""


@pytest.fixture
async def client(server: DevServer) -> Client:
    """Return a client with the plugin."""
    return await Client.connect(server.address, plugins=[BatonPlugin()])


async def test_it_runs_as_a_workflow_of_its_name(client: Client) -> None:
    """A client starts it by the decorated name and by the type's name, and the history replays."""
    async with pipeline_worker(client, [kinds.article], STAGES, replay_every_task=True) as worker:
        by_class = await client.execute_workflow(
            kinds.article, PipelineInput(goal="batons"), id="function-1", task_queue=worker.task_queue
        )
        by_name = await run_pipeline(worker, "article", PipelineInput(goal="batons"))
        await assert_replays(by_name.handle, [kinds.article])

    assert by_class.output == by_name.result.output == "done"
    assert by_name.baton.current_state == ["written about batons"]


async def test_terms_and_children_are_those_of_any_pipeline(client: Client) -> None:
    """The decorator takes what `Pipeline` takes; a function pipeline is a child like another."""
    async with pipeline_worker(client, [kinds.article, kinds.under_terms, kinds.parent], STAGES) as worker:
        renamed = await run_pipeline(worker, "renamed", PipelineInput(goal="batons"))
        parent = await run_pipeline(worker, kinds.parent, PipelineInput(goal="batons"))

    assert (renamed.result.steps, renamed.result.output) == (1, None)
    assert parent.result.output == {"done": True}
    assert parent.baton.decision_log == ["found three facts"]


def test_what_is_no_such_function_is_refused() -> None:
    """An error where the code is loaded names what was found."""

    async def nested(p: baton.Pipeline) -> None: ...

    def not_async(p: baton.Pipeline) -> None: ...

    async def two(p: baton.Pipeline, q: object) -> None: ...

    faults = []
    for function in (nested, not_async, two, None.__class__):
        with pytest.raises(TypeError) as refused:
            baton.pipeline(function)  # type: ignore[arg-type]
        faults.append(str(refused.value))

    assert "top level" in faults[0]
    assert all("async function of one argument" in fault for fault in faults[1:])


async def test_a_file_runs_by_itself(tmp_path: Path) -> None:
    """`baton.run` brings server, worker and progress; the result is on the output, the progress beside it."""
    script = tmp_path / "hello.py"
    script.write_text(HELLO, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(script)),
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, progress = await process.communicate()

    assert (process.returncode, said.decode().strip()) == (0, "Say hello"), progress.decode()
    assert "COMPLETED" in progress.decode()


async def test_it_runs_where_a_loop_runs_already(
    server: DevServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a notebook; on the server that the environment names."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.chdir(tmp_path)

    result = baton.run(kinds.article, "batons", quiet=True)

    assert result.output == "done"
    assert (tmp_path / ".baton" / "ledger.db").exists(), "it is set up as a worker is, with safeguards"


async def test_a_failure_reaches_the_caller(server: DevServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The pipeline's error is the cause of what is raised."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(WorkflowFailureError) as failed:
        baton.run(kinds.failing, "batons", quiet=True)

    assert "no facts" in str(failed.value.cause)
