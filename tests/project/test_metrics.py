"""Tests of `baton.telemetry.metrics` on a meter that stores its updates."""

from temporalio.runtime import BufferedMetricUpdate, MetricBuffer, Runtime, TelemetryConfig

from baton.telemetry.metrics import LATENCY, MAX_LABEL_LENGTH, MAX_SERIES, OTHER, STAGE_SECONDS, Metrics, Transport


def told(buffer: MetricBuffer, name: str) -> list[BufferedMetricUpdate]:
    """Return what a metric was told since the last question."""
    return [update for update in buffer.retrieve_updates() if update.metric.name == name]


class TestMetrics:
    """`Metrics`."""

    BUFFER = MetricBuffer(100_000)
    RUNTIME = Runtime(telemetry=TelemetryConfig(metrics=BUFFER))

    def metrics(self) -> Metrics:
        """Return metrics over a meter that was told nothing yet."""
        self.BUFFER.retrieve_updates()
        return Metrics(self.RUNTIME.metric_meter)

    def test_a_hostile_sender_cannot_make_endless_series(self) -> None:
        """Names from messages are labels; after the first thousand pairs, the rest are counted together."""
        metrics = self.metrics()
        for number in range(MAX_SERIES + 50):
            metrics.handoff("SCHEMA_INVALID", f"agent-{number}", "gate")
        updates = told(self.BUFFER, "baton_handoff_rejections_total")
        senders = [str(update.attributes["sender"]) for update in updates]

        assert len(updates) == MAX_SERIES + 50
        assert len(set(senders)) == MAX_SERIES + 1
        assert senders.count(OTHER) == 50

    def test_pairs_that_are_known_stay_themselves(self) -> None:
        """Only what comes too late is put together."""
        metrics = self.metrics()
        for number in range(MAX_SERIES + 1):
            metrics.measure(LATENCY, 0.1, Transport.SIGNAL, f"agent-{number}", "gate")
        metrics.measure(LATENCY, 0.1, Transport.SIGNAL, "agent-0", "gate")

        assert told(self.BUFFER, "baton_handoff_latency_seconds")[-1].attributes["sender"] == "agent-0"

    def test_a_label_is_cut(self) -> None:
        """A name of a megabyte does not become a label of a megabyte; cut alike, it is the same series."""
        metrics = self.metrics()
        metrics.measure(STAGE_SECONDS, 0.1, "x" * 1_000_000)
        metrics.measure(STAGE_SECONDS, 0.1, "x" * 2_000_000)
        updates = told(self.BUFFER, "baton_stage_seconds")

        assert [update.attributes["stage"] for update in updates] == ["x" * MAX_LABEL_LENGTH] * 2

    def test_clocks_that_disagree_measure_nothing_and_not_less(self) -> None:
        """Sender and receiver have a clock each; a negative latency would be an error of the meter."""
        metrics = self.metrics()
        metrics.measure(LATENCY, -0.2, Transport.HTTP, "a", "b")

        assert [update.value for update in told(self.BUFFER, "baton_handoff_latency_seconds")] == [0.0]
