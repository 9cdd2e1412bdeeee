"""Work products stay outside the history; so does what is too large for it."""

import hashlib

from temporalio.client import Client
from temporalio.worker import Worker

from baton import ArtifactRef, WorkerParts
from baton.artifacts.store import ArtifactStore, MemoryArtifactStore
from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker, run_pipeline
from tests.pipelines.pipelines import PIPELINES, Bulky, Linear
from tests.pipelines.stages import STAGES
from tests.support import GOAL, assert_reads_back, failure, start


class TestArtifacts:
    async def test_the_baton_holds_a_reference_and_never_the_content(
        self, client: Client, worker: Worker, store: ArtifactStore
    ) -> None:
        """Id, type and hash travel; the bytes are where the hash says (S1-fields-k, S1-design-j, S1-cmp-f)."""
        run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        [ref] = run.baton.artifacts
        content = f"# {GOAL}\n".encode()
        assert ref == ArtifactRef(
            id="code-1",
            type="code",
            hash=hashlib.sha256(content).hexdigest(),
            size=len(content),
            path="src/login.py",
        )
        assert await store.get(ref.hash) == content
        assert content.decode() not in (await run.handle.fetch_history()).to_json()
        await assert_reads_back(client, run.handle)


class TestLargePayloads:
    SIZE = 5 * 1024 * 1024  # it compresses to half of that

    async def test_without_a_store_the_stage_fails_with_the_limit(self, server: DevServer) -> None:
        """The run does not wedge: it says that the payload is too large."""
        client = await Client.connect(server.address, plugins=[BatonPlugin(WorkerParts(), safeguards="off")])
        async with pipeline_worker(client, PIPELINES, STAGES) as worker:
            handle = await start(worker, Bulky.run, size=self.SIZE)

            assert "PayloadTooLargeError" in await failure(handle)

    async def test_a_store_of_ones_own_is_the_workers_affair(self, server: DevServer) -> None:
        """Two workers with two stores do not share artifacts; each pipeline has those of its worker."""
        mine = MemoryArtifactStore()
        client = await Client.connect(
            server.address, plugins=[BatonPlugin(WorkerParts(artifacts=mine), safeguards="off")]
        )
        async with pipeline_worker(client, PIPELINES, STAGES) as worker:
            run = await run_pipeline(worker, Linear.run, PipelineInput(goal=GOAL))

        assert await mine.get(run.baton.artifacts[0].hash)
