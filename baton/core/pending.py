"""Handoffs that wait for a person (dead letters, spent budgets, escalations), and the possible decisions.

A rejected handoff that its sender cannot correct is neither lost nor retried: the task is `PENDING_HANDOFF`, with the
baton before the handoff, until a person decides.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from baton.core.verdict import Code, Disposition, Finding
from baton.wire.records import CompactRecord, Count, Integer


class HandoffAction(StrEnum):
    """What a person can choose to become of a pending handoff."""

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


class EditForm(BaseModel):
    """The data of an edit: the patch of the baton."""

    model_config = ConfigDict(extra="forbid")

    patch: dict[str, JsonValue] = Field(min_length=1)


class TopUpForm(BaseModel):
    """The data of a top-up: the amount, in millionths of a US dollar."""

    model_config = ConfigDict(extra="forbid")

    micro_usd: int = Field(gt=0, strict=True)


FORMS: Mapping[str, type[BaseModel]] = MappingProxyType({HandoffAction.EDIT: EditForm, HandoffAction.TOP_UP: TopUpForm})
"""The forms of the decisions that need data."""


class PendingHandoff(CompactRecord):
    """A handoff that waits for a person.

    Attributes:
        handoff_id: The handoff.
        seq: The number of the step that sends it; 0 if the pipeline's code asks outside of one.
        sender: Who handed on.
        receiver: Who did not accept, or failed right after accepting.
        reason: The code of the verdict; absent if the receiver failed.
        fate: What became of it, for example `"dead_letter"`.
        details: The reason in a sentence.
        findings: All findings about it.
        attempts: How often it was sent.
        missing_micro_usd: How much the budget lacks for it.
        only_as_sent: Whether it can only be sent again unchanged, because its receiver may already have it, or the
            pipeline's code sends it.
    """

    handoff_id: str
    seq: Integer = Field(default=0, ge=0)
    sender: str
    receiver: str
    reason: Code | None = Field(default=None, strict=False)
    fate: Disposition = Field(strict=False)
    details: str
    findings: list[Finding] = Field(default_factory=list)
    attempts: Integer = Field(default=1, ge=1)
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
