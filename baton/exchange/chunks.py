"""A handoff that is streamed: chunks in any order and number of copies, and one whole at the end.

The handoff itself goes first and passes the receiver's gate; the chunks follow it, each sealed and checked on its
own. The receiver may begin once it has enough of them, and knows that it missed nothing when the last one's count
and digest agree with what arrived.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import Field, JsonValue

from baton.wire.canonical import digest
from baton.wire.values import Count, Digest, Instant, OpenRecord, Uuid4

MOST_AHEAD = 1_000
"""How many chunks may wait for one that is missing before them."""

CheckChunk = Callable[[Mapping[str, Any]], Sequence[str]]
"""A further check of a chunk's content: a sentence for each thing that is wrong with it."""


class Chunk(OpenRecord):
    """A part of a streamed handoff, sealed as it leaves.

    Attributes:
        handoff_id: The handoff that it belongs to.
        seq: Its number, from 1, without gaps.
        content: The part itself.
        at: When it was made; on the wire it is `timestamp`, as in every sealed message.
        last: Whether it is the last one; then it has no content of its own, and `whole` is there.
        whole: Of the last one: the digest over the digests of all chunks before it, in order.
    """

    __baton_sealed__: ClassVar[bool] = True

    handoff_id: Uuid4
    seq: Count = Field(ge=1)
    content: dict[str, JsonValue] = Field(default_factory=dict)
    at: Instant = Field(alias="timestamp")
    last: bool = False
    whole: Digest | None = None


def whole_digest(contents: Sequence[Mapping[str, Any]]) -> str:
    """Return the digest over all chunks of a stream, in order."""
    return digest([digest(dict(one)) for one in contents])


class Arrival(StrEnum):
    """What a stream makes of a chunk."""

    NEXT = "next"
    """It is taken, with those that waited for it."""
    AHEAD = "ahead"
    """It waits for one before it."""
    DUPLICATE = "duplicate"
    """It came before; it changes nothing."""
    CONFLICT = "conflict"
    """Another chunk of that number came before; the stream is broken."""
    INVALID = "invalid"
    """Its content, or the whole, is not what it should be; the stream is broken."""
    REFUSED = "refused"
    """It belongs to another handoff, came after the end, or too many wait already."""


class ChunkStream:
    """The receiving end of a streamed handoff.

    Attributes:
        taken: The contents so far, in order, without a gap.
        complete: Whether the last chunk is here and the whole is what its sender says.
        faults: Why the stream is broken; empty while it is sound.
        closed_with: The digest of the whole as the last chunk says it, once that is here, also of a broken stream.
    """

    def __init__(self, handoff_id: str, *, minimum: int = 0, check: CheckChunk | None = None) -> None:
        """Begin a stream."""
        self.taken: list[dict[str, JsonValue]] = []
        self.complete = False
        self.faults: list[str] = []
        self.closed_with: str | None = None
        self._handoff_id = handoff_id
        self._minimum = minimum
        self._check = check
        self._ahead: dict[int, Chunk] = {}
        self._ended_at: int | None = None

    @property
    def may_begin(self) -> bool:
        """Whether the least is here with which the receiver may begin; a complete stream is always enough."""
        return not self.faults and (self.complete or len(self.taken) >= self._minimum)

    @property
    def missing(self) -> int | None:
        """The number of the chunk that others wait for, or None."""
        return len(self.taken) + 1 if self._ahead else None

    def take(self, chunk: Chunk) -> Arrival:
        """Take a chunk whose seal holds."""
        if chunk.handoff_id != self._handoff_id:
            return Arrival.REFUSED
        if chunk.last and self.closed_with is None:
            self.closed_with = chunk.whole
        known = self._known(chunk.seq)
        if known is not None:
            if known == _says(chunk):
                return Arrival.DUPLICATE
            return self._broken(Arrival.CONFLICT, f"two different chunks have the number {chunk.seq}")
        if self.faults or self.complete or len(self._ahead) >= MOST_AHEAD:
            return Arrival.REFUSED
        found = [] if chunk.last or self._check is None else self._check(chunk.content)
        if found:
            return self._broken(Arrival.INVALID, *(f"chunk {chunk.seq}: {one}" for one in found))
        self._ahead[chunk.seq] = chunk
        if chunk.seq > len(self.taken) + 1:
            return Arrival.AHEAD
        return self._advance()

    def refuse(self, faults: Sequence[str]) -> None:
        """Break the stream because a chunk of it was not fit to be taken; what it knows already changes nothing."""
        new = [one for one in faults if one not in self.faults]
        if new:
            self._broken(Arrival.INVALID, *new)

    def _advance(self) -> Arrival:
        """Take every chunk that has nothing missing before it."""
        while (chunk := self._ahead.pop(len(self.taken) + 1, None)) is not None:
            if not chunk.last:
                self.taken.append(chunk.content)
                continue
            self._ended_at = chunk.seq
            if self._ahead:
                return self._broken(Arrival.INVALID, f"chunks came after the last one, number {chunk.seq}")
            if chunk.whole != whole_digest(self.taken):
                return self._broken(Arrival.INVALID, "the chunks are not the ones that the sender closed with")
            self.complete = True
            break
        return Arrival.NEXT

    def _known(self, seq: int) -> object:
        """Return what the chunk of a number said, or None."""
        if seq in self._ahead:
            return _says(self._ahead[seq])
        if self._ended_at == seq:
            return (True, {}, self.closed_with) if self.complete else None
        return (False, self.taken[seq - 1], None) if 0 < seq <= len(self.taken) else None

    def _broken(self, how: Arrival, *faults: str) -> Arrival:
        self.faults = [*self.faults, *faults][:20]
        self.complete = False
        return how


def _says(chunk: Chunk) -> object:
    """Return what a chunk says, which its time does not belong to."""
    return (chunk.last, chunk.content, chunk.whole)
