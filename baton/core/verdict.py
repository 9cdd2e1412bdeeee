"""What a receiver answers to a handoff: a verdict with findings, one code, and what becomes of the handoff.

A rejection is a value and no exception. The codes are the document's four, one for seals, which it has none for, and
one for messages that reached the wrong agent. Where several things are wrong at once, all of them are
reported, and the gravest decides what happens: what must never be retried is graver than what is retried.
"""

from collections.abc import Iterable
from enum import StrEnum

from pydantic import Field

from baton.wire.records import CompactRecord

MAX_FINDINGS, MAX_FINDING_LENGTH = 20, 400
"""Findings go back to who made a patch or message, and into the ledger, so their number and length are limited."""
MAX_ATTEMPTS = 3
"""How often a handoff is tried before it is rolled back and a person is asked."""
PENDING_HANDOFF = "PENDING_HANDOFF"
"""The status of a task whose handoff was rolled back."""


class Code(StrEnum):
    """Why a handoff is not accepted; in the order of precedence, the gravest first."""

    SIGNATURE_INVALID = "SIGNATURE_INVALID"
    SAFETY_VIOLATION = "SAFETY_VIOLATION"
    SCHEMA_INVALID = "SCHEMA_INVALID"
    ROUTING_ERROR = "ROUTING_ERROR"
    INCOMPLETE_CONTEXT = "INCOMPLETE_CONTEXT"
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"


class HandoffStatus(StrEnum):
    """What a receiver answers to a handoff, and the ledger records."""

    ACCEPTED = "ACCEPTED"
    REJECTED = "REJECTED"


class Disposition(StrEnum):
    """What becomes of a handoff."""

    RUN = "run"
    """It is accepted: audited, then the receiver begins."""
    BACK_TO_SENDER = "back_to_sender"
    """The sender's stage runs again with the findings; the next attempt keeps the handoff's id."""
    DEAD_LETTER = "dead_letter"
    """It is never retried; it waits for a person, who looks, edits, releases or abandons it."""
    TOP_UP = "top_up"
    """It is not executed; it waits for a person to put money into the budget."""
    REROUTE = "reroute"
    """It reached an agent it is not meant for; it is not executed, and not sent there again."""
    ESCALATE = "escalate"
    """It failed as often as it may; a person decides."""

    @property
    def rolls_back(self) -> bool:
        """Whether the sender's checkpoint is restored, the task PENDING_HANDOFF, and an alert is raised."""
        return self not in (Disposition.RUN, Disposition.BACK_TO_SENDER)


class Finding(CompactRecord):
    """One thing that is wrong with a message.

    Attributes:
        code: What kind of fault it is.
        text: A sentence that says what was expected and what to do; never a value of the message.
        at: Where, as a JSON pointer; empty for the message as a whole.
        rule: Which rule of a detector or contract found it.
    """

    code: Code = Field(strict=False)
    text: str
    at: str = ""
    rule: str = ""


class Verdict(CompactRecord):
    """A receiver's verdict.

    Attributes:
        valid: Whether the handoff may be accepted.
        reason: The code that decides; absent if it is valid.
        details: The sentences of that code's findings, joined by `"; "`.
        findings: Everything that is wrong, the gravest first.
    """

    valid: bool
    reason: Code | None = Field(default=None, strict=False)
    details: str | None = None
    findings: list[Finding] = Field(default_factory=list)

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> "Verdict":
        """Return the verdict that findings amount to."""
        shortened = [one.model_copy(update={"text": one.text[:MAX_FINDING_LENGTH]}) for one in findings]
        if not shortened:
            return _VALID
        ordered = sorted(dict.fromkeys(shortened), key=lambda one: list(Code).index(one.code))
        reason = ordered[0].code
        sentences = dict.fromkeys(one.text for one in ordered[:MAX_FINDINGS] if one.code is reason)
        return cls(valid=False, reason=reason, details="; ".join(sentences), findings=ordered[:MAX_FINDINGS])

    def __bool__(self) -> bool:
        """Return whether the handoff may be accepted."""
        return self.valid

    @property
    def answer(self) -> HandoffStatus:
        """ACCEPTED or REJECTED."""
        return HandoffStatus.ACCEPTED if self.valid else HandoffStatus.REJECTED

    def fate(self, attempt: int = 1, most: int = MAX_ATTEMPTS) -> Disposition:
        """Return what becomes of the handoff."""
        return Disposition.RUN if self.reason is None else disposition_of(self.reason, attempt, most)


_VALID = Verdict(valid=True)


def rejected(code: Code, text: str, at: str = "") -> Verdict:
    """Return the verdict on a message with one known fault, such as its signature."""
    return Verdict.of([Finding(code=code, text=text, at=at)])


def disposition_of(code: Code, attempt: int = 1, most: int = MAX_ATTEMPTS) -> Disposition:
    """Return what becomes of a handoff that is rejected with a code."""
    match code:
        case Code.SCHEMA_INVALID | Code.INCOMPLETE_CONTEXT:
            return Disposition.BACK_TO_SENDER if attempt < most else Disposition.ESCALATE
        case Code.SAFETY_VIOLATION | Code.SIGNATURE_INVALID:
            return Disposition.DEAD_LETTER
        case Code.BUDGET_EXHAUSTED:
            return Disposition.TOP_UP
        case Code.ROUTING_ERROR:
            return Disposition.REROUTE
