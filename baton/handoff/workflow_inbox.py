"""The inbox of a pipeline: handoffs that wait for a person, and the update by which the person decides."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from baton.budget.workflow import BudgetAccount
from baton.core.patching import patch_effect
from baton.core.state import PipelineState
from baton.errors import PatchError
from baton.handoff.pending import NOTHING_SAID, HandoffAction, HandoffDecision, PendingHandoff, refusal
from baton.pipelines.workflow_visibility import untyped_handler
from baton.wire.money import MAX_USD, MICRO_PER_USD, to_usd
from baton.wire.names import QUERY_INBOX, RESOLVE_HANDOFF

DEADLINE = "deadline"
"""Who decides where no person did in time: the handoff counts as abandoned."""
MOST_CARRIED_BYTES = 64 * 1024
"""How much of what was decided, the newest first, a run still knows that continues another one."""


@dataclass
class _Open:
    """A handoff that waits."""

    pending: PendingHandoff
    decision: HandoffDecision | None = None


class Inbox:
    """The handoffs of a pipeline that wait for a person."""

    def __init__(self, state: PipelineState, account: BudgetAccount) -> None:
        self._state = state
        self._account = account
        self._open: dict[str, _Open] = {}
        self._closed: dict[str, HandoffDecision] = {}
        self._undone: dict[str, HandoffDecision] = {}
        workflow.set_update_handler(RESOLVE_HANDOFF, self._on_update, validator=self._validate)
        workflow.set_query_handler(QUERY_INBOX, untyped_handler(self.pending))

    def pending(self) -> list[PendingHandoff]:
        """The handoffs that wait for a person, the oldest first."""
        return [one.pending for one in self._open.values() if one.decision is None]

    def has_decision(self, handoff_id: str) -> bool:
        """Return whether a handoff for which a person was asked was decided about; not if they are asked again."""
        one = self._open.get(handoff_id)
        return handoff_id in self._closed if one is None else one.decision is not None

    async def wait(self, pending: PendingHandoff, within: timedelta) -> HandoffDecision:
        """Wait for a person's decision; after the deadline the handoff counts as abandoned."""
        one = self._open[pending.handoff_id] = _Open(pending)
        try:
            await workflow.wait_condition(
                lambda: one.decision is not None,
                timeout=within,
                timeout_summary=f"step {pending.seq}: deadline of handoff {pending.handoff_id}: {pending.why}",
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
        self._closed.pop(pending.handoff_id, None)  # the newest last
        self._closed[pending.handoff_id] = self._undone[pending.handoff_id] = one.decision
        return one.decision

    def done(self, handoff_id: str) -> None:
        """Note that what was decided about a handoff is done, or never will be."""
        self._undone.pop(handoff_id, None)

    def carried(self) -> list[JsonValue]:
        """Return as JSON what was decided, the newest last, for anyone who asks the run that continues this one."""
        newest: list[JsonValue] = []
        left = MOST_CARRIED_BYTES
        for one in reversed(self._closed.values()):
            left -= len(one.model_dump_json().encode())
            if left < 0:
                break
            newest.insert(0, one.model_dump(mode="json"))
        return newest

    def restore(self, carried: Iterable[Mapping[str, Any]]) -> None:
        """Know what was decided in the run before."""
        told = (HandoffDecision.model_validate(one, strict=False) for one in carried)
        self._closed = {one.handoff_id: one for one in told}

    def _refusal(self, decision: HandoffDecision) -> str | None:
        """Return why a decision cannot count, or None."""
        one = self._open.get(decision.handoff_id)
        is_over = self._is_of_before(decision, one)
        ended = self._closed.get(decision.handoff_id) if one is None or is_over else one.decision
        if ended == decision:
            return None
        if ended is not None and (one is None or one.decision is not None):
            return (
                f"{ended.who} decided about handoff {ended.handoff_id!r} already: {ended.action.value}; "
                "it waits no longer, so look at the run"
            )
        return refusal(decision, None if one is None else one.pending) or self._misfit(decision)

    def _is_of_before(self, decision: HandoffDecision, one: _Open | None) -> bool:
        """Return whether a decision is about a handoff that waits no longer, or waits again by now."""
        return one is None or decision.since not in (None, one.pending.since)

    def _misfit(self, decision: HandoffDecision) -> str | None:
        """Return why a decision does not fit baton or budget as they are now, or will be in a moment; or None."""
        undone = [*self._undone.values(), *(one.decision for one in self._open.values() if one.decision is not None)]
        if decision.action is HandoffAction.EDIT:
            for other in undone:
                if other.action is HandoffAction.EDIT:
                    return f"{other.who} has just decided to edit the baton, too; look at it again once that is done"
            try:
                patch_effect(self._state.baton, decision.edit or {}, self._state.stage_rules())
            except PatchError as error:
                return f"the edit is refused: {error}"
        if decision.action is HandoffAction.TOP_UP:
            promised = sum(other.micro_usd for other in undone if other.action is HandoffAction.TOP_UP)
            filled = self._account.budget.remaining_micro_usd + promised + decision.micro_usd
            if filled > MAX_USD * MICRO_PER_USD:
                return f"the budget would hold {to_usd(filled)} USD; no handoff can tell of more than {MAX_USD}"
        return None

    def _validate(self, decision: HandoffDecision | None) -> None:
        """Refuse an update before it enters the history; the caller gets the reason."""
        reason = NOTHING_SAID if decision is None else self._refusal(decision)
        if reason:
            raise ApplicationError(reason, type="DecisionRefused", non_retryable=True)

    async def _on_update(self, decision: HandoffDecision) -> HandoffDecision:
        """Decide about a handoff that waits: {handoff_id, action, who, why, edit, micro_usd}."""
        one, ended = self._open.get(decision.handoff_id), self._closed.get(decision.handoff_id)
        # The validator has compared `since`. Here it must not be: where an earlier worker was asked something as the
        # run's last record was written, the wait began in a later task than in a replay, and so at another time.
        if one is None or (decision.since is not None and ended == decision):
            return ended or decision
        one.decision = one.decision or decision
        return one.decision
