"""Traces from the service that starts a pipeline through every agent, on a real server, to a real collector."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from temporalio.client import Client
from temporalio.worker import Worker

from baton.core.messages import PipelineInput
from baton.devserver import DevServer
from baton.hosting.tracing import TracedClient, TracedWorker, open_tracing
from baton.plugin import BatonPlugin
from tests.collector import collecting
from tests.support import LIMIT
from tests.telemetry.measured import Traced, traced


@dataclass(frozen=True)
class Told:
    """What a collector was told of a pipeline with a child.

    Attributes:
        service: Trace id and span id of the span in which the service started it.
        spans: Baton's spans.
    """

    service: tuple[str, str]
    spans: list[Span]

    def named(self, *words: str) -> list[Span]:
        """Return the spans whose names begin with these words, in the order in which they began."""
        return [span for span in self.spans if span.name.startswith(words)]


@pytest.fixture
async def told(server: DevServer) -> AsyncIterator[Told]:
    """Run a pipeline with a child, on a worker that forgets every run at once; return what was told of it."""
    queue = f"traced-{uuid.uuid4()}"
    with collecting() as collector:
        tracing = open_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint})
        assert tracing is not None
        for_client, for_worker = TracedClient(tracing), TracedWorker(tracing)
        client = await Client.connect(
            server.address, plugins=[BatonPlugin(safeguards="off")], interceptors=[for_client]
        )
        parts: dict[str, Any] = {"workflows": [Traced], "activities": [traced], "interceptors": [for_worker]}
        async with Worker(client, task_queue=queue, max_cached_workflows=0, **parts):
            with TracerProvider().get_tracer("service").start_as_current_span("POST /contracts") as span:
                context = span.get_span_context()
                start = PipelineInput(goal="Secret: sell the house", task_id=str(uuid.uuid4()), params={"depth": 1})
                await client.execute_workflow(Traced.run, start, id=queue, task_queue=queue, execution_timeout=LIMIT)
        tracing.close()
        yield Told((f"{context.trace_id:032x}", f"{context.span_id:016x}"), collector.spans)


class TestOneTrace:
    async def test_replays_record_nothing_twice(self, told: Told) -> None:
        """Every task of these workflows ran their code from the start; spans are made outside of it."""
        assert len({span.span_id for span in told.spans}) == len(told.spans) == 9

    async def test_a_child_pipeline_is_linked_and_not_nested(self, told: Told) -> None:
        """The child's handoffs hang from the same start, and its first one links to the parent's last."""
        (start,) = told.named("invoke_workflow")
        handoffs = told.named("handoff")
        links = [[link.span_id for link in span.links] for span in handoffs]

        assert {span.parent_span_id for span in handoffs} == {start.span_id}
        assert links == [[], *([previous.span_id] for previous in handoffs[:-1])]
