"""What a receiver's gate answers, once its answer is on record."""

from pydantic import Field

from baton.core.verdict import Verdict
from baton.wire.records import CompactRecord, Digest, Timestamp, Whole


class Receipt(CompactRecord):
    """A receiver's answer to a handoff, after it was written to the ledger.

    Attributes:
        handoff_id: The handoff; empty if the message could not be read.
        task_id: The task whose audit chain has the answer.
        digest: The digest of the message's bytes as they were received.
        attempt: Which attempt of the handoff it is.
        verdict: Accepted, or why not.
        flags: What the safety scan noticed and let pass, a label each.
        anchor: The head of the task's audit chain right after the answer was written.
        at: When the receiver answered, by its own clock.
        again: Whether the same answer was on record before, as when a stage that failed runs again; not in its JSON.
    """

    handoff_id: str
    task_id: str
    digest: Digest
    attempt: Whole = Field(default=1, ge=1)
    verdict: Verdict
    flags: list[str] = Field(default_factory=list)
    anchor: str | None = None
    at: Timestamp
    again: bool = Field(default=False, exclude=True)
