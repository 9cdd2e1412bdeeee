"""The messages by which a pipeline hands on to others: its baton and figures, put into a handoff."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from pydantic import JsonValue, ValidationError
from temporalio import workflow

from baton.core.history import Spend, StepKind
from baton.errors import StageFailedError
from baton.exchange.admission import ATTEMPT, REPLY_TO, Received
from baton.exchange.workflow_messages import Receiver
from baton.handoff.build import AgentState, Delivery, build_handoff
from baton.handoff.errors import RoutingError
from baton.handoff.hops import Trail
from baton.handoff.records import CompletedSubtask, Handoff, Sender, Subtask, Target
from baton.handoff.sealed import SealError
from baton.handoff.trace import task_traceparent
from baton.pipelines.workflow import CHAIN, Pipeline
from baton.wire.canonical import digest
from baton.wire.json_values import Json
from baton.wire.text import mismatch

COMPLETED_HANDED = 20
"""How many of the newest finished steps a handoff lists; all of them are in the ledger."""


class Outgoing:
    """Makes a pipeline's handoffs to other pipelines and to agents outside."""

    def __init__(self, pipeline: Pipeline, agent: str, version: str) -> None:
        self._pipeline = pipeline
        self._agent, self._version = agent, version
        self._execution_id: str | None = None
        self._parent: str | None = None
        carried = pipeline.carried(CHAIN)
        self._trail = Trail.from_json_object(carried) if carried else Trail(hops=0, recent=[])
        pipeline.carries[CHAIN] = self.carried

    def carried(self) -> dict[str, JsonValue]:
        """Return how the task came here: what a child, or the run that continues this one, begins with."""
        return self._trail.to_json_object() if self._trail.hops else {}

    @property
    def _sender(self) -> Sender:
        """Who hands on: this run of the agent."""
        self._execution_id = self._execution_id or str(workflow.uuid4())
        return Sender(agent_id=self._agent, agent_version=self._version, execution_id=self._execution_id)

    def follows(self, received: Received) -> None:
        """Note which handoff brought the task here: what is handed on next has it as its parent."""
        self._parent = received.handoff_id
        if received.trail is not None:
            self._trail = Trail.from_json_object(received.trail)

    def comes_back(self, received: Received) -> bool:
        """Return whether a task that was received had been handed on from here before."""
        recent = Trail.from_json_object(received.trail).recent if received.trail else []
        return any(hop.sender == self._agent for hop in recent)

    def message(
        self,
        to: Receiver,
        description: str,
        constraints: Sequence[str],
        state: Mapping[str, Json] | None,
        expires: timedelta | None,
        *,
        named: tuple[str, int] | None = None,
        receivers: Sequence[str] = (),
        step: Mapping[str, JsonValue] | None = None,
    ) -> Handoff:
        """Return a handoff; it is sealed as it leaves."""
        pipeline, now = self._pipeline, workflow.now()
        handoff_id, attempt = named or (str(workflow.uuid4()), 1)
        further: dict[str, JsonValue] = {REPLY_TO: workflow.info().workflow_id, ATTEMPT: attempt, **(step or {})}
        completed = self._completed()
        try:
            work = digest(description)[-32:]  # by which the guard knows what goes round in circles
            return build_handoff(
                AgentState(
                    agent=self._sender,
                    task_id=pipeline.task_id,
                    task_description=description,
                    cost=pipeline._account.budget.cost_tracking(),
                    spend=Spend(),
                    traceparent=pipeline._start.traceparent or task_traceparent(pipeline.task_id),
                    parent_handoff_id=self._parent,
                    completed=completed,
                    remaining=[Subtask(subtask_id=work, description=description)],
                    current_state=pipeline.state.baton.to_json_object() if state is None else state,
                    trail=self._trail,
                ),
                Target(agent_type=to.agent, agent_version=to.version),
                constraints,
                handoff_id=handoff_id,
                timestamp=now,
                delivery=Delivery(
                    receivers=receivers,
                    audience=to.workflow_id,
                    expires_at=None if expires is None else now + expires,
                    initial=self._parent is None and not completed,
                    step=further,
                ),
            )
        except (RoutingError, SealError, ValueError) as error:  # among the last: no canonical form of a number or text
            raise StageFailedError(f"the handoff to {to.agent!r} cannot be made: {_short(error)}") from error

    def _completed(self) -> list[CompletedSubtask]:
        """Return the newest steps that changed the baton, or in which a person decided."""
        done = [one for one in self._pipeline.state.entries if one.effective or one.kind is StepKind.APPROVAL]
        return [
            CompletedSubtask(
                subtask_id=f"{entry.seq}:{entry.stage_id}"[:200],
                description=entry.stage_id,
                result={"changed": [*sorted(entry.effective)]},
                completed_at=entry.timestamp,
            )
            for entry in done[-COMPLETED_HANDED:]
        ]


def _short(error: Exception) -> str:
    """Return what is wrong, without a value of the message."""
    return mismatch(error) if isinstance(error, ValidationError) else str(error)
