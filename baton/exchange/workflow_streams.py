"""`Streams`: attached to an exchange, it hands on in chunks, so that the receiver can begin before the sender is done.

The handoff goes first and passes the gate like any other. Then come the chunks, each sealed; the last one has the
digest of them all. The receiver answers twice: whether it takes the handoff, and whether it has all of it.
"""

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import Field, JsonValue, ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError

from baton.core.messages import StageReturn
from baton.core.stages import step
from baton.errors import StageFailedError
from baton.exchange.records import HANDOFF_ANSWER, MOST_REMEMBERED, Acknowledgement, Received, Reply
from baton.exchange.workflow import ATTEMPTS, Exchange
from baton.exchange.workflow_messages import (
    MessageProcessor,
    Receiver,
    message_of,
    open_message,
    signal_workflow,
)
from baton.handoff.validation import ReceiverRequirements
from baton.wire.json_values import Json, digest, find_unwritable
from baton.wire.names import HANDOFF_CHUNK
from baton.wire.records import Count, Digest, Instant, OpenRecord, Uuid4
from baton.wire.text import describe_faults

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
        handoff_id: The id under which its chunks come.
        kept: The chunks that it has, in the order in which they came.
        taken: The contents so far, in order, without a gap.
        complete: Whether the last chunk is here and the whole is what its sender says.
        faults: Why the stream is broken; empty while it is sound.
        closed_with: The digest of the whole as the last chunk says it, once that is here, also of a broken stream.
    """

    def __init__(self, handoff_id: str, *, minimum: int = 0, check: CheckChunk | None = None) -> None:
        """Begin a stream."""
        self.handoff_id = handoff_id
        self.kept: list[Chunk] = []
        self.taken: list[dict[str, JsonValue]] = []
        self.complete = False
        self.faults: list[str] = []
        self.closed_with: str | None = None
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

    def expect(self, minimum: int, check: CheckChunk | None) -> None:
        """Say what its receiver needs; what is here already is checked as well."""
        self._minimum, self._check = minimum, check
        for chunk in self.kept:
            self.refuse(self._unfit(chunk))

    def take(self, chunk: Chunk) -> Arrival:
        """Take a chunk whose seal holds."""
        if chunk.handoff_id != self.handoff_id:
            return Arrival.REFUSED
        if chunk.last and self.closed_with is None:
            self.closed_with = chunk.whole
        known = self._known(chunk.seq)
        if known is not None:
            if known == _says(chunk):
                return Arrival.DUPLICATE
            return self._broken(Arrival.CONFLICT, f"two different chunks have the number {chunk.seq}")
        if self.faults or self.complete or chunk.seq > len(self.taken) + MOST_AHEAD:
            return Arrival.REFUSED
        if found := self._unfit(chunk):
            return self._broken(Arrival.INVALID, *found)
        self.kept.append(chunk)
        self._ahead[chunk.seq] = chunk
        if chunk.seq > len(self.taken) + 1:
            return Arrival.AHEAD
        return self._advance()

    def refuse(self, faults: Sequence[str]) -> None:
        """Break the stream because a chunk of it was not fit to be taken; what it knows already changes nothing."""
        new = [one for one in faults if one not in self.faults]
        if new:
            self._broken(Arrival.INVALID, *new)

    def _unfit(self, chunk: Chunk) -> list[str]:
        """Return what is wrong with a chunk's content."""
        found = () if chunk.last or self._check is None else self._check(chunk.content)
        return [f"chunk {chunk.seq}: {one}" for one in found]

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


STREAM = "stream"
"""Member of a handoff's `step`: the id under which its chunks come."""
MOST_EVENTS, MOST_BYTES = 40_000, 40_000_000
"""How long a history may be for a chunk to be sent: at 51,200 events or 50 MiB the server ends the run."""
MOST_STREAMS = 100
"""How many streams without a receiver chunks are kept for."""

_LONGEST_FAULT = 500


class Streams:
    """A pipeline's streamed handoffs."""

    def __init__(self, exchange: Exchange) -> None:
        """Attach to an exchange, in the workflow's `__init__`."""
        self._exchange = exchange
        self._calls = exchange._calls
        carried = exchange.pipeline.carried("streams")
        self._streams: dict[str, ChunkStream] = {}
        # What was received stays: a run that continues this one goes through the same code, and asks for it again.
        self._ended = set(carried.get("ended", ()))
        for id, chunks in {**carried.get("chunks", {}), **carried.get("ended", {})}.items():
            for one in chunks:
                self._stream(id).take(Chunk.from_json_object(one))
        for id, (closed_with, faults) in carried.get("broken", {}).items():
            self._stream(id).closed_with = closed_with
            self._stream(id).refuse(faults)
        self._answered: dict[str, tuple[str, Acknowledgement]] = {
            id: (reply_to, Acknowledgement.from_json_object(ack))
            for id, (reply_to, ack) in carried.get("answered", {}).items()
        }
        self._answered_before = frozenset(self._answered)
        self._opening = MessageProcessor(self._take_chunk, carried.get("opening", ()))
        workflow.set_signal_handler(HANDOFF_CHUNK, self._on_chunk)
        exchange.pipeline.carries["streams"] = self.carried

    def carried(self) -> dict[str, JsonValue]:
        """Return what the next run needs to know when this one continues as new."""
        kept: dict[str, JsonValue] = {
            id: [one.to_json_object() for one in stream.kept] for id, stream in self._streams.items()
        }
        return {
            "chunks": {id: chunks for id, chunks in kept.items() if id not in self._ended},
            "ended": {id: chunks for id, chunks in kept.items() if id in self._ended},
            "broken": {id: [one.closed_with, [*one.faults]] for id, one in self._streams.items() if one.faults},
            "answered": {id: [reply_to, ack.to_json_object()] for id, (reply_to, ack) in self._answered.items()},
            "opening": self._opening.pending(),
        }

    @step
    async def send(
        self,
        to: Receiver,
        description: str,
        chunks: AsyncIterable[Mapping[str, Json]] | Iterable[Mapping[str, Json]],
        *,
        within: timedelta,
        state: Mapping[str, Json] | None = None,
        attempts: int = ATTEMPTS,
    ) -> Acknowledgement:
        """Hand on in chunks: open, send each one as it comes, close, and wait until the receiver has all of it.

        Args:
            to: The receiver.
            description: What it is to do.
            chunks: The contents. They may be waited for, but making them must not run steps of this pipeline.
            within: How long each of the two answers may take; the handoff expires then, unless a person is asked.
            state: What the handoff itself brings; the baton by default.
            attempts: How often it is sent in that time while no answer comes.

        Returns:
            The answer to the whole; or to the handoff, if that was refused.

        Raises:
            StageFailedError: Nobody answered, a chunk is no JSON that can be sent, or there are so many that the
                server would end the run: some 8,000.
        """
        name, exchange = f"stream to {to.agent}"[:200], self._exchange

        async def act(seq: int) -> StageReturn:
            stream = str(workflow.uuid4())
            expires = None if exchange.asks else within
            handoff = exchange.outgoing.message(to, description, (), state, expires, step={STREAM: stream})
            ack = await exchange.deliver(seq, to, handoff, within, attempts)
            if ack.accepted:
                ack = await self._send_all(to, stream, chunks, within, attempts)
            return StageReturn(stage=name, seq=seq, output=ack.to_json_object())

        return Acknowledgement.from_json_object(await exchange.step(name, act))

    async def _send_all(
        self,
        to: Receiver,
        stream: str,
        chunks: AsyncIterable[Mapping[str, Json]] | Iterable[Mapping[str, Json]],
        within: timedelta,
        attempts: int,
    ) -> Acknowledgement:
        """Send the chunks and what closes them; return the answer to the whole."""
        sent: list[Chunk] = []
        events, size = _history()

        async def put(content: Mapping[str, Json], whole: str | None = None) -> None:
            seq, last = len(sent) + 1, whole is not None
            if not last and _would_end_the_run(0, 0):
                raise StageFailedError(
                    f"chunk {seq} of the stream to {to.agent!r} cannot be sent: this run's history has "
                    "{:,} events and {:,} bytes, and the server would end it soon; ".format(*_history())
                    + "put more into each chunk, and what is large into an artifact"
                )
            try:
                ending: dict[str, Any] = {"last": True, "whole": whole} if last else {"content": _writable(content)}
                sent.append(Chunk(handoff_id=stream, seq=seq, at=workflow.now(), **ending))
            except ValueError as error:
                why = (describe_faults(error) if isinstance(error, ValidationError) else str(error))[:_LONGEST_FAULT]
                raise StageFailedError(f"chunk {seq} of the stream to {to.agent!r} cannot be sent: {why}") from error
            await signal_workflow(to.workflow_id, HANDOFF_CHUNK, sent[-1])

        async def again() -> None:
            for one in sent[-1:] if _would_end_the_run(*took) else sent:  # the last one asks for the answer
                await signal_workflow(to.workflow_id, HANDOFF_CHUNK, one)

        if isinstance(chunks, AsyncIterable):
            async for content in chunks:
                await put(content)
        else:
            for content in chunks:
                await put(content)
        whole = whole_digest([one.content for one in sent])
        with self._exchange.expecting(to, stream, whole, within):
            await put({}, whole)
            took = _history()[0] - events, _history()[1] - size
            ack = await self._exchange.answer(stream, within, attempts, again)
        if ack is None:
            raise StageFailedError(f"{to.agent!r} has not said within {within} that it has all of a streamed handoff")
        return ack

    @step
    async def receive(
        self,
        receiver: ReceiverRequirements,
        *,
        within: timedelta,
        minimum: int = 1,
        check: CheckChunk | None = None,
    ) -> "Incoming":
        """Wait for a streamed handoff, and for as many chunks as are needed to begin.

        Args:
            receiver: What this pipeline requires of a handoff.
            within: How long to wait for the handoff, and then for the chunks.
            minimum: The least number of chunks with which the pipeline can begin.
            check: A check of each chunk's content.

        Raises:
            StageFailedError: No handoff came, it is not streamed, or too few sound chunks came.
        """
        received = await self._exchange.receive(receiver, within=within)
        id = received.step.get(STREAM)
        if not isinstance(id, str):
            raise StageFailedError(
                f"handoff {received.handoff_id} of {received.sender!r} is not streamed; use `receive`"
            )
        stream = self._stream(id)
        stream.expect(minimum, check)
        incoming = Incoming(self, received, stream, receiver.agent_type)
        await incoming.until(lambda stream: stream.may_begin, within)
        return incoming

    async def in_time(self, true: Callable[[], bool], within: timedelta, id: str) -> None:
        """Wait until chunks make something true of a stream, or the time is up; what came in time is opened first."""
        try:
            await workflow.wait_condition(true, timeout=within, timeout_summary=f"chunks of stream {id}")
        except TimeoutError:
            await self._opening.settled()
            true()

    async def answer(self, received: Received, stream: ChunkStream, whole: str, fault: str, by: str) -> None:
        """Tell the sender whether all of a stream is here; anyone who sends it again gets the same answer."""
        id = stream.handoff_id
        if id in self._answered_before:  # by the run that this one continues
            return
        ack = Acknowledgement(
            handoff_id=id,
            digest=whole,
            answer=Reply.REJECTED if fault else Reply.ACCEPTED,
            reason=fault,
            by=by,
            at=workflow.now(),
        )
        self._ended.add(id)
        self._answered[id] = (received.reply_to or "", ack)
        if len(self._answered) > MOST_REMEMBERED:
            del self._answered[next(iter(self._answered))]
        await self._answer_again(id)

    async def _answer_again(self, id: str) -> None:
        reply_to, ack = self._answered[id]
        if reply_to:
            await signal_workflow(reply_to, HANDOFF_ANSWER, ack)

    def _on_chunk(self, *given: Any) -> None:
        """Hand a part of a streamed handoff to this pipeline: one sealed chunk."""
        raw = message_of(given)
        if raw is None:
            self._exchange.note(f"refused a signal {HANDOFF_CHUNK!r} that is not a sealed chunk of 4 MiB at most")
        else:
            self._opening.put(raw)

    async def _take_chunk(self, raw: bytes) -> None:
        """Keep a chunk once its seal was verified and the safety scan has nothing against it."""
        try:
            said = await open_message(raw, scanned=True)
            chunk = None if said.message is None else Chunk.from_json_object(said.message)
        except (ActivityError, ValidationError) as error:
            self._exchange.note(f"refused a chunk: {type(error).__name__}")
            return
        if chunk is None:
            self._exchange.note(f"refused a chunk: {said.fault}")
        elif chunk.handoff_id in self._answered:
            if chunk.last:
                await self._answer_again(chunk.handoff_id)
        elif chunk.handoff_id not in self._streams and len(self._streams) - len(self._ended) >= MOST_STREAMS:
            self._exchange.note(f"refused a chunk: {MOST_STREAMS} streams have begun already")
        elif said.unsafe:  # it is not kept, and the stream is broken
            fault = f"chunk {chunk.seq}: the safety scan rejects it: {'; '.join(said.unsafe)}"
            self._stream(chunk.handoff_id).refuse([fault])
        else:
            self._take(chunk)

    def _take(self, chunk: Chunk) -> None:
        """Give a chunk to its stream, unless it is too far ahead of the first one that is missing."""
        stream = self._stream(chunk.handoff_id)
        if stream.take(chunk) is Arrival.REFUSED and not (stream.faults or stream.complete):
            text = f"chunk {len(stream.taken) + 1} is missing, and at most {MOST_AHEAD - 1} may wait for it"
            self._exchange.note(f"refused chunk {chunk.seq} of stream {chunk.handoff_id}: {text}")

    def _stream(self, id: str) -> ChunkStream:
        """Return the stream of an id, which may begin here."""
        return self._streams.setdefault(id, ChunkStream(id))


def _history() -> tuple[int, int]:
    """Return how many events this run's history has, and how many bytes."""
    info = workflow.info()
    return info.get_current_history_length(), info.get_current_history_size()


def _would_end_the_run(events: int, size: int) -> bool:
    """Return whether the history would be too long with so many events and bytes more."""
    has_events, has_size = _history()
    return has_events + events > MOST_EVENTS or has_size + size > MOST_BYTES


def _writable(content: Mapping[str, Json]) -> dict[str, Json]:
    """Return the content of a chunk over which a seal can be made."""
    if not isinstance(content, Mapping):
        raise ValueError(f"expected an object, got {type(content).__name__}")
    if faults := find_unwritable({"content": dict(content)}):
        raise ValueError("; ".join(faults))
    return dict(content)


class Incoming:
    """A streamed handoff that is being received.

    Attributes:
        received: The handoff itself.
        stream: What is here of it.
    """

    def __init__(self, streams: Streams, received: Received, stream: ChunkStream, by: str) -> None:
        self.received = received
        self.stream = stream
        self._streams = streams
        self._calls = streams._calls
        self._by = by

    @property
    def chunks(self) -> list[dict[str, Json]]:
        """The contents so far, in order, without a gap."""
        return self.stream.taken

    @step
    async def rest(self, *, within: timedelta) -> list[dict[str, Json]]:
        """Wait until the whole is here, answer the sender, and return all contents."""
        await self.until(lambda stream: stream.complete, within)
        await self._streams.answer(self.received, self.stream, whole_digest(self.stream.taken), "", self._by)
        return self.stream.taken

    async def until(self, true: Callable[[ChunkStream], bool], within: timedelta) -> None:
        """Wait for something to be so of the stream."""
        sound = False

        def settled() -> bool:
            nonlocal sound
            sound = true(self.stream) and not self.stream.faults
            # The sender of a broken one hears of it once it says what it has sent.
            return sound or (bool(self.stream.faults) and self.stream.closed_with is not None)

        await self._streams.in_time(settled, within, self.stream.handoff_id)
        if sound:
            return
        gap = f"chunk {self.stream.missing} is missing" if self.stream.missing else f"{len(self.stream.taken)} came"
        fault = "; ".join(self.stream.faults) or f"{gap} after {within}"
        if self.stream.closed_with is not None:
            await self._streams.answer(self.received, self.stream, self.stream.closed_with, fault, self._by)
        raise StageFailedError(f"the streamed handoff {self.received.handoff_id} is not whole: {fault}")
