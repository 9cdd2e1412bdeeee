"""Handoffs that wait for a person (dead letters, spent budgets, escalations), and the possible decisions.

A rejected handoff that its sender cannot correct is neither lost nor retried: the task is `PENDING_HANDOFF`, with the
baton before the handoff, until a person decides.
"""

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field, JsonValue

from baton.core.people import name_refusal, reason_refusal
from baton.core.verdict import Code, Disposition, Finding
from baton.wire.records import CompactRecord, Count, Integer, Name, Timestamp

NULL_DECISION = "this update takes one decision, an object with who, why and what is decided; found null"
"""Why a null decision is refused; the SDK accepts null for any type."""


class HandoffAction(StrEnum):
    """A person's decision about a pending handoff."""

    REQUEUE = "requeue"
    EDIT = "edit"
    RELEASE = "release"
    TOP_UP = "top_up"
    ABANDON = "abandon"

    @property
    def meaning(self) -> str:
        """The action's effect, in a sentence without a full stop."""
        return _MEANINGS[self]


_MEANINGS = {
    HandoffAction.REQUEUE: "Send it again as it is, for example once its receiver was repaired",
    HandoffAction.EDIT: "Change the baton by a patch, and send the handoff with it",
    HandoffAction.RELEASE: "The safety finding is a false alarm: send it under my name; it is audited again",
    HandoffAction.TOP_UP: "Put money into the budget and send it",
    HandoffAction.ABANDON: "Give it up: its stage fails, and the pipeline's code continues from there",
}


class PendingHandoff(CompactRecord):
    """A handoff that waits for a person.

    Attributes:
        handoff_id: The handoff.
        seq: The number of the step that it was to begin.
        sender: Who handed on.
        receiver: Who did not accept, or failed right after accepting.
        reason: The code of the verdict; absent if the receiver failed.
        fate: What became of it, for example `"dead_letter"`.
        details: The reason in a sentence.
        findings: All findings about it.
        attempts: How often it was sent.
        since: Since when it waits (workflow time).
        until: When it is abandoned.
        missing_micro_usd: How much the budget lacks for it.
        only_as_sent: Whether it can only be sent again unchanged, because its receiver may already have it.
    """

    handoff_id: str
    seq: Integer = Field(ge=1)
    sender: str
    receiver: str
    reason: Code | None = Field(default=None, strict=False)
    fate: Disposition = Field(strict=False)
    details: str
    findings: list[Finding] = Field(default_factory=list)
    attempts: Integer = Field(default=1, ge=1)
    since: Timestamp
    until: Timestamp | None = None
    missing_micro_usd: Count = 0
    only_as_sent: bool = False

    @property
    def why(self) -> str:
        """Its fate and code, such as `dead letter, SAFETY_VIOLATION`."""
        return f"{self.fate.value.replace('_', ' ')}, {self.reason.value if self.reason else 'receiver failed'}"

    @property
    def actions(self) -> tuple[HandoffAction, ...]:
        """The possible decisions: a release is for safety findings, a top-up for a spent budget."""
        if self.only_as_sent:
            return (HandoffAction.REQUEUE, HandoffAction.ABANDON)
        special = {
            Disposition.DEAD_LETTER: (HandoffAction.RELEASE,) if self.reason is Code.SAFETY_VIOLATION else (),
            Disposition.TOP_UP: (HandoffAction.TOP_UP,),
        }
        return (*special.get(self.fate, ()), HandoffAction.REQUEUE, HandoffAction.EDIT, HandoffAction.ABANDON)


class HandoffDecision(CompactRecord):
    """A person's decision about a pending handoff: the argument of the update `resolve_handoff`.

    Attributes:
        handoff_id: The handoff, as the query `inbox` shows it.
        action: What to do.
        who: The person who decides.
        why: Their reason; it is recorded.
        edit: The patch of an edit.
        micro_usd: The amount of a top-up, in millionths of a US dollar.
        since: The `since` of the handoff that the person saw. If the handoff waits again, with another message, the
            decision is refused. Without it, the decision is about whatever waits under the id.
    """

    handoff_id: str
    action: HandoffAction = Field(strict=False)
    who: Name
    why: str = ""
    edit: dict[str, JsonValue] | None = None
    micro_usd: Count = 0
    since: Timestamp | None = None

    @property
    def content(self) -> dict[str, JsonValue]:
        """What is recorded beside who, what and why: the patch of an edit, the amount of a top-up."""
        match self.action:
            case HandoffAction.EDIT:
                return {"patch": self.edit or {}}
            case HandoffAction.TOP_UP:
                return {"microUsd": self.micro_usd}
        return {}


def refusal(decision: HandoffDecision, pending: PendingHandoff | None) -> str | None:
    """Return why a decision is refused, or None."""
    if pending is None:
        return f"no handoff {decision.handoff_id!r} waits for a person; look at the inbox again"
    if decision.since not in (None, pending.since):
        return (
            f"handoff {decision.handoff_id!r} was decided meanwhile and has been waiting again since "
            f"{pending.since.isoformat()}, maybe for another reason; look at it again"
        )
    return (
        action_refusal(pending, decision.action, decision.edit, decision.micro_usd)
        or name_refusal(decision.who)
        or reason_refusal(decision.why)
    )


def action_refusal(
    pending: PendingHandoff, action: HandoffAction, edit: Mapping[str, JsonValue] | None, micro_usd: int
) -> str | None:
    """Return why a handoff does not allow an action with its content, or None."""
    if action not in pending.actions:
        allowed = ", ".join(allowed.value for allowed in pending.actions)
        return f"a handoff with the fate {pending.fate.value!r} does not allow {action.value!r}; use {allowed}"
    if action is HandoffAction.EDIT and not edit:
        return "an edit needs a patch for the baton"
    if action is HandoffAction.TOP_UP and not micro_usd:
        return "a top-up needs an amount above zero, in millionths of a US dollar"
    return None


def is_repeated(decision: HandoffDecision, earlier: HandoffDecision) -> bool:
    """Return whether a decision is the one that was made before."""
    return decision == earlier.model_copy(update={"since": decision.since})


def lost_to(earlier: HandoffDecision) -> str:
    """Return why a decision does not count: somebody was quicker."""
    handoff, action = earlier.handoff_id, earlier.action.value
    return f"{earlier.who} has already decided handoff {handoff!r}: {action}; look at the run"
