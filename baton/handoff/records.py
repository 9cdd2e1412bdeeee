"""The handoff message, schema 2: the signed envelope at every boundary between two agents (EAAPL-MAG006 §5.2).

All eighteen members of the document are required and none has a default, because a default would fill in what a
sender forgot. Later members are optional, and absent rather than null. Signatures are made and verified over the
received JSON, never over this record serialized again.
"""

import copy
from functools import cache
from typing import Annotated, Any, ClassVar

from pydantic import JsonValue

from baton.core.costs import CostTracking
from baton.core.messages import StageInput
from baton.core.receivers import CURRENT
from baton.core.turns import Turn
from baton.wire.records import (
    NOT_NULL,
    Address,
    AgentVersion,
    Count,
    Digest,
    Instant,
    KeyValue,
    Name,
    OpenRecord,
    Receivers,
    SchemaVersion,
    Share,
    Signature,
    Statement,
    Traceparent,
    Uuid4,
    VersionRange,
)
from baton.wire.schemas import published_document
from baton.wire.text import quantity

REPLY_TO = "replyTo"
"""Member of a handoff's `step`: the workflow that waits for the answer."""

MAX_HOPS = 256
"""The maximum number of handoffs of a task."""
HOP_WINDOW = 16
"""How many of the newest handoffs the guard checks for repetitions."""
MAX_REPEATED_HOPS, MAX_UNCHANGED_HOPS = 6, 2
"""How often one agent may hand on to another within the window, and how often with the same state."""


class Hop(OpenRecord):
    """One handoff of a chain.

    Attributes:
        sender: Who handed on: an `agentId`.
        receiver: To whom: an `agentType`.
        state: The digest of what was handed on; the same state has the same digest.
    """

    sender: Name
    receiver: Name
    state: Digest


class Trail(OpenRecord):
    """How a task came here: the number of its handoffs, and the newest of them.

    Attributes:
        hops: How many handoffs there were.
        recent: The newest ones, oldest first; as many as the guard looks at.
    """

    hops: Count
    recent: list[Hop]

    def with_hop(self, hop: Hop) -> "Trail":
        """Return the trail with one more handoff, cut to the window."""
        return Trail(hops=self.hops + 1, recent=[*self.recent, hop][-HOP_WINDOW:])


def loop_reason(trail: Trail, hop: Hop) -> str | None:
    """Return why the next handoff would be a loop, or None."""
    if trail.hops >= MAX_HOPS:
        times = quantity(trail.hops, "time")
        return f"the task was handed on {times}, at most {MAX_HOPS} are allowed; let a person decide"
    window = [*trail.recent, hop][-HOP_WINDOW:]
    similar = [other for other in window if (other.sender, other.receiver) == (hop.sender, hop.receiver)]
    unchanged = sum(1 for other in similar if other.state == hop.state)
    if unchanged > MAX_UNCHANGED_HOPS:
        return (
            f"{hop.sender!r} would hand the same state to {hop.receiver!r} more than {MAX_UNCHANGED_HOPS} times within "
            f"{HOP_WINDOW} handoffs; change it or ask a person"
        )
    if len(similar) > MAX_REPEATED_HOPS:
        return (
            f"{hop.sender!r} would hand on to {hop.receiver!r} more than {MAX_REPEATED_HOPS} times within "
            f"{HOP_WINDOW} handoffs; ask a person"
        )
    return None


INITIAL = "INITIAL"
"""The task description of a handoff that begins a task; it counts only without a parent."""


class Sender(OpenRecord):
    """Who hands on (`fromAgent`).

    Attributes:
        agent_id: The agent's name, for example `"legal-analysis-agent"`.
        agent_version: Its version, by semver.org.
        execution_id: This execution of it.
    """

    agent_id: Name
    agent_version: AgentVersion
    execution_id: Uuid4


class Target(OpenRecord):
    """Who is to receive (`toAgent`).

    Attributes:
        agent_type: What kind of agent, for example `"risk-scoring-agent"`.
        agent_version: The versions that may receive it, for example `">=1.5.0"`.
    """

    agent_type: Name
    agent_version: VersionRange


class CompletedSubtask(OpenRecord):
    """A part of the task that is done.

    Attributes:
        subtask_id: Names it within the task.
        description: What was to be done.
        result: The result.
        completed_at: When it was done.
    """

    subtask_id: Name
    description: Statement
    result: dict[str, JsonValue]
    completed_at: Instant


class Subtask(OpenRecord):
    """A part of the task that is left to do.

    Attributes:
        subtask_id: Names it within the task.
        description: What is to be done.
    """

    subtask_id: Name
    description: Statement


class ContextItem(OpenRecord):
    """An excerpt that the receiver will need (`relevantContext`).

    Attributes:
        source: Where it is from.
        excerpt: The text itself.
        relevance_score: How much it matters, from 0 to 1.
    """

    source: Statement
    excerpt: str
    relevance_score: Share


class ToolCall(OpenRecord):
    """A tool that was called.

    Attributes:
        tool: The tool's name.
        called_at: When.
        input_hash: The digest of what it was given; the input itself stays with the agent.
        output_tokens: The length of its output in tokens.
    """

    tool: Name
    called_at: Instant
    input_hash: Digest
    output_tokens: Count


class Handoff(OpenRecord):
    """A handoff message of schema 2: what a receiver gets, from whom, at what cost so far.

    Attributes:
        schema_version: The version of the schema that the message follows, for example `"2.0"`.
        handoff_id: Names this handoff; a repeated attempt keeps it.
        task_id: Names the task, the same for the whole chain.
        parent_handoff_id: The handoff that brought the task to the sender, or null for the first.
        from_agent: Who hands on.
        to_agent: Who is to receive.
        timestamp: When the message was built.
        task_description: What the receiver is to do.
        completed_subtasks: What is done; empty only in a first handoff.
        remaining_subtasks: What is left to do.
        current_state: The state of the work; its members are the pipeline's own.
        relevant_context: Excerpts that the receiver will need.
        constraints: Rules of the form `key:value`.
        cost_tracking: What the task has cost, and what is left of its budget.
        conversation_history_summary: The older turns in short; empty if nothing was compressed.
        conversation_history_verbatim: The newest turns, word for word.
        tool_call_history: Which tools were called.
        traceparent: The trace that the handoff belongs to.
        signature: The signature over all other members.
        receiver_list: Of a fan-out, every receiver; each gets a copy.
        personal_data_payload: Personal data, encrypted per subject; nowhere else in the message.
        key_id: Which key sealed it.
        audience: The only address that may accept it: the receiving workflow, or an outside agent's.
        audience_run: The first run of the chain that it is meant for; absent if the sender does not know it.
        namespace: The Temporal namespace that it is meant for; it is added with the seal.
        expires_at: When it expires.
        initial: True for a handoff that begins a task, and so has no completed subtasks.
        trail: How the task came here; what the ping-pong guard looks at.
        step: Data for the pipeline's own stage; other receivers ignore it.
    """

    __baton_sealed__: ClassVar[bool] = True  # as a payload it is sealed as it leaves its sender

    schema_version: SchemaVersion
    handoff_id: Uuid4
    task_id: Uuid4
    parent_handoff_id: Uuid4 | None
    from_agent: Sender
    to_agent: Target
    timestamp: Instant
    task_description: Statement
    completed_subtasks: list[CompletedSubtask]
    remaining_subtasks: list[Subtask]
    current_state: dict[str, JsonValue]
    relevant_context: list[ContextItem]
    constraints: list[KeyValue]
    cost_tracking: CostTracking
    conversation_history_summary: str
    conversation_history_verbatim: list[Turn]
    tool_call_history: list[ToolCall]
    traceparent: Traceparent

    signature: Annotated[Signature | None, NOT_NULL] = None
    receiver_list: Annotated[Receivers | None, NOT_NULL] = None
    personal_data_payload: Annotated[dict[str, JsonValue] | None, NOT_NULL] = None

    key_id: Annotated[Name | None, NOT_NULL] = None
    audience: Annotated[Address | None, NOT_NULL] = None
    audience_run: Annotated[Name | None, NOT_NULL] = None
    namespace: Annotated[Address | None, NOT_NULL] = None
    expires_at: Annotated[Instant | None, NOT_NULL] = None

    initial: Annotated[bool | None, NOT_NULL] = None
    trail: Annotated[Trail | None, NOT_NULL] = None
    step: Annotated[dict[str, JsonValue] | None, NOT_NULL] = None

    @property
    def begins_task(self) -> bool:
        """Whether it begins a task, and so needs no completed subtasks."""
        return (self.initial is True or self.task_description == INITIAL) and self.parent_handoff_id is None

    def stage_input(self) -> StageInput:
        """Return the stage's input in it.

        Raises:
            ValidationError: `step` is not a stage's input.
        """
        step = {name: value for name, value in (self.step or {}).items() if name in StageInput.model_fields}
        members = {
            "stage": self.to_agent.agent_type,
            "task_id": self.task_id,
            "baton": self.current_state,
            "personal_data": self.personal_data_payload or {},
            "turns": [turn.to_json_object() for turn in self.conversation_history_verbatim],
            "summary": self.conversation_history_summary,
            "handoff_id": self.handoff_id,
        }
        return StageInput.model_validate({**step, **members})


def handoff_schema() -> dict[str, Any]:
    """Return a copy of the handoff message's JSON Schema, without external references."""
    return copy.deepcopy(_document())


@cache
def _document() -> dict[str, Any]:
    return published_document(Handoff, "handoff", CURRENT)
