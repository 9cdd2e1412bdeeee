"""How a pipeline receives handoffs: a queue, the worker's gate, and one answer to each, however often it comes."""

import asyncio
import base64
import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from pydantic import JsonValue, ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from baton.core.verdict import HandoffStatus
from baton.errors import StageFailedError
from baton.exchange.admission import AcceptRequest, Received
from baton.exchange.records import (
    HANDOFF,
    HANDOFF_ANSWER,
    MOST_REMEMBERED,
    QUERY_ANSWERED,
    Acknowledgement,
    ProcessedHandoffs,
    QueueKey,
    next_in_line,
)
from baton.exchange.workflow_messages import (
    MARK,
    MessageProcessor,
    admit,
    as_carried,
    message_of,
    signal_workflow,
)
from baton.handoff.errors import HandoffError
from baton.handoff.records import Handoff
from baton.handoff.routing import ReceiverRequirements
from baton.pipelines.workflow_handlers import RunHandlers
from baton.telemetry.metrics import Transport, slo_breach
from baton.wire.json_values import loads_strict

MOST_QUEUED = 1_000
"""How many handoffs may wait for the pipeline's code to receive them."""
MOST_QUEUED_BYTES = 64 * 1024 * 1024
"""How many bytes they may have together: a compressed signal of a few KiB may hold many MiB."""
MOST_PLACED_BYTES = 256 * 1024
"""How many bytes of them, from the oldest on, are read to find out which comes first; the others wait for their turn.

Anybody who reaches the server can send what takes long to read, and a workflow task may take two seconds.
"""


@dataclass(frozen=True)
class _Queued:
    """A message that waits to be received."""

    raw: bytes

    @cached_property
    def place(self) -> QueueKey:
        """Where it says that it stands in its chain; nothing but the order hangs on it."""
        try:
            return QueueKey.of(loads_strict(self.raw))
        except HandoffError:
            return QueueKey()


class Arrivals:
    """The handoffs that arrive at a pipeline."""

    def __init__(self, handlers: RunHandlers, note: Callable[[str], None], carried: Mapping[str, Any]) -> None:
        self._handlers = handlers
        self._note = note
        self._intake = ProcessedHandoffs(carried.get("intake", ()))
        self._queue = [_Queued(base64.b64decode(one)) for one in carried.get("queue", ())]
        if dropped := carried.get("dropped", 0):
            note(f"the run before could not carry {dropped} waiting handoffs over; their senders will send them again")
        self._bytes_answered: dict[str, tuple[str, Acknowledgement]] = {}
        self._repeats = MessageProcessor(self._answer_again)
        workflow.set_signal_handler(HANDOFF, self._on_handoff)
        workflow.set_query_handler(QUERY_ANSWERED, self._on_answered)

    def carried(self) -> dict[str, JsonValue]:
        """Return what the next run needs to know when this one continues as new."""
        queue = as_carried(one.raw for one in self._queue)
        return {"intake": self._intake.carried(), "queue": queue, "dropped": len(self._queue) - len(queue)}

    async def next(self, receiver: ReceiverRequirements, within: timedelta) -> Received:
        """Answer what comes until one is accepted."""
        deadline = workflow.now() + within
        while True:
            left = deadline - workflow.now()
            try:
                await workflow.wait_condition(
                    lambda: bool(self._queue), timeout=left, timeout_summary=f"a handoff to {receiver.agent_type}"[:200]
                )
            except TimeoutError:
                raise StageFailedError(
                    f"no handoff that {receiver.agent_type!r} accepts came within {within}"
                ) from None
            looked_at = self._looked_at()
            first = next_in_line([one.place for one in looked_at]) if len(looked_at) > 1 else 0
            queued = self._queue.pop(first)
            try:
                received = await self._judge(queued.raw, receiver, left)
            except asyncio.CancelledError:
                self._queue.insert(0, queued)
                raise
            except ActivityError as error:
                self._queue.insert(0, queued)
                if is_cancelled_exception(error):
                    raise asyncio.CancelledError("the receiver was cancelled while it answered a handoff") from error
                raise StageFailedError(
                    f"{receiver.agent_type!r} could not accept a handoff, for its answer could not be put on record: "
                    f"{error.cause or error}"
                ) from error
            if received is not None:
                return received

    async def _judge(self, raw: bytes, receiver: ReceiverRequirements, patience: timedelta) -> Received | None:
        """Answer one handoff; return it if it is accepted, and for the first time."""
        if _hash(raw) in self._bytes_answered:
            await self._answer_again(raw)
            return None
        by, here = receiver.agent_type, workflow.info().workflow_id
        admission = await admit(AcceptRequest.of(raw, here, receiver), patience)
        receipt, now = admission.receipt, workflow.now()
        if admission.digest is None:
            self._note(f"refused a message whose seal does not hold: {receipt.verdict.details}")
            self._count(receipt.verdict.reason or "", "unknown", by)
            return None
        earlier = self._intake.before(receipt.handoff_id, admission.digest, by=by, at=now)
        try:
            ack = earlier or Acknowledgement.of_verdict(
                receipt.handoff_id, admission.digest, receipt.verdict, by=by, at=receipt.at
            )
        except ValidationError:
            self._note(f"refused a handoff that has no id to be answered under: {receipt.verdict.details}")
            self._count(receipt.verdict.reason or "", admission.sender or "unknown", by)
            return None
        if earlier is None:
            self._intake.keep(ack)
            self._count(ack.code or HandoffStatus.ACCEPTED.value, admission.sender, by)
        self._remember(raw, admission.reply_to or "", ack)
        if not ack.accepted:
            self._note(f"{ack.answer.value}: handoff {ack.handoff_id} of {admission.sender!r}: {ack.reason}")
        received = None
        if earlier is None and ack.accepted:
            received = self._accepted(Received.of(admission, 0.0), admission.message or {}, ack)
        await self._reply(admission.reply_to, ack)
        return received

    def _accepted(self, received: Received, message: Mapping[str, Any], ack: Acknowledgement) -> Received:
        """Measure a handoff from dispatch to accept, and raise an alert if it took too long."""
        sent_at = Handoff.from_json_object(message).timestamp
        seconds = max((ack.at - sent_at).total_seconds(), 0.0)
        self._handlers.metrics.latency(Transport.SIGNAL, received.sender, ack.by, seconds)
        breach = slo_breach(Transport.SIGNAL, seconds)
        if breach:
            self._note(f"{received.sender!r} to {ack.by!r}: {breach}")
        return received.model_copy(update={"seconds": round(seconds, 6)})

    def _count(self, verdict: str, sender: str, receiver: str) -> None:
        self._handlers.metrics.handoff(verdict, sender, receiver)

    async def _answer_again(self, raw: bytes) -> None:
        """Repeat the answer to the very bytes that were answered before."""
        reply_to, ack = self._bytes_answered[_hash(raw)]
        self._note(f"handoff {ack.handoff_id} came again; the answer is the same: {ack.answer.value}")
        await self._reply(reply_to, ack)

    def _remember(self, raw: bytes, reply_to: str, ack: Acknowledgement) -> None:
        """Remember the bytes of what was answered: if they come again, no gate is needed to know the answer."""
        self._bytes_answered[_hash(raw)] = (reply_to, ack)
        if len(self._bytes_answered) > MOST_REMEMBERED:
            del self._bytes_answered[next(iter(self._bytes_answered))]

    async def _reply(self, reply_to: str | None, ack: Acknowledgement) -> None:
        """Signal an answer to its sender, who asks again if it does not arrive."""
        if reply_to and not await signal_workflow(reply_to, HANDOFF_ANSWER, ack):
            self._note(f"{reply_to!r} has ended and does not hear the answer to handoff {ack.handoff_id}")

    def _on_handoff(self, *given: Any) -> None:
        """Hand a task to this pipeline: one sealed handoff. Whatever else is sent is refused with a note."""
        raw = message_of(given)
        if raw is None:
            self._note(
                f"refused a signal {HANDOFF!r} that is not a sealed handoff of 4 MiB at most, marked as one by {MARK}"
            )
            return
        if _hash(raw) in self._bytes_answered:
            self._repeats.put(raw)
        elif len(self._queue) >= MOST_QUEUED:
            self._note(f"refused a handoff: {MOST_QUEUED} are waiting already")
        elif self._waiting_bytes() + len(raw) > MOST_QUEUED_BYTES:
            self._note(f"refused a handoff: {self._waiting_bytes():,} bytes are waiting already")
        else:
            self._queue.append(_Queued(raw))

    def _waiting_bytes(self) -> int:
        return sum(len(one.raw) for one in self._queue)

    def _looked_at(self) -> Sequence[_Queued]:
        """Return the messages that are read to find out which comes first: the oldest ones, at least one."""
        sizes = itertools.accumulate(len(one.raw) for one in self._queue)
        return self._queue[: max(1, sum(size <= MOST_PLACED_BYTES for size in sizes))]

    def _on_answered(self, handoff_id: str) -> Acknowledgement | None:
        """The answer that this pipeline gave to a handoff, by its id."""
        return self._intake.answer(handoff_id)


def _hash(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
