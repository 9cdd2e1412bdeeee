"""Metrics of pipelines that hand off: what a real worker's endpoint shows after a real run."""

from pathlib import Path

from temporalio.client import Client
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from baton import PipelineInput
from baton.activity.safeguards import Safeguards
from baton.devserver import DevServer
from baton.plugin import BatonPlugin
from baton.protocol.metric_names import BUCKETS
from baton.testing import pipeline_worker, run_pipeline
from tests.support import GOAL
from tests.temporal.handoff_pipelines import PIPELINES, FourAgents
from tests.temporal.handoff_stages import STAGES
from tests.temporal.test_metrics import Scraped, free_address, scrape

PAIRS = (("FourAgents", "extract"), ("extract", "analyse"), ("analyse", "score"), ("score", "summarise"))


async def metered(server: DevServer, folder: Path) -> Scraped:
    """Run four agents on a worker of their own, and return what its endpoint shows."""
    address = free_address()
    endpoint = PrometheusConfig(bind_address=address, durations_as_seconds=True, histogram_bucket_overrides=BUCKETS)
    client = await Client.connect(
        server.address,
        plugins=[BatonPlugin(safeguards=Safeguards.development(folder))],
        runtime=Runtime(telemetry=TelemetryConfig(metrics=endpoint)),
    )
    async with pipeline_worker(client, PIPELINES, STAGES) as worker:
        await run_pipeline(worker, FourAgents.run, PipelineInput(goal=GOAL))
        return scrape(address)


class TestMeteredPipelines:
    """What `BatonPlugin` alone makes a worker tell."""

    async def test_every_handoff_and_stage_is_told(self, server: DevServer, tmp_path: Path) -> None:
        """S3-8.1-a, S3-8.1-b: each of four handoffs is counted and timed for its pair of agents, and each stage."""
        scraped = await metered(server, tmp_path)

        assert scraped.total("baton_handoffs_total") == scraped.total("baton_handoffs_total", verdict="ACCEPTED") == 4
        for sender, receiver in PAIRS:
            pair = {"transport": "queue", "sender": sender, "receiver": receiver}
            assert scraped.samples("baton_handoff_latency_seconds_count", **pair) == [1.0]
            assert scraped.samples("baton_stage_seconds_count", stage=receiver) == [1.0]
            assert scraped.samples("baton_queue_seconds_count", stage=receiver) == [1.0]
