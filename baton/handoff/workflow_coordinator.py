"""Handing the baton on: the message before each stage, and the handling of its rejection.

A rejection is a value (`baton.core.verdict`), and each code has one fate. A handoff that its sender can correct goes
back to the sender, whose correction is recorded only when a receiver accepts it, so nothing has to be undone. All
others wait for a person, with the baton before the handoff.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from pydantic import Field, JsonValue, ValidationError
from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError

from baton.budget.workflow import BudgetAccount
from baton.contract.validation import is_expired
from baton.contract.workflow import ContractIssuer
from baton.core.artifacts import ArtifactRef
from baton.core.baton import Baton
from baton.core.budget import OnExhaustion
from baton.core.history import Outcome, Spend, StepKind
from baton.core.messages import PipelineInput, PipelineResult, SpanId, StageInput, StageReturn
from baton.core.past import ChildHandoff
from baton.core.patching import patch_effect
from baton.core.state import PipelineState
from baton.core.turns import Turn
from baton.core.verdict import PENDING_HANDOFF, Code, Disposition, Verdict, disposition_of
from baton.errors import BudgetExhaustedError, PatchError, PipelineError, StageFailedError
from baton.handoff.records import CompletedSubtask, Handoff, Sender, ToolCall
from baton.handoff.relay import HandoffTerms, Relay
from baton.handoff.sealed import SealError
from baton.handoff.workflow_attempt import (
    OutgoingHandoff,
    StageExecutionError,
    execute_stage,
    reason_of,
    wait_for_other_clock,
    wait_for_storage,
)
from baton.handoff.workflow_compression import Conversation
from baton.handoff.workflow_escalation import Escalation
from baton.ledger.chain import STAGE_FAILED
from baton.ledger.records import FAILED, Kind
from baton.personal.records import merge_payloads, payload_changes
from baton.runtime.workflow_approvals import ApprovalTerms
from baton.runtime.workflow_handlers import RunHandlers
from baton.telemetry.metrics import RECEIVER_FAILED, ROLLBACKS
from baton.wire.money import MAX_USD, MICRO_PER_USD, to_usd
from baton.wire.names import SEALS
from baton.wire.records import Record
from baton.wire.text import describe_faults

_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def relay_for(start: PipelineInput, task_id: str, terms: HandoffTerms) -> Relay | None:
    """Return the relay of a pipeline, or None if its worker does not seal handoffs."""
    if SEALS not in workflow.extern_functions():
        return None
    if not _UUID4.fullmatch(task_id):
        raise PipelineError(
            f"task_id {task_id!r} is not a random UUID (version 4, lower case), which handoffs need; omit it to get one"
        )
    if start.budget is not None and start.budget.ceiling_micro_usd > MAX_USD * MICRO_PER_USD:
        raise PipelineError(
            f"the budget is {to_usd(start.budget.ceiling_micro_usd)} USD, and handoffs carry {MAX_USD} USD at most; "
            "omit it to have none"
        )
    name = workflow.info().workflow_type
    try:
        relay = Relay(name, task_id, nth_id(0), terms, start.traceparent, start.follows, start.parent_handoff)
    except ValidationError as error:
        raise PipelineError(f"parent_handoff.completed is not valid: {describe_faults(error)}") from error
    relay.personal_data = dict(start.personal_data)
    return relay


def nth_id(number: int) -> str:
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


class HandoffCoordinator:
    """Makes a pipeline's handoffs, and handles their rejections and failures.

    Attributes:
        account: The pipeline's budget.
        escalation: Asks people.
    """

    def __init__(
        self,
        handlers: RunHandlers,
        state: PipelineState,
        account: BudgetAccount,
        relay: Relay | None,
        terms: HandoffTerms,
        publish: Callable[[Outcome], None],
        contracting: ContractIssuer | None = None,
    ) -> None:
        self.account = account
        self.escalation = Escalation(handlers, state, account, terms, publish)
        self._handlers = handlers
        self._state = state
        self._relay = relay
        self._terms, self.within = terms, terms.within
        self._publish = publish
        self._contracts = contracting
        self._sender: OutgoingHandoff | None = None
        self._ids = 0
        self._conversation = Conversation(account, handlers.metrics, terms)

    @property
    def approval_terms(self) -> ApprovalTerms:
        """Who decides about the pipeline's handoffs, and so whether it continues."""
        return ApprovalTerms(needs=self._terms.needs, who=self._terms.who, proof=self._terms.proof)

    def carried(self) -> dict[str, JsonValue]:
        """Return the state that the next run restores after continue-as-new."""
        return {
            **self._conversation.carried(),
            **self.escalation.carried(),
            "relay": None if self._relay is None else self._relay.carried(),
        }

    def restore(self, carried: Mapping[str, Any]) -> None:
        """Restore the state of the previous run."""
        self._conversation.restore(carried)
        self.escalation.restore(carried)
        if self._relay is not None and carried.get("relay"):
            self._relay.restore(carried["relay"])

    def for_child(self) -> dict[str, Any]:
        """Return the input members of a child: the last handoff and its span, and personal data."""
        if (relay := self._relay) is None:
            return {}
        members = {"follows": relay.last_span, "personal_data": relay.personal_data}
        return {**members, "parent_handoff": relay.last_handoff}

    def personal_data_for_parent(self, initial: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return the personal data that a child adds to its parent's; empty without a parent."""
        return payload_changes(initial, self._relay.personal_data) if self._relay and workflow.info().parent else {}

    def handoff_for_parent(self) -> ChildHandoff | None:
        """Return a child's last handoff, for its parent; None without a parent or a handoff."""
        return self._relay.handoff_for_parent if self._relay and workflow.info().parent else None

    async def receive_child(self, kind: str, seq: int, result: PipelineResult, task_id: str) -> None:
        """Record a child's result, and let the next handoff follow the child's last one."""
        await self.escalation.record_completion(
            task_id=task_id,
            event_id=self.new_id(),
            status="RETURNED",
            seq=seq,
            sender=kind,
            receiver=workflow.info().workflow_type,
            result=result,
        )
        if self._relay is None or result.handoff is None:
            return
        try:
            self._relay.follow_child(result.handoff)
        except ValidationError as error:
            raise StageFailedError(
                f"the last handoff of child {kind!r} is not valid: {describe_faults(error)}"
            ) from None
        self._sender = None  # no stage of this run can correct what the child hands on

    async def receive_failure(self, kind: str, seq: int, step: str, error: ChildWorkflowError, task_id: str) -> None:
        """Record that a child failed, and let the next handoff follow that: the child has handed nothing on."""
        event_id = self.new_id()
        await self.escalation.record_completion(
            task_id=task_id,
            event_id=event_id,
            status=FAILED,
            seq=seq,
            sender=kind,
            receiver=workflow.info().workflow_type,
            details=reason_of(error),
        )
        if self._relay is not None:
            self._relay.follow_failure(event_id, seq, step, workflow.now())
        self._sender = None  # the pipeline itself hands on next

    async def complete_task(self, result: PipelineResult) -> None:
        """Record the run's own result as the task's, if a child's would be the last otherwise."""
        has_children = any(outcome.kind is StepKind.CHILD for outcome in self._state.outcomes)
        if has_children and workflow.info().parent is None:
            await self.escalation.record_completion(
                task_id=result.task_id,
                event_id=self.new_id(),
                status="COMPLETED",
                seq=result.steps,
                sender=workflow.info().workflow_type,
                result=result,
            )

    def merge_personal_data(self, result: PipelineResult) -> PipelineResult:
        """Merge the personal data of a child's result, and return the result."""
        if self._relay is not None:
            self._relay.personal_data = merge_payloads(self._relay.personal_data, result.personal_data)
        return result

    def new_id(self) -> str:
        """Return a new handoff id."""
        self._ids += 1
        return nth_id(self._ids)

    def message_for(
        self, outgoing: OutgoingHandoff, message: StageInput, sender: Sender | None = None
    ) -> StageInput | Handoff:
        """Return the stage's message: a handoff, or its plain input if the worker does not seal."""
        if self._relay is None:
            return message
        if released := self.escalation.released:
            message = message.model_copy(update={"released": released})
        try:
            outgoing.message = self._relay.message(
                outgoing.spec,
                message,
                self.account.budget.cost_tracking(),
                handoff_id=outgoing.handoff_id,
                now=workflow.now(),
                audience=workflow.info().workflow_id,
                audience_run=workflow.info().first_execution_run_id,
                receivers=outgoing.receivers,
                sender=sender,
            )
        except SealError as error:
            raise StageFailedError(f"stage {outgoing.spec.name!r} is not sent anything: {error}") from error
        return outgoing.message

    async def fit(self, outgoing: OutgoingHandoff, message: StageInput, task_queue: str | None) -> StageInput:
        """Return the stage's input with the conversation; see `Conversation.fit`."""
        sender = None if self._relay is None else self._relay.sender.agent_id
        return await self._conversation.fit(outgoing, message, task_queue, sender=sender)

    def with_contract(self, outgoing: OutgoingHandoff, message: StageInput, *, kept: bool = True) -> StageInput:
        """Return the stage's input with a new contract; `kept` as in `ContractIssuer.contracted`."""
        if self._contracts is None:
            return message
        self._contracts.route(outgoing.spec)
        return self._contracts.issue(outgoing.spec, message, outgoing.handoff_id, workflow.now(), persisted=kept)

    def corrected_base(self, outgoing: OutgoingHandoff, start: tuple[Baton, int]) -> tuple[Baton, int]:
        """Return the baton with the sender's corrections, and the number of steps with them."""
        baton, step_count = start
        for returned in outgoing.corrections:
            baton = patch_effect(baton, returned.baton_patch, self._state.stage_rules()).baton
        return baton, step_count + len(outgoing.corrections)

    async def reserve(self, outgoing: OutgoingHandoff) -> None:
        """Reserve what the stage declares, waiting for a top-up if the budget pauses."""
        await self._handlers.roll_backs.catch_up()
        while shortage := self.account.shortage(outgoing.spec):
            if shortage.then is not OnExhaustion.PAUSE:
                raise BudgetExhaustedError(shortage.text)
            verdict = Verdict(valid=False, reason=Code.BUDGET_EXHAUSTED, details=shortage.text)
            await self._escalate(outgoing, verdict, Disposition.TOP_UP)
        self.account.reserve(outgoing.key, outgoing.spec)

    def record_corrections(self, outgoing: OutgoingHandoff) -> bool:
        """Record the sender's corrections of an accepted handoff; return whether there were any."""
        corrections, outgoing.corrections = outgoing.corrections, []
        for returned in corrections:
            reason = f"the handoff to {outgoing.spec.name!r} was not accepted before"
            self._publish(self._state.record_amendment(returned, workflow.now(), reason))
        return bool(corrections)

    def complete_stage(self, outgoing: OutgoingHandoff, returned: StageReturn) -> None:
        """Note that a stage has finished; it hands on next."""
        self._sender = outgoing
        self._conversation.add_turns(returned)
        if self._relay is not None:
            self._relay.complete_stage(outgoing.spec, returned, outgoing.handoff_id, workflow.now())

    def complete_branches(
        self, name: str, outgoing_handoffs: Sequence[OutgoingHandoff], branches: Sequence[StageReturn]
    ) -> None:
        """Note that the branches of a fan-out have finished; together they hand on next."""
        self._sender = None
        for returned in branches:
            self._conversation.add_turns(returned)
        if self._relay is not None:
            for outgoing, returned in zip(outgoing_handoffs, branches, strict=True):
                self._relay.complete_stage(outgoing.spec, returned, outgoing.handoff_id, workflow.now())
            self._relay.sender = self._relay.sender.model_copy(update={"agent_id": name})

    def note_answer(self, returned: StageReturn) -> None:
        """Note whether stages record their answers; if so, the pipeline records its own events as well."""
        is_on_record = returned.anchor is not None or returned.verdict is not None
        self.escalation.on_record = bool(self.escalation.on_record) or is_on_record
        if self._contracts is not None:
            self._contracts.record_prompt(returned)

    async def handle_rejection(self, outgoing: OutgoingHandoff, verdict: Verdict) -> None:
        """Handle the rejection of a handoff; on return, the caller sends it again."""
        expired = is_expired(verdict)
        if expired and outgoing.expiries < self._terms.attempts:
            outgoing.expiries += 1  # the next attempt is a new message, with a new contract
            self._handlers.note(f"the handoff to {outgoing.spec.name!r} had expired; it is made again")
            return
        if verdict.blames_clock and await wait_for_other_clock(outgoing, self._handlers):
            return
        reason = verdict.reason or Code.SCHEMA_INVALID
        outgoing.rejections += reason in (Code.SCHEMA_INVALID, Code.INCOMPLETE_CONTEXT)
        fate = disposition_of(reason, max(outgoing.rejections, 1), self._terms.attempts)
        if fate is Disposition.BACK_TO_SENDER and (self._sender is None or outgoing.stage_input.branch):
            fate = Disposition.ESCALATE  # no stage can correct it: it has no sender, or several branches share one
        if expired and fate is Disposition.BACK_TO_SENDER:
            fate, outgoing.expiries = Disposition.ESCALATE, 0  # its sender cannot correct an expiry
        if fate is Disposition.BACK_TO_SENDER:
            await self._request_correction(outgoing, verdict)
            return
        if fate is Disposition.TOP_UP and self.account.limited and self.account.budget.then is not OnExhaustion.PAUSE:
            raise BudgetExhaustedError(verdict.details or "the budget is used up")
        outgoing.corrections, outgoing.rejections = [], 0  # back to the checkpoint: the baton before the handoff
        await self._escalate(outgoing, verdict, fate)

    async def execute(self, outgoing: OutgoingHandoff, message: StageInput | Handoff) -> StageReturn:
        """Send a handoff's message, and return the stage's answer; see `baton.handoff.workflow_attempt`."""
        return await execute_stage(outgoing, message, self.account, self._handlers)

    async def handle_failure(self, outgoing: OutgoingHandoff, error: StageExecutionError) -> None:
        """Handle the failure of a receiver after accepting; on return, the caller sends the handoff again."""
        outgoing.outages += error.is_outage
        if error.is_outage and await wait_for_storage(outgoing, self._handlers):
            return
        outgoing.corrections, reason = [], str(error)
        escalation = self.escalation
        if escalation.on_record or (escalation.on_record is None and not error.is_outage):
            status = PENDING_HANDOFF if self._terms.ask_when_failed else STAGE_FAILED
            await escalation.record(outgoing, None, Kind.ROLLBACK, status, reason, spend=error.spend)
        if escalation.on_record and self._terms.ask_when_failed:
            self._handlers.note(f"{outgoing.spec.name!r} failed after accepting; rolled back to before the handoff")
            self._handlers.metrics.count(ROLLBACKS, RECEIVER_FAILED)
        if not self._terms.ask_when_failed:
            raise StageFailedError(reason)
        await self._escalate(outgoing, Verdict(valid=False, details=reason), Disposition.ESCALATE)

    async def _request_correction(self, outgoing: OutgoingHandoff, verdict: Verdict) -> None:
        """Run the sender's stage again with the findings, and keep its correction."""
        assert self._sender is not None  # noqa: S101 - the caller has checked
        spec, stage_input = self._sender.spec, self._sender.stage_input
        findings = [
            f"your handoff to {outgoing.spec.name!r} was not accepted: {finding.text}" for finding in verdict.findings
        ]
        self._handlers.note(f"the handoff to {outgoing.spec.name!r} went back to {spec.name!r}: {verdict.details}")
        baton, step_count = self.corrected_base(outgoing, (self._state.baton, len(self._state.outcomes)))
        stage_baton, earlier_decisions = spec.restrict(baton)
        outgoing.sent += 1
        message = stage_input.model_copy(
            update={
                "seq": outgoing.stage_input.seq,
                "baton": stage_baton.to_json_object(),
                "earlier_decisions": earlier_decisions,
                "attempt": outgoing.sent,
                "findings": findings,
                "branch": True,
                "after": step_count,
            }
        )
        correction = OutgoingHandoff(
            spec, message, self.new_id(), sent=outgoing.sent, task_queue=self._sender.task_queue
        )
        refuser = Sender(
            agent_id=outgoing.spec.name, agent_version=outgoing.spec.version, execution_id=outgoing.handoff_id
        )
        try:
            correction.stage_input = self.with_contract(correction, message)
            returned = await self.execute(correction, self.message_for(correction, correction.stage_input, refuser))
        except StageFailedError as error:
            if isinstance(error, StageExecutionError):
                self.account.charge_unreserved(spec.name, error.spend)
                if error.spend and self.escalation.on_record:
                    kind, status = Kind.ROLLBACK, STAGE_FAILED
                    await self.escalation.record(correction, None, kind, status, str(error), spend=error.spend)
            self._handlers.note(f"{spec.name!r} did not correct it: {error}")
            return
        self.account.reserve(correction.handoff_id, spec)
        self.account.charge(correction.handoff_id, str(returned.attempt), returned.spend)
        self.account.settle(correction.handoff_id)
        if returned.verdict is None and not returned.findings:
            try:
                patch_effect(baton, returned.baton_patch, self._state.stage_rules())
            except PatchError as error:
                self._handlers.note(f"{spec.name!r} did not correct it: {'; '.join(error.findings)}")
            else:
                outgoing.corrections.append(returned)

    async def _escalate(self, outgoing: OutgoingHandoff, verdict: Verdict, fate: Disposition) -> None:
        """Wait for a person's decision about a handoff; on return, the caller sends it again."""
        sender = self._relay.sender.agent_id if self._relay else workflow.info().workflow_type
        await self.escalation.resolve(outgoing, verdict, fate, sender)
