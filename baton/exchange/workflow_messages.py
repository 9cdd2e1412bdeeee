"""Messages between pipelines: signals out, sealed messages in, and the worker's gate.

An arriving handoff waits in a queue, passes the gate, and gets one answer, however often it arrives.
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
from baton.core.outline import Outline
from baton.core.receivers import ReceiverRequirements
from baton.core.verdict import HandoffStatus
from baton.errors import HandoffError, StageFailedError
from baton.exchange.records import (
    ADMIT,
    MAX_REMEMBERED,
    OPEN,
    QUERY_ANSWERED,
    AcceptRequest,
    Acknowledgement,
    Admission,
    OpenedMessage,
    ProcessedHandoffs,
    ReceivedHandoff,
    next_in_line,
)
from baton.handoff.records import Handoff
from baton.handoff.sealed import UnverifiedHandoff
from baton.pipelines.workflow_steps import (
    MAX_SERVER_NAME_BYTES,
    check_server_name,
    check_task_queue,
    workflow_type,
)
from baton.runtime.workflow_run import Run
from baton.sdk.search import start_attributes
from baton.telemetry.metrics import LATENCY, Transport, slo_breach
from baton.wire.json_values import Json, loads_strict
from baton.wire.names import HANDOFF, HANDOFF_ANSWER
from baton.wire.text import disarm

MARK = "its payload's metadata 'baton-record'"
"""What senders other than Baton tend to omit; see `baton.codec.conversion.RECORD`."""

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""The maximum size of a sealed message; the safety scan would not finish a larger one in time."""
MAX_CARRIED_BYTES, MAX_CARRIED_COMPRESSED_BYTES = 8 * 1024 * 1024, 512 * 1024
"""How many bytes of one kind of messages the next run gets after continue-as-new, plain and compressed.

They are part of the next run's input, of which the server takes 2 MiB without an artifact store, and Baton reads 64 MiB
at most; with more, the run could neither continue nor begin.
"""

AnswerT = TypeVar("AnswerT")

MAX_IN_PROGRESS = 100
"""How many messages of a kind are processed at once; the server rejects the task with the 2,001st activity."""

_OPENING_TIMEOUT = timedelta(seconds=10)


@dataclass(frozen=True)
class Receiver:
    """Another pipeline that receives a handoff.

    Attributes:
        workflow_id: Its workflow id.
        agent: The kind of agent: the message's `toAgent.agentType`.
        version: The accepted range of its versions.
        starts: The workflow type, or its `run` method, to start if nothing runs under that id; None waits for it.
        params: The parameters to start it with.
        inputs: The inputs to start it with, as of `Pipeline.stage`.
        task_queue: Its task queue; the sender's by default.
        run_chain: Its first run, if only that run and those that continue it may accept the handoff; by default
            whichever runs under that id.
    """

    workflow_id: str
    agent: str
    version: str = "*"
    starts: Callable[..., Any] | str | None = None
    params: Mapping[str, Json] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    task_queue: str | None = None
    run_chain: str | None = None


def message_of(arguments: tuple[Any, ...]) -> bytes | None:
    """Return the bytes of a handler's only argument, or None if it is too large or not a sealed message."""
    if len(arguments) != 1 or not isinstance(arguments[0], UnverifiedHandoff):
        return None
    return arguments[0].raw if len(arguments[0].raw) <= MAX_MESSAGE_BYTES else None


def carry_messages(messages: Iterable[bytes]) -> list[JsonValue]:
    """Return messages in base64 for the next run, in order; the smallest ones if not all fit."""
    pending = [*messages]
    carried_indexes: list[int] = []
    size = compressed = 0
    for index in sorted(range(len(pending)), key=lambda at: len(pending[at])):
        size += len(pending[index])
        if size > MAX_CARRIED_BYTES:
            break
        compressed += len(zlib.compress(pending[index], 1))
        if compressed > MAX_CARRIED_COMPRESSED_BYTES:
            break
        carried_indexes.append(index)
    return [base64.b64encode(pending[index]).decode() for index in sorted(carried_indexes)]


class MessageProcessor:
    """Processes messages in its own tasks, so that a run can end or continue as new while some are unfinished."""

    def __init__(self, work: Callable[[bytes], Awaitable[None]], pending: Iterable[str] = ()) -> None:
        """Begin with the pending messages of the previous run."""
        self._work = work
        self._slots = asyncio.Semaphore(MAX_IN_PROGRESS)
        self._messages: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()
        for message in pending:
            self.put(base64.b64decode(message))

    def put(self, raw: bytes) -> None:
        """Begin to process a message."""
        self._messages.append(raw)
        task = asyncio.create_task(self._process(raw))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait_settled(self) -> None:
        """Wait until the current messages are processed."""
        tasks = [*self._tasks]
        await workflow.wait_condition(lambda: all(task.done() for task in tasks))

    def pending(self) -> list[JsonValue]:
        """Return the unfinished messages for the next run."""
        return carry_messages(self._messages)

    async def _process(self, raw: bytes) -> None:
        try:
            async with self._slots:
                await self._work(raw)
        finally:
            self._messages.remove(raw)


async def admit(request: AcceptRequest, patience: timedelta) -> Admission:
    """Pass a handoff through the worker's gate; an unavailable ledger is retried for `patience`."""
    return await _ask_worker(ADMIT, Admission, [request], max(patience, _OPENING_TIMEOUT))


async def open_message(raw: bytes, *, scanned: bool = False) -> OpenedMessage:
    """Verify the signature of a message, and scan it for injections if `scanned`."""
    return await _ask_worker(OPEN, OpenedMessage, [base64.b64encode(raw).decode(), scanned], _OPENING_TIMEOUT * 6)


async def _ask_worker(name: str, kind: type[AnswerT], arguments: list[Any], within: timedelta) -> AnswerT:
    """Run one of Baton's activities; workflow code has no keys and no ledger."""
    answer: AnswerT = await workflow.execute_activity(
        name,
        args=arguments,
        result_type=kind,
        start_to_close_timeout=_OPENING_TIMEOUT,
        schedule_to_close_timeout=within,
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=_OPENING_TIMEOUT),
    )
    return answer


async def cancel_once(condition: Callable[[], bool], tasks: Sequence[asyncio.Future[Any]]) -> list[Any]:
    """Wait until a condition holds, cancel the tasks, and return the result or exception of each."""

    async def cancel() -> list[Any]:
        for task in tasks:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    try:
        await workflow.wait_condition(condition)
    except (Exception, asyncio.CancelledError):
        await cancel()
        raise
    return await cancel()


async def signal_workflow(workflow_id: str, signal: str, message: object) -> bool:
    """Send a signal with one message; return whether a workflow with that id is running."""
    if not 0 < len(workflow_id.encode()) <= MAX_SERVER_NAME_BYTES:
        return False
    sending = asyncio.ensure_future(workflow.get_external_workflow_handle(workflow_id).signal(signal, message))
    cancelled: asyncio.CancelledError | None = None
    while not sending.done():
        try:
            await workflow.wait([sending])  # unlike `await sending`, a cancellation does not reach the signal
        except asyncio.CancelledError as error:
            cancelled = error
    failure = sending.exception()
    if cancelled is not None:
        raise cancelled
    if failure is not None and not isinstance(failure, FailureError):
        raise failure
    return failure is None


async def start_receiver(to: Receiver, start: PipelineInput, *, searchable: bool) -> None:
    """Start a receiver that is not running; it outlives its sender."""
    assert to.starts is not None  # noqa: S101 - the caller has checked
    kind = workflow_type(to.starts)
    try:
        await workflow.start_child_workflow(
            kind,
            start,
            id=check_server_name("workflow id", to.workflow_id),
            task_queue=check_task_queue(to.task_queue),
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            search_attributes=TypedSearchAttributes(start_attributes(kind, start.task_id)) if searchable else None,
            static_summary=disarm(start.goal[:200]),
        )
    except WorkflowAlreadyStartedError:
        return


MAX_QUEUED = 1_000
"""How many handoffs can wait until the pipeline's code receives them."""
MAX_QUEUED_BYTES = 64 * 1024 * 1024
"""How many bytes they can have in total; a compressed signal of a few KiB may hold many MiB."""
MAX_PARSED_BYTES = 256 * 1024
"""How many bytes of the oldest ones are parsed to choose the next; the others wait.

Anybody who reaches the server can send messages that take long to parse, and a workflow task has two seconds.
"""


@dataclass(frozen=True)
class _Queued:
    raw: bytes

    @cached_property
    def key(self) -> Outline:
        """Its claimed position in its chain, which only decides the order."""
        try:
            return Outline.of(loads_strict(self.raw))
        except HandoffError:
            return Outline()


class Arrivals:
    """The handoffs that arrive at a pipeline."""

    def __init__(self, run: Run, note: Callable[[str], None], carried: Mapping[str, Any]) -> None:
        self._metrics = run.metrics
        self._note = note
        self._intake = ProcessedHandoffs(carried.get("intake", ()))
        self._queue = [_Queued(base64.b64decode(raw)) for raw in carried.get("queue", ())]
        if dropped := carried.get("dropped", 0):
            note(f"the previous run could not carry over {dropped} waiting handoffs; their senders send them again")
        self._answered_hashes: dict[str, tuple[str, Acknowledgement]] = {}
        self._repeats = MessageProcessor(self._repeat_answer)
        workflow.set_signal_handler(HANDOFF, self._on_handoff)
        workflow.set_query_handler(QUERY_ANSWERED, self._on_answered)

    def carried(self) -> dict[str, JsonValue]:
        """Return the state that the next run restores after continue-as-new."""
        queue = carry_messages(queued.raw for queued in self._queue)
        return {"intake": self._intake.carried(), "queue": queue, "dropped": len(self._queue) - len(queue)}

    async def next(self, receiver: ReceiverRequirements, within: timedelta) -> ReceivedHandoff:
        """Answer handoffs until one is accepted, and return it."""
        deadline = workflow.now() + within
        while True:
            remaining = deadline - workflow.now()
            try:
                await workflow.wait_condition(
                    lambda: bool(self._queue),
                    timeout=remaining,
                    timeout_summary=f"a handoff to {receiver.agent_type}"[:200],
                )
            except TimeoutError:
                raise StageFailedError(
                    f"no handoff that {receiver.agent_type!r} accepts came within {within}"
                ) from None
            parsed = self._parsed_part()
            first = next_in_line([queued.key for queued in parsed]) if len(parsed) > 1 else 0
            queued = self._queue.pop(first)
            try:
                received = await self._judge(queued.raw, receiver, remaining)
            except asyncio.CancelledError:
                self._queue.insert(0, queued)
                raise
            except ActivityError as error:
                self._queue.insert(0, queued)
                if is_cancelled_exception(error):
                    raise asyncio.CancelledError("the receiver was cancelled while it answered a handoff") from error
                raise StageFailedError(
                    f"{receiver.agent_type!r} could not accept a handoff, because its answer could not be recorded: "
                    f"{error.cause or error}"
                ) from error
            if received is not None:
                return received

    async def _judge(self, raw: bytes, receiver: ReceiverRequirements, patience: timedelta) -> ReceivedHandoff | None:
        """Answer a handoff; return it if it is accepted for the first time."""
        if _hash(raw) in self._answered_hashes:
            await self._repeat_answer(raw)
            return None
        by, run_chain = receiver.agent_type, workflow.info().first_execution_run_id
        request = AcceptRequest(raw=base64.b64encode(raw).decode(), run_chain=run_chain, receiver=receiver)
        admission = await admit(request, patience)
        receipt, now = admission.receipt, workflow.now()
        if admission.digest is None:
            self._note(f"refused a message whose seal does not hold: {receipt.verdict.details}")
            self._count(receipt.verdict.reason or "", "unknown", by)
            return None
        earlier = self._intake.earlier_answer(receipt.handoff_id, admission.digest, by=by, at=now)
        try:
            ack = earlier or Acknowledgement.of_verdict(
                receipt.handoff_id, admission.digest, receipt.verdict, by=by, at=receipt.at
            )
        except ValidationError:
            self._note(f"refused a handoff without a valid id to answer: {receipt.verdict.details}")
            self._count(receipt.verdict.reason or "", admission.sender or "unknown", by)
            return None
        if earlier is None:
            self._intake.remember(ack)
            self._count(ack.code or HandoffStatus.ACCEPTED.value, admission.sender, by)
        self._remember_bytes(raw, admission.reply_to or "", ack)
        if not ack.accepted:
            self._note(f"{ack.answer.value}: handoff {ack.handoff_id} of {admission.sender!r}: {ack.reason}")
        received = None
        if earlier is None and ack.accepted:
            received = self._receive_measured(admission, Handoff.from_json_object(admission.message or {}), ack)
        await self._reply(admission.reply_to, ack)
        return received

    def _receive_measured(self, admission: Admission, handoff: Handoff, ack: Acknowledgement) -> ReceivedHandoff:
        """Measure a handoff from dispatch to acceptance, by the server's clock; note it if it took too long."""
        seconds = max((workflow.now() - handoff.timestamp).total_seconds(), 0.0)
        self._metrics.measure(LATENCY, seconds, Transport.SIGNAL, admission.sender, ack.by)
        breach = slo_breach(Transport.SIGNAL, seconds)
        if breach:
            self._note(f"{admission.sender!r} to {ack.by!r}: {breach}")
        return ReceivedHandoff.of(admission, handoff, seconds)

    def _count(self, verdict: str, sender: str, receiver: str) -> None:
        self._metrics.handoff(verdict, sender, receiver)

    async def _repeat_answer(self, raw: bytes) -> None:
        reply_to, ack = self._answered_hashes[_hash(raw)]
        self._note(f"handoff {ack.handoff_id} came again; the answer is the same: {ack.answer.value}")
        await self._reply(reply_to, ack)

    def _remember_bytes(self, raw: bytes, reply_to: str, ack: Acknowledgement) -> None:
        """Remember answered bytes, so that a repeated message needs no gate."""
        self._answered_hashes[_hash(raw)] = (reply_to, ack)
        if len(self._answered_hashes) > MAX_REMEMBERED:
            del self._answered_hashes[next(iter(self._answered_hashes))]

    async def _reply(self, reply_to: str | None, ack: Acknowledgement) -> None:
        """Signal an answer to the sender, which sends again if it does not arrive."""
        if reply_to and not await signal_workflow(reply_to, HANDOFF_ANSWER, ack):
            self._note(f"{reply_to!r} has ended and does not receive the answer to handoff {ack.handoff_id}")

    def _on_handoff(self, *arguments: Any) -> None:
        """Hand a task to this pipeline, by one sealed handoff; anything else is refused with a note."""
        raw = message_of(arguments)
        if raw is None:
            self._note(
                f"refused a signal {HANDOFF!r} that is not a sealed handoff of 4 MiB at most, marked as one by {MARK}"
            )
            return
        if _hash(raw) in self._answered_hashes:
            self._repeats.put(raw)
        elif len(self._queue) >= MAX_QUEUED:
            self._note(f"refused a handoff: {MAX_QUEUED} are already waiting")
        elif self._waiting_bytes() + len(raw) > MAX_QUEUED_BYTES:
            self._note(f"refused a handoff: {self._waiting_bytes():,} bytes are already waiting")
        else:
            self._queue.append(_Queued(raw))

    def _waiting_bytes(self) -> int:
        return sum(len(queued.raw) for queued in self._queue)

    def _parsed_part(self) -> Sequence[_Queued]:
        """Return the oldest messages, which are parsed to choose the next; at least one."""
        sizes = itertools.accumulate(len(queued.raw) for queued in self._queue)
        return self._queue[: max(1, sum(size <= MAX_PARSED_BYTES for size in sizes))]

    def _on_answered(self, handoff_id: str) -> Acknowledgement | None:
        """Return this pipeline's answer to a handoff, by its id."""
        return self._intake.answer(handoff_id)


def _hash(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
