"""Escalation: a handoff waits for a person, whose decision is recorded, then applied.

Until then, the baton is as it was before the handoff.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import RetryPolicy

from baton.budget.workflow import BudgetAccount
from baton.core.decisions import Decided
from baton.core.history import Outcome, Spend
from baton.core.messages import PipelineResult, PipelineStatus
from baton.core.patching import shorten_findings
from baton.core.pending import HandoffAction, HandoffDecision, PendingHandoff
from baton.core.state import PipelineState
from baton.core.verdict import Code, Disposition, HandoffStatus, Verdict
from baton.errors import PatchError, StageFailedError
from baton.handoff.workflow_attempt import OutgoingHandoff
from baton.handoff.workflow_inbox import Inbox, newest_that_fit
from baton.ledger.entries import usable_name
from baton.ledger.records import RECORD, AuditCost, AuditEntry, Kind
from baton.runtime.workflow_handlers import RunHandlers
from baton.safety.scan import unsafe_digests
from baton.telemetry.metrics import ROLLBACKS
from baton.wire.json_values import digest, find_unwritable

_Record = Callable[[Kind, str, str, HandoffDecision | None], Awaitable[None]]

_MAX_DETAILS_LENGTH = 1_000
_MAX_SUMMARY_LENGTH = 200


class Escalation:
    """Asks a person about handoffs, and applies the decisions.

    Attributes:
        inbox: The pending handoffs.
        on_record: Whether the run's events are recorded; None until a worker has answered.
        released: Who released which text, by the text's digest; the text passes from then on.
    """

    def __init__(
        self,
        handlers: RunHandlers,
        state: PipelineState,
        account: BudgetAccount,
        within: timedelta,
        publish: Callable[[Outcome], None],
    ) -> None:
        self.inbox = Inbox(state, account, handlers.board)
        handlers.pending_handoffs = self.inbox.pending
        self.on_record: bool | None = None
        self.released: dict[str, str] = {}
        self._handlers = handlers
        self._state = state
        self._account = account
        self._within = within
        self._publish = publish
        self._questions = 0
        self._recording: asyncio.Future[None] | None = None
        self._decisions: list[dict[str, Any]] = []  # on questions of the pipeline's code, in order
        self._decisions_to_replay: list[dict[str, Any]] = []  # of the previous run, until the code asks again

    def carried(self) -> dict[str, JsonValue]:
        """Return the state that the next run restores after continue-as-new."""
        return {
            "released": {**self.released},
            "on_record": self.on_record,
            "decided": self.inbox.carried(),
            "asked": self._questions,
            "told": newest_that_fit(self._decisions),
        }

    def restore(self, carried: Mapping[str, Any]) -> None:
        """Restore the state of the previous run."""
        self.released = carried.get("released", {})
        self.on_record = carried.get("on_record")
        self.inbox.restore(carried.get("decided", ()))
        self._questions = carried.get("asked", 0)
        self._decisions = [*carried.get("told", ())]
        self._decisions_to_replay = [*self._decisions]

    async def ask(self, pending: PendingHandoff, within: timedelta, task_id: str) -> HandoffDecision:
        """Wait for a person's decision about a handoff that the pipeline's code sends, and record both."""
        key = digest(pending.model_dump(mode="json", exclude={"since", "until"}))
        for earlier in self._decisions_to_replay:
            if earlier["about"] == key:
                self._decisions_to_replay.remove(earlier)
                return HandoffDecision.model_validate(earlier["decision"], strict=False)
        pending = pending.model_copy(update={"until": pending.until or workflow.now() + within})
        visibility, name = self._handlers.visibility, f"hand off to {pending.receiver}"[:_MAX_SUMMARY_LENGTH]
        try:
            with visibility.show_waiting(PipelineStatus.PENDING_HANDOFF, name, pending.until):
                decision = await self._await_decision(pending, within, task_id)
        finally:
            self.inbox.mark_done(pending.handoff_id)  # the pipeline's code applies it
            visibility.resume()
        self._decisions.append({"about": key, "decision": decision.model_dump(mode="json")})
        return decision

    async def _await_decision(self, pending: PendingHandoff, within: timedelta, task_id: str) -> HandoffDecision:
        """Wait for the decision about a handoff; it is recorded unless the run's workers have no ledger."""
        if self.on_record is False:
            return await self.inbox.wait(pending, within)
        self._questions += 1
        question = self._questions

        async def record(kind: Kind, status: str, details: str, decision: HandoffDecision | None) -> None:
            entry = _audit_entry(
                kind=kind,
                task_id=task_id,
                event_id=pending.handoff_id,
                execution=question,
                status=status,
                details=details,
                to_agent=pending.receiver,
            )
            await self._record_entry(entry, pending.seq, decision)

        return await _recorded_decision(self.inbox, pending, within, record)

    async def resolve(self, outgoing: OutgoingHandoff, verdict: Verdict, fate: Disposition, sender: str) -> None:
        """Wait for a person's decision about a handoff, and apply it; on return, the caller sends it again."""
        since = workflow.now()
        outgoing.escalations += 1
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
            since=since,
            until=since + self._within,
            missing_micro_usd=0 if shortage is None else shortage.missing_micro_usd,
        )
        self._handlers.note(f"handoff to {outgoing.spec.name!r} waits for a person ({fate.value}): {pending.details}")
        if verdict.reason is not None:  # a failed receiver is already counted
            self._handlers.metrics.count(ROLLBACKS, fate)
        visibility, record = self._handlers.visibility, partial(self.record, outgoing, verdict.reason)
        try:
            with visibility.show_waiting(PipelineStatus.PENDING_HANDOFF, outgoing.spec.name, pending.until):
                decision = await _recorded_decision(self.inbox, pending, self._within, record)
        finally:
            self.inbox.mark_done(pending.handoff_id)  # no await follows before the decision is applied
            visibility.resume(None if self.inbox.pending() else outgoing.spec.name)
        self._apply(outgoing, decision, pending)

    async def record(
        self,
        outgoing: OutgoingHandoff,
        reason: Code | None,
        kind: Kind,
        status: str,
        details: str,
        decision: HandoffDecision | None = None,
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
            execution=max(outgoing.escalations, 1),
            status=status,
            reason=None if reason is None else reason.value,
            details=details,
            to_agent=outgoing.spec.name,
            cost=cost,
        )
        await self._record_entry(entry, outgoing.stage_input.seq, decision)

    async def record_approval(self, decided: Decided, seq: int, task_id: str) -> None:
        """Record the decision of an approval before anything follows from it."""
        if self.on_record is False:
            return
        entry = _audit_entry(
            kind=Kind.DECISION,
            task_id=task_id,
            event_id=f"approval:{decided.question}",
            status="APPROVE" if decided.approved else "DENY",
            details=decided.why,
            actor=decided.who,
            to_agent=usable_name(decided.approval) or "approval",
            message=decided.model_dump(mode="json", exclude={"approved", "why", "at"}),
        )
        await self._record_entry(entry, seq)

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

    async def _record_entry(self, entry: AuditEntry, seq: int, decision: HandoffDecision | None = None) -> None:
        """Write an entry to the ledger, with the person's decision if there is one, retrying until it succeeds."""
        decision_members = {"actor": decision.who, "message": decision.content} if decision else {}
        head: str = await workflow.execute_activity(
            RECORD,
            entry.model_copy(update=decision_members),
            result_type=str,
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
            summary=f"step {seq}: {entry.kind} on record"[:_MAX_SUMMARY_LENGTH],
        )
        self.on_record = bool(head)  # empty if the workers have no ledger

    def _apply(self, outgoing: OutgoingHandoff, decision: HandoffDecision, pending: PendingHandoff) -> None:
        self._handlers.note(f"{decision.who} decided on the handoff to {pending.receiver!r}: {decision.action.value}")
        match decision.action:
            case HandoffAction.ABANDON:
                why = f": {decision.why}" if decision.why else ""
                raise StageFailedError(
                    f"the handoff to {pending.receiver!r} was abandoned by {decision.who}{why}. It waited because: "
                    f"{pending.details}"
                )
            case HandoffAction.EDIT:
                edit = decision.edit or {}
                try:
                    self._publish(self._state.record_edit(edit, workflow.now(), decision.who, decision.why))
                except PatchError as error:
                    raise StageFailedError(f"the edit of {decision.who} is refused: {error}") from error
            case HandoffAction.RELEASE:
                sent = {} if outgoing.message is None else outgoing.message.to_json_object()
                self.released |= dict.fromkeys(unsafe_digests(sent, pending.findings), decision.who)
            case HandoffAction.TOP_UP:
                self._account.top_up(decision.micro_usd)
            case HandoffAction.REQUEUE:
                pass


def _audit_entry(*, status: str, details: str, **members: Any) -> AuditEntry:
    return AuditEntry(status=status.upper(), details=details[:_MAX_DETAILS_LENGTH], timestamp=workflow.now(), **members)


async def _recorded_decision(
    inbox: Inbox, pending: PendingHandoff, within: timedelta, record: _Record
) -> HandoffDecision:
    """Wait for a person's decision about a handoff, and record the wait and the decision."""
    rollback = asyncio.ensure_future(record(Kind.ROLLBACK, pending.fate.value, pending.details, None))
    try:
        decision = await inbox.wait(pending, within)
        await rollback
        await record(Kind.DECISION, decision.action.value, decision.why, decision)
    finally:
        rollback.cancel()
    return decision
