"""Escalation: people are asked, and their decision is recorded, then applied.

Until then, the baton is as it was before the handoff.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import RetryPolicy

from baton.budget.workflow import BudgetAccount
from baton.core.history import Outcome, Spend
from baton.core.messages import PipelineResult, PipelineStatus
from baton.core.patching import patch_effect, shorten_findings
from baton.core.pending import FORMS, EditForm, HandoffAction, PendingHandoff, TopUpForm
from baton.core.questions import Question, Settled, handoff_choices, handoff_title
from baton.core.state import PipelineState
from baton.core.verdict import Code, Disposition, HandoffStatus, Verdict
from baton.errors import PatchError, StageFailedError
from baton.handoff.relay import HandoffTerms
from baton.handoff.workflow_attempt import OutgoingHandoff
from baton.ledger.entries import usable_name
from baton.ledger.records import RECORD, AuditCost, AuditEntry, Kind
from baton.runtime.workflow_handlers import RunHandlers
from baton.runtime.workflow_questions import Asking
from baton.safety.scan import unsafe_digests
from baton.telemetry.metrics import ROLLBACKS
from baton.wire.json_values import find_unwritable
from baton.wire.money import MAX_USD, MICRO_PER_USD, to_usd

_MAX_DETAILS_LENGTH = 1_000
_MAX_SUMMARY_LENGTH = 200


class Escalation:
    """Asks people, and applies what they decide about handoffs.

    Attributes:
        on_record: Whether the run's events are recorded; None until a worker has answered.
        released: Who released which text, by the text's digest; the text passes from then on.
    """

    def __init__(
        self,
        handlers: RunHandlers,
        state: PipelineState,
        account: BudgetAccount,
        terms: HandoffTerms,
        publish: Callable[[Outcome], None],
    ) -> None:
        self.on_record: bool | None = None
        self.released: dict[str, str] = {}
        self._handlers = handlers
        self._state = state
        self._account = account
        self._terms = terms
        self._publish = publish

    def carried(self) -> dict[str, JsonValue]:
        """Return the state that the next run restores after continue-as-new.

        No answer is carried: a run continues between steps, and an answer is in its step's outcome or applied.
        """
        return {"released": {**self.released}, "on_record": self.on_record}

    def restore(self, carried: Mapping[str, Any]) -> None:
        """Restore the state of the previous run."""
        self.released = carried.get("released", {})
        self.on_record = carried.get("on_record")

    def asking(self, pending: PendingHandoff, within: timedelta) -> Asking:
        """Return the question about a handoff; who decides it is in the pipeline's terms."""
        question = Question(
            id="",
            seq=pending.seq,
            title=handoff_title(pending),
            since=workflow.now(),
            until=workflow.now() + within,
            choices=handoff_choices(pending),
            handoff=pending,
            needs=self._terms.needs,
            who=[*self._terms.who],
            proof=self._terms.proof,
        )
        return Asking(question, within, HandoffAction.ABANDON.value, FORMS, self._effect_refusal)

    def is_decided(self, handoff_id: str) -> bool:
        """Return whether people have decided about a handoff, though it is not in effect yet."""
        return any(settled.handoff_id == handoff_id for settled in self._handlers.board.under_way())

    async def ask(
        self, asking: Asking, name: str, task_id: str, apply: Callable[[Settled], None] | None = None
    ) -> Settled:
        """Ask people, and record their answer before anything follows from it.

        Args:
            asking: The question.
            name: The step that it is about.
            task_id: The task.
            apply: Puts the answer into effect; until then others are checked against it.
        """
        board, visibility = self._handlers.board, self._handlers.visibility
        is_handoff = asking.question.handoff is not None
        status = PipelineStatus.PENDING_HANDOFF if is_handoff else PipelineStatus.WAITING
        try:
            with board.opened(asking) as question:
                recording = asyncio.ensure_future(self._record_wait(question, task_id))
                try:
                    with visibility.show_waiting(status, name, question.until):
                        settled = await board.wait(question, asking)
                        await recording
                        await self._record_settled(question, settled, task_id)
                finally:
                    recording.cancel()
                if apply is not None:
                    apply(settled)
        finally:
            visibility.resume(None if board.open_now() else name)
        return settled

    async def resolve(self, outgoing: OutgoingHandoff, verdict: Verdict, fate: Disposition, sender: str) -> None:
        """Wait for people's decision about a handoff, and apply it; on return, the caller sends it again."""
        shortage = self._account.shortage(outgoing.spec)
        pending = PendingHandoff(
            handoff_id=outgoing.handoff_id,
            seq=outgoing.stage_input.seq,
            sender=sender,
            receiver=outgoing.spec.name,
            reason=verdict.reason,
            fate=fate,
            details=verdict.details or "",
            findings=verdict.findings,
            attempts=max(outgoing.sent, 1),
            missing_micro_usd=0 if shortage is None else shortage.missing_micro_usd,
        )
        self._handlers.note(f"handoff to {outgoing.spec.name!r} waits for a person ({fate.value}): {pending.details}")
        if verdict.reason is not None:  # a failed receiver is already counted
            self._handlers.metrics.count(ROLLBACKS, fate)
        asking, task_id = self.asking(pending, self._terms.within), outgoing.stage_input.task_id
        await self.ask(asking, outgoing.spec.name, task_id, partial(self._apply, outgoing, pending))

    async def record(
        self,
        outgoing: OutgoingHandoff,
        reason: Code | None,
        kind: Kind,
        status: str,
        details: str,
        spend: Spend | None = None,
    ) -> None:
        """Record what became of a handoff before anything follows from it, retrying until it succeeds."""
        if self.on_record is False:
            return
        cost = None
        if spend and outgoing.message is not None:
            cost = AuditCost.of(outgoing.message.cost_tracking).after(spend)
        entry = _audit_entry(
            kind=kind,
            task_id=outgoing.stage_input.task_id,
            event_id=outgoing.handoff_id,
            attempt=max(outgoing.sent, 1),
            status=status,
            reason=None if reason is None else reason.value,
            details=details,
            to_agent=outgoing.spec.name,
            cost=cost,
        )
        await self._record_entry(entry, outgoing.stage_input.seq)

    async def _record_wait(self, question: Question, task_id: str) -> None:
        """Record that a handoff waits for people."""
        if (handoff := question.handoff) is not None and self.on_record is not False:
            entry = _question_entry(question, task_id, Kind.ROLLBACK, handoff.fate.value, handoff.details)
            await self._record_entry(entry, question.seq)

    async def _record_settled(self, question: Question, settled: Settled, task_id: str) -> None:
        """Record how a question was answered."""
        if self.on_record is not False:
            message = settled.model_dump(mode="json", exclude={"choice", "why", "at"})
            entry = _question_entry(question, task_id, Kind.DECISION, settled.choice, settled.why)
            update = {"actor": usable_name(settled.who), "message": message}
            await self._record_entry(entry.model_copy(update=update), question.seq)

    async def record_stream(
        self,
        stream_id: str,
        *,
        task_id: str,
        status: HandoffStatus,
        reason: Code | None,
        details: str,
        agents: tuple[str, str],
        message: dict[str, JsonValue],
        seq: int,
    ) -> None:
        """Record a receiver's verdict about a whole stream before its sender is told; `agents` are both."""
        entry = _audit_entry(
            kind=Kind.STREAM,
            task_id=task_id,
            event_id=stream_id,
            status=status,
            reason=None if reason is None else reason.value,
            details=details,
            from_agent=usable_name(agents[0]),
            to_agent=usable_name(agents[1]),
            message=message,
        )
        await self._record_entry(entry, seq)

    async def record_completion(
        self,
        *,
        task_id: str,
        event_id: str,
        status: str,
        seq: int,
        sender: str,
        receiver: str | None = None,
        result: PipelineResult | None = None,
        details: str = "",
    ) -> None:
        """Record how a child or the whole task ended, before anything follows from it."""
        if self.on_record is False:
            return
        message = {} if result is None else {"output": result.output, "steps": result.steps}
        if faults := find_unwritable(message):
            raise StageFailedError(
                f"the result of {sender!r} cannot be recorded: {'; '.join(shorten_findings(faults))}"
            )
        entry = _audit_entry(
            kind=Kind.COMPLETION,
            task_id=task_id,
            event_id=event_id,
            status=status,
            details=details,
            from_agent=usable_name(sender),
            to_agent=usable_name(receiver),
            message=message,
        )
        await self._record_entry(entry, seq)

    async def record_interventions(self, task_id: str) -> None:
        """Record the roll-backs and the fork that led to this run."""
        while self.on_record is not False and self._handlers.interventions:
            intervention = self._handlers.interventions.pop(0)
            entry = _audit_entry(
                kind=Kind.DECISION,
                task_id=task_id,
                event_id=intervention.id,
                status=intervention.action,
                details=intervention.why,
                actor=usable_name(intervention.who),
                to_agent=usable_name(intervention.step) or "step",
                message={"step": intervention.step, "from_run_id": intervention.from_run_id},
            )
            await self._record_entry(entry, self._handlers.steps)

    async def _record_entry(self, entry: AuditEntry, seq: int) -> None:
        """Write an entry to the ledger, retrying until it succeeds."""
        head: str = await workflow.execute_activity(
            RECORD,
            entry,
            result_type=str,
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
            summary=f"step {seq}: {entry.kind} on record"[:_MAX_SUMMARY_LENGTH],
        )
        self.on_record = bool(head)  # empty if the workers have no ledger

    def _effect_refusal(self, choice: str, form: Any) -> str | None:
        """Return why a decision does not fit the baton or budget, decisions in progress included; or None."""
        under_way = self._handlers.board.under_way()
        if isinstance(form, EditForm):
            for other in under_way:
                if other.choice == HandoffAction.EDIT:
                    return f"{other.who} is already editing the baton; look at it again once that is done"
            try:
                patch_effect(self._state.baton, form.patch, self._state.stage_rules())
            except PatchError as error:
                return f"the edit is refused: {error}"
        if isinstance(form, TopUpForm):
            promised = sum(other.micro_usd for other in under_way)
            total = self._account.budget.remaining_micro_usd + promised + form.micro_usd
            if total > MAX_USD * MICRO_PER_USD:
                return f"the budget would hold {to_usd(total)} USD; a handoff can state {MAX_USD} at most"
        return None

    def _apply(self, outgoing: OutgoingHandoff, pending: PendingHandoff, settled: Settled) -> None:
        self._handlers.note(f"{settled.who} decided on the handoff to {pending.receiver!r}: {settled.choice}")
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
                    self._publish(self._state.record_edit(patch, workflow.now(), settled.who, settled.why))
                except PatchError as error:
                    raise StageFailedError(f"the edit of {settled.who} is refused: {error}") from error
            case HandoffAction.RELEASE:
                sent = {} if outgoing.message is None else outgoing.message.to_json_object()
                self.released |= dict.fromkeys(unsafe_digests(sent, pending.findings), settled.who)
            case HandoffAction.TOP_UP:
                self._account.top_up(settled.micro_usd)


def _question_entry(question: Question, task_id: str, kind: Kind, status: str, details: str) -> AuditEntry:
    """Return the entry about a question, or its answer."""
    if (handoff := question.handoff) is None:
        event_id, reason, receiver = f"approval:{question.id}", None, question.title
    else:
        event_id = f"{handoff.handoff_id}.{question.id}"
        reason, receiver = None if handoff.reason is None else handoff.reason.value, handoff.receiver
    return _audit_entry(
        kind=kind,
        task_id=task_id,
        event_id=event_id,
        status=status,
        reason=reason,
        details=details,
        to_agent=usable_name(receiver) or "approval",
    )


def _audit_entry(*, status: str, details: str, **members: Any) -> AuditEntry:
    return AuditEntry(status=status.upper(), details=details[:_MAX_DETAILS_LENGTH], timestamp=workflow.now(), **members)
