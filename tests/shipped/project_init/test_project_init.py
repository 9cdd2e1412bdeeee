"""The shipped pipeline `project_init` on a real server, over real files."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from activities.project_init.files import KNOWLEDGE_FILE, PAGES
from activities.project_init.records import TechStack
from activities.project_init.stages import STAGES
from baton import BatonPlugin, PipelineInput, WorkerParts
from baton.client.faces import ArtifactStore, explain_in
from baton.testing import PipelineRun, assert_replays, pipeline_worker, run_pipeline
from tests.shipped.project_init.conftest import write_files
from tests.shipped.project_init.projects import PYTHON
from workflows.project_init import ProjectInit

STEPS = ["detect-tech-stack", "generate-docs", "build-knowledge", "verify-ready"]


@pytest.fixture(scope="module")
async def worker(client: Client) -> AsyncIterator[Worker]:
    """Return a running worker of the pipeline, which replays its code at every step."""
    async with pipeline_worker(client, [ProjectInit], STAGES, replay_every_task=True) as worker:
        yield worker


async def initialize(worker: Worker, source: Path, out: Path) -> PipelineRun:
    start = PipelineInput(goal="Know it", params={"source": str(source), "output": str(out)})
    return await run_pipeline(worker, ProjectInit.run, start)


async def test_a_project_is_documented_indexed_and_verified(
    worker: Worker, store: ArtifactStore, tmp_path: Path
) -> None:
    """Each stage continues the earlier ones, without a model (S1-ex-a, S1-ex-b, S1-ex-c, S1-ex-d, S1-ex-e)."""
    run = await initialize(worker, write_files(tmp_path / "project", PYTHON), tmp_path / "out")
    output: Any = run.result.output
    assert (output["documents_hold"], output["failures"]) == (True, [])
    assert run.step_names == STEPS
    assert "Tests: `make test` (declared, Makefile:2)" in run.baton.decision_log
    assert run.baton.decision_log[-1].startswith("All ")
    hashes = {ref.id: ref.hash for ref in run.baton.artifacts}
    for name in (*PAGES, KNOWLEDGE_FILE):
        assert (tmp_path / "out" / name).read_bytes() == await store.get(hashes[name])
    found = await store.get(hashes["TechStack"])
    assert str(tmp_path).encode() not in found + await store.get(hashes["Listing"])  # another worker reads them
    assert TechStack.model_validate_json(found).name == "shop"
    for entry, _ in run.record.history:
        assert 1 <= len(entry.patch["current_state"]) <= 8
    for stage in STEPS:
        assert explain_in(run.record, stage).stage == stage
    await assert_replays(run.handle, [ProjectInit], plugin=BatonPlugin(WorkerParts(artifacts=store)))


async def test_a_wrong_folder_fails_at_once(worker: Worker, tmp_path: Path) -> None:
    """Nothing is retried, and the error says what to do."""
    for source, message in ((tmp_path / "gone", "does not exist"), (tmp_path, "inside the project")):
        with pytest.raises(WorkflowFailureError) as raised:
            await initialize(worker, source, tmp_path / "out")
        assert message in str(raised.value.cause)
