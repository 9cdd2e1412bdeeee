"""Metrics that only a worker can record: queue and execution times, verdicts, dead letters and suspended runs.

Workflows record their own `Metrics`. Every worker regularly reports how many runs wait for a person or are suspended.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from temporalio import activity, client, worker
from temporalio.client import Client
from temporalio.common import MetricMeter
from temporalio.exceptions import ApplicationError
from temporalio.runtime import Runtime
from temporalio.service import RPCError

from baton.core.messages import StageInput, StageReturn
from baton.handoff.sealed import UnverifiedHandoff
from baton.pipelines.workflow_steps import workflow_type
from baton.runs.client_clock import server_now
from baton.runs.client_inbox import WAITING_RUNS, inbox
from baton.runs.client_list import SUSPENDED, RunFilter
from baton.telemetry.metrics import (
    DEAD_LETTER_AGE,
    DEAD_LETTERS,
    DEAD_LETTERS_EXPIRING,
    HANDOFFS,
    QUEUE_SECONDS,
    ROLLBACKS,
    SPENT,
    STAGE_FAILURES,
    STAGE_SECONDS,
    SUSPENDED_RUNS,
    Metrics,
)
from baton.wire.names import ATTRIBUTE_UNTIL, HANDOFF_REFUSED


def worker_metrics(client: client.Client) -> Metrics:
    """Return the metrics of a client's worker, with the counters of its gate at zero."""
    metrics = Metrics(_meter(client))
    metrics.begin(HANDOFFS)
    return metrics


def begin_pipelines(client: client.Client, task_queue: str, workflows: Iterable[type]) -> None:
    """Start the counters of a worker's pipelines at zero."""
    meter = _meter(client)
    for workflow_class in workflows:
        try:
            name = workflow_type(workflow_class)
        except TypeError:  # a dynamic workflow has no type
            continue
        # The labels that the SDK adds to a workflow's metrics.
        labels = {"namespace": client.namespace, "task_queue": task_queue, "workflow_type": name}
        metrics = Metrics(meter.with_additional_attributes(labels))
        metrics.begin(HANDOFFS)
        metrics.begin(ROLLBACKS)


def _meter(client: client.Client) -> MetricMeter:
    return (client.service_client.config.runtime or Runtime.default()).metric_meter


class MeteredWorker(worker.Interceptor):
    """Measures the queue time, duration and cost of every stage execution."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:
        """Return the next interceptor, wrapped."""
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
        started = time.monotonic()
        try:
            result = await super().execute_activity(input)
        except Exception as error:
            if not (isinstance(error, ApplicationError) and error.type == HANDOFF_REFUSED):  # counted as a handoff
                self._metrics.count(STAGE_FAILURES, info.activity_type)
            raise
        finally:
            self._metrics.measure(STAGE_SECONDS, time.monotonic() - started, info.activity_type)
        if isinstance(result, StageReturn):
            self._metrics.count(SPENT, info.activity_type, by=result.spend.micro_usd)
        return result


EXPIRING = timedelta(days=1)
"""How long before its deadline a handoff that waits for a person raises an alert."""
OLDEST = 20
"""How many of the runs with the nearest deadlines are read for the age of the oldest."""
REPORT_INTERVAL = timedelta(seconds=15)
"""The default scrape interval of Prometheus."""
_SUSPENDED = RunFilter(status=SUSPENDED, children=True).query()

_log = logging.getLogger(__name__)


async def count_dead_letters(client: Client) -> int:
    """Return the number of open runs that wait for a person because of a rejected handoff."""
    return (await client.count_workflows(WAITING_RUNS)).count


async def count_expiring(client: Client, within: timedelta = EXPIRING) -> int:
    """Return the number of open runs whose handoff is abandoned within that time, unless a person decides."""
    deadline = (await server_now(client) + within).isoformat()
    return (await client.count_workflows(f"{WAITING_RUNS} AND {ATTRIBUTE_UNTIL} <= '{deadline}'")).count


async def dead_letter_age(client: Client) -> timedelta:
    """Return how long the oldest of the handoffs with the nearest deadlines has waited; zero if none waits."""
    now = await server_now(client)
    ages = [
        now - entry.question.since
        async for entry in inbox(client, limit=OLDEST)
        if entry.question and entry.question.handoff
    ]
    return max(ages, default=timedelta(0))


async def count_suspended_runs(client: Client) -> int:
    """Return the number of open runs that are suspended because the workers' code fails."""
    return (await client.count_workflows(_SUSPENDED)).count


async def watch_runs(client: Client, metrics: Metrics, interval: timedelta = REPORT_INTERVAL) -> None:
    """Report these numbers at each interval, until the task is cancelled."""
    failing = False
    while True:
        try:
            dead_letters = await count_dead_letters(client)
            metrics.report(DEAD_LETTERS, dead_letters)
            metrics.report(DEAD_LETTERS_EXPIRING, await count_expiring(client) if dead_letters else 0)
            age = await dead_letter_age(client) if dead_letters else timedelta(0)
            metrics.report(DEAD_LETTER_AGE, round(age.total_seconds()))
            metrics.report(SUSPENDED_RUNS, await count_suspended_runs(client))
            failing = False
        except RPCError as error:
            if not failing:
                _log.warning("the waiting runs cannot be counted, trying again: %s", error)
            failing = True
        await asyncio.sleep(interval.total_seconds())
