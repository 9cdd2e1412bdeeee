"""What the handoffs of a run share: who hands on next, the conversation, contracts, and what children hand back."""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import Field, JsonValue, ValidationError
from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError

from baton.contract.session import SessionState
from baton.contract.workflow import ContractIssuer, ContractTerms
from baton.core.artifacts import ArtifactRef
from baton.core.history import Spend, StepKind
from baton.core.messages import PipelineResult, SpanId, StageInput, StageReturn
from baton.core.past import ChildHandoff
from baton.core.stages import StageSpec
from baton.core.turns import Turn
from baton.errors import StageFailedError
from baton.handoff.records import CompletedSubtask, Sender, ToolCall
from baton.handoff.relay import HandoffTerms, Relay
from baton.handoff.workflow_compression import Conversation
from baton.handoff.workflow_escalation import Escalation
from baton.handoff.workflow_failures import reason_of
from baton.handoff.workflow_steering import Steering
from baton.ledger.records import FAILED
from baton.personal.records import merge_payloads, payload_changes
from baton.runtime.workflow_approvals import ApprovalTerms
from baton.runtime.workflow_run import Run
from baton.wire.money import MAX_USD, MICRO_PER_USD, to_usd
from baton.wire.names import SEALS
from baton.wire.records import Record
from baton.wire.text import describe_faults

CONTRACTS = "contracts"
"""The key of the session that contracts are compiled from, in the state that a run carries over."""
HANDOFFS = "handoffs"
"""The key of the state of the handoffs."""

_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def _relay_for(run: Run, terms: HandoffTerms) -> Relay | None:
    """Return the relay of a pipeline; None if its worker does not seal handoffs, or its input is unusable."""
    start, task_id, name = run.start, run.task_id, workflow.info().workflow_type
    if not run.input.is_usable or SEALS not in workflow.extern_functions():
        return None
    if not _UUID4.fullmatch(task_id):
        why = (
            f"task_id {task_id!r} is not a random UUID (version 4, lower case), which handoffs need; omit it to get one"
        )
    elif start.budget is not None and start.budget.ceiling_micro_usd > MAX_USD * MICRO_PER_USD:
        why = (
            f"the budget is {to_usd(start.budget.ceiling_micro_usd)} USD, and handoffs carry {MAX_USD} USD at most; "
            "omit it to have none"
        )
    else:
        try:
            relay = Relay(name, task_id, _nth_id(0), terms, start.traceparent, start.follows, start.parent_handoff)
        except ValidationError as error:
            why = f"parent_handoff.completed is not valid: {describe_faults(error)}"
        else:
            relay.personal_data = dict(start.personal_data)
            return relay
    run.input.refuse(why)
    return None


def _nth_id(number: int) -> str:
    """Return the run's n-th id for a handoff, a random UUID."""
    hashed = hashlib.sha256(f"baton handoff {workflow.random_seed()} {number}".encode()).digest()
    return str(UUID(bytes=hashed[:16], version=4))


class _RelayState(Record):
    sender: Sender
    parent: str | None
    follows: SpanId | None
    completed: list[CompletedSubtask]
    tool_calls: list[ToolCall]
    personal_data: dict[str, JsonValue]


class HandoffState(Record):
    """The state that a coordinator carries over."""

    turns: list[Turn] = Field(default_factory=list)
    summary: str = ""
    older: list[ArtifactRef] = Field(default_factory=list)
    upstream: Spend = Spend()
    released: dict[str, str] = Field(default_factory=dict)
    on_record: bool | None = None
    relay: _RelayState | None = None


@dataclass(frozen=True)
class Corrector:
    """The stage that has finished last: it can correct what it hands on.

    Attributes:
        spec: The stage.
        stage_input: Its input without the baton.
        task_queue: The task queue of its workers; None for the pipeline's own.
    """

    spec: StageSpec
    stage_input: StageInput
    task_queue: str | None


class HandoffCoordinator:
    """What the handoffs of a run share.

    Attributes:
        run: The run.
        terms: How the pipeline hands on.
        relay: Makes the messages; None if the worker does not seal them.
        escalation: Asks people, and records what became of handoffs.
        steering: Takes notes of people for agents at work.
        conversation: The conversation of the stages so far.
        corrector: Who can correct the next handoff; None if the pipeline itself, a child or several branches hand on.
    """

    def __init__(self, run: Run, terms: HandoffTerms, contracts: ContractTerms | bool) -> None:
        self.run = run
        self.terms = terms
        self.relay = _relay_for(run, terms)
        self.escalation = Escalation(run, terms)
        self.steering = Steering(run, self.escalation, sealed=self.relay is not None)
        self.conversation = Conversation(run, terms)
        self.corrector: Corrector | None = None
        self._contracts = None
        if contracts:
            own = contracts if isinstance(contracts, ContractTerms) else None
            self._contracts = ContractIssuer(own, run.start, run.task_id, run.state, run.metrics)
        self._ids = 0
        self._is_session_unused = bool(run.start.session) and not run.start.continued

    @property
    def approval_terms(self) -> ApprovalTerms:
        """Who decides about the pipeline's handoffs, and so whether it continues."""
        return ApprovalTerms(needs=self.terms.needs, who=self.terms.who, proof=self.terms.proof)

    @property
    def carries(self) -> dict[str, Callable[[], JsonValue]]:
        """What the next run restores after continue-as-new, by key."""
        carries: dict[str, Callable[[], JsonValue]] = {HANDOFFS: self.carried}
        return carries if self._contracts is None else {**carries, CONTRACTS: self._contracts.carried}

    def carried(self) -> dict[str, JsonValue]:
        """Return the state of the handoffs for the next run."""
        return {
            **self.conversation.carried(),
            **self.escalation.carried(),
            "relay": None if self.relay is None else self.relay.carried(),
        }

    def restore(self) -> None:
        """Restore the state of the previous run."""
        if self._contracts is not None:
            self._contracts.restore(self.run.input.carried(CONTRACTS, SessionState))
        elif self.run.start.session and not self.run.start.has_past:
            self.run.input.refuse(
                "the run starts from another tool's session, which only contracts read, and this pipeline has "
                "contracts=False: take that away, or start the run without the session"
            )
        carried = self.run.input.carried(HANDOFFS, HandoffState)
        self.conversation.restore(carried)
        self.escalation.restore(carried)
        if self.relay is not None and carried.get("relay"):
            self.relay.restore(carried["relay"])

    def for_child(self) -> dict[str, Any]:
        """Return the input members of a child: whom it works for, the last handoff and its span, and personal data."""
        members: dict[str, Any] = {"requester": self.run.start.requester}
        if (relay := self.relay) is None:
            return members
        members |= {"follows": relay.last_span, "personal_data": relay.personal_data}
        return {**members, "parent_handoff": relay.last_handoff}

    def personal_data_for_parent(self, initial: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return the personal data that a child adds to its parent's; empty without a parent."""
        return payload_changes(initial, self.relay.personal_data) if self.relay and workflow.info().parent else {}

    def handoff_for_parent(self) -> ChildHandoff | None:
        """Return a child's last handoff, for its parent; None without a parent or a handoff."""
        return self.relay.handoff_for_parent if self.relay and workflow.info().parent else None

    async def receive_child(self, kind: str, seq: int, result: PipelineResult) -> None:
        """Record a child's result, and let the next handoff follow the child's last one."""
        agents = kind, workflow.info().workflow_type
        await self.escalation.record_completion(seq, self.new_id(), "RETURNED", agents, result)
        if self.relay is None or result.handoff is None:
            return
        try:
            self.relay.follow_child(result.handoff)
        except ValidationError as error:
            raise StageFailedError(
                f"the last handoff of child {kind!r} is not valid: {describe_faults(error)}"
            ) from None
        self.corrector = None  # no stage of this run can correct what the child hands on

    async def receive_failure(self, kind: str, seq: int, step: str, error: ChildWorkflowError) -> None:
        """Record that a child failed, and let the next handoff follow that: the child has handed nothing on."""
        event_id, agents = self.new_id(), (kind, workflow.info().workflow_type)
        await self.escalation.record_completion(seq, event_id, FAILED, agents, details=reason_of(error))
        if self.relay is not None:
            self.relay.follow_failure(event_id, seq, step, workflow.now())
        self.corrector = None  # the pipeline itself hands on next

    async def complete_task(self, result: PipelineResult) -> None:
        """Record the run's own result as the task's, if a child's would be the last otherwise."""
        has_children = any(outcome.kind is StepKind.CHILD for outcome in self.run.state.outcomes)
        if has_children and workflow.info().parent is None:
            agents = workflow.info().workflow_type, None
            await self.escalation.record_completion(result.steps, self.new_id(), "COMPLETED", agents, result)

    def merge_personal_data(self, result: PipelineResult) -> PipelineResult:
        """Merge the personal data of a child's result, and return the result."""
        if self.relay is not None:
            self.relay.personal_data = merge_payloads(self.relay.personal_data, result.personal_data)
        return result

    @property
    def sender(self) -> str | None:
        """Who hands on next; None if the worker does not seal handoffs."""
        return None if self.relay is None else self.relay.sender.agent_id

    def new_id(self) -> str:
        """Return a new handoff id."""
        self._ids += 1
        return _nth_id(self._ids)

    async def read_on(self, spec: StageSpec) -> None:
        """Read what the steps so far recorded, if the stage gets a contract made of it."""
        if self._contracts is not None and self._contracts.serves(spec):
            await self._contracts.read_on()

    def contracted(self, spec: StageSpec, message: StageInput, handoff_id: str, *, kept: bool = True) -> StageInput:
        """Return a stage's input with a new contract, if it gets one; `kept` as in `ContractIssuer.issue`."""
        is_served = self._contracts is not None and self._contracts.serves(spec)
        if self._is_session_unused and not is_served:
            self.run.note(
                f"stage {spec.name!r} has no contract, so it sees nothing of the session that the run starts from"
            )
        self._is_session_unused = False
        if self._contracts is None or not is_served:
            return message
        self._contracts.route(spec)
        return self._contracts.issue(spec, message, handoff_id, workflow.now(), persisted=kept)

    def complete_stage(self, spec: StageSpec, returned: StageReturn, handoff_id: str) -> None:
        """Note that a stage has finished; it hands on next."""
        self.conversation.add_turns(returned)
        if self.relay is not None:
            self.relay.complete_stage(spec, returned, handoff_id, workflow.now())

    def join_branches(self, name: str) -> None:
        """Note that all branches of a fan-out have finished; together they hand on next."""
        self.corrector = None
        if self.relay is not None:
            self.relay.sender = self.relay.sender.model_copy(update={"agent_id": name})

    def note_answer(self, returned: StageReturn) -> None:
        """Note whether stages record their answers; if so, the pipeline records its own events as well."""
        is_on_record = returned.anchor is not None or returned.verdict is not None
        self.escalation.on_record = bool(self.escalation.on_record) or is_on_record
        self.steering.note_answer(returned)
        if self._contracts is not None:
            self._contracts.record_prompt(returned)
