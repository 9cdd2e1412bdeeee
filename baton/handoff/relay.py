"""Building handoffs, and the relay of a pipeline: who held the baton last, and what brings it to the next stage.

Pure and cheap, because it runs in workflow code before every stage: ids and times are arguments, and everything
that it remembers is bounded, whatever the length of the pipeline.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic import JsonValue

from baton.compression.rules import DEFAULT_KEEP, DEFAULT_THRESHOLD
from baton.core.history import Spend
from baton.core.messages import StageInput, StageReturn
from baton.core.patching import shorten_findings
from baton.core.stages import StageSpec
from baton.core.verdict import MAX_ATTEMPTS
from baton.errors import RoutingError
from baton.handoff.records import (
    CURRENT,
    CompletedSubtask,
    ContextItem,
    CostTracking,
    Handoff,
    Hop,
    Sender,
    Subtask,
    Target,
    TokenSpent,
    ToolCall,
    Trail,
    Turn,
    circling,
)
from baton.handoff.sealed import SealError
from baton.handoff.trace import FOLLOWS, span_after, task_traceparent
from baton.personal.records import merged
from baton.wire.json_values import digest, find_unwritable
from baton.wire.money import to_usd


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
        step: What a pipeline sends along for its own stage.
    """

    receivers: Sequence[str] = ()
    audience: str | None = None
    expires_at: datetime | None = None
    personal_data: Mapping[str, JsonValue] | None = None
    initial: bool = False
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
    if faults := find_unwritable(handed):
        raise SealError("; ".join(shorten_findings(faults)))
    optional = {
        "receiver_list": list(delivery.receivers) or None,
        "personal_data_payload": None if delivery.personal_data is None else dict(delivery.personal_data),
        "audience": delivery.audience,
        "expires_at": delivery.expires_at,
        "initial": delivery.initial or None,
        "trail": None if state.trail is None else _next_trail(state, state.trail, target),
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
        cost_spent_so_far_usd=to_usd(cost.spent_micro_usd + spend.micro_usd),
        cost_budget_remaining_usd=to_usd(cost.remaining_micro_usd - spend.micro_usd),
        token_spent=TokenSpent(
            prompt=cost.token_spent.prompt + spend.prompt_tokens,
            completion=cost.token_spent.completion + spend.completion_tokens,
        ),
    )


def hop_of(sender: str, receiver: str, current_state: Mapping[str, Any], remaining: Iterable[Subtask]) -> Hop:
    """Return the hop that a handoff is; two hops with the same state and the same work left are the same."""
    left = [subtask.subtask_id for subtask in remaining]
    return Hop(sender=sender, receiver=receiver, state=digest({"state": dict(current_state), "left": left}))


def _next_trail(state: AgentState, trail: Trail, target: Target) -> Trail:
    """Return the trail with this handoff, unless the guard ends the chain here."""
    hop = hop_of(state.agent.agent_id, target.agent_type, state.current_state, state.remaining)
    if reason := circling(trail, hop):
        raise RoutingError(reason)
    return trail.after(hop)


COMPLETED_HANDED = 5
"""How many of the newest finished stages a handoff lists; all of them are in the ledger."""
TOOL_CALLS_HANDED = 20
"""How many of the newest tool calls a handoff lists."""

STEP_WORKFLOW = "workflow"
"""The member of `step` that names the workflow whose stage a handoff begins."""

_LONGEST_DESCRIPTION = 200
_VERSION = "1.0.0"


@dataclass(frozen=True)
class HandoffTerms:
    """How a pipeline hands on.

    Attributes:
        constraints: Rules of the form `key:value` that go with every handoff.
        attempts: How often a handoff that its sender can correct is tried before a person is asked.
        within: How long a person may take over a handoff that waits; then it counts as abandoned.
        ask_when_failed: Whether a stage that failed for good waits for a person as well; otherwise it raises
            in the pipeline's code.
        expires: After how long a handoff may not be accepted any longer; None for never.
        compress_above: The share of a receiver's context window that a message may fill before the conversation in it
            is compressed; above 0, at most 1.
        verbatim_turns: How many of the newest turns stay word for word then, at least 1.

    Raises:
        ValueError: `compress_above` or `verbatim_turns` is out of its range.

    Example:
        >>> HandoffTerms(constraints=("maxResponseTokens:2000",)).attempts
        3
    """

    constraints: tuple[str, ...] = ()
    attempts: int = MAX_ATTEMPTS
    within: timedelta = timedelta(days=7)
    ask_when_failed: bool = False
    expires: timedelta | None = None
    compress_above: float = DEFAULT_THRESHOLD
    verbatim_turns: int = DEFAULT_KEEP

    def __post_init__(self) -> None:
        if not 0 < self.compress_above <= 1:
            raise ValueError(f"compress_above is {self.compress_above}; give a share of the window: above 0, at most 1")
        if self.verbatim_turns < 1:
            raise ValueError(
                f"verbatim_turns is {self.verbatim_turns}; the newest turn always stays, so give at least 1"
            )


class Relay:
    """Makes the handoffs of a pipeline, one before each stage.

    Attributes:
        sender: Who hands on next.
        personal_data: What is known of people, encrypted; handed only to stages that declare some.
    """

    def __init__(
        self,
        pipeline: str,
        task_id: str,
        execution_id: str,
        terms: HandoffTerms,
        traceparent: str | None = None,
        follows: str | None = None,
    ) -> None:
        self.terms = terms
        self.sender = Sender(agent_id=pipeline, agent_version=_VERSION, execution_id=execution_id)
        self._task_id = task_id
        self._traceparent = traceparent or task_traceparent(task_id)
        self._follows = follows
        self._parent: str | None = None
        self.personal_data: dict[str, JsonValue] = {}
        self._tool_calls: deque[ToolCall] = deque(maxlen=TOOL_CALLS_HANDED)
        self._completed: deque[CompletedSubtask] = deque(maxlen=COMPLETED_HANDED)

    @property
    def begins(self) -> bool:
        """Whether nothing was handed on yet, so that the next handoff begins the task."""
        return self._parent is None

    @property
    def last_span(self) -> str | None:
        """The span of the last handoff, which whatever begins now follows in the trace; None if there was none."""
        return self._follows if self._parent is None else span_after(self._parent, self.sender.agent_id)

    def carried(self) -> dict[str, JsonValue]:
        """Return what the next run needs to know when this one continues as new."""
        return {
            "sender": self.sender.to_json_object(),
            "parent": self._parent,
            "completed": [one.to_json_object() for one in self._completed],
            "tool_calls": [one.to_json_object() for one in self._tool_calls],
            "personal_data": self.personal_data,
        }

    def restore(self, carried: Mapping[str, Any]) -> None:
        """Go on where the run before left off."""
        self.sender = Sender.from_json_object(carried["sender"])
        self._parent = carried["parent"]
        self._completed.extend(CompletedSubtask.from_json_object(one) for one in carried["completed"])
        self._tool_calls.extend(ToolCall.from_json_object(one) for one in carried["tool_calls"])
        self.personal_data = dict(carried["personal_data"])

    def message(
        self,
        spec: StageSpec,
        given: StageInput,
        cost: CostTracking,
        *,
        handoff_id: str,
        now: datetime,
        workflow_id: str | None = None,
        receivers: Sequence[str] = (),
        sender: Sender | None = None,
    ) -> Handoff:
        """Return the handoff that begins a stage, sent by the stage before it unless another sender is given."""
        expires = self.terms.expires
        goal = str(given.baton.get("goal", spec.name))
        state = AgentState(
            agent=sender or self.sender,
            task_id=self._task_id,
            task_description=goal,
            cost=cost,
            spend=Spend(),
            traceparent=self._traceparent,
            parent_handoff_id=self._parent,
            completed=self._completed,
            remaining=[Subtask(subtask_id=f"{given.seq}:{spec.name}", description=spec.name)],
            current_state=given.baton,
            history_summary=given.summary,
            history=[Turn.from_json_object(turn) for turn in given.turns],
            tool_calls=self._tool_calls,
        )
        delivery = Delivery(
            receivers=receivers,
            expires_at=None if expires is None else now + expires,
            initial=self.begins,
            personal_data=self.personal_data if spec.personal_data and self.personal_data else None,
            step=self._step(given, workflow_id),
        )
        target = Target(agent_type=spec.name, agent_version=f">={spec.version}")
        return build_handoff(
            state, target, self.terms.constraints, handoff_id=handoff_id, timestamp=now, delivery=delivery
        )

    def _step(self, given: StageInput, workflow_id: str | None) -> dict[str, JsonValue]:
        """Return what goes along for the stage alone."""
        further = {STEP_WORKFLOW: workflow_id, FOLLOWS: self._follows if self.begins else None}
        return given.step() | {name: value for name, value in further.items() if value is not None}

    def arrived(self, spec: StageSpec, returned: StageReturn, handoff_id: str, at: datetime) -> None:
        """Note that a stage has done its work: it hands on next."""
        self.sender = Sender(agent_id=spec.name, agent_version=spec.version, execution_id=handoff_id)
        self._parent = handoff_id
        if returned.personal_data is not None:
            self.personal_data = merged(self.personal_data, returned.personal_data)
        self._tool_calls.extend(ToolCall.from_json_object(call) for call in returned.tool_calls)
        self._completed.append(
            CompletedSubtask(
                subtask_id=f"{returned.seq}:{spec.name}",
                description=_description(spec.name, returned),
                result={"changed": [*sorted(returned.baton_patch)], "attempt": returned.attempt},
                completed_at=at,
            )
        )


def _description(name: str, returned: StageReturn) -> str:
    """Return what a stage did, in its own words if it has any: its first new decision or state."""
    for member in ("decision_log", "current_state"):
        said = returned.baton_patch.get(member)
        if isinstance(said, list) and said and isinstance(said[0], str) and said[0].strip():
            return f"{name}: {said[0]}"[:_LONGEST_DESCRIPTION]
    return name
