"""`Metrics`: one method for each thing that Baton counts or measures, over whatever meter Temporal gives.

In a workflow that is `workflow.metric_meter()`, which keeps silent while a run is replayed, so nothing is counted
twice. A worker makes one of its runtime's meter, which all its activities share. Instruments are made when they
are first needed, and what a set of labels resolves to is kept: recording costs about a microsecond.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

from temporalio.common import MetricCounter, MetricGauge, MetricHistogramFloat, MetricMeter

from baton.core.messages import PromptPart
from baton.core.verdict import HandoffStatus
from baton.telemetry.metric_names import (
    COMPRESSED_AWAY,
    COMPRESSIONS,
    CONTRACTS,
    DEAD_LETTERS,
    EMPTY_CONTRACTS,
    HANDOFFS,
    LATENCY,
    PROMPT_LEFT_OUT,
    QUEUE_SECONDS,
    REJECTIONS,
    ROLLBACKS,
    SPENT,
    STAGE_FAILURES,
    STAGE_SECONDS,
    SUSPENDED_RUNS,
    Metric,
    Transport,
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
        self._histograms: dict[str, _Family[MetricHistogramFloat]] = {}
        self._dead_letters: MetricGauge | None = None
        self._suspended: MetricGauge | None = None

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
        if self._dead_letters is None:
            self._dead_letters = self._meter.create_gauge(DEAD_LETTERS.name, DEAD_LETTERS.help)
        self._dead_letters.set(depth)

    def suspended_runs(self, count: int) -> None:
        """Report how many open runs the workers' code cannot continue."""
        if self._suspended is None:
            self._suspended = self._meter.create_gauge(SUSPENDED_RUNS.name, SUSPENDED_RUNS.help)
        self._suspended.set(count)

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
