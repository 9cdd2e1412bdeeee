"""The relay of a pipeline: who held the baton last, and the handoff that brings it to the next stage.

Pure and cheap, because it runs in workflow code before every stage: ids and times are arguments, and everything
that it remembers is bounded, whatever the length of the pipeline.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import JsonValue

from baton.compression.rules import DEFAULT_KEEP, DEFAULT_THRESHOLD
from baton.core.history import Spend
from baton.core.messages import StageInput, StageReturn
from baton.core.stages import StageSpec
from baton.core.verdict import MOST_ATTEMPTS
from baton.handoff.build import AgentState, Delivery, build_handoff
from baton.handoff.records import CompletedSubtask, CostTracking, Handoff, Sender, Subtask, Target, ToolCall, Turn
from baton.handoff.trace import FOLLOWS, span_after, task_traceparent
from baton.personal.records import merged

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
    attempts: int = MOST_ATTEMPTS
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
    ) -> Handoff:
        """Return the handoff that begins a stage."""
        expires = self.terms.expires
        goal = str(given.baton.get("goal", spec.name))
        state = AgentState(
            agent=self.sender,
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
    for field in ("decision_log", "current_state"):
        said = returned.baton_patch.get(field)
        if isinstance(said, list) and said and isinstance(said[0], str) and said[0].strip():
            return f"{name}: {said[0]}"[:_LONGEST_DESCRIPTION]
    return name
