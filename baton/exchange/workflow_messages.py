"""How a pipeline reaches another one: signals out, sealed messages in, and the worker that opens them."""

import asyncio
import base64
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import RetryPolicy, TypedSearchAttributes
from temporalio.exceptions import FailureError, WorkflowAlreadyStartedError

from baton.core.messages import PipelineInput
from baton.exchange.admission import ADMIT, OPEN, AcceptRequest, Admission, Opened
from baton.handoff.sealed import UnverifiedHandoff
from baton.pipelines.workflow_steps import workflow_type
from baton.pipelines.workflow_visibility import labels
from baton.wire.json_values import Json
from baton.wire.text import inert

MARK = "its payload's metadata 'baton-record'"
"""What a sender that is not Baton may have forgotten; see `baton.codec.conversion.RECORD`."""

LARGEST_MESSAGE = 4 * 1024 * 1024
"""How many bytes a sealed message may have: more does not pass the safety scan in the time that there is for it."""
MOST_CARRIED, MOST_CARRIED_COMPRESSED = 8 * 1024 * 1024, 512 * 1024
"""How many bytes of messages of a kind a run that continues as new takes along, and how many once compressed.

Its input holds them, with all else that the next run begins with. The server takes 2 MiB of it where there is no
artifact store, and nobody reads more than 64 MiB; a run that was sent too much could neither continue nor begin.
"""

AnswerT = TypeVar("AnswerT")

_OPENING_TIMEOUT = timedelta(seconds=10)
_LONGEST_ID = 1_000  # bytes of a workflow id, as a server has it that nobody told otherwise


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
            search_attributes=TypedSearchAttributes(labels(kind, start.task_id)) if searchable else None,
            static_summary=inert(start.goal[:200]),
        )
    except WorkflowAlreadyStartedError:
        return
