"""Handing the baton on: the message before each stage, and what becomes of it when it is not accepted.

A rejection is a value (`baton.core.verdict`), and each code has one fate. What its sender can correct goes back to
the sender, whose answer is kept aside until a receiver accepts it: so when the attempts are used up there is nothing
to undo. Everything else waits for a person, with the baton as it was before the handoff.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from pydantic import JsonValue
from temporalio import workflow

from baton.budget.records import OnExhaustion
from baton.budget.workflow import BudgetAccount
from baton.compression.workflow import Conversation
from baton.contract.validation import is_expired_contract
from baton.contract.workflow import ContractIssuer
from baton.core.baton import Baton
from baton.core.history import Outcome
from baton.core.messages import PipelineInput, PipelineResult, StageInput, StageReturn
from baton.core.patching import patch_effect
from baton.core.state import PipelineState
from baton.core.verdict import Code, Disposition, Verdict, disposition_of
from baton.errors import BudgetExhaustedError, PatchError, PipelineError, StageFailedError
from baton.handoff.records import Handoff, Sender
from baton.handoff.relay import HandoffTerms, Relay
from baton.handoff.sealed import SealError
from baton.handoff.workflow_attempt import OutgoingHandoff, StageExecutionError, execute, wait_for_storage
from baton.handoff.workflow_escalation import Escalation
from baton.ledger.records import Kind
from baton.personal.records import merged, written_onto
from baton.pipelines.workflow_handlers import RunHandlers
from baton.telemetry.metrics import RECEIVER_FAILED, ROLLBACKS
from baton.wire.money import MAX_USD, MICRO_PER_USD, to_usd
from baton.wire.names import SEALS

_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def relay_for(start: PipelineInput, task_id: str, terms: HandoffTerms) -> Relay | None:
    """Return what makes the handoffs of a pipeline, or None where its worker does not seal what leaves it."""
    if SEALS not in workflow.extern_functions():
        return None
    if not _UUID4.fullmatch(task_id):
        raise PipelineError(
            f"task_id {task_id!r} is not a random UUID (version 4, lower case), which handoffs need; leave it out to "
            "have one made"
        )
    if start.budget is not None and start.budget.ceiling_micro_usd > MAX_USD * MICRO_PER_USD:
        raise PipelineError(
            f"the budget is {to_usd(start.budget.ceiling_micro_usd)} USD, and handoffs carry {MAX_USD} USD at most; "
            "leave it out to have none"
        )
    relay = Relay(workflow.info().workflow_type, task_id, nth_id(0), terms, start.traceparent, start.follows)
    relay.personal_data = dict(start.personal_data)
    return relay


def nth_id(number: int) -> str:
    """Return the run's n-th id for a handoff, a random UUID."""
    hashed = hashlib.sha256(f"baton handoff {workflow.random_seed()} {number}".encode()).digest()
    return str(UUID(bytes=hashed[:16], version=4))


class HandoffCoordinator:
    """Makes a pipeline's handoffs and sees each of them through.

    Attributes:
        account: The pipeline's budget.
        escalation: The handoffs that wait for a person.
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
        self.escalation = Escalation(handlers, state, account, terms.within, publish)
        self._handlers = handlers
        self._state = state
        self._relay = relay
        self._terms = terms
        self._publish = publish
        self._contracts = contracting
        self._sender: OutgoingHandoff | None = None
        self._ids = 0
        self._said = Conversation(account, handlers.metrics, terms)

    def carried(self) -> dict[str, JsonValue]:
        """Return what the next run needs to know when this one continues as new."""
        return {
            **self._said.carried(),
            **self.escalation.carried(),
            "relay": None if self._relay is None else self._relay.carried(),
        }

    def restore(self, carried: Mapping[str, Any]) -> None:
        """Go on where the run before left off."""
        self._said.restore(carried)
        self.escalation.restore(carried)
        if self._relay is not None and carried.get("relay"):
            self._relay.restore(carried["relay"])

    def for_child(self) -> dict[str, Any]:
        """Return what a child is started with: the span of the last handoff, which it follows, and personal data."""
        return {"follows": it.last_span, "personal_data": it.personal_data} if (it := self._relay) else {}

    def from_child(self, came: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return what a child wrote of people beside what it was started with; nothing where no run waits for it."""
        return written_onto(came, self._relay.personal_data) if self._relay and workflow.info().parent else {}

    def learned(self, result: PipelineResult) -> PipelineResult:
        """Return the result of a child, once what it wrote of people is taken over."""
        if self._relay is not None:
            self._relay.personal_data = merged(self._relay.personal_data, result.personal_data)
        return result

    def new_id(self) -> str:
        """Return a fresh id for a handoff."""
        self._ids += 1
        return nth_id(self._ids)

    def message_for(
        self, outgoing: OutgoingHandoff, message: StageInput, sender: Sender | None = None
    ) -> StageInput | Handoff:
        """Return what the stage is sent: a handoff, or its plain input where the worker cannot seal."""
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
                workflow_id=workflow.info().workflow_id,
                receivers=outgoing.receivers,
                sender=sender,
            )
        except SealError as error:
            raise StageFailedError(f"stage {outgoing.spec.name!r} is not sent anything: {error}") from error
        return outgoing.message

    async def fit(self, outgoing: OutgoingHandoff, message: StageInput, task_queue: str | None) -> StageInput:
        """Return the stage's input with the conversation in it; see `Conversation.fit`."""
        sender = None if self._relay is None else self._relay.sender.agent_id
        return await self._said.fit(outgoing, message, task_queue, sender=sender)

    def contracted(self, outgoing: OutgoingHandoff, message: StageInput, *, kept: bool = True) -> StageInput:
        """Return the stage's input with a contract of this moment; `kept` as in `ContractIssuer.contracted`."""
        if self._contracts is None:
            return message
        self._contracts.route(outgoing.spec)
        return self._contracts.contracted(outgoing.spec, message, outgoing.handoff_id, workflow.now(), kept=kept)

    def base(self, outgoing: OutgoingHandoff, before: tuple[Baton, int]) -> tuple[Baton, int]:
        """Return the baton to hand on, with what the sender corrected, and how many steps will have ended by then."""
        baton, after = before
        for returned in outgoing.corrected:
            baton = patch_effect(baton, returned.baton_patch, self._state.stage_rules()).baton
        return baton, after + len(outgoing.corrected)

    async def afford(self, outgoing: OutgoingHandoff) -> None:
        """Set apart what the stage declared, after waiting for more money if that was agreed."""
        await self._handlers.roll_backs.known()
        while lack := self.account.shortage(outgoing.spec):
            if lack.then is not OnExhaustion.PAUSE:
                raise BudgetExhaustedError(lack.text)
            verdict = Verdict(valid=False, reason=Code.BUDGET_EXHAUSTED, details=lack.text)
            await self._escalate(outgoing, verdict, Disposition.TOP_UP)
        self.account.reserve(outgoing.key, outgoing.spec)

    def accepted(self, outgoing: OutgoingHandoff) -> bool:
        """Record what the sender corrected, now that the receiver has accepted the handoff; return whether it did."""
        corrected, outgoing.corrected = outgoing.corrected, []
        for returned in corrected:
            why = f"the handoff to {outgoing.spec.name!r} was not accepted before"
            self._publish(self._state.record_amendment(returned, workflow.now(), why))
        return bool(corrected)

    def arrived(self, outgoing: OutgoingHandoff, returned: StageReturn) -> None:
        """Note that a stage has done its work and will hand on next."""
        self._sender = outgoing
        self._said.heard(returned)
        if self._relay is not None:
            self._relay.arrived(outgoing.spec, returned, outgoing.handoff_id, workflow.now())

    def merged(self, name: str, outgoing_handoffs: Sequence[OutgoingHandoff], branches: Sequence[StageReturn]) -> None:
        """Note that the branches of a fan-out have done their work; together they hand on next."""
        self._sender = None
        for returned in branches:
            self._said.heard(returned)
        if self._relay is not None:
            for outgoing, returned in zip(outgoing_handoffs, branches, strict=True):
                self._relay.arrived(outgoing.spec, returned, outgoing.handoff_id, workflow.now())
            self._relay.sender = self._relay.sender.model_copy(update={"agent_id": name})

    def answered(self, returned: StageReturn) -> None:
        """Note whether stages answer on record; from then on the pipeline's own events are recorded as well."""
        is_on_record = returned.anchor is not None or returned.verdict is not None
        self.escalation.on_record = bool(self.escalation.on_record) or is_on_record
        if self._contracts is not None:
            self._contracts.answered(returned)

    async def rejected(self, outgoing: OutgoingHandoff, verdict: Verdict) -> None:
        """See to a handoff that was not accepted; on return it is to be sent again."""
        expired = self._contracts is not None and is_expired_contract(verdict)
        if expired and outgoing.expired < self._terms.attempts:
            outgoing.expired += 1  # compiled again with the next sending, and validated again: never executed as it was
            self._handlers.note(f"the contract for {outgoing.spec.name!r} had expired; it is compiled again")
            return
        reason = verdict.reason or Code.SCHEMA_INVALID
        outgoing.rejected += reason in (Code.SCHEMA_INVALID, Code.INCOMPLETE_CONTEXT)
        fate = disposition_of(reason, max(outgoing.rejected, 1), self._terms.attempts)
        if fate is Disposition.BACK_TO_SENDER and (self._sender is None or outgoing.given.branch):
            fate = Disposition.ESCALATE  # no stage can correct it: it begins the task, or many wait for one sender
        if expired and fate is Disposition.BACK_TO_SENDER:
            fate, outgoing.expired = Disposition.ESCALATE, 0  # its sender could correct nothing
        if fate is Disposition.BACK_TO_SENDER:
            await self._mend(outgoing, verdict)
            return
        if fate is Disposition.TOP_UP and self.account.limited and self.account.budget.then is not OnExhaustion.PAUSE:
            raise BudgetExhaustedError(verdict.details or "the budget is used up")
        outgoing.corrected, outgoing.rejected = [], 0  # the checkpoint: the baton as it was before the handoff
        await self._escalate(outgoing, verdict, fate)

    async def execute(self, outgoing: OutgoingHandoff, message: StageInput | Handoff) -> StageReturn:
        """Send a handoff's message, and return what its stage answered; see `baton.handoff.workflow_attempt`."""
        return await execute(outgoing, message, self.account, self._handlers)

    async def failed(self, outgoing: OutgoingHandoff, error: StageExecutionError) -> None:
        """See to a receiver that failed for good after accepting; on return the handoff is to be sent again."""
        outgoing.outages += error.is_outage
        if error.is_outage and await wait_for_storage(outgoing, self._handlers):
            return
        outgoing.corrected, reason = [], str(error)
        escalation = self.escalation
        if escalation.on_record or (escalation.on_record is None and not error.is_outage):
            kind, status = Kind.ROLLBACK, "PENDING_HANDOFF"
            await escalation.record(outgoing, None, kind, status, reason, spend=error.spend)
        if escalation.on_record:
            self._handlers.note(f"{outgoing.spec.name!r} failed after accepting; rolled back to before the handoff")
            self._handlers.metrics.count(ROLLBACKS, RECEIVER_FAILED)
        if not self._terms.ask_when_failed:
            raise StageFailedError(reason)
        await self._escalate(outgoing, Verdict(valid=False, details=reason), Disposition.ESCALATE)

    async def _mend(self, outgoing: OutgoingHandoff, verdict: Verdict) -> None:
        """Run the sender's stage again with the findings, and keep its answer aside."""
        assert self._sender is not None  # noqa: S101 - the caller has looked
        spec, given = self._sender.spec, self._sender.given
        findings = [f"your handoff to {outgoing.spec.name!r} was not accepted: {one.text}" for one in verdict.findings]
        self._handlers.note(f"the handoff to {outgoing.spec.name!r} went back to {spec.name!r}: {verdict.details}")
        baton, after = self.base(outgoing, (self._state.baton, len(self._state.outcomes)))
        handed, earlier = spec.restrict(baton)
        outgoing.sent += 1
        message = given.model_copy(
            update={
                "seq": outgoing.given.seq,
                "baton": handed.to_json_object(),
                "earlier_decisions": earlier,
                "attempt": outgoing.sent,
                "findings": findings,
                "branch": True,
                "after": after,
            }
        )
        back = OutgoingHandoff(spec, message, self.new_id(), sent=outgoing.sent, task_queue=self._sender.task_queue)
        receiver = Sender(
            agent_id=outgoing.spec.name, agent_version=outgoing.spec.version, execution_id=outgoing.handoff_id
        )
        try:
            back.given = self.contracted(back, message)
            returned = await self.execute(back, self.message_for(back, back.given, receiver))
        except StageFailedError as error:
            if isinstance(error, StageExecutionError):
                self.account.charge_unreserved(spec.name, error.spend)
                if error.spend and self.escalation.on_record:
                    kind, status = Kind.ROLLBACK, "PENDING_HANDOFF"
                    await self.escalation.record(back, None, kind, status, str(error), spend=error.spend)
            self._handlers.note(f"{spec.name!r} did not correct it: {error}")
            return
        self.account.reserve(back.handoff_id, spec)
        self.account.charge(back.handoff_id, str(returned.attempt), returned.spend)
        self.account.settle(back.handoff_id)
        if returned.verdict is None and not returned.findings:
            try:
                patch_effect(baton, returned.baton_patch, self._state.stage_rules())
            except PatchError as error:
                self._handlers.note(f"{spec.name!r} did not correct it: {'; '.join(error.findings)}")
            else:
                outgoing.corrected.append(returned)

    async def _escalate(self, outgoing: OutgoingHandoff, verdict: Verdict, fate: Disposition) -> None:
        """Wait until a person has decided about a handoff; on return it is to be sent again."""
        sender = self._relay.sender.agent_id if self._relay else workflow.info().workflow_type
        await self.escalation.decided(outgoing, verdict, fate, sender)
