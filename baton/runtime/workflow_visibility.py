"""A pipeline in the Temporal UI: search attributes, and the page of the run's details."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from inspect import Parameter, Signature, iscoroutinefunction
from typing import Any, TypeVar, cast

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from baton.core.exhibits import Exhibit
from baton.core.messages import PipelineStatus, Waiting
from baton.core.questions import Question
from baton.core.rendering import render
from baton.core.state import PipelineState
from baton.wire.money import to_usd
from baton.wire.names import (
    ANSWER,
    ATTRIBUTE_PIPELINE,
    ATTRIBUTE_STAGE,
    ATTRIBUTE_STATUS,
    ATTRIBUTE_TASK,
    ATTRIBUTE_UNTIL,
    NOT_WAITING,
)
from baton.wire.text import disarm, single_line

_PIPELINE = SearchAttributeKey.for_keyword(ATTRIBUTE_PIPELINE)
_TASK = SearchAttributeKey.for_keyword(ATTRIBUTE_TASK)
_STAGE = SearchAttributeKey.for_keyword(ATTRIBUTE_STAGE)
_STATUS = SearchAttributeKey.for_keyword(ATTRIBUTE_STATUS)
_UNTIL = SearchAttributeKey.for_datetime(ATTRIBUTE_UNTIL)
_MAX_UNTIL = datetime(2200, 1, 1, tzinfo=UTC)  # the server stores nanoseconds, up to 2262
# By precedence: people search for what they can decide.
_WAITING = (PipelineStatus.PENDING_HANDOFF, PipelineStatus.WAITING, PipelineStatus.SUSPENDED)
_SEARCHABLE_STATUS = frozenset({*_WAITING, PipelineStatus.FAILED})
_MIN_UPDATE_SECONDS = 1
_MAX_LISTED_STEPS = 12
_MAX_DETAILS_TOKENS = 1_000  # the UI sends the page as a URL, which proxies cut at about 8 KB
_MAX_EXHIBIT_CHARACTERS = 1_500
_MAX_ATTRIBUTE_LENGTH = 160  # the server ends a run whose attribute has over 2,048 bytes; a character has up to 12
# By event loop, for the interceptor that learns of a failure and has no access to the pipeline.
_by_loop: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[Visibility]]" = weakref.WeakKeyDictionary()


AnswerT = TypeVar("AnswerT")
_ANY_ARGUMENTS = Signature([Parameter("args", Parameter.VAR_POSITIONAL)])


class Visibility:
    """Keeps search attributes and details up to date, with few commands.

    Attributes:
        at_end: What follows the run's code if it returned, such as recording its result.
    """

    def __init__(self) -> None:
        info = workflow.info()
        self.enabled = _is_searchable(info)
        self._has_until = info.typed_search_attributes.get(_UNTIL) is not None  # else setting it would fail the task
        self.closed = False
        self.at_end: Callable[[], Awaitable[None]] | None = None
        self._loop = asyncio.get_running_loop()
        self._status = PipelineStatus.RUNNING
        self._shows_rejection = False
        self._waiting: list[tuple[PipelineStatus, datetime]] = []
        self._until = NOT_WAITING
        self._seconds = 0
        self._stages: list[tuple[str, int]] = []
        _by_loop[self._loop] = weakref.ref(self)

    @property
    def status(self) -> PipelineStatus:
        """The current status."""
        return self._status

    @property
    def may_write(self) -> bool:
        """Whether commands may be added now.

        When a worker evicts a run, the interpreter may close its blocks later, outside of any task or in that of
        another workflow, whose history must not change.
        """
        return not self.closed and runs_in(self._loop) and not workflow.unsafe.is_read_only()

    def set_task(self, task_id: str) -> None:
        """Set the task's search attribute if the starter did not, such as a schedule."""
        if self.enabled and workflow.info().typed_search_attributes.get(_TASK) is None:
            workflow.upsert_search_attributes([_TASK.value_set(task_id)])

    def enter_step(self, name: str) -> None:
        """Note that a step begins: list it with the event to reset to, and update the search attribute at times."""
        self._stages.append((name, workflow.info().get_current_history_length() + 1))
        if self._shows_rejection:
            self.resume(name)
        if self._seconds >= _MIN_UPDATE_SECONDS:
            self._upsert(name)

    def add_seconds(self, seconds: int) -> None:
        """Add the duration of a step."""
        self._seconds += seconds

    def set_status(self, status: PipelineStatus, name: str | None = None) -> None:
        """Set the status, and the step it belongs to."""
        self._shows_rejection = False
        previous, self._status = self._status, status
        is_shown = previous in _SEARCHABLE_STATUS or status in _SEARCHABLE_STATUS
        if (status is not previous and is_shown) or (self._has_until and self._nearest_deadline() != self._until):
            self._upsert(name)

    @contextmanager
    def show_waiting(self, status: PipelineStatus, name: str, until: datetime | None = None) -> Iterator[None]:
        """Show a waiting status during the block, unless another one takes precedence; call `resume` afterwards.

        Args:
            status: The status.
            name: The step that waits.
            until: The deadline of the question to people, if there is one.
        """
        deadline = NOT_WAITING if until is None else min(until, _MAX_UNTIL).replace(microsecond=0)
        waiting = (status, deadline)
        self._waiting.append(waiting)
        self.set_status(self._waiting_status(status), name)
        try:
            yield
        finally:
            self._waiting.remove(waiting)

    def resume(self, name: str | None = None) -> None:
        """Show that the run continues, or what else it waits for."""
        self.set_status(self._waiting_status(PipelineStatus.RUNNING), name)

    def _waiting_status(self, default: PipelineStatus) -> PipelineStatus:
        """Return the waiting status that takes precedence, or the default."""
        shown = [status for status, _ in self._waiting]
        return next((status for status in _WAITING if status in shown), default)

    def _nearest_deadline(self) -> datetime:
        """Return the nearest deadline of a question to people."""
        return min((until for _, until in self._waiting if until != NOT_WAITING), default=NOT_WAITING)

    def show_rejected(self, name: str | None = None) -> None:
        """Show that a handoff was rejected, until the pipeline's code begins another step."""
        is_new = self._status is not PipelineStatus.PENDING_HANDOFF
        self.set_status(PipelineStatus.PENDING_HANDOFF, name)
        self._shows_rejection = is_new

    def mark_failed(self) -> None:
        """Answer queries of the closed run with `FAILED`, unless it failed at a pending handoff."""
        if self._status is not PipelineStatus.PENDING_HANDOFF:
            self._status = PipelineStatus.FAILED

    def page(
        self,
        state: PipelineState,
        under_way: list[Waiting],
        questions: Sequence[Question],
        notes: list[str],
        micro_usd: int,
    ) -> str:
        """Return the details: status, questions, baton, and events to reset to (Temporal UI, "User Metadata")."""
        names = [f"{step.kind} **{disarm(step.name)}**" for step in under_way]
        names += [f"approval **{disarm(asked.title)}**" for asked in questions if asked.handoff is None]
        rows = [f"**Status:** {self._status.value.lower()} · **waits for:** {', '.join(names) or 'nothing'}", ""]
        rows += [f"**Spent:** {to_usd(micro_usd)} USD", ""] if micro_usd else []
        for asked in questions:
            what = f"**{disarm(single_line(asked.title))}:**"
            if (handoff := asked.handoff) is not None:
                route = f"{disarm(handoff.sender)} to {disarm(handoff.receiver)}"
                what = f"**Handoff from {route}:** {disarm(handoff.why)}:"
            text = disarm(single_line(asked.text))
            rows += [f"{what} {text} (until {asked.until:%Y-%m-%d %H:%M} UTC)", "", *_exhibit_rows(asked.shows)]
        run = disarm(workflow.info().workflow_id)
        shows = dict.fromkeys("baton show" if asked.handoff is None else "baton inbox show" for asked in questions)
        if shows:
            commands = " or ".join(f"`{show} {run}`" for show in shows)
            rows += [f"{commands} has the commands that decide; or send the update `{ANSWER}`.", ""]
        rows += [f"> {disarm(note)}" for note in notes[-3:]]
        baton = disarm(render(state.baton, max_tokens=_MAX_DETAILS_TOKENS))
        rows += ["", baton.replace(":**\n- ", ":**\n\n- "), "### Roll back", ""]
        if len(self._stages) > _MAX_LISTED_STEPS:
            rows.append(f"- (+{len(self._stages) - _MAX_LISTED_STEPS} earlier)")
        rows += [f"- before **{disarm(name)}** = event {event}" for name, event in self._stages[-_MAX_LISTED_STEPS:]]
        return "\n".join(rows)

    def _upsert(self, name: str | None) -> None:
        """Update the search attributes, if the run has them."""
        if not self.enabled or not self.may_write:
            return
        self._seconds = 0
        status = self._status.value if self._status in _SEARCHABLE_STATUS else None
        updates: list[SearchAttributeUpdate[Any]] = [
            _STATUS.value_unset() if status is None else _STATUS.value_set(status)
        ]
        if self._has_until and (until := self._nearest_deadline()) != self._until:
            self._until = until
            updates.append(_UNTIL.value_set(until))
        workflow.upsert_search_attributes(
            [*updates, _STAGE.value_set(name[:_MAX_ATTRIBUTE_LENGTH])] if name else updates
        )


def _exhibit_rows(exhibits: list[Exhibit]) -> list[str]:
    """Return the beginnings of an approval's exhibits as inert code, and the command for the rest."""
    rows, remaining = [], _MAX_EXHIBIT_CHARACTERS
    for exhibit in exhibits:
        text = exhibit.text[:remaining]
        lines = [f"    {single_line(line)}" for line in text.splitlines()]
        rows += [f"{disarm(single_line(exhibit.title))}:", "", *lines, ""]
        remaining -= len(text)
    if sum(exhibit.length for exhibit in exhibits) > _MAX_EXHIBIT_CHARACTERS:
        rows += [f"Read all of it with `baton show {disarm(workflow.info().workflow_id)} --asked`.", ""]
    return rows


def show_failed(loop: asyncio.AbstractEventLoop) -> None:
    """Show the running workflow as failed, to queries and, if searchable, in its search attribute."""
    if not runs_in(loop):
        return
    if (visibility := _visibility_of(loop)) is not None:
        visibility.mark_failed()
    if _is_searchable(workflow.info()):
        workflow.upsert_search_attributes([_STATUS.value_set(PipelineStatus.FAILED.value)])


async def complete_run(loop: asyncio.AbstractEventLoop) -> None:
    """Do what follows the code of a run that returned."""
    visibility = _visibility_of(loop)
    if visibility is not None and visibility.at_end is not None:
        await visibility.at_end()


def close_run(loop: asyncio.AbstractEventLoop) -> None:
    """Prevent steps that are still being canceled from adding commands after the end of the run."""
    if (visibility := _visibility_of(loop)) is not None:
        visibility.closed = True


def is_closed() -> bool:
    """Return whether the code of the running workflow has ended."""
    visibility = _visibility_of(asyncio.get_running_loop())
    return visibility is not None and visibility.closed


def _visibility_of(loop: asyncio.AbstractEventLoop) -> Visibility | None:
    """Return the visibility of a workflow's pipeline; None if it has none."""
    return _by_loop[loop]() if loop in _by_loop else None


def upsert_memo(members: Mapping[str, Any]) -> None:
    """Update the memo, for readers without a worker; no effect once the run's code has ended."""
    if not is_closed():
        workflow.upsert_memo(members)


def untyped_handler(handler: Callable[..., AnswerT]) -> Callable[..., AnswerT]:
    """Return a handler without annotations, which the SDK would otherwise inspect in each run."""

    async def call_async(*args: Any) -> Any:
        return await cast("Any", handler)(*args)

    call: Any = lambda *args: handler(*args)  # noqa: E731 - a function without annotations
    untyped: Any = call_async if iscoroutinefunction(handler) else call
    untyped.__signature__ = _ANY_ARGUMENTS
    return cast("Callable[..., AnswerT]", untyped)


def runs_in(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the workflow of an event loop is the one that is running."""
    return workflow.in_workflow() and asyncio.get_running_loop() is loop


def _is_searchable(info: workflow.Info) -> bool:
    """Return whether a run was started with Baton's search attributes."""
    return info.typed_search_attributes.get(_PIPELINE) is not None
