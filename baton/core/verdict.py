"""A receiver's verdict on a handoff: findings, one code, and the resulting disposition.

A rejection is a value, not an exception. Beside the document's four codes there is one for invalid signatures and one
for messages that reached the wrong agent. All findings are reported, and the most severe one decides: a code that
forbids a retry is more severe than one that allows it.
"""

from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum

from pydantic import Field

from baton.wire.records import CompactRecord, Digest, Integer, Timestamp

MAX_FINDINGS, MAX_FINDING_LENGTH = 20, 400
"""Findings are returned to the sender and stored in the ledger, so their number and length are limited."""
MAX_ATTEMPTS = 3
"""How often a handoff is attempted before it is rolled back and a person decides."""
PENDING_HANDOFF = "PENDING_HANDOFF"
"""The status of a task whose handoff was rolled back."""


class Code(StrEnum):
    """Why a handoff is rejected, the most severe code first."""

    SIGNATURE_INVALID = "SIGNATURE_INVALID"
    """Signature, key, age, address or number is wrong. Put a key back and requeue; abandon what may be an attack."""
    SAFETY_VIOLATION = "SAFETY_VIOLATION"
    """The scan found an attack. Read it; release a false alarm, edit or abandon the rest."""
    SCHEMA_INVALID = "SCHEMA_INVALID"
    """It does not fit the schema. The sender gets the findings; after that, edit the baton."""
    ROUTING_ERROR = "ROUTING_ERROR"
    """It is meant for another agent or version. Deploy that one and requeue."""
    INCOMPLETE_CONTEXT = "INCOMPLETE_CONTEXT"
    """It lacks what the receiver requires. The sender gets the findings; after that, edit the baton."""
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"
    """No money is left. Top up."""


class HandoffStatus(StrEnum):
    """The receiver's answer to a handoff, as the ledger records it."""

    ACCEPTED = "ACCEPTED"
    REJECTED = "REJECTED"


class Disposition(StrEnum):
    """What happens to a handoff."""

    RUN = "run"
    """Accepted: it is recorded, then the receiver starts."""
    BACK_TO_SENDER = "back_to_sender"
    """The sender's stage runs again with the findings; the next attempt keeps the handoff's id."""
    DEAD_LETTER = "dead_letter"
    """Never retried: it waits for a person to inspect, edit, release or abandon it."""
    TOP_UP = "top_up"
    """Not executed: it waits for a person to top up the budget."""
    REROUTE = "reroute"
    """Not executed: it reached the wrong agent and is not sent there again."""
    ESCALATE = "escalate"
    """Out of attempts: a person decides."""

    @property
    def rolls_back(self) -> bool:
        """Whether the sender's checkpoint is restored, the task becomes PENDING_HANDOFF, and an alert is raised."""
        return self not in (Disposition.RUN, Disposition.BACK_TO_SENDER)


class Finding(CompactRecord):
    """One fault of a message.

    Attributes:
        code: The kind of fault.
        text: A sentence that says what was expected and what to do; never a value of the message.
        at: The location, as a JSON pointer; empty for the whole message.
        rule: The rule of a detector or contract that found it.
    """

    code: Code = Field(strict=False)
    text: str
    at: str = ""
    rule: str = ""


class Verdict(CompactRecord):
    """A receiver's verdict.

    Attributes:
        valid: Whether the handoff is accepted.
        reason: The deciding code; absent if valid.
        details: The sentences of that code's findings, joined by `"; "`.
        findings: All findings, the most severe first.
    """

    valid: bool
    reason: Code | None = Field(default=None, strict=False)
    details: str | None = None
    findings: list[Finding] = Field(default_factory=list)

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> "Verdict":
        """Return the verdict for findings; valid if there are none."""
        shortened = [finding.model_copy(update={"text": finding.text[:MAX_FINDING_LENGTH]}) for finding in findings]
        if not shortened:
            return _VALID
        ordered = sorted(dict.fromkeys(shortened), key=lambda finding: list(Code).index(finding.code))[:MAX_FINDINGS]
        reason = ordered[0].code
        sentences = dict.fromkeys(finding.text for finding in ordered if finding.code is reason)
        return cls(valid=False, reason=reason, details="; ".join(sentences), findings=ordered)

    def __bool__(self) -> bool:
        return self.valid

    @property
    def answer(self) -> HandoffStatus:
        """The answer that the ledger records."""
        return HandoffStatus.ACCEPTED if self.valid else HandoffStatus.REJECTED

    @property
    def blames_clock(self) -> bool:
        """Whether nothing but a difference between two clocks decided it: another worker may accept the handoff."""
        deciding = [finding for finding in self.findings if finding.code is self.reason]
        return bool(deciding) and all(finding.rule == CLOCK for finding in deciding)

    def disposition(self, attempt: int = 1, limit: int = MAX_ATTEMPTS) -> Disposition:
        """Return what happens to the handoff."""
        return Disposition.RUN if self.reason is None else disposition_of(self.reason, attempt, limit)


_VALID = Verdict(valid=True)


def rejected(code: Code, text: str, at: str = "") -> Verdict:
    """Return the verdict on a message with one fault."""
    return Verdict.of([Finding(code=code, text=text, at=at)])


def disposition_of(code: Code, attempt: int = 1, limit: int = MAX_ATTEMPTS) -> Disposition:
    """Return what happens to a handoff that is rejected with a code."""
    match code:
        case Code.SCHEMA_INVALID | Code.INCOMPLETE_CONTEXT:
            return Disposition.BACK_TO_SENDER if attempt < limit else Disposition.ESCALATE
        case Code.SAFETY_VIOLATION | Code.SIGNATURE_INVALID:
            return Disposition.DEAD_LETTER
        case Code.BUDGET_EXHAUSTED:
            return Disposition.TOP_UP
        case Code.ROUTING_ERROR:
            return Disposition.REROUTE


TOLERANCE = timedelta(minutes=5)
"""How far another clock may be ahead of the own one, wherever two are compared."""
CLOCK = "clock"
"""The rule of the finding that a message comes from the future: two clocks differ, and neither agent can correct it."""
EXPIRES_AT = "/expiresAt"
"""The place of the finding of an expired handoff; a sender that still waits only has to send a new one."""


class Receipt(CompactRecord):
    """A receiver's recorded answer to a handoff.

    Attributes:
        handoff_id: The handoff; empty if the message could not be parsed.
        anchor: The head of the task's audit chain after the answer.
        again: Whether the same answer was recorded before, as for a retried stage; not in the JSON.
    """

    handoff_id: str
    task_id: str
    digest: Digest
    attempt: Integer = Field(default=1, ge=1)
    verdict: Verdict
    flags: list[str] = Field(default_factory=list)
    anchor: str | None = None
    at: Timestamp
    again: bool = Field(default=False, exclude=True)
