"""The inbox of a pipeline: handoffs that wait for a person, and the update by which the person decides."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from baton.protocol.errors import PatchError
from baton.protocol.money import MICRO_PER_USD, MOST_USD, usd
from baton.protocol.names import QUERY_INBOX, RESOLVE_HANDOFF
from baton.protocol.patching import patch_effect
from baton.protocol.pending import HandoffAction, HandoffDecision, PendingHandoff, refusal
from baton.protocol.state import PipelineState
from baton.workflow.plain import plain
from baton.workflow.purse import Purse

DEADLINE = "deadline"
"""Who decides where nobody did in time: the handoff counts as abandoned."""


@dataclass
class _Open:
    """A handoff that waits."""

    pending: PendingHandoff
    decision: HandoffDecision | None = None


class Inbox:
    """The handoffs of a pipeline that wait for a person.

    A decision that does not fit is refused before it enters the history, with the reason; a repeated one gets
    the first answer again.

    Args:
        state: The pipeline's state, whose rules an edit has to keep.
        purse: The pipeline's budget, which a top-up may not overfill.
    """

    def __init__(self, state: PipelineState, purse: Purse) -> None:
        self._state = state
        self._purse = purse
        self._open: dict[str, _Open] = {}
        self._closed: dict[str, HandoffDecision] = {}
        workflow.set_update_handler(RESOLVE_HANDOFF, self._on_update, validator=self._validate)
        workflow.set_query_handler(QUERY_INBOX, plain(self.pending))

    def pending(self) -> list[PendingHandoff]:
        """The handoffs that wait for a person, the oldest first."""
        return [one.pending for one in self._open.values() if one.decision is None]

    def has_decision(self, handoff_id: str) -> bool:
        """Return whether a handoff for which a person was asked was decided about; not if they are asked anew."""
        one = self._open.get(handoff_id)
        return handoff_id in self._closed if one is None else one.decision is not None

    async def wait(self, pending: PendingHandoff, within: timedelta) -> HandoffDecision:
        """Wait for a person's decision; after the deadline the handoff counts as abandoned.

        Args:
            pending: The handoff.
            within: How long a decision may take.

        Returns:
            What was decided.
        """
        one = self._open[pending.handoff_id] = _Open(pending)
        try:
            await workflow.wait_condition(
                lambda: one.decision is not None,
                timeout=within,
                timeout_summary=f"step {pending.seq}: deadline of handoff {pending.handoff_id}",
            )
        except TimeoutError:
            one.decision = HandoffDecision(
                handoff_id=pending.handoff_id,
                action=HandoffAction.ABANDON,
                who=DEADLINE,
                why=f"no decision within {within}",
            )
        finally:
            del self._open[pending.handoff_id]
        assert one.decision is not None  # noqa: S101 - the condition above
        self._closed[pending.handoff_id] = one.decision
        return one.decision

    def _refusal(self, decision: HandoffDecision) -> str | None:
        """Return why a decision cannot count, or None."""
        one = self._open.get(decision.handoff_id)
        if self._is_of_before(decision, one) and self._closed.get(decision.handoff_id) == decision:
            return None
        if one is not None and one.decision is not None:
            return f"{one.decision.who} decided already: {one.decision.action.value}"
        return refusal(decision, None if one is None else one.pending) or self._misfit(decision)

    def _is_of_before(self, decision: HandoffDecision, one: _Open | None) -> bool:
        """Return whether a decision is about a handoff that waits no longer, or waits again by now."""
        return one is None or decision.since not in (None, one.pending.since)

    def _misfit(self, decision: HandoffDecision) -> str | None:
        """Return why a decision does not fit baton or budget as they are now, or None."""
        if decision.action is HandoffAction.EDIT:
            try:
                patch_effect(self._state.baton, decision.edit or {}, self._state.stage_rules())
            except PatchError as error:
                return f"the edit is refused: {error}"
        if decision.action is HandoffAction.TOP_UP:
            filled = self._purse.budget.remaining_micro_usd + decision.micro_usd
            if filled > MOST_USD * MICRO_PER_USD:
                return f"the budget would hold {usd(filled)} USD; no handoff can tell of more than {MOST_USD}"
        return None

    def _validate(self, decision: HandoffDecision) -> None:
        """Refuse an update before it enters the history; the caller gets the reason."""
        reason = self._refusal(decision)
        if reason:
            raise ApplicationError(reason, type="DecisionRefused", non_retryable=True)

    async def _on_update(self, decision: HandoffDecision) -> HandoffDecision:
        """Decide about a handoff that waits: {handoff_id, action, who, why, edit, micro_usd}."""
        one = self._open.get(decision.handoff_id)
        if one is None or self._is_of_before(decision, one):
            return self._closed.get(decision.handoff_id, decision)
        one.decision = one.decision or decision
        return one.decision
