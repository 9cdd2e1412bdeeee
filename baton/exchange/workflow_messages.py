"""How a pipeline reaches another one and hears from it: signals out, sealed messages in, and the worker's gate.

A handoff that arrives waits in a queue, passes the gate, and gets one answer, however often it comes.
"""

import asyncio
import base64
import hashlib
import itertools
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar

from pydantic import JsonValue, ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy, TypedSearchAttributes
from temporalio.exceptions import ActivityError, FailureError, WorkflowAlreadyStartedError, is_cancelled_exception

from baton.core.messages import PipelineInput
from baton.core.verdict import HandoffStatus
from baton.errors import HandoffError, StageFailedError
from baton.exchange.records import (
    ADMIT,
    HANDOFF,
    HANDOFF_ANSWER,
    MOST_REMEMBERED,
    OPEN,
    QUERY_ANSWERED,
    AcceptRequest,
    Acknowledgement,
    Admission,
    Opened,
    ProcessedHandoffs,
    QueueKey,
    Received,
    next_in_line,
)
from baton.handoff.records import Handoff
from baton.handoff.sealed import UnverifiedHandoff
from baton.handoff.validation import ReceiverRequirements
from baton.pipelines.workflow_handlers import RunHandlers
from baton.pipelines.workflow_steps import workflow_type
from baton.pipelines.workflow_visibility import start_attributes
from baton.telemetry.metrics import LATENCY, Transport, slo_breach
from baton.wire.json_values import Json, loads_strict
from baton.wire.text import disarm

MARK = "its payload's metadata 'baton-record'"
"""What a sender that is not Baton may have forgotten; see `baton.codec.conversion.RECORD`."""

LARGEST_MESSAGE = 4 * 1024 * 1024
"""How many bytes a sealed message may have: more does not pass the safety scan in the time that there is for it."""
MOST_CARRIED, MOST_CARRIED_COMPRESSED = 8 * 1024 * 1024, 512 * 1024
"""How many bytes of messages of a kind a run that continues as new takes along, and how many once compressed.

Its input holds them, with all else that the next run begins with. The server takes 2 MiB of it where there is no
artifact store, and more than 64 MiB is never read; a run that was sent too much could neither continue nor begin.
"""

AnswerT = TypeVar("AnswerT")

_OPENING_TIMEOUT = timedelta(seconds=10)
_LONGEST_ID = 1_000  # bytes of a workflow id, the server's default


@dataclass(frozen=True)
class Receiver:
    """Another pipeline that a handoff is for.

    Attributes:
        workflow_id: Where it runs, or is to run.
        agent: What kind of agent it is: the message's `toAgent.agentType`.
        version: Which of its versions will do.
        starts: The workflow type, or its `run` method, to start where nothing runs under that id; None: it is
            waited for.
        params: The parameters to start it with.
        inputs: The inputs to start it with, as of `Pipeline.stage`.
        task_queue: Where its workers listen; the sender's own queue by default.
    """

    workflow_id: str
    agent: str
    version: str = "*"
    starts: Callable[..., Any] | str | None = None
    params: Mapping[str, Json] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    task_queue: str | None = None


def raw_of(given: tuple[Any, ...]) -> bytes | None:
    """Return the bytes of the sealed message that a signal brought, or None if it brought anything else."""
    return given[0].raw if len(given) == 1 and isinstance(given[0], UnverifiedHandoff) else None


def message_of(given: tuple[Any, ...]) -> bytes | None:
    """Return what `raw_of` does, but not a message that no honest sender makes: a few KiB may decompress to 64 MiB."""
    raw = raw_of(given)
    return None if raw is None or len(raw) > LARGEST_MESSAGE else raw


def as_carried(messages: Iterable[bytes]) -> list[JsonValue]:
    """Return messages in base64, in their order, for the run that continues this one: as many as that can take."""
    waiting = [*messages]
    taken: list[int] = []
    size = compressed = 0
    for index in sorted(range(len(waiting)), key=lambda one: len(waiting[one])):
        size += len(waiting[index])
        if size > MOST_CARRIED:
            break
        compressed += len(zlib.compress(waiting[index], 1))
        if compressed > MOST_CARRIED_COMPRESSED:
            break
        taken.append(index)
    return [base64.b64encode(waiting[index]).decode() for index in sorted(taken)]


class MessageProcessor:
    """Works on messages in tasks of its own, so that a run may end or continue as new while some are unfinished."""

    def __init__(self, work: Callable[[bytes], Awaitable[None]], pending: Iterable[str] = ()) -> None:
        """Begin with what `pending` returned in the run before."""
        self._work = work
        self._messages: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()
        for message in pending:
            self.put(base64.b64decode(message))

    def put(self, raw: bytes) -> None:
        """Begin to work on a message."""
        self._messages.append(raw)
        task = asyncio.create_task(self._process(raw))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Wait until the messages that are here now have been worked on."""
        tasks = [*self._tasks]
        await workflow.wait_condition(lambda: all(task.done() for task in tasks))

    def pending(self) -> list[JsonValue]:
        """Return the unfinished messages in base64, as many as the next run can take."""
        return as_carried(self._messages)

    async def _process(self, raw: bytes) -> None:
        try:
            await self._work(raw)
        finally:
            self._messages.remove(raw)


async def admit(request: AcceptRequest, patience: timedelta) -> Admission:
    """Lead a handoff through the worker's gate; an unavailable ledger is retried for as long as `patience` says."""
    return await _ask_worker(ADMIT, Admission, [request], max(patience, _OPENING_TIMEOUT))


async def open_message(raw: bytes, *, scanned: bool = False) -> Opened:
    """Verify the signature of a message, and scan it for injections if `scanned`."""
    return await _ask_worker(OPEN, Opened, [base64.b64encode(raw).decode(), scanned], _OPENING_TIMEOUT * 6)


async def _ask_worker(name: str, kind: type[AnswerT], arguments: list[Any], within: timedelta) -> AnswerT:
    """Run one of Baton's own activities: keys and ledger are out of reach of workflow code."""
    answer: AnswerT = await workflow.execute_activity(
        name,
        args=arguments,
        result_type=kind,
        start_to_close_timeout=_OPENING_TIMEOUT,
        schedule_to_close_timeout=within,
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=_OPENING_TIMEOUT),
    )
    return answer


async def ended_once(true: Callable[[], bool], tasks: Sequence[asyncio.Future[Any]]) -> list[Any]:
    """Wait until something is true, cancel tasks that run beside, and return what each ended with, or raised."""

    async def ended() -> list[Any]:
        for task in tasks:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    try:
        await workflow.wait_condition(true)
    except (Exception, asyncio.CancelledError):
        await ended()
        raise
    return await ended()


async def signal_workflow(workflow_id: str, signal: str, message: object) -> bool:
    """Send a signal with one message; return whether a workflow with that id runs to receive it."""
    if not 0 < len(workflow_id.encode()) <= _LONGEST_ID:
        return False
    sending = asyncio.ensure_future(workflow.get_external_workflow_handle(workflow_id).signal(signal, message))
    cancelled: asyncio.CancelledError | None = None
    while not sending.done():
        try:
            await workflow.wait([sending])  # unlike awaiting it, this does not cancel it
        except asyncio.CancelledError as error:
            cancelled = error
    failure = sending.exception()
    if cancelled is not None:
        raise cancelled
    if failure is not None and not isinstance(failure, FailureError):
        raise failure
    return failure is None


async def start_receiver(to: Receiver, start: PipelineInput, *, searchable: bool) -> None:
    """Start a receiver that does not run yet; it outlives its sender."""
    assert to.starts is not None  # noqa: S101 - the caller asked
    kind = to.starts if isinstance(to.starts, str) else workflow_type(to.starts)
    try:
        await workflow.start_child_workflow(
            kind,
            start,
            id=to.workflow_id,
            task_queue=to.task_queue,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            search_attributes=TypedSearchAttributes(start_attributes(kind, start.task_id)) if searchable else None,
            static_summary=disarm(start.goal[:200]),
        )
    except WorkflowAlreadyStartedError:
        return


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
        request = AcceptRequest(raw=base64.b64encode(raw).decode(), audience=here, receiver=receiver)
        admission = await admit(request, patience)
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
        self._handlers.metrics.measure(LATENCY, seconds, Transport.SIGNAL, received.sender, ack.by)
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
