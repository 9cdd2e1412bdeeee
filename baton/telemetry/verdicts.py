"""What a gate answered, in metrics and traces, and the span of the stage that runs."""

from contextvars import ContextVar
from typing import TYPE_CHECKING

from temporalio import activity

from baton.core.outline import Outline
from baton.core.verdict import HandoffStatus, Receipt
from baton.telemetry.metrics import LATENCY, Metrics, Transport

UNKNOWN = "unknown"
"""The sender of a message without a valid seal, whose name cannot be trusted."""


def record_answer(metrics: Metrics, receipt: Receipt, outline: Outline, receiver: str, transport: Transport) -> None:
    """Record a gate's verdict in metrics and trace."""
    sender = outline.from_agent.agent_id or UNKNOWN
    verdict = receipt.verdict.reason.value if receipt.verdict.reason else HandoffStatus.ACCEPTED.value
    record_verdict(verdict)
    if receipt.again:
        return
    metrics.handoff(verdict, sender, receiver)
    is_retry = activity.in_activity() and activity.info().attempt > 1
    if receipt.verdict and outline.timestamp is not None and not is_retry:
        metrics.measure(LATENCY, (receipt.at - outline.timestamp).total_seconds(), transport, sender, receiver)


if TYPE_CHECKING:
    from baton.telemetry.spans import OpenTelemetryStage, OpenTelemetryTool

current_stage: "ContextVar[OpenTelemetryStage | None]" = ContextVar("baton_stage_span", default=None)
"""The span of the running stage; None without tracing."""
current_tool: "ContextVar[OpenTelemetryTool | None]" = ContextVar("baton_tool_span", default=None)
"""The span of the tool whose function runs; None without tracing."""


def record_verdict(verdict: str) -> None:
    """Record a gate's verdict in the span of the running stage, if tracing is on."""
    span = current_stage.get()
    if span is not None:
        span.record_verdict(verdict)
