"""Settles a handoff that waits for a person, as an operation: release, requeue, edit, top up or abandon."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import JsonValue
from temporalio.client import Client

from baton.core.operations import Fact, Operation, Preview
from baton.core.patching import patch_effect
from baton.core.pending import HandoffAction, HandoffDecision, PendingHandoff, action_refusal, is_repeated, lost_to
from baton.errors import PipelineError
from baton.runs.client_handoffs import Message, RunHandoffs, read_handoffs
from baton.runs.client_inbox import resolve_handoff
from baton.runs.client_reader import read_run
from baton.runs.client_waiting import ANSWER_SECONDS, answer_of, must_be_answerable
from baton.wire.money import format_usd

_MIN_PREFIX_LENGTH = 8


@dataclass(frozen=True)
class Balance:
    """A budget after a top-up.

    Attributes:
        micro_usd: The budget; None if it came with a handoff.
        left_micro_usd: What is left of it.
        missing_micro_usd: What the handoff still lacks.
    """

    micro_usd: int | None
    left_micro_usd: int | None
    missing_micro_usd: int


@dataclass(frozen=True)
class Settled:
    """The result of settling a handoff.

    Attributes:
        pending: The handoff as it was shown; None if the same decision was sent before.
        decision: The decision that counts.
        budget: The budget after a top-up.
    """

    pending: PendingHandoff | None
    decision: HandoffDecision
    budget: Balance | None = None


@dataclass(frozen=True)
class SettlePreview(Preview):
    """What a decision about a handoff would do now.

    Attributes:
        handoffs: The run and its handoffs.
        pending: The handoff, while it waits.
        decided: How it was decided, once it is.
    """

    handoffs: RunHandoffs = field(kw_only=True)
    pending: PendingHandoff | None = field(default=None, kw_only=True)
    decided: HandoffDecision | None = field(default=None, kw_only=True)

    @property
    def message(self) -> Message | None:
        """The message as last sent, if the history has it."""
        return self.handoffs.messages.get(str(self.basis["handoff"]))


@dataclass(frozen=True)
class Settle(Operation[SettlePreview, Settled]):
    """Decide what becomes of a handoff that waits for a person; who and why are recorded.

    A top-up of the budget is one of the actions. Sent again, the same decision gets the first answer.

    `preview` and `commit` raise `NoAnswerError` if no worker is there to take the decision up, and `PipelineError` if
    no such handoff waits, it does not allow the action, the patch does not fit the baton, or the run has ended or is
    paused. `commit` raises it also if another decision counted before, which it names.

    Attributes:
        client: A connected client.
        workflow_id: The pipeline.
        action: What to do.
        handoff_id: The handoff's id, or its first eight characters or more; by default the only one that waits.
        edit: The patch of an edit.
        micro_usd: The amount of a top-up, in millionths of a US dollar.
        run_id: The run, which must be the newest; any by default.
        within: How long to wait for a worker's answer, in seconds.

    Example:
        ```python
        operation = Settle(client, "order-1", HandoffAction.RELEASE)
        preview = await operation.preview()
        print(preview.title, preview.pending.details)
        await operation.pinned_to(preview).commit(preview.mark, by="ann", why="a quoted mail")
        ```
    """

    client: Client
    workflow_id: str
    action: HandoffAction
    handoff_id: str | None = None
    edit: Mapping[str, JsonValue] | None = None
    micro_usd: int = 0
    run_id: str | None = None
    within: float = ANSWER_SECONDS
    nothing_done = "nothing was decided"

    @staticmethod
    def mark_of(pending: PendingHandoff) -> str:
        """Return the mark of a preview of a waiting handoff, such as one in the inbox."""
        return Preview("", [], _basis(pending)).mark

    async def preview(self) -> SettlePreview:
        """Return the handoff, and what would become of it."""
        handoffs = await read_handoffs(self.client, self.workflow_id, self.run_id)
        if not select_handoffs(handoffs.waiting, self.handoff_id):
            decided = next((told for _, told in handoffs.run.decided[::-1] if told.handoff_id == self.handoff_id), None)
            if decided is not None:
                title, facts = f"Handoff {decided.handoff_id} is decided", [Fact(lost_to(decided))]
                return SettlePreview(title, facts, _basis(decided), handoffs=handoffs, decided=decided)
        await must_be_answerable(self.client, self.workflow_id, self.run_id)
        pending = self._find_pending(handoffs)
        if refusal := action_refusal(pending, self.action, self.edit, self.micro_usd):
            raise PipelineError(refusal)
        if self.action is HandoffAction.EDIT:
            patch_effect(handoffs.run.baton, dict(self.edit or {}), handoffs.run.state.stage_rules())
        verb = self.action.value.replace("_", " ").capitalize()
        title = f"{verb} the handoff {pending.sender} → {pending.receiver} of {self.workflow_id}"
        facts = [Fact(f"{self.action.meaning}.", is_loss=self.action is HandoffAction.ABANDON)]
        if self.action is HandoffAction.TOP_UP and self.micro_usd < pending.missing_micro_usd:
            missing = format_usd(pending.missing_micro_usd - self.micro_usd)
            facts.append(Fact(f"{missing} more is needed, so it waits again.", is_loss=True))
        return SettlePreview(title, facts, _basis(pending), handoffs=handoffs, pending=pending)

    def pinned_to(self, preview: SettlePreview) -> Self:
        """Return the operation on the handoff that was shown."""
        return replace(self, handoff_id=str(preview.basis["handoff"]))

    def _find_pending(self, handoffs: RunHandoffs) -> PendingHandoff:
        matches = select_handoffs(handoffs.waiting, self.handoff_id)
        if len(matches) > 1:
            raise PipelineError(f"several handoffs wait, name one: {handoff_names(matches)}")
        if matches:
            return matches[0]
        missing = f"no handoff {self.handoff_id!r}" if self.handoff_id else "no handoff"
        approvals = ", ".join(repr(approval.name) for approval in handoffs.run.approvals)
        hint = f". It waits for approval {approvals}" if approvals else ""
        waiting = handoff_names(handoffs.waiting)
        raise PipelineError(f"{self.workflow_id!r} has {missing} that waits for a person; waiting: {waiting}{hint}")

    async def _perform(self, preview: SettlePreview, by: str, why: str) -> Settled:
        decision = HandoffDecision(
            handoff_id=str(preview.basis["handoff"]),
            action=self.action,
            who=by,
            why=why,
            edit=None if self.edit is None else dict(self.edit),
            micro_usd=self.micro_usd,
            since=preview.pending.since if preview.pending else None,
        )
        if preview.decided is not None:
            if not is_repeated(decision, preview.decided):
                raise PipelineError(lost_to(preview.decided))
            return Settled(None, preview.decided)
        run_id = preview.handoffs.run.run_id
        deciding = resolve_handoff(self.client, self.workflow_id, decision, run_id)
        decided = await answer_of(self.client, self.workflow_id, deciding, within=self.within)
        return Settled(preview.pending, decided, await self._balance(preview) if decided.micro_usd else None)

    async def _balance(self, preview: SettlePreview) -> Balance:
        run = await read_run(self.client, self.workflow_id, preview.handoffs.run.run_id)
        missing = preview.pending.missing_micro_usd if preview.pending else 0
        return Balance(run.ceiling_micro_usd, run.left_micro_usd, max(0, missing - self.micro_usd))

    def _changes(self, shown: Mapping[str, Any], preview: SettlePreview) -> list[str]:
        decisions = [told for _, told in preview.handoffs.run.decided if told.handoff_id == shown["handoff"]]
        if not decisions:
            return ["another handoff waits"]
        again = "it was decided meanwhile and waits again: " if preview.pending else ""
        return [f"{again}{lost_to(decisions[-1])}"]


def _basis(wait: PendingHandoff | HandoffDecision) -> dict[str, JsonValue]:
    return {"handoff": wait.handoff_id, "since": wait.since.isoformat() if wait.since else ""}


def handoff_names(waiting: list[PendingHandoff]) -> str:
    """Return pending handoffs in one line, for a message."""
    return ", ".join(f"{pending.handoff_id} (to {pending.receiver!r})" for pending in waiting) or "none"


def select_handoffs(waiting: Sequence[PendingHandoff], handoff_id: str | None) -> list[PendingHandoff]:
    """Return the pending handoffs with an id or the beginning of one; all by default."""
    if handoff_id is None:
        return [*waiting]
    exact = [pending for pending in waiting if pending.handoff_id == handoff_id]
    prefixed = [
        pending
        for pending in waiting
        if len(handoff_id) >= _MIN_PREFIX_LENGTH and pending.handoff_id.startswith(handoff_id)
    ]
    return exact or prefixed
