"""Metrics of a real worker, scraped from its real endpoint."""

import asyncio
import re
import urllib.request
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.common import MetricMeter
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError
from temporalio.worker import Replayer, Worker

from baton.codec.conversion import data_converter
from baton.devserver import DevServer, DevServerOptions
from baton.hosting.metering import MeteredWorker, count_dead_letters, watch_runs, worker_metrics
from baton.plugin import BatonPlugin
from baton.telemetry.metrics import (
    BUCKETS,
    CONTRACTS,
    DEAD_LETTER_AGE,
    DEAD_LETTERS,
    DEAD_LETTERS_EXPIRING,
    EMPTY_CONTRACTS,
    HANDOFFS,
    METRICS,
    PROMPT_LEFT_OUT,
    ROLLBACKS,
    STAGE_FAILURES,
    SUSPENDED_RUNS,
    Metrics,
)
from baton.wire.names import SEARCH_ATTRIBUTES
from tests.patience import IN_TIME
from tests.support import LIMIT
from tests.telemetry.measured import SPEND, STAGES_MEASURED, Measured, Measuring, Metered, Pending, bystander, metered

SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")


@dataclass(frozen=True)
class Scraped:
    """What an endpoint showed."""

    text: str

    def samples(self, name: str, **labels: str) -> list[float]:
        """Return the samples that have this name and these labels."""
        named = [match for match in map(SAMPLE.match, self.text.splitlines()) if match and match["name"] == name]
        expected = [f'{label}="{value}"' for label, value in labels.items()]
        return [float(item["value"]) for item in named if all(text in (item["labels"] or "") for text in expected)]

    def total(self, name: str, **labels: str) -> float:
        return sum(self.samples(name, **labels))

    def names(self) -> set[str]:
        """Return the metrics, as their types are declared."""
        return set(re.findall(r"(?m)^# TYPE (\w+) ", self.text))


def scrape(address: str) -> Scraped:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as response:
        return Scraped(response.read().decode())


@dataclass(frozen=True)
class Rig:
    """A worker whose metrics are served.

    Attributes:
        client: Its client.
        runtime: Its runtime, which the metrics belong to.
        metrics: Its own metrics.
        task_queue: Its queue.
        address: Where they are served.
    """

    client: Client
    runtime: Runtime
    metrics: Metrics
    task_queue: str
    address: str

    def scrape(self) -> Scraped:
        return scrape(self.address)

    async def run(self, pipeline: Any = Measured) -> WorkflowHandle[Any, None]:
        handle: WorkflowHandle[Any, None] = await self.client.start_workflow(
            pipeline.run,
            id=f"measured-{uuid.uuid4()}",
            task_queue=self.task_queue,
            execution_timeout=LIMIT,
            task_timeout=IN_TIME,  # what a workflow counts in a task that is lost counts twice
        )
        await handle.result()
        return handle


@pytest.fixture
async def rig(server: DevServer, port: int) -> AsyncIterator[Rig]:
    """Return a running worker that forgets every run at once, so that each of its tasks is a replay."""
    address = f"127.0.0.1:{port}"
    endpoint = PrometheusConfig(bind_address=address, durations_as_seconds=True, histogram_bucket_overrides=BUCKETS)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=endpoint))
    client = await Client.connect(server.address, data_converter=data_converter(), runtime=runtime)
    metrics = worker_metrics(client)
    measuring = Measuring(metrics)
    queue = f"measured-{uuid.uuid4()}"
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Measured, Metered, Pending],
        activities=[measuring.measured, metered, bystander],
        interceptors=[MeteredWorker(metrics)],
        max_cached_workflows=0,
    ):
        yield Rig(client, runtime, metrics, queue, address)


class TestScrape:
    async def test_a_replayed_run_counts_once(self, rig: Rig) -> None:
        """S3-8.1-f: what a workflow counts is counted when it happens, however often its code runs again."""
        handle = await rig.run()
        counted = rig.scrape().total(ROLLBACKS.name, reason="escalate")
        replayer = Replayer(workflows=[Measured], plugins=[BatonPlugin()], runtime=rig.runtime)
        await replayer.replay_workflow(await handle.fetch_history())

        assert counted == len(STAGES_MEASURED)
        assert rig.scrape().total(ROLLBACKS.name, reason="escalate") == counted

    async def test_what_alerts_rest_on_is_there_before_anything_happens(self, rig: Rig) -> None:
        """S3-8.1-a, S3-8.1-c: a series that appears at one has not risen, and would hide the first violation."""
        scraped = rig.scrape()

        assert {verdict: scraped.samples(HANDOFFS.name, verdict=verdict) for verdict in HANDOFFS.at_start} == {
            verdict: [0.0] for verdict in HANDOFFS.at_start
        }

    async def test_roll_backs_begin_with_the_first_run(self, rig: Rig) -> None:
        """S3-8.1-f: reasons that did not occur are at nought, so the first that does is a rise."""
        await rig.run()
        scraped = rig.scrape()

        assert {reason: scraped.samples(ROLLBACKS.name, reason=reason) for reason in ROLLBACKS.at_start} == {
            reason: [3.0 if reason == "escalate" else 0.0] for reason in ROLLBACKS.at_start
        }

    async def test_every_metric_is_served_under_its_name(self, rig: Rig) -> None:
        """S3-8.1-a to S3-8.1-f: names and endings are the ones that rules and boards ask for."""
        rig.metrics.handoff("SAFETY_VIOLATION", "start", "extract")
        rig.metrics.report(DEAD_LETTERS, 2)
        rig.metrics.report(DEAD_LETTER_AGE, 60)
        rig.metrics.report(DEAD_LETTERS_EXPIRING, 1)
        rig.metrics.report(SUSPENDED_RUNS, 1)
        rig.metrics.count(STAGE_FAILURES, "score")
        rig.metrics.count(PROMPT_LEFT_OUT, "score", by=700)
        rig.metrics.count(CONTRACTS, "flagged")
        rig.metrics.count(EMPTY_CONTRACTS, "facts", "score")
        await rig.run()
        scraped = rig.scrape()

        assert {metric.name for metric in METRICS} <= scraped.names()
        assert scraped.total("baton_dead_letters") == 2
        assert scraped.samples("baton_prompt_left_out_tokens_total", stage="score") == [700.0]
        assert scraped.total("baton_contracts_total", outcome="flagged") == 1
        assert scraped.samples("baton_empty_contracts_total", lacks="facts", receiver="score") == [1.0]
        assert scraped.total("baton_handoffs_total", verdict="SAFETY_VIOLATION") == 1
        assert scraped.total("baton_handoff_rejections_total", sender="start", receiver="extract") == 1
        assert scraped.total("baton_handoffs_total", verdict="ACCEPTED") == len(STAGES_MEASURED)
        assert scraped.total("baton_spent_micro_usd_total") == len(STAGES_MEASURED) * SPEND.micro_usd
        assert scraped.total("baton_compressed_away_tokens_total", receiver="score") == 7_000

    async def test_latency_is_told_by_transport_and_pair(self, rig: Rig) -> None:
        """S3-8.1-b, S3-6.5-f: one slow pair of agents shows, among the limits of the document."""
        await rig.run()
        scraped = rig.scrape()
        pair = {"transport": "queue", "sender": "start", "receiver": "score"}

        assert scraped.total("baton_handoff_latency_seconds_count", **pair) == 1
        assert scraped.total("baton_handoff_latency_seconds_bucket", **pair, le="0.2") == 0
        assert scraped.total("baton_handoff_latency_seconds_bucket", **pair, le="0.5") == 1


class TestMeteredWorker:
    async def test_stages_are_measured_and_nothing_else(self, rig: Rig) -> None:
        """A failed stage is measured; an activity that is not a stage is not."""
        await rig.run(Metered)
        scraped = rig.scrape()

        assert scraped.total("baton_stage_seconds_count") == scraped.total("baton_stage_seconds_count", stage="metered")
        assert scraped.total("baton_stage_seconds_count") == 2
        assert scraped.total("baton_queue_seconds_count", stage="metered") == 2
        assert scraped.total("baton_spent_micro_usd_total", stage="metered") == SPEND.micro_usd


class TestDeadLetters:
    INTERVAL = timedelta(milliseconds=10)

    async def test_the_depth_is_the_number_of_runs_that_wait_for_a_person(self, rig: Rig) -> None:
        """S3-8.1-e: it rises when a handoff is not accepted, and falls when a person has decided."""
        options = DevServerOptions(ui_port=None, search_attributes=SEARCH_ATTRIBUTES)
        async with DevServer(options) as server:
            client = await Client.connect(server.address)
            watching = asyncio.create_task(watch_runs(client, rig.metrics, self.INTERVAL))
            async with Worker(client, task_queue="pending", workflows=[Pending]):
                handles = [
                    await client.start_workflow(Pending.run, id=f"p{number}", task_queue="pending")
                    for number in range(2)
                ]
                await shows(rig, 2)
                await handles[0].signal(Pending.decide)
                await shows(rig, 1)
            watching.cancel()

    async def test_a_failing_count_is_retried_and_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        """Without search attributes the count fails; the log has one warning."""
        async with DevServer(DevServerOptions(ui_port=None, search_attributes={})) as server:
            client = await Client.connect(server.address)
            watching = asyncio.create_task(watch_runs(client, Metrics(MetricMeter.noop), timedelta(0)))
            for _ in range(5):
                with pytest.raises(RPCError):
                    await count_dead_letters(client)
            watching.cancel()

        assert [record.message for record in caplog.records if "cannot be counted" in record.message][1:] == []
        assert "cannot be counted" in caplog.text


async def shows(rig: Rig, depth: int) -> None:
    """Wait until the endpoint shows a depth; the test's time-out bounds the wait."""
    while True:
        if rig.scrape().samples("baton_dead_letters") == [depth]:
            return
        await asyncio.sleep(0.01)
