"""The inbox of a pipeline: pending handoffs, and the update that decides one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from baton.budget.workflow import BudgetAccount
from baton.core.patching import patch_effect
from baton.core.pending import NULL_DECISION, HandoffAction, HandoffDecision, PendingHandoff, lost_to, refusal
from baton.core.questions import Question
from baton.core.state import PipelineState
from baton.errors import PatchError
from baton.runtime.workflow_questions import QuestionBoard
from baton.runtime.workflow_visibility import untyped_handler
from baton.wire.json_values import canonical_json
from baton.wire.money import MAX_USD, MICRO_PER_USD, to_usd
from baton.wire.names import QUERY_INBOX, RESOLVE_HANDOFF

_MAX_RECEIVER_LENGTH = 100

DEADLINE = "deadline"
"""Who decided if no person did in time; the handoff is abandoned."""
MAX_CARRIED_BYTES = 64 * 1024
"""The size of the newest decisions that a continued run keeps."""


def newest_that_fit(decisions: Sequence[dict[str, Any]]) -> list[JsonValue]:
    """Return the newest decisions that a continued run keeps, the newest last."""
    size = 0
    for kept, decision in enumerate(reversed(decisions)):
        size += len(canonical_json(decision))
        if size > MAX_CARRIED_BYTES:
            return [*decisions[len(decisions) - kept :]]
    return [*decisions]


@dataclass
class _OpenHandoff:
    pending: PendingHandoff
    decision: HandoffDecision | None = None


class Inbox:
    """The pending handoffs of a pipeline, and the decisions about them."""

    def __init__(self, state: PipelineState, account: BudgetAccount, board: QuestionBoard) -> None:
        self._board = board
        self._state = state
        self._account = account
        self._open: dict[str, _OpenHandoff] = {}
        self._closed: dict[str, HandoffDecision] = {}
        self._unapplied: dict[str, HandoffDecision] = {}
        workflow.set_update_handler(RESOLVE_HANDOFF, self._on_update, validator=self._validate)
        workflow.set_query_handler(QUERY_INBOX, untyped_handler(self.pending))

    def pending(self) -> list[PendingHandoff]:
        """Return the handoffs that wait for a person, the oldest first."""
        return [waiting.pending for waiting in self._open.values() if waiting.decision is None]

    def has_decision(self, handoff_id: str) -> bool:
        """Return whether a handoff was decided, and does not wait again."""
        waiting = self._open.get(handoff_id)
        return handoff_id in self._closed if waiting is None else waiting.decision is not None

    async def wait(self, pending: PendingHandoff, within: timedelta) -> HandoffDecision:
        """Wait for a person's decision; after the deadline, abandon the handoff."""
        waiting = self._open[pending.handoff_id] = _OpenHandoff(pending)
        self._board.put(Question(handoff=pending))
        try:
            await workflow.wait_condition(
                lambda: waiting.decision is not None,
                timeout=within,
                timeout_summary=f"step {pending.seq}: deadline of handoff {pending.handoff_id} "
                f"to {pending.receiver[:_MAX_RECEIVER_LENGTH].replace(':', ' ')}: {pending.why}",
            )
        except TimeoutError:
            waiting.decision = HandoffDecision(
                handoff_id=pending.handoff_id,
                action=HandoffAction.ABANDON,
                who=DEADLINE,
                why=f"no decision within {within}",
            )
        finally:
            del self._open[pending.handoff_id]
            self._board.withdraw(pending.handoff_id)
        assert waiting.decision is not None  # noqa: S101 - the condition above
        self._closed.pop(pending.handoff_id, None)  # so that the newest decision is the last
        self._closed[pending.handoff_id] = self._unapplied[pending.handoff_id] = waiting.decision
        return waiting.decision

    def mark_done(self, handoff_id: str) -> None:
        """Note that a decision was applied, or never will be."""
        self._unapplied.pop(handoff_id, None)

    def carried(self) -> list[JsonValue]:
        """Return the newest decisions as JSON, the newest last, for the run that continues this one."""
        return newest_that_fit([decision.model_dump(mode="json") for decision in self._closed.values()])

    def restore(self, carried: Iterable[Mapping[str, Any]]) -> None:
        """Restore the decisions of the previous run."""
        decisions = (HandoffDecision.model_validate(decision, strict=False) for decision in carried)
        self._closed = {decision.handoff_id: decision for decision in decisions}

    def _refusal(self, decision: HandoffDecision) -> str | None:
        waiting = self._open.get(decision.handoff_id)
        is_current = waiting is not None and decision.since in (None, waiting.pending.since)
        earlier = waiting.decision if waiting is not None and is_current else self._closed.get(decision.handoff_id)
        if earlier == decision:
            return None
        if earlier is not None and (waiting is None or waiting.decision is not None):
            return lost_to(earlier)
        return refusal(decision, None if waiting is None else waiting.pending) or self._effect_refusal(decision)

    def _effect_refusal(self, decision: HandoffDecision) -> str | None:
        """Return why a decision does not fit the baton or budget, decisions in progress included; or None."""
        unapplied = [
            *self._unapplied.values(),
            *(waiting.decision for waiting in self._open.values() if waiting.decision is not None),
        ]
        if decision.action is HandoffAction.EDIT:
            for other in unapplied:
                if other.action is HandoffAction.EDIT:
                    return f"{other.who} is already editing the baton; look at it again once that is done"
            try:
                patch_effect(self._state.baton, decision.edit or {}, self._state.stage_rules())
            except PatchError as error:
                return f"the edit is refused: {error}"
        if decision.action is HandoffAction.TOP_UP:
            promised = sum(other.micro_usd for other in unapplied if other.action is HandoffAction.TOP_UP)
            total = self._account.budget.remaining_micro_usd + promised + decision.micro_usd
            if total > MAX_USD * MICRO_PER_USD:
                return f"the budget would hold {to_usd(total)} USD; a handoff can state {MAX_USD} at most"
        return None

    def _validate(self, decision: HandoffDecision | None) -> None:
        """Reject an update before it enters the history; the caller gets the reason."""
        reason = NULL_DECISION if decision is None else self._refusal(decision)
        if reason:
            raise ApplicationError(reason, type="DecisionRefused", non_retryable=True)

    async def _on_update(self, decision: HandoffDecision) -> HandoffDecision:
        """Decide a pending handoff: {handoff_id, action, who, why, edit, micro_usd}."""
        waiting, earlier = self._open.get(decision.handoff_id), self._closed.get(decision.handoff_id)
        # Only the validator compares `since`: a query in the task that wrote the last record can start the wait in a
        # later task than the replay does, and so at another time.
        if waiting is None or (decision.since is not None and earlier == decision):
            return earlier or decision
        waiting.decision = waiting.decision or decision
        return waiting.decision
