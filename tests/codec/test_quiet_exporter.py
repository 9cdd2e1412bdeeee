"""Tests of `QuietSpanExporter`, against a real OTLP receiver that refuses."""

import logging

import pytest

from baton.telemetry.spans import OpenTelemetryTracing
from baton.telemetry.tracing import open_tracing
from tests.collector import Collector, collecting


def tracing_to(collector: Collector) -> OpenTelemetryTracing:
    tracing = open_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint.replace("//", "//ann:secret@")})
    assert isinstance(tracing, OpenTelemetryTracing)
    return tracing


def send(tracing: OpenTelemetryTracing) -> None:
    """Record a span and have it sent at once."""
    with tracing.pipeline_start("Review", "w1", None, None):
        pass
    tracing.provider.force_flush()


class TestQuietSpanExporter:
    def test_a_collector_that_refuses_is_told_of_once_and_again_when_it_takes_them(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The log says why, and is not filled with it; the address is told without what is secret in it."""
        with collecting() as collector:
            tracing, collector.status = tracing_to(collector), 400
            for _ in range(4):
                send(tracing)
            refused = [(record.name.rpartition(".")[2], record.levelno) for record in caplog.records]
            collector.status = 200
            send(tracing)
            collector.status = 400
            send(tracing)
            tracing.close()

        assert refused == [("trace_exporter", logging.ERROR), ("spans", logging.WARNING)]
        ours = [record.getMessage() for record in caplog.records if record.name == "baton.telemetry.spans"]
        assert [line.partition(" http")[0] for line in ours] == [
            "spans cannot be sent to",
            "spans are sent to",
            "spans cannot be sent to",
        ]
        assert "code: 400" in caplog.text
        assert "secret" not in "".join(ours)
        assert len(collector.spans) == 1

    def test_a_worker_that_ends_does_not_wait_for_it_again(self) -> None:
        """What waits is dropped after one failure: the worker has nothing else left to do."""
        with collecting() as collector:
            tracing, collector.status = tracing_to(collector), 400
            send(tracing)
            asked = collector.refused
            with tracing.pipeline_start("Review", "w2", None, None):
                pass
            tracing.close()

        assert (asked, collector.refused) == (1, 1)

    def test_the_logger_is_left_as_it_was(self) -> None:
        """Another exporter of the process may have something to tell."""
        logger = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        before = [*logger.filters]
        with collecting() as collector:
            tracing = tracing_to(collector)
            assert logger.filters != before
            tracing.close()

        assert logger.filters == before
