"""A handoff to several receivers at once, and when their answers are enough to continue."""

from collections.abc import Sequence
from enum import StrEnum

from pydantic import Field

from baton.exchange.records import Acknowledgement
from baton.wire.records import CompactRecord, Whole


class BroadcastStatus(StrEnum):
    """How a broadcast stands."""

    OPEN = "open"
    """Answers are missing that may still come."""
    ALL = "all"
    """Every receiver has accepted."""
    QUORUM = "quorum"
    """As many have accepted as were declared to be enough."""
    TIMEOUT = "timeout"
    """The time is up, and it was declared that those who accepted by then are enough."""
    FAILED = "failed"
    """Too many refused, or were silent until the time was up."""


class Broadcast(CompactRecord):
    """The answers to a handoff that several receivers got, each its own copy; nothing is aggregated before it stands.

    Attributes:
        receivers: Everybody it was sent to: the message's `receiverList`.
        quorum: How many acceptances are enough; absent for all of them.
        timeout_suffices: Whether those who accepted until the time was up are enough, be it only one.
        answers: The answers so far, by receiver.
    """

    receivers: list[str] = Field(min_length=1)
    quorum: Whole | None = Field(default=None, ge=1)
    timeout_suffices: bool = False
    answers: dict[str, Acknowledgement] = Field(default_factory=dict)

    def with_answer(self, receiver: str, ack: Acknowledgement) -> "Broadcast":
        """Return the broadcast with one answer more; the first answer of a receiver stays."""
        if receiver not in self.receivers:
            raise ValueError(f"{receiver!r} is none of the receivers {', '.join(map(repr, self.receivers))}")
        return self.model_copy(update={"answers": {receiver: ack, **self.answers}})

    @property
    def accepted(self) -> list[str]:
        """Who accepted, in the order of the receivers."""
        return [name for name in self.receivers if name in self.answers and self.answers[name].accepted]

    @property
    def silent(self) -> Sequence[str]:
        """Who has not answered."""
        return [name for name in self.receivers if name not in self.answers]

    def standing(self, *, time_is_up: bool) -> BroadcastStatus:
        """Return how it stands."""
        accepted, needed = len(self.accepted), self.quorum or len(self.receivers)
        if accepted == len(self.receivers):
            return BroadcastStatus.ALL
        if accepted >= needed:
            return BroadcastStatus.QUORUM
        if time_is_up:
            return BroadcastStatus.TIMEOUT if self.timeout_suffices and accepted else BroadcastStatus.FAILED
        hopeless = accepted + len(self.silent) < needed
        if not self.silent and self.timeout_suffices and accepted:
            return BroadcastStatus.TIMEOUT  # nobody is left to wait for
        return (
            BroadcastStatus.FAILED if hopeless and not (self.timeout_suffices and self.silent) else BroadcastStatus.OPEN
        )
