"""Building handoffs, and the relay of a pipeline, which makes one before each stage.

Pure and cheap, because it runs in workflow code before every stage: ids and times are arguments, and its memory is
bounded, whatever the length of the pipeline.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic import JsonValue

from baton.compression.rules import DEFAULT_KEEP, DEFAULT_THRESHOLD
from baton.contract.records import EventType, SessionEvent
from baton.core.costs import CostTracking
from baton.core.history import Spend
from baton.core.messages import StageInput, StageReturn
from baton.core.past import ChildHandoff, ParentHandoff
from baton.core.patching import shorten_findings
from baton.core.plan import Plan
from baton.core.receivers import CURRENT
from baton.core.stages import StageSpec
from baton.core.turns import Turn
from baton.core.verdict import MAX_ATTEMPTS
from baton.errors import RoutingError
from baton.handoff.excerpts import relevant_context
from baton.handoff.records import (
    CompletedSubtask,
    ContextItem,
    Handoff,
    Hop,
    Sender,
    Subtask,
    Target,
    ToolCall,
    Trail,
    loop_reason,
)
from baton.handoff.sealed import SealError
from baton.personal.records import merge_payloads
from baton.runtime.questions import check_deciders
from baton.telemetry.trace import FOLLOWS, span_after, task_traceparent
from baton.wire.json_values import digest, find_unwritable, format_digest, sha256

EXPIRES = timedelta(days=1)
"""After how long a handoff expires if nothing else is said."""


@dataclass(frozen=True)
class AgentState:
    """A sender's state when it hands on: the builder's `agentState`.

    Attributes:
        agent: The sender.
        task_id: The task, the same for the whole chain.
        task_description: What the receiver is to do.
        cost: The cost figures that the sender received.
        spend: The sender's own cost, retries and compression included.
        traceparent: The trace that the handoff belongs to.
        parent_handoff_id: The handoff that the sender received, None for the first.
        completed: What is done.
        remaining: What is left to do.
        current_state: The state of the work; the baton is in here.
        relevant_context: Excerpts that the receiver will need.
        history_summary: The older turns in short.
        history: The newest turns, word for word.
        tool_calls: Which tools were called.
        trail: The trail that it received, for the ping-pong guard; None disables the guard.
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
class Envelope:
    """How a handoff is delivered: the optional members that do not come from the agent.

    Attributes:
        receivers: All receivers of a fan-out; each gets a copy of the message.
        audience: The only address that may accept it.
        audience_run: The first run of the chain at that address that may accept it; None for any.
        expires: After how long it expires; None for never.
        personal_data: Personal data, encrypted per subject.
        initial: Whether the handoff begins a task, and so needs no completed subtasks.
        step: What a pipeline sends to its own stage only.
    """

    receivers: Sequence[str] = ()
    audience: str | None = None
    audience_run: str | None = None
    expires: timedelta | None = EXPIRES
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
    envelope: Envelope | None = None,
) -> Handoff:
    """Return the message that hands a task on, not yet sealed."""
    envelope = envelope or Envelope()
    content = {"currentState": dict(state.current_state), "step": dict(envelope.step or {})}
    if faults := find_unwritable(content):
        raise SealError("; ".join(shorten_findings(faults)))
    optional = {
        "receiver_list": list(envelope.receivers) or None,
        "personal_data_payload": None if envelope.personal_data is None else dict(envelope.personal_data),
        "audience": envelope.audience,
        "audience_run": envelope.audience_run,
        "expires_at": None if envelope.expires is None else timestamp + envelope.expires,
        "initial": envelope.initial or None,
        "trail": None if state.trail is None else _next_trail(state, state.trail, target),
        "step": None if envelope.step is None else dict(envelope.step),
    }
    members: dict[str, Any] = {name: value for name, value in optional.items() if value is not None}
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
        cost_tracking=state.cost.after(state.spend),
        conversation_history_summary=state.history_summary,
        conversation_history_verbatim=list(state.history),
        tool_call_history=list(state.tool_calls),
        traceparent=state.traceparent,
        **members,
    )


def hop_of(sender: str, receiver: str, current_state: Mapping[str, Any], remaining: Iterable[Subtask]) -> Hop:
    """Return a handoff's hop, which is equal for equal state and equal remaining work."""
    remaining_ids = [subtask.subtask_id for subtask in remaining]
    return Hop(sender=sender, receiver=receiver, state=digest({"state": dict(current_state), "left": remaining_ids}))


def _next_trail(state: AgentState, trail: Trail, target: Target) -> Trail:
    """Return the trail with this handoff; raise if the guard finds a loop."""
    hop = hop_of(state.agent.agent_id, target.agent_type, state.current_state, state.remaining)
    if reason := loop_reason(trail, hop):
        raise RoutingError(reason)
    return trail.with_hop(hop)


MAX_COMPLETED_SUBTASKS = 5
"""How many of the newest finished stages a handoff lists; the ledger has all."""
MAX_TOOL_CALLS = 20
"""How many of the newest tool calls a handoff lists."""
MAX_RESULT_BYTES = 500
"""Up to how many bytes of JSON a finished stage's output is in a handoff; of a larger one it has the digest."""
MAX_TOOL_NAME = 200
"""The most characters of a tool's name in a handoff."""

_MAX_DESCRIPTION_LENGTH = _MAX_ID_LENGTH = 200
_PIPELINE_VERSION = "1.0.0"


@dataclass(frozen=True)
class HandoffTerms:
    """How a pipeline hands on.

    Attributes:
        constraints: Rules of the form `key:value` that every handoff carries.
        attempts: How often a handoff that its sender can correct is tried before a person is asked.
        within: How long a pending handoff waits for a person before it is abandoned.
        needs: How many different people must agree on what becomes of it; one may abandon it.
        who: Who may decide about it: names, or `"group:leads"` for a group in the workers' file of deciders; anybody
            if empty.
        proof: Whether only decisions count that are signed with the key of a decider in that file.
        ask_when_failed: Whether a stage that raised for good waits for a person; otherwise its error reaches the
            pipeline's code, as that of a stage whose patches were rejected always does.
        expires: After how long a handoff expires, a day by default; None for never. A stage that waits longer for a
            worker is sent a new one.
        compress_above: The share of a receiver's context window that a message may fill before its conversation is
            compressed; above 0, at most 1.
        verbatim_turns: How many of the newest turns stay word for word, at least 1.

    Raises:
        ValueError: `expires`, `compress_above`, `verbatim_turns`, `needs` or `who` is out of its range.

    Example:
        >>> HandoffTerms(constraints=("maxResponseTokens:2000",)).attempts
        3
    """

    constraints: tuple[str, ...] = ()
    attempts: int = MAX_ATTEMPTS
    within: timedelta = timedelta(days=7)
    needs: int = 1
    who: Sequence[str] = ()
    proof: bool = False
    ask_when_failed: bool = False
    expires: timedelta | None = EXPIRES
    compress_above: float = DEFAULT_THRESHOLD
    verbatim_turns: int = DEFAULT_KEEP

    def __post_init__(self) -> None:
        if isinstance(self.who, str):
            raise TypeError("who is a str; expected a list")
        check_deciders(self.who, self.needs)
        if self.expires is not None and self.expires <= timedelta():
            raise ValueError(f"expires is {self.expires}; give a time above zero, or None for never")
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
        personal_data: Encrypted personal data, sent only to stages that declare some.
        plan: What the pipeline declares to do; None if it declares nothing.
    """

    def __init__(
        self,
        pipeline: str,
        task_id: str,
        execution_id: str,
        terms: HandoffTerms,
        traceparent: str | None = None,
        follows: str | None = None,
        parent: ParentHandoff | None = None,
    ) -> None:
        self.terms = terms
        self._pipeline = Sender(agent_id=pipeline, agent_version=_PIPELINE_VERSION, execution_id=execution_id)
        self.sender = self._pipeline
        self._task_id = task_id
        self._traceparent = traceparent or task_traceparent(task_id)
        self._follows = follows  # the span to link to where the parent handoff does not name it
        self._parent = self._parent_before = None if parent is None else parent.handoff_id
        self.personal_data: dict[str, JsonValue] = {}
        self.plan: Plan | None = None
        self._tool_calls: deque[ToolCall] = deque(maxlen=MAX_TOOL_CALLS)
        self._completed: deque[CompletedSubtask] = deque(maxlen=MAX_COMPLETED_SUBTASKS)
        self._complete([] if parent is None else parent.completed)

    @property
    def begins_task(self) -> bool:
        """Whether the next handoff is the first."""
        return self._parent is None

    @property
    def last_span(self) -> str | None:
        """The span of the last handoff, which the next span links to; None if there was none."""
        if self._follows is not None or self._parent is None:
            return self._follows
        return span_after(self._parent, self.sender.agent_id)

    @property
    def last_handoff(self) -> ParentHandoff | None:
        """The last handoff, the parent of a child's first one; None if there was none."""
        if self._parent is None:
            return None
        completed = [subtask.to_json_object() for subtask in self._completed]
        return ParentHandoff(handoff_id=self._parent, completed=completed)

    @property
    def handoff_for_parent(self) -> ChildHandoff | None:
        """The last handoff of this run itself, which a parent's next one follows; None if there was none."""
        if self._parent == self._parent_before or (last := self.last_handoff) is None:
            return None
        return ChildHandoff(**dict(last), sender=self.sender.to_json_object())

    def follow_child(self, handoff: ChildHandoff) -> None:
        """Continue after a child's last handoff: its sender hands on next."""
        self._take_up(Sender.from_json_object(handoff.sender), handoff.handoff_id)
        known = [subtask.to_json_object() for subtask in self._completed]
        self._complete(subtask for subtask in handoff.completed if subtask not in known)

    def follow_failure(self, event_id: str, seq: int, step: str, at: datetime) -> None:
        """Continue after the way back of a failed child, which is on record under this id: the pipeline hands on."""
        span = self.last_span
        self._take_up(self._pipeline.model_copy(update={"execution_id": event_id}), event_id)
        self._follows = span
        self._completed.append(
            CompletedSubtask(
                subtask_id=f"{seq}:{step}"[:_MAX_ID_LENGTH],
                description=f"failed: {step}"[:_MAX_DESCRIPTION_LENGTH],
                result={"failed": True},
                completed_at=at,
            )
        )

    def _take_up(self, sender: Sender, handoff_id: str) -> None:
        """Let the next handoff be from this sender, and follow this one."""
        self.sender, self._parent, self._follows = sender, handoff_id, None

    def carried(self) -> dict[str, JsonValue]:
        """Return the state that the next run restores after continue-as-new."""
        return {
            "sender": self.sender.to_json_object(),
            "parent": self._parent,
            "follows": self._follows,
            "completed": [subtask.to_json_object() for subtask in self._completed],
            "tool_calls": [call.to_json_object() for call in self._tool_calls],
            "personal_data": self.personal_data,
        }

    def restore(self, carried: Mapping[str, Any]) -> None:
        """Restore the state of the previous run."""
        self.sender = Sender.from_json_object(carried["sender"])
        self._parent, self._follows = carried["parent"], carried["follows"]
        self._completed.clear()
        self._complete(carried["completed"])
        self._tool_calls.extend(ToolCall.from_json_object(call) for call in carried["tool_calls"])
        self.personal_data = dict(carried["personal_data"])

    def _complete(self, subtasks: Iterable[Mapping[str, Any]]) -> None:
        self._completed.extend(CompletedSubtask.from_json_object(subtask) for subtask in subtasks)

    def message(
        self,
        spec: StageSpec,
        stage_input: StageInput,
        cost: CostTracking,
        *,
        handoff_id: str,
        now: datetime,
        audience: str | None = None,
        audience_run: str | None = None,
        receivers: Sequence[str] = (),
        sender: Sender | None = None,
    ) -> Handoff:
        """Return the handoff that begins a stage, by default sent by the previous stage."""
        goal = str(stage_input.baton.get("goal", spec.name))
        state = AgentState(
            agent=sender or self.sender,
            task_id=self._task_id,
            task_description=spec.task or goal,
            cost=cost,
            spend=Spend(),
            traceparent=self._traceparent,
            parent_handoff_id=self._parent,
            completed=self._completed,
            remaining=self._remaining(spec, stage_input),
            current_state=stage_input.baton,
            relevant_context=relevant_context(spec, stage_input),
            history_summary=stage_input.summary,
            history=[Turn.from_json_object(turn) for turn in stage_input.turns],
            tool_calls=self._tool_calls,
        )
        envelope = Envelope(
            receivers=receivers,
            audience=audience,
            audience_run=audience_run,
            expires=self.terms.expires,
            initial=self.begins_task,
            personal_data=self.personal_data if spec.personal_data and self.personal_data else None,
            step=self._step(stage_input),
        )
        target = Target(agent_type=spec.name, agent_version=f">={spec.version}")
        return build_handoff(
            state, target, self.terms.constraints, handoff_id=handoff_id, timestamp=now, envelope=envelope
        )

    def _remaining(self, spec: StageSpec, stage_input: StageInput) -> list[Subtask]:
        """Return what is left to do: the stage itself, and what the pipeline plans besides."""
        name = stage_input.title
        own, others = self.plan.remaining(stage_input.step_name or name, spec.name) if self.plan else (None, [])
        description = own.description if own else name[:_MAX_DESCRIPTION_LENGTH]
        return [
            Subtask(subtask_id=f"{stage_input.seq}:{name}"[:_MAX_ID_LENGTH], description=description),
            *(
                Subtask(subtask_id=f"plan {step.number}:{step.name}"[:_MAX_ID_LENGTH], description=step.description)
                for step in others
            ),
        ]

    def _step(self, stage_input: StageInput) -> dict[str, JsonValue]:
        return stage_input.step() | ({} if self._follows is None else {FOLLOWS: self._follows})

    def complete_stage(self, spec: StageSpec, returned: StageReturn, handoff_id: str, at: datetime) -> None:
        """Note that a stage has finished; it hands on next."""
        sender = Sender(agent_id=spec.name, agent_version=spec.version, execution_id=handoff_id)
        self._take_up(sender, handoff_id)
        if returned.personal_data is not None:
            self.personal_data = merge_payloads(self.personal_data, returned.personal_data)
        own = [ToolCall.from_json_object(call) for call in returned.tool_calls]
        self._tool_calls.extend(own or _recorded_calls(returned.events))
        self._completed.append(
            CompletedSubtask(
                subtask_id=f"{returned.seq}:{returned.title}"[:_MAX_ID_LENGTH],
                description=_describe_result(returned.title, returned),
                result=_subtask_result(returned),
                completed_at=at,
            )
        )


def _subtask_result(returned: StageReturn) -> dict[str, JsonValue]:
    """Return what came of a stage: the changed fields, and its output, or of a large one the digest and the size."""
    result: dict[str, JsonValue] = {"changed": [*sorted(returned.baton_patch)], "attempt": returned.attempt}
    if returned.output is None:
        return result
    size = len(json.dumps(returned.output, ensure_ascii=False).encode("utf-8", "replace"))
    if size <= MAX_RESULT_BYTES:
        return {**result, "output": returned.output}
    return {**result, "outputDigest": digest(returned.output), "outputBytes": size}


def _recorded_calls(events: Iterable[Mapping[str, Any]]) -> list[ToolCall]:
    """Return the tool calls among session events, with the digests of their arguments; marked ones stay private."""
    recorded = [event for event in map(SessionEvent.from_json_object, events) if not event.exclude_from_handoff]
    answered = {event.call_id: event.tokens for event in recorded if event.type is EventType.TOOL_RESULT}
    calls = []
    for event in recorded:
        name = (event.tool_name or "")[:MAX_TOOL_NAME]
        if event.type is EventType.TOOL_CALL and name and event.at is not None:
            arguments = event.ref or format_digest(sha256(event.content.encode()))
            tokens = answered.get(event.call_id or event.id, 0)
            calls.append(ToolCall(tool=name, called_at=event.at, input_hash=arguments, output_tokens=tokens))
    return calls


def _describe_result(name: str, returned: StageReturn) -> str:
    """Return what a stage did: its first new decision or state if it has one, else its name."""
    for member in ("decision_log", "current_state"):
        entries = returned.baton_patch.get(member)
        if isinstance(entries, list) and entries and isinstance(entries[0], str) and entries[0].strip():
            return f"{name}: {entries[0]}"[:_MAX_DESCRIPTION_LENGTH]
    return name
