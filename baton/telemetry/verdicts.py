"""What a gate answered, in metrics and traces."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from temporalio import activity

from baton.core.verdict import HandoffStatus, Receipt
from baton.telemetry.metrics import LATENCY, Metrics, Transport
from baton.wire.records import parse_instant

UNKNOWN = "unknown"
"""The sender of a message without a valid seal, whose name cannot be trusted."""


def record_answer(
    metrics: Metrics, receipt: Receipt, message: Mapping[str, Any], receiver: str, transport: Transport
) -> None:
    """Record a gate's verdict in metrics and trace."""
    agent = message.get("fromAgent")
    agent_id = agent.get("agentId") if isinstance(agent, Mapping) else None
    sender = agent_id if isinstance(agent_id, str) and agent_id else UNKNOWN
    verdict = receipt.verdict.reason.value if receipt.verdict.reason else HandoffStatus.ACCEPTED.value
    record_verdict(verdict)
    if receipt.again:
        return
    metrics.handoff(verdict, sender, receiver)
    is_retry = activity.in_activity() and activity.info().attempt > 1
    sent_at = parse_instant(message.get("timestamp"))
    if receipt.verdict and sent_at is not None and not is_retry:
        metrics.measure(LATENCY, (receipt.at - sent_at).total_seconds(), transport, sender, receiver)


if TYPE_CHECKING:
    from baton.telemetry.spans import OpenTelemetryStage

current_stage: "ContextVar[OpenTelemetryStage | None]" = ContextVar("baton_stage_span", default=None)
"""The span of the running stage; None without tracing."""


def record_verdict(verdict: str) -> None:
    """Record a gate's verdict in the span of the running stage, if tracing is on."""
    span = current_stage.get()
    if span is not None:
        span.record_verdict(verdict)
