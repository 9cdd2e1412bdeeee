"""`Delivery`: one handoff, from its checkpoint until its stage's answer is accepted.

A rejection is a value (`baton.core.verdict`), and each code has one fate. A handoff that its sender can correct goes
back to the sender, whose correction is recorded only when a receiver accepts it, so nothing has to be undone. All
others wait for a person, with the baton before the handoff.

A stage that could not begin has not failed. After a storage outage it is sent again; if its worker lacks something,
the run waits for a worker that has it, without using up history or the stage's attempts. An artifact that one worker's
store has and another's lacks is waited for once; then each try that lacks it counts.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TypeVar

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from baton.contract.validation import is_expired
from baton.core.baton import Baton
from baton.core.budget import OnExhaustion
from baton.core.history import Spend
from baton.core.lab import LAB_STAGE
from baton.core.messages import MissingPart, PipelineStatus, StageInput, StageReturn
from baton.core.patching import patch_effect
from baton.core.pending import EditForm, HandoffAction, PendingHandoff
from baton.core.questions import Settled
from baton.core.stages import Retries, StageSpec
from baton.core.verdict import PENDING_HANDOFF, Code, Disposition, Verdict, disposition_of
from baton.errors import BudgetExhaustedError, PatchError, PayloadTooLargeError, StageFailedError
from baton.handoff.records import Handoff, Sender
from baton.handoff.sealed import SealError
from baton.handoff.workflow_coordinator import Corrector, HandoffCoordinator
from baton.handoff.workflow_failures import (
    StageExecutionError,
    is_outage,
    missing_of,
    reason_of,
    refusal_of,
    spend_of,
    tries_before,
)
from baton.ledger.chain import STAGE_FAILED
from baton.ledger.records import AuditCost, Kind
from baton.runtime.workflow_run import Run
from baton.safety.scan import unsafe_digests
from baton.telemetry.metrics import RECEIVER_FAILED, ROLLBACKS
from baton.wire.names import WAIT_FOR_WORKER
from baton.wire.text import quantity

AcceptedT = TypeVar("AcceptedT")

_MAX_OUTAGES = 60  # about an hour, besides the stage's own retries
_MAX_SKEWS = 6  # about three minutes; a worker whose clock is off stops within one
_FIRST_PAUSE, _MAX_PAUSE = timedelta(seconds=5), timedelta(minutes=1)
_WORKER_RETRIES = RetryPolicy(initial_interval=timedelta(seconds=0.25), maximum_interval=timedelta(seconds=10))
_WORKER_TIMEOUT = timedelta(seconds=30)


@dataclass
class Delivery:
    """One handoff, from its sender's checkpoint until its stage's answer is accepted.

    Attributes:
        handoffs: What the run's handoffs share.
        spec: The receiving stage.
        stage_input: Its input without the baton.
        handoff_id: The handoff, the same in all attempts, unless the run was rolled back between two.
        receivers: All stages of a fan-out.
        task_queue: The receiver's task queue; None for the pipeline's own.
        sent: How often it was sent.
        outages: How often its stage could not begin because storage was down.
        tries: How often its stage ran and raised before it had to wait for storage or a worker.
        rejections: How often it was rejected in a way that its sender can correct.
        skews: How often a worker rejected it only because of a difference between two clocks.
        expiries: How often it, or its contract, had expired when it was received.
        corrections: Its sender's corrections, recorded once the handoff is accepted.
        message: The message sent last.
        found: The lost artifacts that it has waited for, and that a worker's store then had.
        seed: The run's random seed when the handoff got its id; a roll-back changes it.
    """

    handoffs: HandoffCoordinator
    spec: StageSpec
    stage_input: StageInput
    handoff_id: str
    receivers: Sequence[str] = ()
    task_queue: str | None = None
    sent: int = 0
    outages: int = 0
    tries: int = 0
    rejections: int = 0
    skews: int = 0
    expiries: int = 0
    corrections: list[StageReturn] = field(default_factory=list)
    message: Handoff | None = None
    found: set[str] = field(default_factory=set)
    seed: int = field(default_factory=workflow.random_seed)

    @property
    def title(self) -> str:
        """The name of the receiving step: by default that of its stage."""
        return self.stage_input.title

    @property
    def key(self) -> str:
        """The key of its reservation in the budget."""
        return f"{self.stage_input.seq}:{self.title}"

    @property
    def _run(self) -> Run:
        return self.handoffs.run

    async def deliver(self, accept: Callable[[StageReturn, Baton], AcceptedT]) -> AcceptedT:
        """Run the stage until the handoff and its patch are accepted, or its attempts are used up.

        Args:
            accept: Takes what the stage returned and the baton that it got; it may raise `PatchError`.
        """
        async with self._run.limit.slot():
            await self._reserve()
            try:
                async with self.handoffs.steering.taking_notes(self.stage_input):
                    return await self._attempts(accept)
            finally:
                self._run.account.settle(self.key)

    def complete(self, returned: StageReturn) -> None:
        """Note that the stage has finished; it hands on next."""
        self.handoffs.complete_stage(self.spec, returned, self.handoff_id)
        self.handoffs.corrector = Corrector(self.spec, self.stage_input, self.task_queue)

    async def _attempts(self, accept: Callable[[StageReturn, Baton], AcceptedT]) -> AcceptedT:
        spec, run = self.spec, self._run
        findings: list[str] = []
        refusals = 0
        while refusals < spec.attempts:
            self.sent += 1
            self._renew_id()
            await self.handoffs.read_on(spec)
            baton, after = self._base()
            message = self._input(self.stage_input, spec, baton, findings=findings, after=after)
            message = await self.handoffs.conversation.fit(
                spec, message, self.task_queue, self.handoff_id, self.handoffs.sender
            )
            message = self.handoffs.contracted(spec, message, self.handoff_id)
            sent = self._address(message)
            await run.limit.admit(*_content_of(message))
            try:
                returned = await self._execute(sent)
            except StageExecutionError as error:
                run.account.charge(self.key, f"{message.attempt} raised", error.spend)
                await self._handle_failure(error)
                continue
            if returned.verdict is None and not returned.answers(message):
                raise StageFailedError(
                    f"stage {spec.name!r} answered for step {returned.seq} ({returned.title!r}), expected step "
                    f"{message.seq} ({message.title!r}); its input was replaced in transit"
                )
            self.handoffs.note_answer(returned)
            if returned.verdict is not None:
                await self._handle_rejection(returned.verdict)
                continue
            run.account.charge(self.key, str(returned.attempt), returned.spend)
            if self._record_corrections():
                baton = run.state.baton  # with the sender's correction
            findings = returned.findings
            if not findings:
                try:
                    return accept(returned, baton)
                except PatchError as error:
                    findings = error.findings
            refusals += 1
        raise StageFailedError(
            f"stage {self.title!r} was refused {quantity(spec.attempts, 'time')} and is rolled back; the baton is "
            f"unchanged. Last findings: {'; '.join(findings)}"
        )

    def _renew_id(self) -> None:
        """Take a new id after a roll-back: the abandoned part may have sent another message with the old one."""
        if (seed := workflow.random_seed()) != self.seed:
            self.seed, self.handoff_id = seed, self.handoffs.new_id()

    async def _reserve(self) -> None:
        """Reserve what the stage declares, waiting for a top-up if the budget pauses."""
        account, lab = self._run.account, self._run.lab
        await self._run.roll_backs.catch_up()
        if lab is not None:
            lab.check_budget(account.budget.own.micro_usd)
        while shortage := account.shortage(self.spec):
            if shortage.then is not OnExhaustion.PAUSE:
                raise BudgetExhaustedError(shortage.text)
            verdict = Verdict(valid=False, reason=Code.BUDGET_EXHAUSTED, details=shortage.text)
            await self._ask_people(verdict, Disposition.TOP_UP)
        account.reserve(self.key, self.spec)

    def _base(self) -> tuple[Baton, int]:
        """Return the baton with the sender's corrections, and the number of steps including them."""
        baton, step_count = self._run.state.base()
        for returned in self.corrections:
            baton = patch_effect(baton, returned.baton_patch, self._run.state.stage_rules()).baton
        return baton, step_count + len(self.corrections)

    def _record_corrections(self) -> bool:
        """Record the sender's corrections of an accepted handoff; return whether there were any."""
        corrections, self.corrections = self.corrections, []
        for returned in corrections:
            reason = f"the handoff to {self.spec.name!r} was not accepted before"
            self._run.publish(self._run.state.record_amendment(returned, workflow.now(), reason))
        return bool(corrections)

    def _input(self, of: StageInput, spec: StageSpec, baton: Baton, **members: object) -> StageInput:
        """Return the input of the next attempt, with the part of the baton that its stage may read."""
        restricted, earlier = spec.restrict(baton)
        update = {"baton": restricted.to_json_object(), "earlier_decisions": earlier, "attempt": self.sent}
        return of.model_copy(update={**update, **members})

    def _address(self, message: StageInput, sender: Sender | None = None) -> StageInput | Handoff:
        """Return the stage's message: a handoff, or its plain input if the worker does not seal."""
        relay, info = self.handoffs.relay, workflow.info()
        if relay is None:
            return message
        if released := self.handoffs.escalation.released:
            message = message.model_copy(update={"released": released})
        try:
            self.message = relay.message(
                self.spec,
                message,
                self._run.account.budget.cost_tracking(),
                handoff_id=self.handoff_id,
                now=workflow.now(),
                audience=info.workflow_id,
                audience_run=info.first_execution_run_id,
                receivers=self.receivers,
                sender=sender,
            )
        except SealError as error:
            raise StageFailedError(f"stage {self.spec.name!r} is not sent anything: {error}") from error
        return self.message

    async def _execute(self, message: StageInput | Handoff) -> StageReturn:
        """Run the stage's activity with its retries, on a worker that has what it needs."""
        spec, seq, in_lab = self.spec, self.stage_input.seq, self._run.lab is not None
        suffix = f", attempt {self.sent}" if self.sent > 1 else ""
        noted = ""
        while True:
            retries = retry_policy(spec.retries)
            if retries.maximum_attempts:
                retries.maximum_attempts -= self.tries
            try:
                returned: StageReturn | bytes | None = await workflow.execute_activity(
                    LAB_STAGE + spec.name if in_lab else spec.name,
                    message,
                    result_type=StageReturn,
                    task_queue=self.task_queue,
                    start_to_close_timeout=spec.timeout,
                    heartbeat_timeout=spec.heartbeat,
                    retry_policy=retries,
                    summary=f"step {seq}: {self.title}{suffix}"[:200],
                )
                break
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise asyncio.CancelledError(f"stage {self.title!r} was cancelled") from error
                if refusal := refusal_of(error):
                    self.tries = 0
                    return refusal
                missing = missing_of(error, spec.name, seq)
                again = missing is not None and missing.artifact in self.found
                if missing is not None:
                    self.tries += missing.tries + again
                if missing is None or in_lab or (again and 0 < spec.retries.attempts <= self.tries):
                    outage = is_outage(error)
                    self.tries = self.tries + tries_before(error) if outage else 0
                    text = f"stage {self.title!r} failed: {reason_of(error)}"
                    raise StageExecutionError(text, spend_of(error), is_outage=outage) from error
                self._run.account.charge_unreserved(spec.name, spend_of(error))
            what = "an artifact" if missing.artifact else "a worker that can do it"
            if again:
                what = "an artifact that only another worker's store has"
            if (text := f"{self.title!r} waits for {what}: {missing.text}") != noted:
                noted = text
                self._run.note(noted)
            if again:
                await self._pause(self.tries, "another worker")
            await self._wait_for_worker(missing)
            if missing.artifact:
                self.found.add(missing.artifact)
        self.tries = 0
        if not isinstance(returned, StageReturn):  # the SDK accepts null and bytes for any type
            found = "null" if returned is None else "bytes"
            raise StageFailedError(f"stage {self.title!r} returned {found}; see `baton schema stage-return`")
        return returned

    async def _wait_for_worker(self, missing: MissingPart) -> None:
        name, what = self.title, "an artifact" if missing.artifact else "a worker"
        try:
            with self._run.visibility.show_waiting(PipelineStatus.SUSPENDED, name):
                await workflow.execute_activity(
                    WAIT_FOR_WORKER,
                    missing,
                    task_queue=self.task_queue,
                    start_to_close_timeout=_WORKER_TIMEOUT,
                    retry_policy=_WORKER_RETRIES,
                    summary=f"step {missing.seq}: {name} waits for {what}"[:200],
                )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError(f"stage {name!r} was cancelled") from error
            raise
        finally:
            self._run.visibility.resume(name)

    async def _wait_for_storage(self) -> bool:
        """Wait before sending again after an outage; return False after too many."""
        self.outages += 1
        if self.outages > _MAX_OUTAGES:
            return False
        if self.outages == 1:
            self._run.note(
                f"{self.title!r} waits: the ledger or the artifact store cannot be written; see the worker's log"
            )
        await self._pause(self.outages, "storage")
        return True

    async def _wait_for_other_clock(self) -> bool:
        """Wait before sending again what only a clock refused: another worker may take it; False after many."""
        self.skews += 1
        if self.skews > _MAX_SKEWS:
            return False
        self._run.note(
            f"a worker's clock is off, and it rejected the handoff to {self.spec.name!r}; it is tried elsewhere"
        )
        await self._pause(self.skews, "another worker")
        return True

    async def _pause(self, nth: int, what: str) -> None:
        """Wait before sending again for the ``nth`` time."""
        pause = min(_FIRST_PAUSE * 2 ** min(nth - 1, 10), _MAX_PAUSE)
        summary = f"step {self.stage_input.seq}: {self.title} waits for {what}"
        await workflow.sleep(pause, summary=summary[:200])

    async def _handle_rejection(self, verdict: Verdict) -> None:
        """Handle a rejection; on return, the handoff is sent again."""
        run, terms = self._run, self.handoffs.terms
        expired = is_expired(verdict)
        if expired and self.expiries < terms.attempts:
            self.expiries += 1  # the next attempt is a new message, with a new contract
            run.note(f"the handoff to {self.spec.name!r} had expired; it is made again")
            return
        if verdict.blames_clock and await self._wait_for_other_clock():
            return
        reason = verdict.reason or Code.SCHEMA_INVALID
        self.rejections += reason in (Code.SCHEMA_INVALID, Code.INCOMPLETE_CONTEXT)
        fate = disposition_of(reason, max(self.rejections, 1), terms.attempts)
        corrector = None if self.stage_input.branch else self.handoffs.corrector
        if fate is Disposition.BACK_TO_SENDER and corrector is None:
            fate = Disposition.ESCALATE  # no stage can correct it: it has no sender, or several branches share one
        if expired and fate is Disposition.BACK_TO_SENDER:
            fate, self.expiries = Disposition.ESCALATE, 0  # its sender cannot correct an expiry
        if fate is Disposition.BACK_TO_SENDER and corrector is not None:
            await self._request_correction(corrector, verdict)
            return
        account = run.account
        if fate is Disposition.TOP_UP and account.limited and account.budget.then is not OnExhaustion.PAUSE:
            raise BudgetExhaustedError(verdict.details or "the budget is used up")
        self.corrections, self.rejections = [], 0  # back to the checkpoint: the baton before the handoff
        await self._ask_people(verdict, fate)

    async def _handle_failure(self, error: StageExecutionError) -> None:
        """Handle the failure of the receiver after accepting; on return, the handoff is sent again."""
        if error.is_outage and await self._wait_for_storage():
            return
        self.corrections, reason = [], str(error)
        run, escalation, asks = self._run, self.handoffs.escalation, self.handoffs.terms.ask_when_failed
        if escalation.on_record or (escalation.on_record is None and not error.is_outage):
            await self._record_failure(PENDING_HANDOFF if asks else STAGE_FAILED, reason, error.spend)
        if escalation.on_record and asks:
            run.note(f"{self.spec.name!r} failed after accepting; rolled back to before the handoff")
            run.metrics.count(ROLLBACKS, RECEIVER_FAILED)
        if not asks:
            raise StageFailedError(reason)
        await self._ask_people(Verdict(valid=False, details=reason), Disposition.ESCALATE)

    async def _record_failure(self, status: str, details: str, spend: Spend) -> None:
        """Record that the stage failed, and what it had spent, before anything follows from it."""
        cost = None
        if spend and self.message is not None:
            cost = AuditCost.of(self.message.cost_tracking).after(spend)
        await self.handoffs.escalation.record(
            self.stage_input.seq,
            kind=Kind.ROLLBACK,
            event_id=self.handoff_id,
            attempt=max(self.sent, 1),
            status=status,
            details=details,
            to_agent=self.spec.name,
            cost=cost,
        )

    async def _request_correction(self, corrector: Corrector, verdict: Verdict) -> None:
        """Run the sender's stage again with the findings, and keep its correction."""
        run, receiver = self._run, self.spec
        spec, account = corrector.spec, run.account
        findings = [
            f"your handoff to {receiver.name!r} was not accepted: {finding.text}" for finding in verdict.findings
        ]
        run.note(f"the handoff to {receiver.name!r} went back to {spec.name!r}: {verdict.details}")
        baton, after = self._base()
        self.sent += 1
        members = {"seq": self.stage_input.seq, "findings": findings, "branch": True, "after": after}
        message = self._input(corrector.stage_input, spec, baton, **members)
        correction = Delivery(
            self.handoffs, spec, message, self.handoffs.new_id(), task_queue=corrector.task_queue, sent=self.sent
        )
        refuser = Sender(agent_id=receiver.name, agent_version=receiver.version, execution_id=self.handoff_id)
        try:
            correction.stage_input = self.handoffs.contracted(spec, message, correction.handoff_id)
            returned = await correction._execute(correction._address(correction.stage_input, refuser))
        except StageFailedError as error:
            if isinstance(error, StageExecutionError):
                account.charge_unreserved(spec.name, error.spend)
                if error.spend and self.handoffs.escalation.on_record:
                    await correction._record_failure(STAGE_FAILED, str(error), error.spend)
            run.note(f"{spec.name!r} did not correct it: {error}")
            return
        account.reserve(correction.handoff_id, spec)
        account.charge(correction.handoff_id, str(returned.attempt), returned.spend)
        account.settle(correction.handoff_id)
        if returned.verdict is None and not returned.findings:
            try:
                patch_effect(baton, returned.baton_patch, run.state.stage_rules())
            except PatchError as error:
                run.note(f"{spec.name!r} did not correct it: {'; '.join(error.findings)}")
            else:
                self.corrections.append(returned)

    async def _ask_people(self, verdict: Verdict, fate: Disposition) -> None:
        """Wait for people's decision about the handoff, and apply it; on return, it is sent again."""
        run, escalation = self._run, self.handoffs.escalation
        shortage = run.account.shortage(self.spec)
        pending = PendingHandoff(
            handoff_id=self.handoff_id,
            seq=self.stage_input.seq,
            sender=self.handoffs.sender or workflow.info().workflow_type,
            receiver=self.spec.name,
            reason=verdict.reason,
            fate=fate,
            details=verdict.details or "",
            findings=verdict.findings,
            attempts=max(self.sent, 1),
            missing_micro_usd=0 if shortage is None else shortage.missing_micro_usd,
        )
        run.note(f"handoff to {self.spec.name!r} waits for a person ({fate.value}): {pending.details}")
        if verdict.reason is not None:  # a failed receiver is already counted
            run.metrics.count(ROLLBACKS, fate)
        asking = escalation.asking(pending, self.handoffs.terms.within)
        await escalation.ask(asking, self.title, partial(self._apply, pending))

    def _apply(self, pending: PendingHandoff, settled: Settled) -> None:
        """Put people's decision into effect."""
        run = self._run
        run.note(f"{settled.who} decided on the handoff to {pending.receiver!r}: {settled.choice}")
        match settled.choice:
            case HandoffAction.ABANDON:
                why = f": {settled.why}" if settled.why else ""
                raise StageFailedError(
                    f"the handoff to {pending.receiver!r} was abandoned by {settled.who}{why}. It waited because: "
                    f"{pending.details}"
                )
            case HandoffAction.EDIT:
                patch = settled.answer_as(EditForm).patch
                try:
                    run.publish(run.state.record_edit(patch, workflow.now(), settled.who, settled.why))
                except PatchError as error:
                    raise StageFailedError(f"the edit of {settled.who} is refused: {error}") from error
            case HandoffAction.RELEASE:
                sent = {} if self.message is None else self.message.to_json_object()
                unsafe = unsafe_digests(sent, pending.findings)
                self.handoffs.escalation.released |= dict.fromkeys(unsafe, settled.who)
            case HandoffAction.TOP_UP:
                run.account.top_up(settled.micro_usd)


def _content_of(message: StageInput) -> list[JsonValue]:
    """Return what the pipeline and its agents put into a stage's input."""
    facts = message.contract.get("facts") if message.contract else None
    texts: list[JsonValue] = [message.summary, *message.findings]
    return [message.baton, message.params, message.inputs, message.personal_data, [*message.turns], texts, facts]


def retry_policy(retries: Retries) -> RetryPolicy:
    """Return how the server retries a stage that raised."""
    return RetryPolicy(
        initial_interval=retries.first,
        backoff_coefficient=retries.factor,
        maximum_interval=max(retries.longest, retries.first, timedelta(milliseconds=1)),
        maximum_attempts=retries.attempts,
        non_retryable_error_types=[PayloadTooLargeError.__name__],  # a retry would cost as much and be as large
    )
