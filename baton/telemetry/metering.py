"""What a worker measures of its activities, and what a gate tells of its answers.

Workflows keep their own `Metrics`; here is what only the worker knows: clocks, queues, verdicts, and how many runs
wait for a person or are suspended, which every worker reports again and again.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from temporalio import activity, client, worker
from temporalio.client import Client
from temporalio.common import MetricMeter
from temporalio.exceptions import ApplicationError
from temporalio.runtime import Runtime
from temporalio.service import RPCError

from baton.contract.records import parse_instant
from baton.core.messages import StageInput, StageReturn
from baton.core.verdict import HandoffStatus
from baton.handoff.client_inbox import WAITING_RUNS
from baton.handoff.sealed import UnverifiedHandoff
from baton.handoff.validation import Receipt
from baton.pipelines.workflow_steps import workflow_type
from baton.runs.client_list import SUSPENDED, RunFilter
from baton.telemetry.metrics import (
    DEAD_LETTERS,
    HANDOFFS,
    LATENCY,
    QUEUE_SECONDS,
    ROLLBACKS,
    SPENT,
    STAGE_FAILURES,
    STAGE_SECONDS,
    SUSPENDED_RUNS,
    Metrics,
    Transport,
)
from baton.telemetry.tracing import handoff_answered
from baton.wire.names import HANDOFF_REFUSED

UNKNOWN = "unknown"
"""The sender of a message whose seal does not hold: whatever name it gives may be anybody's."""


def worker_metrics(client: client.Client) -> Metrics:
    """Return the metrics of a client's worker: those of its runtime, with the counters of its gate begun."""
    metrics = Metrics(_meter(client))
    metrics.begin(HANDOFFS)
    return metrics


def begin_pipelines(client: client.Client, task_queue: str, workflows: Iterable[type]) -> None:
    """Start the counters of a worker's pipelines at zero, before the first of them starts."""
    meter = _meter(client)
    for kind in workflows:
        try:
            name = workflow_type(kind)
        except TypeError:  # a dynamic workflow has no type of its own
            continue
        # The labels that the SDK gives to whatever a workflow counts.
        labels = {"namespace": client.namespace, "task_queue": task_queue, "workflow_type": name}
        metrics = Metrics(meter.with_additional_attributes(labels))
        metrics.begin(HANDOFFS)
        metrics.begin(ROLLBACKS)


def _meter(client: client.Client) -> MetricMeter:
    """Return the meter of a client's runtime."""
    return (client.service_client.config.runtime or Runtime.default()).metric_meter


def tell_answer(
    metrics: Metrics, receipt: Receipt, message: Mapping[str, Any], receiver: str, transport: Transport
) -> None:
    """Tell metrics and trace what a gate answered."""
    agent = message.get("fromAgent")
    named = agent.get("agentId") if isinstance(agent, Mapping) else None
    sender = named if isinstance(named, str) and named else UNKNOWN
    verdict = receipt.verdict.reason.value if receipt.verdict.reason else HandoffStatus.ACCEPTED.value
    handoff_answered(verdict)
    if receipt.again:
        return
    metrics.handoff(verdict, sender, receiver)
    again = activity.in_activity() and activity.info().attempt > 1
    sent_at = parse_instant(message.get("timestamp"))
    if receipt.verdict and sent_at is not None and not again:
        metrics.measure(LATENCY, (receipt.at - sent_at).total_seconds(), transport, sender, receiver)


class MeteredWorker(worker.Interceptor):
    """Measures every execution of a stage: how long it waited, how long it took, what it cost."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:
        """Return the worker's next interceptor with ours before it."""
        return _MeteredActivity(next, self._metrics)


class _MeteredActivity(worker.ActivityInboundInterceptor):
    def __init__(self, next: worker.ActivityInboundInterceptor, metrics: Metrics) -> None:
        super().__init__(next)
        self._metrics = metrics

    async def execute_activity(self, input: worker.ExecuteActivityInput) -> Any:
        if not input.args or not isinstance(input.args[0], StageInput | UnverifiedHandoff):
            return await super().execute_activity(input)
        info = activity.info()
        waited = info.started_time - info.current_attempt_scheduled_time
        self._metrics.measure(QUEUE_SECONDS, waited.total_seconds(), info.activity_type)
        began = time.monotonic()
        try:
            answer = await super().execute_activity(input)
        except Exception as error:
            if not (isinstance(error, ApplicationError) and error.type == HANDOFF_REFUSED):  # which is counted as such
                self._metrics.count(STAGE_FAILURES, info.activity_type)
            raise
        finally:
            self._metrics.measure(STAGE_SECONDS, time.monotonic() - began, info.activity_type)
        if isinstance(answer, StageReturn):
            self._metrics.count(SPENT, info.activity_type, by=answer.spend.micro_usd)
        return answer


EVERY = timedelta(seconds=15)
"""How often it is asked: as often as Prometheus reads a worker."""
_SUSPENDED = RunFilter(status=SUSPENDED, children=True).query()

_log = logging.getLogger(__name__)


async def dead_letter_depth(client: Client) -> int:
    """Return how many open runs wait for a person because a handoff was not accepted."""
    return (await client.count_workflows(WAITING_RUNS)).count


async def suspended_runs(client: Client) -> int:
    """Return how many open runs are suspended because the workers' code fails."""
    return (await client.count_workflows(_SUSPENDED)).count


async def watch_runs(client: Client, metrics: Metrics, every: timedelta = EVERY) -> None:
    """Report both numbers again and again, until the task is cancelled."""
    failing = False
    while True:
        try:
            metrics.report(DEAD_LETTERS, await dead_letter_depth(client))
            metrics.report(SUSPENDED_RUNS, await suspended_runs(client))
            failing = False
        except RPCError as error:
            if not failing:
                _log.warning("the number of runs that wait is not known, and will be asked for again: %s", error)
            failing = True
        await asyncio.sleep(every.total_seconds())
