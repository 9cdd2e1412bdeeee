"""What Baton counts and measures: every metric's name, labels and buckets, and `Metrics` to record them.

The rules of `deploy/prometheus` and the board of `deploy/grafana` name nothing that is not here, which a test
checks. Names are the ones that Prometheus shows, their endings included, so no setting of the endpoint may add
any. Counters that alerts rest on have one label of known values, `at_start`, and start at zero with each.

`Metrics` has one method for each thing, over whatever meter Temporal gives. In a workflow that is
`workflow.metric_meter()`, which keeps silent while a run is replayed, so nothing is counted twice. A worker makes one
of its runtime's meter, which all its activities share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from temporalio.common import MetricCounter, MetricGauge, MetricHistogramFloat, MetricMeter

from baton.core.messages import PromptPart
from baton.core.verdict import Code, Disposition, HandoffStatus


class Kind(StrEnum):
    """What can be done with a metric."""

    COUNTER = "counter"
    """Only rises; a rate is made of it."""
    GAUGE = "gauge"
    """Says how things are now."""
    HISTOGRAM = "histogram"
    """Counts measurements by size."""


@dataclass(frozen=True)
class Metric:
    """One metric, as Prometheus shows it."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    at_start: tuple[str, ...] = ()


RECEIVER_FAILED = "receiver_failed"
"""The reason of a roll-back whose receiver failed right after it had accepted."""

HANDOFFS = Metric(
    "baton_handoffs_total",
    Kind.COUNTER,
    "Handoffs answered by their receivers, by verdict: ACCEPTED, or the code they were rejected with.",
    labels=("verdict",),
    at_start=(HandoffStatus.ACCEPTED.value, *(code.value for code in Code)),
)

REJECTIONS = Metric(
    "baton_handoff_rejections_total",
    Kind.COUNTER,
    "Handoffs rejected by their receivers, by verdict and pair of agents.",
    labels=("verdict", "sender", "receiver"),
)

LATENCY = Metric(
    "baton_handoff_latency_seconds",
    Kind.HISTOGRAM,
    "From the sender's dispatch to the receiver's accept, by transport and pair of agents.",
    labels=("transport", "sender", "receiver"),
    # Holds every limit of `SLOS`, so that "more than 1 % are slower" is counted and not interpolated.
    buckets=(0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0),
)

COMPRESSIONS = Metric(
    "baton_compressions_total",
    Kind.COUNTER,
    "Handoffs whose conversation had to be compressed, by the receiver whose window it was for.",
    labels=("receiver",),
)

COMPRESSED_AWAY = Metric(
    "baton_compressed_away_tokens_total",
    Kind.COUNTER,
    "Tokens that compression saved, by receiver.",
    labels=("receiver",),
)

PROMPT_LEFT_OUT = Metric(
    "baton_prompt_left_out_tokens_total",
    Kind.COUNTER,
    "Tokens of what was handed on and did not fit the prompt, by stage.",
    labels=("stage",),
)

DEAD_LETTERS = Metric(
    "baton_dead_letters",
    Kind.GAUGE,
    "Runs whose handoff waits for a person. Every worker tells of all of them: take the maximum, not the sum.",
)

ROLLBACKS = Metric(
    "baton_rollbacks_total",
    Kind.COUNTER,
    "Handoffs that were rolled back, by reason: what became of them, or that their receiver failed.",
    labels=("reason",),
    at_start=(RECEIVER_FAILED, *(fate.value for fate in Disposition if fate.rolls_back)),
)

SUSPENDED_RUNS = Metric(
    "baton_suspended_runs",
    Kind.GAUGE,
    "Open runs whose workflow tasks fail: the code does not fit them. Every worker reports all: take the maximum.",
)

STAGE_FAILURES = Metric(
    "baton_stage_failures_total",
    Kind.COUNTER,
    "Executions of a stage that failed, by stage; Temporal repeats them.",
    labels=("stage",),
)

STAGE_SECONDS = Metric(
    "baton_stage_seconds",
    Kind.HISTOGRAM,
    "How long an execution of a stage took, by stage.",
    labels=("stage",),
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0),
)

QUEUE_SECONDS = Metric(
    "baton_queue_seconds",
    Kind.HISTOGRAM,
    "How long a stage waited for a free worker (schedule to start), by stage.",
    labels=("stage",),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0, 300.0),
)

SPENT = Metric(
    "baton_spent_micro_usd_total",
    Kind.COUNTER,
    "What stages cost, in millionths of a US dollar, by stage.",
    labels=("stage",),
)

CONTRACTS = Metric(
    "baton_contracts_total",
    Kind.COUNTER,
    "Contracts validated before they were handed over, by outcome: valid, flagged (with warnings) or refused.",
    labels=("outcome",),
)
"""Every validation is counted."""

EMPTY_CONTRACTS = Metric(
    "baton_empty_contracts_total",
    Kind.COUNTER,
    "Contracts that hold no facts, or allow no tools, by receiver; without facts they are usually a bug.",
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
    ROLLBACKS,
    SUSPENDED_RUNS,
    STAGE_FAILURES,
    STAGE_SECONDS,
    QUEUE_SECONDS,
    SPENT,
    CONTRACTS,
    EMPTY_CONTRACTS,
)
"""All of Baton's metrics."""

BUCKETS = {metric.name: metric.buckets for metric in METRICS if metric.kind is Kind.HISTOGRAM}
"""What the endpoint has to be told, by name of the histogram: `PrometheusConfig(histogram_bucket_overrides=…)`."""


class Transport(StrEnum):
    """How a handoff travels."""

    HTTP = "http"
    """A synchronous HTTP call: of services that tell this metric themselves. Nothing of Baton's own hands on so."""
    QUEUE = "queue"
    """A durable queue: a stage's task queue, or what an agent outside fetches from."""
    SIGNAL = "signal"
    """A Temporal signal: from pipeline to pipeline."""


@dataclass(frozen=True)
class Slo:
    """How long handoffs may take, from the sender's dispatch to the receiver's accept."""

    p99: float
    longest: float


SLOS = {
    Transport.HTTP: Slo(p99=0.2, longest=0.5),
    Transport.QUEUE: Slo(p99=0.5, longest=2.0),
    Transport.SIGNAL: Slo(p99=1.0, longest=5.0),
}
"""The document's limits by transport."""


def slo_breach(transport: Transport, seconds: float) -> str | None:
    """Return the sentence of an alert if one handoff took longer than any may, else None."""
    longest = SLOS[transport].longest
    if seconds <= longest:
        return None
    return (
        f"a handoff by {transport.value} took {seconds:.2f} s from dispatch to accept; "
        f"the longest allowed is {longest:g} s (EAAPL-MAG006 §6.5)"
    )


InstrumentT = TypeVar("InstrumentT", MetricCounter, MetricHistogramFloat)

LONGEST_LABEL = 200
"""Longer labels are cut; no name of an agent that passed the schema is longer."""
MOST_SERIES = 1_000
"""The most sets of labels of one metric in one process; whatever comes later is counted under `OTHER`."""
OTHER = "other"
"""The label of what came too late: names of agents are in messages from outside, and a hostile sender has many."""


class Metrics:
    """What is counted and measured, by name; see the module."""

    def __init__(self, meter: MetricMeter) -> None:
        """Make the metrics of a meter."""
        self._meter = meter
        self._counters: dict[str, _Family[MetricCounter]] = {}
        self._gauges: dict[str, MetricGauge] = {}
        self._histograms: dict[str, _Family[MetricHistogramFloat]] = {}

    def begin(self, metric: Metric) -> None:
        """Start a counter at zero, for each value that its label can have."""
        for value in metric.at_start:
            self._counter(metric, value).add(0)

    def handoff(self, verdict: str, sender: str, receiver: str) -> None:
        """Count a handoff that its receiver answered."""
        self._counter(HANDOFFS, verdict).add(1)
        if verdict != HandoffStatus.ACCEPTED:
            self._counter(REJECTIONS, verdict, sender, receiver).add(1)

    def latency(self, transport: Transport, sender: str, receiver: str, seconds: float) -> None:
        """Measure an accepted handoff, from the sender's dispatch to the receiver's accept."""
        self._histogram(LATENCY, transport.value, sender, receiver).record(max(seconds, 0.0))

    def rolled_back(self, reason: str) -> None:
        """Count a handoff that was rolled back."""
        self._counter(ROLLBACKS, reason).add(1)

    def dead_letters(self, depth: int) -> None:
        """Tell how many handoffs wait for a person, of all pipelines together."""
        self._gauge(DEAD_LETTERS).set(depth)

    def suspended_runs(self, count: int) -> None:
        """Report how many open runs the workers' code cannot continue."""
        self._gauge(SUSPENDED_RUNS).set(count)

    def compressed(self, receiver: str, before: int, after: int) -> None:
        """Count a conversation that had to be compressed."""
        self._counter(COMPRESSIONS, receiver).add(1)
        self._counter(COMPRESSED_AWAY, receiver).add(max(before - after, 0))

    def prompt(self, stage: str, parts: Sequence[PromptPart]) -> None:
        """Count a prompt that had no room for all of its parts."""
        if left_out := sum(max(part.tokens - part.shown, 0) for part in parts):
            self._counter(PROMPT_LEFT_OUT, stage).add(left_out)

    def contract(self, outcome: str, receiver: str, facts: int, tools: int) -> None:
        """Count a contract that was validated."""
        self._counter(CONTRACTS, outcome).add(1)
        for lack, count in (("facts", facts), ("tools", tools)):
            if not count:
                self._counter(EMPTY_CONTRACTS, lack, receiver).add(1)

    def stage(self, name: str, seconds: float) -> None:
        """Measure how long an execution of a stage took."""
        self._histogram(STAGE_SECONDS, name).record(max(seconds, 0.0))

    def stage_failed(self, name: str) -> None:
        """Count an execution of a stage that failed."""
        self._counter(STAGE_FAILURES, name).add(1)

    def queued(self, name: str, seconds: float) -> None:
        """Measure how long a stage waited for a free worker."""
        self._histogram(QUEUE_SECONDS, name).record(max(seconds, 0.0))

    def spent(self, name: str, micro_usd: int) -> None:
        """Add what a stage cost, in millionths of a US dollar."""
        if micro_usd > 0:
            self._counter(SPENT, name).add(micro_usd)

    def _counter(self, metric: Metric, *values: str) -> MetricCounter:
        """Return the counter for values of the metric's labels."""
        family = self._counters.get(metric.name)
        if family is None:
            family = _Family(metric, self._meter.create_counter(metric.name, metric.help))
            self._counters[metric.name] = family
        return family.at(values)

    def _gauge(self, metric: Metric) -> MetricGauge:
        if metric.name not in self._gauges:
            self._gauges[metric.name] = self._meter.create_gauge(metric.name, metric.help)
        return self._gauges[metric.name]

    def _histogram(self, metric: Metric, *values: str) -> MetricHistogramFloat:
        """Return the histogram for values of the metric's labels."""
        family = self._histograms.get(metric.name)
        if family is None:
            family = _Family(metric, self._meter.create_histogram_float(metric.name, metric.help))
            self._histograms[metric.name] = family
        return family.at(values)


class _Family(Generic[InstrumentT]):
    """One metric of a meter, and an instrument for each set of labels that came up."""

    def __init__(self, metric: Metric, instrument: InstrumentT) -> None:
        self._labels = metric.labels
        self._instrument: InstrumentT = instrument
        self._known: dict[tuple[str, ...], InstrumentT] = {}

    def at(self, values: tuple[str, ...]) -> InstrumentT:
        """Return the instrument for values of the labels, in their order."""
        return self._known.get(values) or self._new(values)

    def _new(self, values: tuple[str, ...]) -> InstrumentT:
        values = tuple(value[:LONGEST_LABEL] for value in values)
        if values not in self._known:
            if len(self._known) >= MOST_SERIES:
                values = (OTHER,) * len(values)
            labels = dict(zip(self._labels, values, strict=True))
            self._known[values] = self._instrument.with_additional_attributes(labels)
        return self._known[values]
