"""Escalation: people are asked, and their decision is recorded, then applied; what becomes of handoffs is recorded."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import RetryPolicy

from baton.core.messages import PipelineResult, PipelineStatus
from baton.core.patching import patch_effect, shorten_findings
from baton.core.pending import FORMS, EditForm, HandoffAction, PendingHandoff, TopUpForm
from baton.core.questions import Question, Settled, handoff_choices, handoff_title
from baton.core.verdict import Code, HandoffStatus
from baton.errors import PatchError, StageFailedError
from baton.handoff.relay import HandoffTerms
from baton.ledger.entries import usable_name
from baton.ledger.records import RECORD, AuditEntry, Kind
from baton.runtime.workflow_questions import Asking
from baton.runtime.workflow_run import Run
from baton.wire.json_values import find_unwritable
from baton.wire.money import MAX_USD, MICRO_PER_USD, to_usd

_MAX_DETAILS_LENGTH = 1_000
_MAX_SUMMARY_LENGTH = 200


class Escalation:
    """Asks people on behalf of a run's handoffs, and records the run's events.

    Attributes:
        on_record: Whether the run's events are recorded; None until a worker has answered.
        released: Who released which text, by the text's digest; the text passes from then on.
    """

    def __init__(self, run: Run, terms: HandoffTerms) -> None:
        self.on_record: bool | None = None
        self.released: dict[str, str] = {}
        self._run = run
        self._terms = terms

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
        return any(settled.handoff_id == handoff_id for settled in self._run.board.under_way())

    async def ask(self, asking: Asking, name: str, apply: Callable[[Settled], None] | None = None) -> Settled:
        """Ask people, and record their answer before anything follows from it.

        Args:
            asking: The question.
            name: The step that it is about.
            apply: Puts the answer into effect; until then others are checked against it.
        """
        board, visibility = self._run.board, self._run.visibility
        if self._run.lab is not None:
            settled = board.answer_in_lab(asking, self._run.lab)
            if apply is not None:
                apply(settled)
            return settled
        is_handoff = asking.question.handoff is not None
        status = PipelineStatus.PENDING_HANDOFF if is_handoff else PipelineStatus.WAITING
        try:
            with board.opened(asking) as question:
                recording = asyncio.ensure_future(self._record_wait(question))
                try:
                    with visibility.show_waiting(status, name, question.until):
                        settled = await board.wait(question, asking)
                        await recording
                        await self._record_settled(question, settled)
                finally:
                    recording.cancel()
                if apply is not None:
                    apply(settled)
        finally:
            visibility.resume(None if board.open_now() else name)
        return settled

    async def record(self, seq: int, *, status: str, details: str, **members: Any) -> None:
        """Record an event of a step before anything follows from it, unless the workers have no ledger.

        Args:
            seq: The step's number.
            status: The event's status.
            details: Its details, which are cut.
            **members: Further members of its `AuditEntry`; the task is the run's own by default.
        """
        if self.on_record is not False:
            await self._write(seq, status=status, details=details, **members)

    async def _write(self, seq: int, *, status: str, details: str, **members: Any) -> None:
        """Write an event to the ledger, retrying until it succeeds."""
        details, members = details[:_MAX_DETAILS_LENGTH], {"task_id": self._run.task_id, **members}
        entry = AuditEntry(status=status.upper(), details=details, timestamp=workflow.now(), **members)
        head: str = await workflow.execute_activity(
            RECORD,
            entry,
            result_type=str,
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
            summary=f"step {seq}: {entry.kind} on record"[:_MAX_SUMMARY_LENGTH],
        )
        self.on_record = bool(head)  # empty if the workers have no ledger

    async def _record_wait(self, question: Question) -> None:
        """Record that a handoff waits for people."""
        if (handoff := question.handoff) is not None:
            subject = {**_subject(question), "kind": Kind.ROLLBACK}
            await self.record(question.seq, status=handoff.fate.value, details=handoff.details, **subject)

    async def _record_settled(self, question: Question, settled: Settled) -> None:
        """Record how a question was answered."""
        await self.record(
            question.seq,
            kind=Kind.DECISION,
            status=settled.choice,
            details=settled.why,
            actor=usable_name(settled.who),
            message=settled.model_dump(mode="json", exclude={"choice", "why", "at"}),
            **_subject(question),
        )

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
    ) -> None:
        """Record a receiver's verdict about a whole stream before its sender is told; `agents` are both."""
        await self._write(
            self._run.steps,
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

    async def record_completion(
        self,
        seq: int,
        event_id: str,
        status: str,
        agents: tuple[str, str | None],
        result: PipelineResult | None = None,
        details: str = "",
    ) -> None:
        """Record how a child or the whole task ended, before anything follows from it; `agents` are both."""
        if self.on_record is False:
            return
        sender, receiver = agents
        message = {} if result is None else {"output": result.output, "steps": result.steps}
        if faults := find_unwritable(message):
            raise StageFailedError(
                f"the result of {sender!r} cannot be recorded: {'; '.join(shorten_findings(faults))}"
            )
        await self.record(
            seq,
            kind=Kind.COMPLETION,
            event_id=event_id,
            status=status,
            details=details,
            from_agent=usable_name(sender),
            to_agent=usable_name(receiver),
            message=message,
        )

    async def record_interventions(self) -> None:
        """Record the roll-backs and the fork that led to this run."""
        while self.on_record is not False and self._run.interventions:
            intervention = self._run.interventions.pop(0)
            await self.record(
                self._run.steps,
                kind=Kind.DECISION,
                event_id=intervention.id,
                status=intervention.action,
                details=intervention.why,
                actor=usable_name(intervention.who),
                to_agent=usable_name(intervention.step) or "step",
                message={"step": intervention.step, "from_run_id": intervention.from_run_id},
            )

    def _effect_refusal(self, choice: str, form: Any) -> str | None:
        """Return why a decision does not fit the baton or budget, decisions in progress included; or None."""
        under_way = self._run.board.under_way()
        if isinstance(form, EditForm):
            for other in under_way:
                if other.choice == HandoffAction.EDIT:
                    return f"{other.who} is already editing the baton; look at it again once that is done"
            try:
                patch_effect(self._run.state.baton, form.patch, self._run.state.stage_rules())
            except PatchError as error:
                return f"the edit is refused: {error}"
        if isinstance(form, TopUpForm):
            promised = sum(other.micro_usd for other in under_way)
            total = self._run.account.budget.remaining_micro_usd + promised + form.micro_usd
            if total > MAX_USD * MICRO_PER_USD:
                return f"the budget would hold {to_usd(total)} USD; a handoff can state {MAX_USD} at most"
        return None


def _subject(question: Question) -> dict[str, Any]:
    """Return the members of an event that say which question it is about."""
    if (handoff := question.handoff) is None:
        return {"event_id": f"approval:{question.id}", "to_agent": usable_name(question.title) or "approval"}
    return {
        "event_id": f"{handoff.handoff_id}.{question.id}",
        "reason": None if handoff.reason is None else handoff.reason.value,
        "to_agent": usable_name(handoff.receiver) or "approval",
    }
