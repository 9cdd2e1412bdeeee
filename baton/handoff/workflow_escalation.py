"""Escalation: a handoff waits for a person, whose decision is put on record and done.

Until it is made, the baton is as it was before the handoff.
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
from baton.core.history import Outcome, Spend
from baton.core.messages import Decided, PipelineStatus
from baton.core.state import PipelineState
from baton.core.verdict import Code, Disposition, Verdict
from baton.errors import PatchError, StageFailedError
from baton.handoff.pending import HandoffAction, HandoffDecision, PendingHandoff
from baton.handoff.workflow_attempt import OutgoingHandoff
from baton.handoff.workflow_inbox import Inbox
from baton.ledger.entries import cost_after, usable_name
from baton.ledger.records import RECORD, AuditEntry, Kind
from baton.pipelines.workflow_handlers import RunHandlers
from baton.safety.scan import digests_of
from baton.telemetry.metrics import ROLLBACKS
from baton.wire.json_values import digest

_Tell = Callable[[Kind, str, str, HandoffDecision | None], Awaitable[None]]

_LONGEST_DETAILS = 1_000
_LONGEST_SUMMARY = 200


class Escalation:
    """Puts handoffs before a person, and does what the person decides.

    Attributes:
        inbox: Where the person finds them.
        on_record: Whether what becomes of handoffs is put on record; None until a worker has said so.
        released: Who released what, by its digest: it is let through from then on.
    """

    def __init__(
        self,
        handlers: RunHandlers,
        state: PipelineState,
        account: BudgetAccount,
        within: timedelta,
        publish: Callable[[Outcome], None],
    ) -> None:
        self.inbox = Inbox(state, account)
        handlers.pending_handoffs = self.inbox.pending
        self.on_record: bool | None = None
        self.released: dict[str, str] = {}
        self._handlers = handlers
        self._state = state
        self._account = account
        self._within = within
        self._publish = publish
        self._asked = 0
        self._recording: asyncio.Future[None] | None = None
        self._told: list[dict[str, Any]] = []  # what people decided where the pipeline's code asked, in order
        self._untold: list[dict[str, Any]] = []  # of an earlier run, until the code asks for it again

    def carried(self) -> dict[str, JsonValue]:
        """Return what the next run needs to know when this one continues as new."""
        return {
            "released": {**self.released},
            "on_record": self.on_record,
            "decided": self.inbox.carried(),
            "asked": self._asked,
            "told": [*self._told],
        }

    def restore(self, carried: Mapping[str, Any]) -> None:
        """Go on where the run before left off."""
        self.released = carried.get("released", {})
        self.on_record = carried.get("on_record")
        self.inbox.restore(carried.get("decided", ()))
        self._asked = carried.get("asked", 0)
        self._told = [*carried.get("told", ())]
        self._untold = [*self._told]

    async def ask(self, pending: PendingHandoff, within: timedelta, task_id: str) -> HandoffDecision:
        """Wait for a person's decision about a handoff that the pipeline's own code sends; both are on record."""
        about = digest(pending.model_dump(mode="json", exclude={"since", "until"}))
        for told in self._untold:
            if told["about"] == about:
                self._untold.remove(told)
                return HandoffDecision.model_validate(told["decision"], strict=False)
        try:
            decision = await self._asked_about(pending, within, task_id)
        finally:
            self.inbox.done(pending.handoff_id)  # the pipeline's code sees to it
        self._told.append({"about": about, "decision": decision.model_dump(mode="json")})
        return decision

    async def _asked_about(self, pending: PendingHandoff, within: timedelta, task_id: str) -> HandoffDecision:
        """Wait for the decision about a handoff, on record as soon as anything of the run is."""
        if self.on_record is False:
            return await self.inbox.wait(pending, within)
        self._asked += 1
        event_id = f"{pending.handoff_id}.{self._asked}"

        async def tell(kind: Kind, status: str, details: str, decision: HandoffDecision | None) -> None:
            event = _event(
                kind=kind,
                task_id=task_id,
                event_id=event_id,
                status=status,
                details=details,
                to_agent=pending.receiver,
            )
            await self._put_on_record(event, pending.seq, decision)

        return await _decided_on_record(self.inbox, pending, within, tell)

    async def decided(self, outgoing: OutgoingHandoff, verdict: Verdict, fate: Disposition, sender: str) -> None:
        """Wait for a person to decide about a handoff, and do what they decided; it is to be sent again then."""
        since = workflow.now()
        outgoing.asked += 1
        lack = self._account.shortage(outgoing.spec)
        pending = PendingHandoff(
            handoff_id=outgoing.handoff_id,
            seq=outgoing.given.seq,
            sender=sender,
            receiver=outgoing.spec.name,
            reason=verdict.reason,
            fate=fate,
            details=verdict.details or "",
            findings=verdict.findings,
            attempts=max(outgoing.sent, 1),
            since=since,
            until=since + self._within,
            missing_micro_usd=0 if lack is None else lack.missing_micro_usd,
        )
        self._handlers.note(f"handoff to {outgoing.spec.name!r} waits for a person ({fate.value}): {pending.details}")
        if verdict.reason is not None:  # a receiver that failed was counted when it did
            self._handlers.metrics.count(ROLLBACKS, fate)
        visibility, tell = self._handlers.visibility, partial(self.record, outgoing, verdict.reason)
        try:
            with visibility.waiting(PipelineStatus.PENDING_HANDOFF, outgoing.spec.name):
                decision = await _decided_on_record(self.inbox, pending, self._within, tell)
        finally:
            self.inbox.done(pending.handoff_id)  # nothing can come between this and what is done below
            if not self.inbox.pending():
                visibility.goes_on(outgoing.spec.name)
        self._obey(outgoing, decision, pending)

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
        """Put on record what became of a handoff, before anything follows from it; tried until it is there."""
        if self.on_record is False:
            return
        cost = None
        if spend and outgoing.message is not None:
            cost = cost_after(outgoing.message.to_json_object(), spend)
        # Before it is sent, a person may be asked several times for more money: each of these is an event of its own.
        nth = f".{outgoing.asked}" if outgoing.asked > 1 and not outgoing.sent else ""
        event = _event(
            kind=kind,
            task_id=outgoing.given.task_id,
            event_id=f"{outgoing.handoff_id}.{outgoing.sent}{nth}",
            status=status,
            reason=None if reason is None else reason.value,
            details=details,
            to_agent=outgoing.spec.name,
            cost=cost,
        )
        await self._put_on_record(event, outgoing.given.seq, decision)

    async def approval_on_record(self, decided: Decided, seq: int, task_id: str) -> None:
        """Put on record what was decided about an approval, before anything follows from it."""
        if self.on_record is False:
            return
        event = _event(
            kind=Kind.DECISION,
            task_id=task_id,
            event_id=f"approval:{decided.question}",
            status="APPROVE" if decided.approved else "DENY",
            details=decided.why,
            actor=decided.who,
            to_agent=usable_name(decided.approval) or "approval",
            message=decided.model_dump(mode="json", exclude={"approved", "why", "at"}),
        )
        await self._put_on_record(event, seq)

    async def interventions_on_record(self, task_id: str) -> None:
        """Put on record the roll-backs and the fork that led here."""
        while self.on_record is not False and self._handlers.interventions:
            one = self._handlers.interventions.pop(0)
            event = _event(
                kind=Kind.DECISION,
                task_id=task_id,
                event_id=one.id,
                status=one.action,
                details=one.why,
                actor=usable_name(one.who),
                to_agent=usable_name(one.step) or "step",
                message={"step": one.step, "from_run_id": one.from_run_id},
            )
            await self._put_on_record(event, self._handlers.steps)

    async def _put_on_record(self, event: AuditEntry, seq: int, decision: HandoffDecision | None = None) -> None:
        """Write an event to the ledger, with the person's decision if it is one; it is retried until it is recorded."""
        decided = {"actor": decision.who, "message": decision.content} if decision else {}
        head: str = await workflow.execute_activity(
            RECORD,
            event.model_copy(update=decided),
            result_type=str,
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
            summary=f"step {seq}: {event.kind} on record"[:_LONGEST_SUMMARY],
        )
        self.on_record = bool(head)  # whether this run's workers keep a ledger at all

    def _obey(self, outgoing: OutgoingHandoff, decision: HandoffDecision, pending: PendingHandoff) -> None:
        """Do what a person decided, so that the handoff can be sent again."""
        self._handlers.note(f"{decision.who} decided on the handoff to {pending.receiver!r}: {decision.action.value}")
        match decision.action:
            case HandoffAction.ABANDON:
                why = f": {decision.why}" if decision.why else ""
                raise StageFailedError(
                    f"the handoff to {pending.receiver!r} was abandoned by {decision.who}{why}. It had been refused: "
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
                self.released |= dict.fromkeys(digests_of(sent, pending.findings), decision.who)
            case HandoffAction.TOP_UP:
                self._account.top_up(decision.micro_usd)
            case HandoffAction.REQUEUE:
                pass


def _event(*, status: str, details: str, **about: Any) -> AuditEntry:
    """Return what happened just now, for the ledger."""
    return AuditEntry(status=status.upper(), details=details[:_LONGEST_DETAILS], timestamp=workflow.now(), **about)


async def _decided_on_record(inbox: Inbox, pending: PendingHandoff, within: timedelta, tell: _Tell) -> HandoffDecision:
    """Wait for a person's decision about a handoff; that it waited, and who decided what and why, is on record."""
    record = asyncio.ensure_future(tell(Kind.ROLLBACK, pending.fate.value, pending.details, None))
    try:
        decision = await inbox.wait(pending, within)
        await record
        await tell(Kind.DECISION, decision.action.value, decision.why, decision)
    finally:
        record.cancel()
    return decision
