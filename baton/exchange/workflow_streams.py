"""`Streams`: attached to an exchange, it hands off in chunks, so that the receiver can begin before the sender ends.

The handoff comes first and passes the gate like any other. Then come the chunks, each sealed; the last has the digest
of all. The receiver answers twice, and records both: whether it accepts the handoff, and whether it has received all
chunks.
"""

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import Base64Bytes, Field, JsonValue, ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError

from baton.core.messages import StageReturn
from baton.core.receivers import ReceiverRequirements
from baton.core.stages import step
from baton.core.verdict import Code, HandoffStatus
from baton.errors import StageFailedError
from baton.exchange.records import MAX_REMEMBERED, Acknowledgement, ReceivedHandoff, Reply
from baton.exchange.workflow import ATTEMPTS, Exchange
from baton.exchange.workflow_messages import (
    MessageProcessor,
    Receiver,
    message_of,
    open_message,
    signal_workflow,
)
from baton.telemetry.verdicts import UNKNOWN
from baton.wire.json_values import Json, digest, find_unwritable, format_digest, sha256
from baton.wire.names import HANDOFF_ANSWER, HANDOFF_CHUNK, STREAM_TO
from baton.wire.records import Count, Digest, Instant, OpenRecord, Record, Uuid4
from baton.wire.text import describe_faults

MAX_AHEAD = 1_000
"""How many chunks can wait for a missing one before them."""

CheckChunk = Callable[[Mapping[str, Any]], Sequence[str]]
"""A check of a chunk's content: it returns a sentence for each fault."""


class Chunk(OpenRecord):
    """A part of a streamed handoff, sealed when it leaves.

    Attributes:
        seq: Its number, from 1, without gaps.
        whole: The digest over the digests of all chunks before the last, in order.
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
    return digest([digest(dict(content)) for content in contents])


class Arrival(StrEnum):
    """How a chunk relates to its stream."""

    NEXT = "next"
    """It is the next one, and releases those that waited for it."""
    AHEAD = "ahead"
    """It waits for an earlier one."""
    DUPLICATE = "duplicate"
    """The same chunk was received before; it changes nothing."""
    CONFLICT = "conflict"
    """Another chunk with that number was received before; the stream is broken."""
    INVALID = "invalid"
    """Its content or the digest of all chunks is wrong; the stream is broken."""
    REFUSED = "refused"
    """It belongs to another handoff, came after the end, or is too far ahead."""


class ChunkStream:
    """The receiving end of a streamed handoff.

    Attributes:
        contents: The contents so far, in order, without gaps.
        closed_with: The digest in the last chunk, once it has arrived, also for a broken stream.
    """

    def __init__(self, handoff_id: str, *, minimum: int = 0, check: CheckChunk | None = None) -> None:
        """Begin an empty stream."""
        self.handoff_id = handoff_id
        self.chunks: list[Chunk] = []
        self.contents: list[dict[str, JsonValue]] = []
        self.complete = False
        self.faults: list[str] = []
        self.code: Code | None = None
        self.closed_with: str | None = None
        self._minimum = minimum
        self._check = check
        self._ahead: dict[int, Chunk] = {}
        self._ended_at: int | None = None

    @property
    def may_begin(self) -> bool:
        """Whether enough chunks have arrived for the receiver to begin, or all of them."""
        return not self.faults and (self.complete or len(self.contents) >= self._minimum)

    @property
    def missing(self) -> int | None:
        """The number of the missing chunk that others wait for, or None."""
        return len(self.contents) + 1 if self._ahead else None

    def expect(self, minimum: int, check: CheckChunk | None) -> None:
        """Set the receiver's requirements, and check the chunks that have already arrived."""
        self._minimum, self._check = minimum, check
        for chunk in self.chunks:
            self.fail(self._content_faults(chunk), Code.INCOMPLETE_CONTEXT)

    def add(self, chunk: Chunk) -> Arrival:
        """Add a chunk whose seal holds."""
        if chunk.handoff_id != self.handoff_id:
            return Arrival.REFUSED
        if chunk.last and self.closed_with is None:
            self.closed_with = chunk.whole
        earlier = self._earlier_content(chunk.seq)
        if earlier is not None:
            if earlier == _content_of(chunk):
                return Arrival.DUPLICATE
            return self._break(
                Arrival.CONFLICT, Code.SCHEMA_INVALID, f"two different chunks have the number {chunk.seq}"
            )
        if self.faults or self.complete or chunk.seq > len(self.contents) + MAX_AHEAD:
            return Arrival.REFUSED
        if faults := self._content_faults(chunk):
            return self._break(Arrival.INVALID, Code.INCOMPLETE_CONTEXT, *faults)
        self.chunks.append(chunk)
        self._ahead[chunk.seq] = chunk
        if chunk.seq > len(self.contents) + 1:
            return Arrival.AHEAD
        return self._advance()

    def fail(self, faults: Sequence[str], code: Code) -> None:
        """Break the stream with new faults."""
        new_faults = [fault for fault in faults if fault not in self.faults]
        if new_faults:
            self._break(Arrival.INVALID, code, *new_faults)

    def _content_faults(self, chunk: Chunk) -> list[str]:
        faults = () if chunk.last or self._check is None else self._check(chunk.content)
        return [f"chunk {chunk.seq}: {fault}" for fault in faults]

    def _advance(self) -> Arrival:
        """Move waiting chunks to the contents, up to the next gap."""
        while (chunk := self._ahead.pop(len(self.contents) + 1, None)) is not None:
            if not chunk.last:
                self.contents.append(chunk.content)
                continue
            self._ended_at = chunk.seq
            if self._ahead:
                fault = f"chunks came after the last one, number {chunk.seq}"
                return self._break(Arrival.INVALID, Code.SCHEMA_INVALID, fault)
            if chunk.whole != whole_digest(self.contents):
                fault = "the chunks do not match the digest in the last one"
                return self._break(Arrival.INVALID, Code.SCHEMA_INVALID, fault)
            self.complete = True
            break
        return Arrival.NEXT

    def _earlier_content(self, seq: int) -> object:
        if seq in self._ahead:
            return _content_of(self._ahead[seq])
        if self._ended_at == seq:
            return (True, {}, self.closed_with) if self.complete else None
        return (False, self.contents[seq - 1], None) if 0 < seq <= len(self.contents) else None

    def _break(self, arrival: Arrival, code: Code, *faults: str) -> Arrival:
        self.faults = [*self.faults, *faults][:20]
        self.code = min(self.code or code, code, key=[*Code].index)
        self.complete = False
        return arrival


def _content_of(chunk: Chunk) -> object:
    """Return a chunk's content for comparison, without its time."""
    return (chunk.last, chunk.content, chunk.whole)


STREAM = "stream"
"""Member of a handoff's `step`: the id of its chunks."""
MAX_EVENTS, MAX_BYTES = 40_000, 40_000_000
"""The maximum history with which a chunk is sent; at 51,200 events or 50 MiB the server ends the run."""
MAX_STREAMS = 100
"""How many streams without a receiver are kept."""

_MAX_FAULT_LENGTH = 500


class StreamState(Record):
    """The state that streams carry over; messages are base64."""

    chunks: dict[str, list[Chunk]] = Field(default_factory=dict)
    ended: dict[str, list[Chunk]] = Field(default_factory=dict)
    broken: dict[str, tuple[str | None, Code, list[str]]] = Field(default_factory=dict)
    answered: dict[str, tuple[str, Acknowledgement]] = Field(default_factory=dict)
    opening: list[Base64Bytes] = Field(default_factory=list)


class Streams:
    """A pipeline's streamed handoffs."""

    def __init__(self, exchange: Exchange) -> None:
        """Attach to an exchange, in the workflow's `__init__`."""
        self._exchange = exchange
        self._calls = exchange._calls
        carried = exchange.pipeline.carried("streams", StreamState)
        self._streams: dict[str, ChunkStream] = {}
        # Ended streams stay, because the code of a continued run receives them again.
        self._ended = set(carried.get("ended", ()))
        for id, chunks in {**carried.get("chunks", {}), **carried.get("ended", {})}.items():
            for chunk in chunks:
                self._stream(id).add(Chunk.from_json_object(chunk))
        for id, (closed_with, code, faults) in carried.get("broken", {}).items():
            self._stream(id).closed_with = closed_with
            self._stream(id).fail(faults, Code(code))
        self._answered: dict[str, tuple[str, Acknowledgement]] = {
            id: (reply_to, Acknowledgement.from_json_object(ack))
            for id, (reply_to, ack) in carried.get("answered", {}).items()
        }
        self._answered_by_previous_run = frozenset(self._answered)
        self._recorded: dict[str, HandoffStatus] = {}
        self._opening = MessageProcessor(self._open_chunk, carried.get("opening", ()))
        workflow.set_signal_handler(HANDOFF_CHUNK, self._on_chunk)
        exchange.pipeline.carries["streams"] = self.carried

    def carried(self) -> dict[str, JsonValue]:
        """Return the state that the next run restores after continue-as-new."""
        chunks_by_id: dict[str, JsonValue] = {
            id: [chunk.to_json_object() for chunk in stream.chunks] for id, stream in self._streams.items()
        }
        return {
            "chunks": {id: chunks for id, chunks in chunks_by_id.items() if id not in self._ended},
            "ended": {id: chunks for id, chunks in chunks_by_id.items() if id in self._ended},
            "broken": {
                id: [stream.closed_with, stream.code, [*stream.faults]]
                for id, stream in self._streams.items()
                if stream.faults
            },
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
        """Hand off in chunks: send the handoff and each chunk, and wait until the receiver has all of them.

        Args:
            to: The receiver.
            description: What it is to do.
            chunks: The contents. They can be asynchronous, but making them must not run steps of this pipeline.
            within: How long each of the two answers may take; the handoff expires as in `Exchange.hand_off`.
            state: The handoff's state; the baton by default.
            attempts: How often it is sent in that time while no answer comes.

        Returns:
            The answer to the whole stream; or to the handoff, if that was rejected.

        Raises:
            StageFailedError: No answer came, and no person decided to continue; a chunk cannot be written as JSON, or
                there are so many (about 8,000) that the server would end the run.
        """
        name, exchange = f"{STREAM_TO}{to.agent}"[:200], self._exchange

        async def act(seq: int) -> StageReturn:
            stream_id = str(workflow.uuid4())
            lifetime = exchange.lifetime(within)
            handoff = exchange.outgoing.message(to, description, (), state, lifetime, step={STREAM: stream_id})
            ack = await exchange.deliver(seq, to, handoff, within, attempts)
            if ack.accepted:
                ack = await self._send_all(seq, to, stream_id, chunks, within, attempts)
            return StageReturn(stage=name, seq=seq, output=ack.to_json_object())

        return Acknowledgement.from_json_object(await exchange.step(name, act))

    async def _send_all(
        self,
        seq: int,
        to: Receiver,
        stream_id: str,
        chunks: AsyncIterable[Mapping[str, Json]] | Iterable[Mapping[str, Json]],
        within: timedelta,
        attempts: int,
    ) -> Acknowledgement:
        sent: list[Chunk] = []
        first_events, first_size = _history_size()

        async def send(content: Mapping[str, Json], whole: str | None = None) -> None:
            number, last = len(sent) + 1, whole is not None
            if not last and _exceeds_history(0, 0):
                raise StageFailedError(
                    f"chunk {number} of the stream to {to.agent!r} cannot be sent: this run's history has "
                    "{:,} events and {:,} bytes, and the server would end it soon; ".format(*_history_size())
                    + "put more into each chunk, and what is large into an artifact"
                )
            try:
                members: dict[str, Any] = (
                    {"last": True, "whole": whole} if last else {"content": _check_writable(content)}
                )
                sent.append(Chunk(handoff_id=stream_id, seq=number, at=workflow.now(), **members))
            except ValueError as error:
                text = describe_faults(error)[:_MAX_FAULT_LENGTH]
                raise StageFailedError(
                    f"chunk {number} of the stream to {to.agent!r} cannot be sent: {text}"
                ) from error
            await signal_workflow(to.workflow_id, HANDOFF_CHUNK, sent[-1])

        async def send_again() -> None:
            for chunk in sent[-1:] if _exceeds_history(*growth) else sent:  # the last one asks for the answer
                await signal_workflow(to.workflow_id, HANDOFF_CHUNK, chunk)

        if isinstance(chunks, AsyncIterable):
            async for content in chunks:
                await send(content)
        else:
            for content in chunks:
                await send(content)
        whole = whole_digest([chunk.content for chunk in sent])
        with self._exchange.expecting(to, stream_id, whole, within):
            await send({}, whole)
            growth = _history_size()[0] - first_events, _history_size()[1] - first_size
            missing = f"{to.agent!r} has not confirmed within {within} that it received the whole stream"
            return await self._exchange.require_answer(seq, to, stream_id, within, attempts, send_again, missing)

    @step
    async def receive(
        self,
        receiver: ReceiverRequirements,
        *,
        within: timedelta,
        minimum: int = 1,
        check: CheckChunk | None = None,
    ) -> "Incoming":
        """Wait for a streamed handoff, and for enough chunks to begin.

        Args:
            receiver: This pipeline's requirements.
            within: How long to wait for the handoff, and then for the chunks.
            minimum: The number of chunks with which the pipeline can begin.
            check: A check of each chunk's content.

        Raises:
            StageFailedError: No handoff came, it is not streamed, or too few valid chunks came.
        """
        received = await self._exchange.receive(receiver, within=within)
        stream_id = received.step.get(STREAM)
        if not isinstance(stream_id, str):
            raise StageFailedError(
                f"handoff {received.handoff_id} of {received.sender!r} is not streamed; use `receive`"
            )
        stream = self._stream(stream_id)
        stream.expect(minimum, check)
        incoming = Incoming(self, received, stream, receiver.agent_type)
        await incoming.wait_until(lambda stream: stream.may_begin, within)
        return incoming

    async def wait_for_chunks(self, condition: Callable[[], bool], within: timedelta, stream_id: str) -> None:
        """Wait until chunks make a condition true, or the time is up; chunks that came in time are opened first."""
        try:
            await workflow.wait_condition(condition, timeout=within, timeout_summary=f"chunks of stream {stream_id}")
        except TimeoutError:
            await self._opening.wait_settled()
            condition()

    async def answer(
        self, received: ReceivedHandoff, stream: ChunkStream, whole: str | None, fault: str, code: Code | None, by: str
    ) -> None:
        """Record whether the whole stream has arrived, and tell the sender; a repeated stream gets the same answer.

        Args:
            received: The handoff.
            stream: Its stream.
            whole: The digest in the last chunk, which the sender expects; None if that has not arrived.
            fault: Why the stream is not accepted, or "".
            code: The code of the fault, or None.
            by: The receiving agent.
        """
        stream_id = stream.handoff_id
        if stream_id in self._answered_by_previous_run:
            return
        await self._record(received, stream, fault, code, by)
        if whole is None:
            return
        ack = Acknowledgement(
            handoff_id=stream_id,
            digest=whole,
            answer=Reply.REJECTED if fault else Reply.ACCEPTED,
            reason=fault,
            code=code,
            by=by,
            at=workflow.now(),
        )
        self._ended.add(stream_id)
        self._answered[stream_id] = (received.reply_to or "", ack)
        if len(self._answered) > MAX_REMEMBERED:
            del self._answered[next(iter(self._answered))]
        await self._repeat_answer(stream_id)

    async def _record(
        self, received: ReceivedHandoff, stream: ChunkStream, fault: str, code: Code | None, by: str
    ) -> None:
        """Put the receiver's verdict about the whole stream on record, and count it; once for each verdict."""
        status = HandoffStatus.REJECTED if fault else HandoffStatus.ACCEPTED
        if self._recorded.get(stream.handoff_id) == status:
            return
        self._recorded[stream.handoff_id] = status
        pipeline = self._exchange.pipeline
        pipeline._run.metrics.handoff(code or status, received.sender, by)
        contents = stream.contents
        message: dict[str, JsonValue] = {
            **{"handoffId": received.handoff_id, "streamId": stream.handoff_id},
            **{"chunks": len(contents), "whole": whole_digest(contents), "closedWith": stream.closed_with},
        }
        await pipeline._handoffs.escalation.record_stream(
            stream.handoff_id,
            task_id=received.task_id,
            status=status,
            reason=code,
            details=fault,
            agents=(received.sender, by),
            message=message,
        )

    async def _repeat_answer(self, stream_id: str) -> None:
        reply_to, ack = self._answered[stream_id]
        if reply_to:
            await signal_workflow(reply_to, HANDOFF_ANSWER, ack)

    def _on_chunk(self, *arguments: Any) -> None:
        """Hand a part of a streamed handoff to this pipeline, by one sealed chunk."""
        raw = message_of(arguments)
        if raw is None:
            self._exchange.note(f"refused a signal {HANDOFF_CHUNK!r} that is not a sealed chunk of 4 MiB at most")
        else:
            self._opening.put(raw)

    async def _open_chunk(self, raw: bytes) -> None:
        """Verify the seal of a chunk, scan it, and add it to its stream."""
        try:
            opened = await open_message(raw, scanned=True)
            chunk = None if opened.message is None else Chunk.from_json_object(opened.message)
        except (ActivityError, ValidationError) as error:
            self._exchange.note(f"refused a chunk: {type(error).__name__}")
            return
        if chunk is None:
            self._exchange.note(f"refused a chunk: {opened.fault}")
            await self._record_unverified(raw, opened.fault or "")
        elif chunk.handoff_id in self._answered:
            if chunk.last:
                await self._repeat_answer(chunk.handoff_id)
        elif chunk.handoff_id not in self._streams and len(self._streams) - len(self._ended) >= MAX_STREAMS:
            self._exchange.note(f"refused a chunk: {MAX_STREAMS} streams have already begun")
        elif opened.unsafe:
            fault = f"chunk {chunk.seq}: the safety scan rejects it: {'; '.join(opened.unsafe)}"
            self._stream(chunk.handoff_id).fail([fault], Code.SAFETY_VIOLATION)
        else:
            self._add_chunk(chunk)

    async def _record_unverified(self, raw: bytes, fault: str) -> None:
        """Put on record, and count, a chunk whose seal does not hold; nobody knows its stream."""
        pipeline, receiver = self._exchange.pipeline, self._exchange.outgoing.agent
        pipeline._run.metrics.handoff(Code.SIGNATURE_INVALID, UNKNOWN, receiver)
        hashed = format_digest(sha256(raw))
        await pipeline._handoffs.escalation.record_stream(
            f"chunk {hashed}",
            task_id=pipeline.task_id,
            status=HandoffStatus.REJECTED,
            reason=Code.SIGNATURE_INVALID,
            details=fault,
            agents=(UNKNOWN, receiver),
            message={"chunk": hashed},
        )

    def _add_chunk(self, chunk: Chunk) -> None:
        """Add a chunk to its stream, unless it is too far ahead of the first missing one."""
        stream = self._stream(chunk.handoff_id)
        if stream.add(chunk) is Arrival.REFUSED and not (stream.faults or stream.complete):
            text = f"chunk {len(stream.contents) + 1} is missing, and at most {MAX_AHEAD - 1} may wait for it"
            self._exchange.note(f"refused chunk {chunk.seq} of stream {chunk.handoff_id}: {text}")

    def _stream(self, stream_id: str) -> ChunkStream:
        return self._streams.setdefault(stream_id, ChunkStream(stream_id))


def _history_size() -> tuple[int, int]:
    info = workflow.info()
    return info.get_current_history_length(), info.get_current_history_size()


def _exceeds_history(events: int, size: int) -> bool:
    has_events, has_size = _history_size()
    return has_events + events > MAX_EVENTS or has_size + size > MAX_BYTES


def _check_writable(content: Mapping[str, Json]) -> dict[str, Json]:
    """Return a chunk's content if it can be sealed, else raise."""
    if not isinstance(content, Mapping):
        raise ValueError(f"expected an object, got {type(content).__name__}")
    if faults := find_unwritable({"content": dict(content)}):
        raise ValueError("; ".join(faults))
    return dict(content)


class Incoming:
    """A streamed handoff that is being received."""

    def __init__(self, streams: Streams, received: ReceivedHandoff, stream: ChunkStream, by: str) -> None:
        self.received = received
        self.stream = stream
        self._streams = streams
        self._calls = streams._calls
        self._by = by

    @property
    def chunks(self) -> list[dict[str, Json]]:
        """The contents so far, in order, without gaps."""
        return self.stream.contents

    @step
    async def rest(self, *, within: timedelta) -> list[dict[str, Json]]:
        """Wait for the whole stream, answer the sender, and return all contents."""
        await self.wait_until(lambda stream: stream.complete, within)
        whole = whole_digest(self.stream.contents)
        await self._streams.answer(self.received, self.stream, whole, "", None, self._by)
        return self.stream.contents

    async def wait_until(self, condition: Callable[[ChunkStream], bool], within: timedelta) -> None:
        """Wait until the stream meets a condition; answer the sender and raise if it fails."""
        is_met = False

        def settled() -> bool:
            nonlocal is_met
            is_met = condition(self.stream) and not self.stream.faults
            # A broken stream is answered once its last chunk has arrived, because the answer needs its digest.
            return is_met or (bool(self.stream.faults) and self.stream.closed_with is not None)

        await self._streams.wait_for_chunks(settled, within, self.stream.handoff_id)
        if is_met:
            return
        gap = f"chunk {self.stream.missing} is missing" if self.stream.missing else f"{len(self.stream.contents)} came"
        fault = "; ".join(self.stream.faults) or f"{gap} after {within}"
        code = self.stream.code or Code.INCOMPLETE_CONTEXT
        await self._streams.answer(self.received, self.stream, self.stream.closed_with, fault, code, self._by)
        raise StageFailedError(f"the streamed handoff {self.received.handoff_id} is incomplete: {fault}")
