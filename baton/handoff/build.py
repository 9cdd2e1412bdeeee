"""The handoff builder: what an agent knows at the end of its execution, made into a message.

Ids and times are arguments, so a workflow that replays builds the same message again. The sender's own cost is
deducted in here and nowhere else: what was spent and what is left together stay the budget, to the millionth.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from baton.core.history import Spend
from baton.core.patching import short_findings
from baton.handoff.errors import RoutingError
from baton.handoff.hops import Hop, HopLimits, Trail, circling
from baton.handoff.records import (
    CompletedSubtask,
    ContextItem,
    CostTracking,
    Handoff,
    Sender,
    Subtask,
    Target,
    TokenSpent,
    ToolCall,
    Turn,
)
from baton.handoff.schema import CURRENT
from baton.handoff.sealed import SealError
from baton.wire.json_values import digest, unwritable
from baton.wire.money import usd


@dataclass(frozen=True)
class AgentState:
    """What a sender knows when it hands on: the builder's `agentState`.

    Attributes:
        agent: Who it is.
        task_id: The task, the same for the whole chain.
        task_description: What the receiver is to do.
        cost: What the sender was given: spent and left before it began.
        spend: What the sender itself really cost, retries and compression included.
        traceparent: The trace that the handoff belongs to.
        parent_handoff_id: The handoff that brought it the task, None for the first.
        completed: What is done.
        remaining: What is left to do.
        current_state: The state of the work; the baton is in here.
        relevant_context: Excerpts that the receiver will need.
        history_summary: The older turns in short.
        history: The newest turns, word for word.
        tool_calls: Which tools were called.
        trail: The trail it was handed, for the ping-pong guard; None leaves the guard out.
    """

    agent: Sender
    task_id: str
    task_description: str
    cost: CostTracking
    spend: Spend
    traceparent: str
    parent_handoff_id: str | None = None
    completed: Sequence[CompletedSubtask] = ()
    remaining: Sequence[Subtask] = ()
    current_state: Mapping[str, JsonValue] = field(default_factory=dict)
    relevant_context: Sequence[ContextItem] = ()
    history_summary: str = ""
    history: Sequence[Turn] = ()
    tool_calls: Sequence[ToolCall] = ()
    trail: Trail | None = None


@dataclass(frozen=True)
class Delivery:
    """How a handoff is to be delivered: the optional members that are not the agent's.

    Attributes:
        receivers: Of a fan-out, every receiver; each gets a copy of the same message.
        audience: The one address that it is meant for.
        expires_at: From when on it may not be accepted.
        personal_data: Personal data, encrypted per subject.
        initial: Says that the handoff begins a task, which excuses it from having completed subtasks.
        limits: When the ping-pong guard ends a chain; the usual limits by default.
        step: What a pipeline sends along for its own stage.
    """

    receivers: Sequence[str] = ()
    audience: str | None = None
    expires_at: datetime | None = None
    personal_data: Mapping[str, JsonValue] | None = None
    initial: bool = False
    limits: HopLimits | None = None
    step: Mapping[str, JsonValue] | None = None


def build_handoff(
    state: AgentState,
    target: Target,
    constraints: Iterable[str],
    *,
    handoff_id: str,
    timestamp: datetime,
    delivery: Delivery | None = None,
) -> Handoff:
    """Return the message that hands a task on; it is not sealed yet."""
    delivery = delivery or Delivery()
    handed = {"currentState": dict(state.current_state), "step": dict(delivery.step or {})}
    if faults := unwritable(handed):
        raise SealError("; ".join(short_findings(faults)))
    optional = {
        "receiver_list": list(delivery.receivers) or None,
        "personal_data_payload": None if delivery.personal_data is None else dict(delivery.personal_data),
        "audience": delivery.audience,
        "expires_at": delivery.expires_at,
        "initial": delivery.initial or None,
        "trail": None if state.trail is None else _next_trail(state, state.trail, target, delivery.limits),
        "step": None if delivery.step is None else dict(delivery.step),
    }
    given: dict[str, Any] = {name: value for name, value in optional.items() if value is not None}
    return Handoff(
        schema_version=CURRENT,
        handoff_id=handoff_id,
        task_id=state.task_id,
        parent_handoff_id=state.parent_handoff_id,
        from_agent=state.agent,
        to_agent=target,
        timestamp=timestamp,
        task_description=state.task_description,
        completed_subtasks=list(state.completed),
        remaining_subtasks=list(state.remaining),
        current_state=dict(state.current_state),
        relevant_context=list(state.relevant_context),
        constraints=list(constraints),
        cost_tracking=after_spending(state.cost, state.spend),
        conversation_history_summary=state.history_summary,
        conversation_history_verbatim=list(state.history),
        tool_call_history=list(state.tool_calls),
        traceparent=state.traceparent,
        **given,
    )


def after_spending(cost: CostTracking, spend: Spend) -> CostTracking:
    """Return the cost figures after an agent's own cost was deducted."""
    if not spend:
        return cost
    return CostTracking(
        cost_spent_so_far_usd=usd(cost.spent_micro_usd + spend.micro_usd),
        cost_budget_remaining_usd=usd(cost.remaining_micro_usd - spend.micro_usd),
        token_spent=TokenSpent(
            prompt=cost.token_spent.prompt + spend.prompt_tokens,
            completion=cost.token_spent.completion + spend.completion_tokens,
        ),
    )


def opening_cost(budget_micro_usd: int) -> CostTracking:
    """Return the cost figures of a task that has cost nothing yet."""
    return CostTracking(
        cost_spent_so_far_usd=usd(0),
        cost_budget_remaining_usd=usd(budget_micro_usd),
        token_spent=TokenSpent(prompt=0, completion=0),
    )


def hop_of(sender: str, receiver: str, current_state: Mapping[str, Any], remaining: Iterable[Subtask]) -> Hop:
    """Return the hop that a handoff is; two hops with the same state and the same work left are the same."""
    left = [subtask.subtask_id for subtask in remaining]
    return Hop(sender=sender, receiver=receiver, state=digest({"state": dict(current_state), "left": left}))


def _next_trail(state: AgentState, trail: Trail, target: Target, limits: HopLimits | None) -> Trail:
    """Return the trail with this handoff, unless the guard ends the chain here."""
    hop = hop_of(state.agent.agent_id, target.agent_type, state.current_state, state.remaining)
    if reason := circling(trail, hop, limits):
        raise RoutingError(reason)
    return trail.after(hop, limits)
