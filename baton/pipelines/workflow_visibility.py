"""What people see of a pipeline in the Temporal UI: search attributes, and the page in the run's details."""

import asyncio
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature, iscoroutinefunction
from typing import Any, TypeVar, cast

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair

from baton.core.exhibits import Exhibit
from baton.core.messages import PipelineStatus, Waiting
from baton.core.rendering import render
from baton.core.state import PipelineState
from baton.handoff.pending import PendingHandoff
from baton.wire.money import to_usd
from baton.wire.names import ATTRIBUTE_PIPELINE, ATTRIBUTE_STAGE, ATTRIBUTE_STATUS, ATTRIBUTE_TASK, DECIDE
from baton.wire.text import disarm, single_line

_PIPELINE = SearchAttributeKey.for_keyword(ATTRIBUTE_PIPELINE)
_TASK = SearchAttributeKey.for_keyword(ATTRIBUTE_TASK)
_STAGE = SearchAttributeKey.for_keyword(ATTRIBUTE_STAGE)
_STATUS = SearchAttributeKey.for_keyword(ATTRIBUTE_STATUS)
# What people can decide comes first: they find it by this.
_WAITS = (PipelineStatus.PENDING_HANDOFF, PipelineStatus.WAITING, PipelineStatus.SUSPENDED)
_STATUS_OF_ITS_OWN = frozenset({*_WAITS, PipelineStatus.FAILED})
_NOT_MORE_OFTEN_THAN_SECONDS = 1
_STEPS_LISTED = 12
_DETAILS_TOKENS = 1_000  # the UI sends the page as a URL, which proxies cut at about 8 KB
_SHOWN_CHARACTERS = 1_500
# By the workflow's event loop: the code around it learns that it failed, and has no way to its pipeline.
_shown: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[Visibility]]" = weakref.WeakKeyDictionary()


AnswerT = TypeVar("AnswerT")
_ANY_ARGUMENTS = Signature([Parameter("given", Parameter.VAR_POSITIONAL)])


class Visibility:
    """Keeps search attributes and details up to date, as cheaply as they can be.

    Attributes:
        enabled: Whether the run has Baton's search attributes.
        closed: Whether the run's code has ended.
    """

    def __init__(self) -> None:
        info = workflow.info()
        self.enabled = _is_searchable(info)
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._status = PipelineStatus.RUNNING
        self._given_up = False
        self._waits: list[PipelineStatus] = []
        self._seconds = 0
        self._stages: list[tuple[str, int]] = []
        _shown[self._loop] = weakref.ref(self)

    @property
    def status(self) -> PipelineStatus:
        """The status that is shown now."""
        return self._status

    def is_task(self, task_id: str) -> None:
        """Make a run searchable by its task, where who started it did not know that, as a schedule does not."""
        if self.enabled and workflow.info().typed_search_attributes.get(_TASK) is None:
            workflow.upsert_search_attributes([_TASK.value_set(task_id)])

    def entered(self, name: str) -> None:
        """Note that a step begins: it is listed with the event to reset to, and may become searchable."""
        self._stages.append((name, workflow.info().get_current_history_length() + 1))
        if self._given_up:
            self.goes_on(name)
        if self._seconds >= _NOT_MORE_OFTEN_THAN_SECONDS:
            self._upsert(name)

    def ran(self, seconds: int) -> None:
        """Note how long a step ran."""
        self._seconds += seconds

    def became(self, status: PipelineStatus, name: str | None = None) -> None:
        """Show another status, and the step it belongs to."""
        self._given_up = False
        if status is not self._status:
            before, self._status = self._status, status
            if before in _STATUS_OF_ITS_OWN or status in _STATUS_OF_ITS_OWN:
                self._upsert(name)

    @contextmanager
    def waiting(self, status: PipelineStatus, name: str) -> Iterator[None]:
        """Show that something waits while the block runs, unless a person is waited for; `goes_on` shows its end."""
        self._waits.append(status)
        self.became(self._foremost(status), name)
        try:
            yield
        finally:
            self._waits.remove(status)

    def goes_on(self, name: str | None = None) -> None:
        """Show that a run continues, or what else it waits for: people and agents find by that what is theirs."""
        self.became(self._foremost(PipelineStatus.RUNNING), name)

    def _foremost(self, usual: PipelineStatus) -> PipelineStatus:
        """Return the first status of all that waits, or the usual one."""
        found = [one for one in _WAITS if one in self._waits]
        return found[0] if found else usual

    def gave_up(self, name: str | None = None) -> None:
        """Show a handoff that was not accepted, until the pipeline's code, which learns of it, continues to a step."""
        is_alone = self._status is not PipelineStatus.PENDING_HANDOFF
        self.became(PipelineStatus.PENDING_HANDOFF, name)
        self._given_up = is_alone

    def failed(self) -> None:
        """Answer queries of the closed run by `FAILED`; one that failed at a handoff to outside stays pending."""
        if self._status is not PipelineStatus.PENDING_HANDOFF:
            self._status = PipelineStatus.FAILED

    def page(
        self,
        state: PipelineState,
        under_way: list[Waiting],
        approvals: list[Waiting],
        pending: Sequence[PendingHandoff],
        notes: list[str],
        micro_usd: int,
    ) -> str:
        """Return the baton as the workflow's details, with where to reset to (Temporal UI, "User Metadata")."""
        waits = [f"{one.kind} **{disarm(one.name)}**" for one in under_way]
        waits += [f"approval **{disarm(one.name)}**" for one in approvals]
        rows = [f"**Status:** {self._status.value.lower()} · **waits for:** {', '.join(waits) or 'nothing'}", ""]
        rows += [f"**Spent:** {to_usd(micro_usd)} USD", ""] if micro_usd else []
        for one in approvals:
            until = f" (until {one.until:%Y-%m-%d %H:%M} UTC)" if one.until else ""
            rows += [
                f"**{disarm(single_line(one.name))}:** {disarm(single_line(one.asks or ''))}{until}",
                "",
            ]
            rows += _shown_rows(one.shows)
        for refused in pending:
            way = f"{disarm(refused.sender)} to {disarm(refused.receiver)}"
            rows += [
                f"**Handoff from {way}:** {disarm(refused.why)}: {disarm(single_line(refused.details))} "
                f"(until {refused.until:%Y-%m-%d %H:%M} UTC)",
                "",
            ]
        if self._status is PipelineStatus.PENDING_HANDOFF:
            rows += [f"Decide with `baton inbox show {disarm(workflow.info().workflow_id)}`.", ""]
        if approvals:
            run = disarm(workflow.info().workflow_id)
            rows += [f"Decide with `baton approve {run}` or `baton deny {run}`, or send the update `{DECIDE}`.", ""]
        rows += [f"> {disarm(note)}" for note in notes[-3:]]
        baton = disarm(render(state.baton, max_tokens=_DETAILS_TOKENS))
        rows += ["", baton.replace(":**\n- ", ":**\n\n- "), "### Roll back", ""]
        if len(self._stages) > _STEPS_LISTED:
            rows.append(f"- (+{len(self._stages) - _STEPS_LISTED} earlier)")
        rows += [f"- before **{disarm(name)}** = event {event}" for name, event in self._stages[-_STEPS_LISTED:]]
        return "\n".join(rows)

    def _upsert(self, name: str | None) -> None:
        """Write the search attributes, if the run has them."""
        # A pipeline that is only put aside, because its worker stops, closes its blocks wherever the interpreter
        # collects them: outside of any task, or in the midst of another workflow's, whose history it must not change.
        if not self.enabled or self.closed or not runs_in(self._loop):
            return
        if workflow.unsafe.is_read_only():
            return
        self._seconds = 0
        shown = self._status.value if self._status in _STATUS_OF_ITS_OWN else None
        updates = [_STATUS.value_unset() if shown is None else _STATUS.value_set(shown)]
        workflow.upsert_search_attributes([*updates, _STAGE.value_set(name)] if name else updates)


def _shown_rows(shows: list[Exhibit]) -> list[str]:
    """Return the beginnings of what an approval shows, as inert code, and the command for the rest."""
    rows, left = [], _SHOWN_CHARACTERS
    for one in shows:
        lines = one.text[:left].splitlines()
        rows += [f"{disarm(single_line(one.title))}:", "", *(f"    {single_line(line)}" for line in lines), ""]
        left -= len(one.text[:left])
    if any(not one.is_whole for one in shows) or sum(len(one.text) for one in shows) > _SHOWN_CHARACTERS:
        rows += [f"Read all of it with `baton show {disarm(workflow.info().workflow_id)} --asked`.", ""]
    return rows


def labels(pipeline: str, task_id: str | None) -> list[SearchAttributePair[str]]:
    """Return the search attributes that a pipeline is started with."""
    return [SearchAttributePair(_PIPELINE, pipeline), SearchAttributePair(_TASK, task_id or "")]


def show_failed(loop: asyncio.AbstractEventLoop) -> None:
    """Show a workflow that runs as failed: in its answers to queries, and in the search if it is searchable at all."""
    if not runs_in(loop):
        return
    visibility = _shown[loop]() if loop in _shown else None  # a workflow may have no pipeline
    if visibility is not None:
        visibility.failed()
    if _is_searchable(workflow.info()):
        workflow.upsert_search_attributes([_STATUS.value_set(PipelineStatus.FAILED.value)])


def close_run(loop: asyncio.AbstractEventLoop) -> None:
    """Keep steps that are still being cancelled from leaving commands behind the command that ends their run."""
    visibility = _shown[loop]() if loop in _shown else None
    if visibility is not None:
        visibility.closed = True


def is_closed() -> bool:
    """Return whether the code of the running workflow has ended."""
    loop = asyncio.get_running_loop()
    visibility = _shown[loop]() if loop in _shown else None
    return visibility is not None and visibility.closed


def upsert_memo(members: Mapping[str, Any]) -> None:
    """Leave something in the history, for readers without a worker; nothing once the run's code has ended."""
    if not is_closed():
        workflow.upsert_memo(members)


def untyped_handler(handler: Callable[..., AnswerT]) -> Callable[..., AnswerT]:
    """Return a handler of a query or signal that the SDK does not inspect, which it would do again for each run."""

    async def awaited(*given: Any) -> Any:
        return await cast("Any", handler)(*given)

    plain: Any = lambda *given: handler(*given)  # noqa: E731 - a function without annotations
    untyped: Any = awaited if iscoroutinefunction(handler) else plain
    untyped.__signature__ = _ANY_ARGUMENTS
    return cast("Callable[..., AnswerT]", untyped)


def runs_in(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the workflow of an event loop is the one that runs, if one does."""
    return workflow.in_workflow() and asyncio.get_running_loop() is loop


def _is_searchable(info: workflow.Info) -> bool:
    """Return whether a run was started with Baton's search attributes, so that the server knows them."""
    return info.typed_search_attributes.get(_PIPELINE) is not None
