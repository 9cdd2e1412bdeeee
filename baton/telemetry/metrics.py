"""The metrics of Baton, with names, labels and buckets, and `Metrics` to record them.

A test checks that the rules of `deploy/prometheus` and the board of `deploy/grafana` use only these metrics. Names are
as Prometheus shows them, including suffixes, so the endpoint must not add any. Counters that alerts depend on have one
label of known values, `at_start`, and start at zero for each.

`Metrics` records on a Temporal meter. In a workflow that is `workflow.metric_meter()`, which records nothing during
replay, so nothing is counted twice. A worker uses the meter of its runtime for all activities.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from temporalio.common import MetricMeter

from baton.core.verdict import Code, Disposition, HandoffStatus


class MetricKind(StrEnum):
    """The kind of a metric."""

    COUNTER = "counter"
    """Only rises."""
    GAUGE = "gauge"
    """A current value."""
    HISTOGRAM = "histogram"
    """A distribution of measurements."""


@dataclass(frozen=True)
class Metric:
    """A metric as Prometheus shows it."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    at_start: tuple[str, ...] = ()


RECEIVER_FAILED = "receiver_failed"
"""The reason of a roll-back because the receiver failed right after accepting."""

HANDOFFS = Metric(
    "baton_handoffs_total",
    MetricKind.COUNTER,
    "Handoffs answered by their receivers, by verdict: ACCEPTED, or the code they were rejected with.",
    labels=("verdict",),
    at_start=(HandoffStatus.ACCEPTED.value, *(code.value for code in Code)),
)

REJECTIONS = Metric(
    "baton_handoff_rejections_total",
    MetricKind.COUNTER,
    "Handoffs rejected by their receivers, by verdict and pair of agents.",
    labels=("verdict", "sender", "receiver"),
)

LATENCY = Metric(
    "baton_handoff_latency_seconds",
    MetricKind.HISTOGRAM,
    "From the sender's dispatch to the receiver's accept, by transport and pair of agents.",
    labels=("transport", "sender", "receiver"),
    # Includes every limit of `SLOS`, so that alerts count instead of interpolating.
    buckets=(0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0),
)

COMPRESSIONS = Metric(
    "baton_compressions_total",
    MetricKind.COUNTER,
    "Handoffs whose conversation had to be compressed, by the receiver whose window it was for.",
    labels=("receiver",),
)

COMPRESSED_AWAY = Metric(
    "baton_compressed_away_tokens_total",
    MetricKind.COUNTER,
    "Tokens that compression saved, by receiver.",
    labels=("receiver",),
)

PROMPT_LEFT_OUT = Metric(
    "baton_prompt_left_out_tokens_total",
    MetricKind.COUNTER,
    "Tokens of what was handed on and did not fit the prompt, by stage.",
    labels=("stage",),
)

DEAD_LETTERS = Metric(
    "baton_dead_letters",
    MetricKind.GAUGE,
    "Runs whose handoff waits for a person. Every worker reports all of them: use max(), not sum().",
)

DEAD_LETTER_AGE = Metric(
    "baton_dead_letter_age_seconds",
    MetricKind.GAUGE,
    "How long the oldest of the handoffs with the nearest deadlines has waited for a person. Take the maximum.",
)

DEAD_LETTERS_EXPIRING = Metric(
    "baton_dead_letters_expiring",
    MetricKind.GAUGE,
    "Runs whose handoff is abandoned within a day unless a person decides. Take the maximum, not the sum.",
)

ROLLBACKS = Metric(
    "baton_rollbacks_total",
    MetricKind.COUNTER,
    "Handoffs that were rolled back, by reason: what became of them, or that their receiver failed.",
    labels=("reason",),
    at_start=(RECEIVER_FAILED, *(disposition.value for disposition in Disposition if disposition.rolls_back)),
)

SUSPENDED_RUNS = Metric(
    "baton_suspended_runs",
    MetricKind.GAUGE,
    "Open runs whose workflow tasks fail: the code does not fit them. Every worker reports all of them: use max().",
)

STAGE_FAILURES = Metric(
    "baton_stage_failures_total",
    MetricKind.COUNTER,
    "Executions of a stage that failed, by stage; Temporal repeats them.",
    labels=("stage",),
)

STAGE_SECONDS = Metric(
    "baton_stage_seconds",
    MetricKind.HISTOGRAM,
    "How long an execution of a stage took, by stage.",
    labels=("stage",),
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0),
)

QUEUE_SECONDS = Metric(
    "baton_queue_seconds",
    MetricKind.HISTOGRAM,
    "How long a stage waited for a free worker (schedule to start), by stage.",
    labels=("stage",),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0, 300.0),
)

SPENT = Metric(
    "baton_spent_micro_usd_total",
    MetricKind.COUNTER,
    "What stages cost, in millionths of a US dollar, by stage.",
    labels=("stage",),
)

CONTRACTS = Metric(
    "baton_contracts_total",
    MetricKind.COUNTER,
    "Contracts validated before they were handed over, by outcome: valid, flagged (with warnings) or refused.",
    labels=("outcome",),
)

EMPTY_CONTRACTS = Metric(
    "baton_empty_contracts_total",
    MetricKind.COUNTER,
    "Contracts that hold no facts, or allow no tools, by receiver; a first agent has no facts, later ones should.",
    labels=("lacks", "receiver"),
)

METRICS = (
    HANDOFFS,
    REJECTIONS,
    LATENCY,
    COMPRESSIONS,
    COMPRESSED_AWAY,
    PROMPT_LEFT_OUT,
    DEAD_LETTERS,
    DEAD_LETTER_AGE,
    DEAD_LETTERS_EXPIRING,
    ROLLBACKS,
    SUSPENDED_RUNS,
    STAGE_FAILURES,
    STAGE_SECONDS,
    QUEUE_SECONDS,
    SPENT,
    CONTRACTS,
    EMPTY_CONTRACTS,
)
"""All metrics of Baton."""

BUCKETS = {metric.name: metric.buckets for metric in METRICS if metric.kind is MetricKind.HISTOGRAM}
"""The buckets by histogram name, for `PrometheusConfig(histogram_bucket_overrides=…)`."""


class Transport(StrEnum):
    """The transport of a handoff."""

    HTTP = "http"
    """A synchronous HTTP call, of other services that report this metric. Baton itself does not use it."""
    QUEUE = "queue"
    """A durable queue: a stage's task queue, or the inbox of an outside agent."""
    SIGNAL = "signal"
    """A Temporal signal between pipelines."""


@dataclass(frozen=True)
class Slo:
    """The limits in seconds from the sender's dispatch to the receiver's accept."""

    p99: float
    longest: float


SLOS = {
    Transport.HTTP: Slo(p99=0.2, longest=0.5),
    Transport.QUEUE: Slo(p99=0.5, longest=2.0),
    Transport.SIGNAL: Slo(p99=1.0, longest=5.0),
}
"""The limits of the source document by transport."""


def slo_breach(transport: Transport, seconds: float) -> str | None:
    """Return an alert if a handoff exceeded the maximum of its transport, else None."""
    longest = SLOS[transport].longest
    if seconds <= longest:
        return None
    return (
        f"a handoff by {transport.value} took {seconds:.2f} s from dispatch to accept; "
        f"the longest allowed is {longest:g} s (EAAPL-MAG006 §6.5)"
    )


MAX_LABEL_LENGTH = 200
"""Longer labels are cut; valid names of agents are shorter."""
MAX_SERIES = 1_000
"""The maximum number of label sets per metric and process; later ones are counted under `OTHER`."""
OTHER = "other"
"""The label beyond `MAX_SERIES`, because a hostile sender can use any number of agent names."""


class Metrics:
    """Records metrics on one meter; labels are passed in the order of the metric's `labels`."""

    def __init__(self, meter: MetricMeter) -> None:
        self._create: dict[MetricKind, Callable[[str, str], Any]] = {
            MetricKind.COUNTER: meter.create_counter,
            MetricKind.GAUGE: meter.create_gauge,
            MetricKind.HISTOGRAM: meter.create_histogram_float,
        }
        self._known: dict[str, dict[tuple[str, ...], Any]] = {}  # by name and labels; () has the base instrument

    def begin(self, metric: Metric) -> None:
        """Start a counter at zero for each known value of its label."""
        for value in metric.at_start:
            self.count(metric, value, by=0)

    def count(self, metric: Metric, *labels: str, by: int = 1) -> None:
        """Add to a counter; negative values count as zero."""
        self._instrument(metric, labels).add(max(by, 0))

    def measure(self, metric: Metric, seconds: float, *labels: str) -> None:
        """Add a measurement to a histogram; negative ones, from clock differences, count as zero."""
        self._instrument(metric, labels).record(max(seconds, 0.0))

    def report(self, metric: Metric, value: int) -> None:
        """Set a gauge."""
        self._instrument(metric, ()).set(value)

    def handoff(self, verdict: str, sender: str, receiver: str) -> None:
        """Count a handoff by its receiver's verdict."""
        self.count(HANDOFFS, verdict)
        if verdict != HandoffStatus.ACCEPTED:
            self.count(REJECTIONS, verdict, sender, receiver)

    def _instrument(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        """Return the instrument of a metric with these labels."""
        instruments = self._known.setdefault(metric.name, {})
        if not instruments:
            instruments[()] = self._create[metric.kind](metric.name, metric.help)
        if labels not in instruments:
            labels = tuple(label[:MAX_LABEL_LENGTH] for label in labels)
            if labels not in instruments and len(instruments) > MAX_SERIES:
                labels = (OTHER,) * len(labels)
            if labels not in instruments:
                attributes = dict(zip(metric.labels, labels, strict=True))
                instruments[labels] = instruments[()].with_additional_attributes(attributes)
        return instruments[labels]
