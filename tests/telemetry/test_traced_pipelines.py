"""Traces of pipelines that hand off: the messages as they are sealed, on a real server, to a real collector."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry.sdk.trace import TracerProvider
from temporalio.client import Client

from baton import PipelineInput
from baton.devserver import DevServer
from baton.handoff.store_safeguards import Safeguards
from baton.hosting.tracing import open_tracing
from baton.plugin import BatonPlugin
from baton.testing import pipeline_worker
from tests.collector import Collector, attributes, collecting
from tests.exchange.exchange_pipelines import EXCHANGES, ThereAndBack
from tests.handoff.handoff_pipelines import PIPELINES, FansOutSealed, Forgets, FourAgents
from tests.handoff.handoff_stages import STAGES
from tests.pipelines.pipelines import PIPELINES as OTHERS
from tests.pipelines.pipelines import Parent, ThreeLines
from tests.pipelines.stages import STAGES as OTHER_STAGES
from tests.support import GOAL, LIMIT

RECEIVERS = ("extract", "analyse", "score", "summarise")


async def told(server: DevServer, folder: Path, pipeline: Any, *, traced: bool) -> AsyncIterator[Collector]:
    """Run a pipeline on a worker that is traced, for a service that is or is not; yield what a collector was told."""
    safeguards, task_id = Safeguards.development(folder), str(uuid4())
    with collecting() as collector:
        tracing = open_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint})
        assert tracing is not None
        working = await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards, tracing=tracing)])
        service = (
            working if traced else await Client.connect(server.address, plugins=[BatonPlugin(safeguards=safeguards)])
        )
        async with pipeline_worker(working, [*PIPELINES, *OTHERS, *EXCHANGES], [*STAGES, *OTHER_STAGES]) as worker:
            with TracerProvider().get_tracer("service").start_as_current_span("POST /contracts"):
                await service.execute_workflow(
                    pipeline.run,
                    PipelineInput(goal=GOAL, task_id=task_id, params={"to": f"risk-{task_id}", "child": "first-half"}),
                    id=task_id,
                    task_queue=worker.task_queue,
                    execution_timeout=LIMIT,
                )
        tracing.close()
        yield collector


class TestTracedPipelines:
    @pytest.mark.parametrize("traced", [pytest.param(True, id="traced"), pytest.param(False, id="not traced")])
    async def test_every_handoff_and_agent_of_a_service_is_in_one_trace(
        self, server: DevServer, tmp_path: Path, traced: bool
    ) -> None:
        """S3-5.2-x: the sealed messages' traceparent is real, whether or not the service records traces."""
        async for collector in told(server, tmp_path, FourAgents, traced=traced):
            start = collector.span("invoke_workflow FourAgents")
            handoffs = [span for span in collector.spans if span.name.startswith("handoff ")]
            agents = [span for span in collector.spans if span.name.startswith("invoke_agent ")]

            assert len({span.trace_id for span in collector.spans}) == 1
            assert bool(start.parent_span_id) == traced
            assert tuple(span.name.rsplit(" ", 1)[1] for span in handoffs) == RECEIVERS
            assert tuple(attributes(span.attributes)["gen_ai.agent.name"] for span in agents) == RECEIVERS
            assert {span.parent_span_id for span in handoffs} == {start.span_id}
            assert [span.parent_span_id for span in agents] == [span.span_id for span in handoffs]
            links = [[link.span_id for link in span.links] for span in handoffs]
            assert links == [[], *([previous.span_id] for previous in handoffs[:-1])]
            assert {attributes(span.attributes)["baton.verdict"] for span in handoffs} == {"ACCEPTED"}

    @pytest.mark.parametrize("traced", [pytest.param(True, id="traced"), pytest.param(False, id="not traced")])
    @pytest.mark.parametrize(
        "pipeline",
        [
            pytest.param(Forgets, id="a handoff that goes back to its sender"),
            pytest.param(Parent, id="a child pipeline"),
            pytest.param(ThreeLines, id="several stages that begin at once"),
            pytest.param(ThereAndBack, id="a pipeline that is started to receive"),
        ],
    )
    async def test_every_span_has_an_id_of_its_own_and_a_parent_that_exists(
        self, server: DevServer, tmp_path: Path, pipeline: Any, traced: bool
    ) -> None:
        """One trace with one start and without gaps, and every handoff but the first links to the one before it."""
        async for collector in told(server, tmp_path, pipeline, traced=traced):
            ids = [span.span_id for span in collector.spans]
            starts = [span for span in collector.spans if span.name.startswith("invoke_workflow ")]
            handoffs = [span for span in collector.spans if span.name.startswith("handoff ")]
            unlinked = [span.name for span in handoffs if not span.links]

            assert len(ids) == len(set(ids))
            assert [span.name for span in starts] == [starts[0].name]
            assert {span.parent_span_id for span in collector.spans} - {*ids} == {starts[0].parent_span_id}
            assert {link.span_id for span in collector.spans for link in span.links} <= {*ids}
            assert len(unlinked) == (3 if pipeline is ThreeLines else 1)

    async def test_the_copies_of_a_fan_out_have_spans_of_their_own(self, server: DevServer, tmp_path: Path) -> None:
        """A span id never appears twice, and every parent and every link leads to a span."""
        async for collector in told(server, tmp_path, FansOutSealed, traced=False):
            ids = [span.span_id for span in collector.spans]

            assert len(ids) == len(set(ids)) > 3
            assert {span.parent_span_id for span in collector.spans} - {*ids} == {b""}
            assert {link.span_id for span in collector.spans for link in span.links} <= {*ids}
