"""An artifact store that cannot be written for a while: the stage waits with its work, and is not run again."""

import logging
from datetime import timedelta

import pytest
from temporalio.client import Client

from baton import Baton, BatonPatch, PipelineInput, StageContext, WorkerParts, stage
from baton.artifacts.store import MemoryArtifactStore
from baton.errors import ArtifactUnavailableError
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker, run_pipeline
from tests.pipelines import stages
from tests.pipelines.pipelines import Linear
from tests.pipelines.stages import STAGES


class Full(MemoryArtifactStore):
    """A store that is full for so many attempts."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def put(self, data: bytes) -> str:
        if self.times:
            self.times -= 1
            raise ArtifactUnavailableError("cannot write artifact: No space left on device")
        return await super().put(data)


async def test_a_stage_waits_with_its_work(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it did is paid for: it is written once the store has space again, and the log says so."""
    monkeypatch.setattr("baton.artifacts.activity.MIN_PAUSE", 0.05)
    store, runs = Full(6), []

    @stage(timeout=timedelta(minutes=2))
    async def plan(context: StageContext[Baton]) -> BatonPatch:
        runs.append(context.given.attempt)
        await context.artifacts.write("plan", "the plan", type="text")
        return BatonPatch(decision_log=["Planned"])

    others = [stage for stage in STAGES if stage is not stages.plan]
    config = client.config()
    config["plugins"] = [BatonPlugin(WorkerParts(artifacts=store), safeguards="off")]
    own = Client(**config)
    with caplog.at_level(logging.WARNING, "baton.artifacts.activity"):
        async with pipeline_worker(own, [Linear], [plan, *others]) as worker:
            run = await run_pipeline(worker, Linear.run, PipelineInput(goal="Add login"))

    assert runs == [1]
    assert "plan" in [ref.id for ref in run.baton.artifacts]
    assert "a stage waits for the artifact store" in caplog.text
