"""What a worker measures of its activities, and what a gate tells of its answers.

Workflows keep their own `Metrics`; here is what only the worker knows: clocks, queues, verdicts.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from temporalio import activity, client, worker
from temporalio.common import MetricMeter
from temporalio.exceptions import ApplicationError
from temporalio.runtime import Runtime

from baton.contract.records import instant
from baton.core.messages import StageInput, StageReturn
from baton.core.verdict import HandoffStatus
from baton.handoff.receipts import Receipt
from baton.handoff.sealed import UnverifiedHandoff
from baton.pipelines.workflow_steps import workflow_type
from baton.telemetry.metrics import HANDOFFS, ROLLBACKS, Metrics, Transport
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
    sent_at = instant(message.get("timestamp"))
    if receipt.verdict and sent_at is not None and not again:
        metrics.latency(transport, sender, receiver, (receipt.at - sent_at).total_seconds())


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
        self._metrics.queued(info.activity_type, waited.total_seconds())
        began = time.monotonic()
        try:
            answer = await super().execute_activity(input)
        except Exception as error:
            if not (isinstance(error, ApplicationError) and error.type == HANDOFF_REFUSED):  # which is counted as such
                self._metrics.stage_failed(info.activity_type)
            raise
        finally:
            self._metrics.stage(info.activity_type, time.monotonic() - began)
        if isinstance(answer, StageReturn):
            self._metrics.spent(info.activity_type, answer.spend.micro_usd)
        return answer
