"""How a pipeline reaches another one: signals out, sealed messages in, and the worker that opens them."""

import asyncio
import base64
import contextlib
import zlib
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import TypedSearchAttributes
from temporalio.exceptions import FailureError, WorkflowAlreadyStartedError, is_cancelled_exception

from baton.core.messages import PipelineInput
from baton.handoff.sealed import UnverifiedHandoff
from baton.pipelines.workflow_steps import workflow_type
from baton.pipelines.workflow_visibility import labels
from baton.wire.json_values import Json

MARK = "its payload's metadata 'baton-record'"
"""What a sender that is not Baton may have forgotten; see `baton.codec.conversion.RECORD`."""
HANDOFF_ANSWER = "handoff_answer"
"""Signal: a sealed acknowledgement, the one argument."""

LARGEST_MESSAGE = 4 * 1024 * 1024
"""How many bytes a sealed message may have: more does not pass the safety scan in the time that there is for it."""
MOST_CARRIED, MOST_CARRIED_COMPRESSED = 8 * 1024 * 1024, 512 * 1024
"""How many bytes of messages of a kind a run that continues as new takes along, and how many once compressed.

Its input holds them, with all else that the next run begins with. The server takes 2 MiB of it where there is no
artifact store, and nobody reads more than 64 MiB; a run that was sent too much could neither go on nor begin.
"""

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
        task_queue: Where its workers listen; the sender's own queue by default.
    """

    workflow_id: str
    agent: str
    version: str = "*"
    starts: Callable[..., Any] | str | None = None
    params: Mapping[str, Json] = field(default_factory=dict)
    task_queue: str | None = None


def raw_of(given: tuple[Any, ...]) -> bytes | None:
    """Return the bytes of the sealed message that a signal brought, or None if it brought anything else."""
    return given[0].raw if len(given) == 1 and isinstance(given[0], UnverifiedHandoff) else None


def message_of(given: tuple[Any, ...]) -> bytes | None:
    """Return what `raw_of` does, but not a message that no honest sender makes: a few KiB may decompress to 64 MiB."""
    raw = raw_of(given)
    return None if raw is None or len(raw) > LARGEST_MESSAGE else raw


def as_carried(messages: Iterable[bytes]) -> list[JsonValue]:
    """Return messages in base64, in their order, for the run that continues this one: as many as that can take.

    The smallest come along: an honest sender's hardly ever is as large as what is sent to do harm. Whoever sent one of
    the others is not answered, and sends it again.
    """
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


class Beside:
    """Work on messages that goes on beside the pipeline's code, and does not keep a run from ending.

    A handler that waits would: Temporal warns of each one that a run leaves unfinished. What is unfinished when a
    run continues as new is `pending`, and is begun again there.

    When somebody asks a query in the task in which a local activity ends, the SDK hands its end on in the task after
    that, together with what has ended there, and in a replay in the task where it ended, by itself. Whatever this
    changes the order of, the run no longer fits its own history: hence `in_turn` and `once`.
    """

    def __init__(
        self, work: Callable[[bytes], Awaitable[None]], pending: Iterable[str] = (), *, in_turn: bool = False
    ) -> None:
        """Begin with what an earlier run had not finished.

        Args:
            work: What to do with a message.
            pending: What `pending` returned there.
            in_turn: Whether a message waits for the one before it; needed where different code waits for each.
        """
        self._work = work
        self._turn = asyncio.Lock()
        self._watching: list[Callable[[], None]] = []
        self._in_turn = in_turn
        self._messages: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()
        for one in pending:
            self.put(base64.b64decode(one))

    def put(self, raw: bytes) -> None:
        """Begin to work on a message."""
        self._messages.append(raw)
        task = asyncio.create_task(self._do(raw))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def once(self, true: Callable[[], bool], within: timedelta, summary: str) -> asyncio.Task[None]:
        """Wait until messages make something true, if only until the next one comes, or the time is up.

        A timer is started in any case and before anything else, for whether there is a message yet may differ in a
        replay. So may which messages are opened together: hence it is asked after each one. Of those that are being
        opened as the time is up, all count.

        Args:
            true: Says whether it is.
            within: For how long to wait.
            summary: What the timer is called in the UI.

        Returns:
            The timer, which may be stopped in a later task than the one in which it was started.
        """
        timer = asyncio.create_task(workflow.sleep(within, summary=summary))
        was = true()

        def look() -> None:
            nonlocal was
            was = was or true()

        self._watching.append(look)
        try:
            await workflow.wait_condition(lambda: was or timer.done())
            opening = set(self._tasks)
            await workflow.wait_condition(lambda: was or opening.isdisjoint(self._tasks))
        finally:
            self._watching.remove(look)
        return timer

    def pending(self) -> list[JsonValue]:
        """Return the messages that are being worked on, in base64, as many as the next run can take."""
        return as_carried(self._messages)

    async def _do(self, raw: bytes) -> None:
        try:
            async with self._turn if self._in_turn else contextlib.nullcontext():
                await self._work(raw)
        finally:
            self._messages.remove(raw)
        for look in self._watching:
            look()


async def ended_once(true: Callable[[], bool], tasks: Sequence[asyncio.Future[Any]]) -> list[Any]:
    """Wait until something is true, cancel tasks that run beside, and return what each ended with, or raised.

    They are not waited for in a `finally`: a pipeline that is put aside closes its blocks wherever the interpreter
    collects them, and one that waits there cannot be closed.

    Args:
        true: Says whether it is.
        tasks: The tasks.
    """

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


async def tell(workflow_id: str, signal: str, message: object) -> bool:
    """Send a signal with one message; return whether somebody runs under that id to receive it.

    Nobody does under an id that the server takes from nobody. It would refuse the command, and the task with it, again
    and again; and the id may be what a received message says.

    A run that is cancelled meanwhile is so once it is known what became of the signal, which nobody can call back. The
    SDK would go on as if it had not been; and a run is told of it once only.

    Args:
        workflow_id: Where to.
        signal: The signal's name.
        message: What the codec seals as it leaves.
    """
    if not 0 < len(workflow_id.encode()) <= _LONGEST_ID:
        return False
    sending = _Heeding(workflow.get_external_workflow_handle(workflow_id).signal(signal, message))
    arrived = True
    try:
        await sending
    except FailureError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError(f"the signal {signal!r} was cancelled") from error
        arrived = False
    if sending.cancelled and workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError(f"the run was cancelled while the signal {signal!r} was on the way")
    return arrived


class _Heeding:
    """Awaits something that keeps a cancellation to itself, and knows of it."""

    def __init__(self, what: Awaitable[None]) -> None:
        self._what = what
        self.cancelled = False

    def __await__(self) -> Generator[Any, Any, None]:
        with contextlib.closing(self._what.__await__()) as waiting:
            go_on: Callable[[], Any] = partial(next, waiting)
            while True:
                try:
                    wanted = go_on()
                except StopIteration:
                    return
                try:
                    yield wanted
                except asyncio.CancelledError as error:
                    self.cancelled = True
                    go_on = partial(waiting.throw, error)
                else:
                    go_on = partial(next, waiting)


async def start_receiver(to: Receiver, start: PipelineInput, *, searchable: bool) -> None:
    """Start a receiver that does not run yet; it outlives its sender.

    One that somebody else started in the same moment will do as well.

    Args:
        to: The receiver; its `starts` names the workflow type.
        start: Its input.
        searchable: Whether the server knows Baton's search attributes.
    """
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
            static_summary=start.goal[:200],
        )
    except WorkflowAlreadyStartedError:
        return
