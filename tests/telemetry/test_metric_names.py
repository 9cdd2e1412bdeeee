"""Tests of `baton.telemetry.metrics`: the metrics' names and the document's limits."""

import re

import pytest

from baton.core.verdict import Code, Disposition
from baton.telemetry.metrics import BUCKETS, LATENCY, METRICS, SLOS, Metric, MetricKind, Slo, Transport, slo_breach

each_metric = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


class TestMetrics:
    @each_metric
    def test_a_name_says_its_unit_and_kind_as_prometheus_wants_it(self, metric: Metric) -> None:
        """Counters end in `_total`, histograms and ages in their unit, and nothing else does."""
        assert re.fullmatch(r"baton(_[a-z]+)+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
        assert metric.name.endswith("_seconds") == (metric.kind is MetricKind.HISTOGRAM or "_age_" in metric.name)
        assert metric.help.endswith(".")

    @each_metric
    def test_buckets_rise(self, metric: Metric) -> None:
        """Only histograms have buckets, in ascending order."""
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert bool(metric.buckets) == (metric.kind is MetricKind.HISTOGRAM) == (metric.name in BUCKETS)

    @each_metric
    def test_what_begins_at_nought_has_one_label(self, metric: Metric) -> None:
        """Otherwise not every series of it could be there from the start."""
        assert not metric.at_start or len(metric.labels) == 1

    def test_names_are_given_once(self) -> None:
        """Two metrics of one name would be one."""
        assert len({metric.name for metric in METRICS}) == len(METRICS)

    def test_every_code_can_be_counted_from_the_start(self) -> None:
        """S3-8.1-a, S3-8.1-c: the first rejection on a worker is already a rise."""
        begun = {metric.name: set(metric.at_start) for metric in METRICS}

        assert set(Code) <= begun["baton_handoffs_total"]
        assert {fate.value for fate in Disposition if fate.rolls_back} <= begun["baton_rollbacks_total"]


class TestSlos:
    @pytest.mark.parametrize(
        ("transport", "slo"),
        [
            pytest.param(Transport.HTTP, Slo(0.2, 0.5), id="synchronous HTTP"),
            pytest.param(Transport.QUEUE, Slo(0.5, 2.0), id="durable queue"),
            pytest.param(Transport.SIGNAL, Slo(1.0, 5.0), id="Temporal signal"),
        ],
    )
    def test_they_are_the_documents(self, transport: Transport, slo: Slo) -> None:
        """S3-6.5-b, S3-6.5-c, S3-6.5-d: 99 of 100 and the longest, by transport."""
        assert SLOS[transport] == slo

    def test_every_limit_is_a_bucket(self) -> None:
        """S3-8.1-b: a quantile that lies over a limit is counted as such, and not guessed between two buckets."""
        limits = {limit for slo in SLOS.values() for limit in (slo.p99, slo.longest)}

        assert limits <= set(LATENCY.buckets)

    @pytest.mark.parametrize("transport", Transport)
    def test_only_more_than_the_longest_is_a_breach(self, transport: Transport) -> None:
        """S3-6.5-e: a handoff over the maximum raises an alert, a handoff within it does not."""
        longest = SLOS[transport].longest

        assert slo_breach(transport, longest) is None
        assert f"longest allowed is {longest:g} s" in (slo_breach(transport, longest + 0.01) or "")
