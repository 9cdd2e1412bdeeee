"""The steps of a run: numbered, and restored from recorded outcomes."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeGuard

from pydantic import JsonValue
from temporalio import workflow

from baton.core.history import CANCELED_WITH_RUN, Outcome, StepKind
from baton.core.messages import StageResult, Waiting
from baton.core.pages import PAGE, write_pages
from baton.core.past import Heir
from baton.errors import PayloadTooLargeError, PipelineError, StageFailedError
from baton.runtime.workflow_input import remedy, suspend
from baton.runtime.workflow_run import Run
from baton.runtime.workflow_visibility import is_closed
from baton.wire.json_values import has_lone_surrogate
from baton.wire.records import has_text
from baton.wire.text import quantity

_PATIENCE = timedelta(seconds=10)
_MIN_RUN_TIME = timedelta(seconds=1)  # the server stalls runs that continue as new more often


@dataclass(frozen=True)
class ContinueAfter:
    """When a pipeline continues as new; it may do so before any step.

    Attributes:
        events: The length of the run's history, in events.
        bytes: The size of the run's history, in bytes.
        upgrade: Whether a run of versioned workers continues on their new build: as soon as the server has one for it,
            before the next step. By default a run stays on its build. Its recorded steps must fit the new code.
    """

    events: int = 3_200
    bytes: int = 2_000_000
    upgrade: bool = False


_MAX_RESTORED = PAGE  # steps in one workflow task, which has two seconds


class RecordedOutcomes:
    """The outcomes that a run starts with, restored in the order in which they happened.

    Attributes:
        is_excused: Whether something else than its code may end the run before they are restored.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._start = start = run.start
        self._fit = run.input.fit
        self._state = state = run.state
        self._edit = start.edit
        self._unread: deque[str | list[Outcome]] = deque([*start.pages, start.outcomes])
        self._count = start.recorded_count
        self._by_seq: dict[int, Outcome] = {}
        self._edits: dict[int, Outcome] = {}
        self._left: set[int] = set()
        self._slicing = asyncio.Lock()
        self._known = self._task = self._restored = self._slice_events = 0
        self._first_bytes = workflow.info().get_current_history_size()
        self._fit.left = self._count_left
        self._fit.release = self._release
        state.report_misfit = self._report_misfit
        self.is_excused = False

    async def restore_step(self, seq: int, name: str, kind: StepKind) -> Outcome | None:
        """Apply and return the recorded outcome of a step, or None if there is none."""
        if len(self._state.outcomes) < self._count:
            await self._admit(1)
        await self._restore_edits()
        while seq not in self._by_seq and self._unread:  # concurrent code asks for steps that ended much later
            await self._admit(_MAX_RESTORED)
            self._read()
        outcome = self._by_seq.get(seq)
        if outcome is None:
            return None
        if (outcome.name, outcome.kind) != (name, kind):
            await self.suspend(
                f"step {seq} was recorded as {outcome.kind.value} {outcome.name!r}, but the code asks for "
                f"{kind.value} {name!r}; the code before this step has changed"
            )
        # In concurrent code other branches begin their first steps while this one runs: let them begin first.
        await workflow.wait_condition(lambda: True)
        await self._wait_for_order(outcome)
        self._state.restore(outcome)
        self._left.discard(seq)
        self._run.account.charge_recorded(outcome)
        await self._restore_edits()
        if outcome.canceled:
            await workflow.wait_condition(lambda: False)  # until the code cancels it again
        if outcome.failure is not None:
            raise StageFailedError(outcome.failure)
        return outcome

    def has_step(self, seq: int, name: str) -> bool:
        """Return whether a step with this number and name is recorded."""
        while seq not in self._by_seq and self._unread:
            self._read()
        return seq in self._by_seq and self._by_seq[seq].name == name

    async def wait_for_edit(self) -> None:
        """In a run that was forked with an edit, wait until all recorded outcomes are restored."""

        def ready() -> bool:
            return self._edit is None or len(self._state.outcomes) >= self._count

        if not ready():
            with suppress(TimeoutError):  # the step that comes too late raises the error
                await workflow.wait_condition(ready, timeout=_PATIENCE)

    def apply_edit(self) -> Outcome | None:
        """Apply the edit of the fork, after all recorded outcomes."""
        if self._edit is None:
            return None
        patch, origin, self._edit = self._edit, self._start.origin, None
        by, why = (origin.by, origin.why) if origin else ("", "")
        return self._state.record_edit(patch, workflow.now(), by, why)

    async def continue_if_long(self, limits: ContinueAfter, carries: Mapping[str, Callable[[], JsonValue]]) -> None:
        """Continue as new if the history is long or has a new build; the next run resumes at this step."""
        info = workflow.info()
        # What the recorded steps take does not count: a run that it makes long would continue for ever.
        long = (
            info.get_current_history_length() - self._slice_events >= limits.events
            or info.get_current_history_size() - self._first_bytes >= limits.bytes
            or info.is_continue_as_new_suggested()
        )
        upgrade = limits.upgrade and info.get_current_deployment_version() is not None
        if upgrade and info.is_target_worker_deployment_version_changed():
            long = True
        if not long or workflow.now() - info.start_time < _MIN_RUN_TIME:
            return
        # The next run would not get the cancellation, and would wait for ever in the step that was canceled here.
        if workflow.cancellation_reason() is not None:
            return
        await workflow.wait_condition(workflow.all_handlers_finished)
        update = {
            **write_pages(self._state.outcomes, self._start.pages),
            "edit": None,
            "task_id": self._run.task_id,
            "continued": self._start.continued + 1,
            "carried": {
                **{name: carry() for name, carry in carries.items()},
                **self._run.account.carried(self._state.spend_without_edits),
            },
            "budget": self._run.account.budget if self._run.account.limited else None,
            "heir": Heir(namespace=info.namespace, workflow_id=info.workflow_id, run_id=info.first_execution_run_id),
        }
        next_start = self._start.model_copy(update=update)
        try:
            workflow.payload_converter().to_payloads([next_start])
        except PayloadTooLargeError as error:  # the SDK would drop it and hang
            await suspend(
                self._fit,
                f"the run must continue as new and carries over {error.size:,} bytes of outcomes and messages, but "
                f"without an artifact store the server takes {error.limit:,}: give its workers one (BATON_ARTIFACTS, "
                "WorkerParts(artifacts=…))",
            )
        behavior = workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE if upgrade else None
        workflow.continue_as_new(next_start, initial_versioning_behavior=behavior)

    async def check_items(self, outcome: Outcome, count: int) -> None:
        """Suspend the run if a map was recorded with another number of items than the code gives it now."""
        recorded = len(outcome.entries) - 1
        if recorded != count:
            await self.suspend(
                f"step {outcome.seq} ({outcome.name!r}) was recorded with {quantity(recorded, 'item')}, but the code "
                f"gives it {count:,}; the code before this step has changed"
            )

    async def _admit(self, steps: int) -> None:
        """Wait until so many further steps may be restored in the current workflow task."""
        async with self._slicing:
            while True:
                length = workflow.info().get_current_history_length()
                if length != self._task:
                    self._task, self._restored = length, 0
                if not self._restored or self._restored + steps <= _MAX_RESTORED:
                    break
                await workflow.sleep(timedelta(milliseconds=1), summary="the next slice of many recorded steps")
                self._slice_events += workflow.info().get_current_history_length() - length
            self._restored += steps

    async def _wait_for_order(self, outcome: Outcome) -> None:
        """Wait until the steps that ended before are restored."""
        if len(self._state.outcomes) == outcome.order:
            return
        why = (
            f"step {outcome.seq} ({outcome.name!r}) was recorded as number {outcome.order + 1} to end, but the code "
            "does not begin the steps before it; it has changed"
        )
        self._fit.waiting[outcome.seq] = f"{why}. {remedy(self._start)}"
        try:
            while (restored := len(self._state.outcomes)) != outcome.order:
                try:
                    await workflow.wait_condition(lambda: len(self._state.outcomes) == outcome.order, timeout=_PATIENCE)
                except TimeoutError:
                    if len(self._state.outcomes) == restored:  # else many are restored slice by slice
                        await self.suspend(why)
        finally:
            del self._fit.waiting[outcome.seq]

    async def _restore_edits(self) -> None:
        while len(self._state.outcomes) >= self._known and self._unread:
            self._read()
        while edit := self._edits.pop(len(self._state.outcomes), None):
            self._state.restore(edit)
        if len(self._state.outcomes) >= self._count:
            _ = self._state.baton  # reports one that does not fit
        if self._fit.misfit:
            await suspend(self._fit, self._fit.misfit)

    def _read(self) -> None:
        """Read the next page."""
        page = self._unread.popleft()
        try:
            outcomes = page if isinstance(page, list) else self._run.input.read_page(page)
        except PipelineError:
            self.is_excused = True
            raise
        self._known += len(outcomes)
        steps = {outcome.seq: outcome for outcome in outcomes if outcome.kind is not StepKind.EDIT}
        self._by_seq |= steps
        self._left |= {seq for seq, outcome in steps.items() if not outcome.canceled}
        self._edits |= {outcome.order: outcome for outcome in outcomes if outcome.kind is StepKind.EDIT}

    def _count_left(self) -> int:
        """Return how many recorded steps the code that ends now has not asked for, though it had to."""
        if self.is_excused or workflow.cancellation_reason() is not None:
            return 0
        with suppress(PipelineError):  # then the run was never one of this code's
            while self._unread:
                self._read()
        return len(self._left)

    def _release(self) -> None:
        """Drop all steps, once nothing of the run is executed any more."""
        for steps in (self._unread, self._by_seq, self._edits, self._state.outcomes, self._state.entries):
            steps.clear()

    def _report_misfit(self, fault: str) -> None:
        """Note that what the restored steps made does not fit the code."""
        outcome, kind = self._state.outcomes[-1], type(self._state.initial).__name__
        self._fit.suspend(
            f"the baton after step {outcome.seq} ({outcome.name!r}) does not fit {kind}: {fault}. {remedy(self._start)}"
        )

    async def suspend(self, why: str) -> NoReturn:
        """Suspend the run because its code does not fit its outcomes; this never returns to that code."""
        await suspend(self._fit, f"{why}. {remedy(self._start)}")


LONG_ENOUGH = 1
"""The seconds counted for a step without a measurement, so that the next step is shown."""

MAX_SERVER_NAME_BYTES = 1_000
"""The server's default limit of workflow ids, workflow types and task queues."""

_MAX_NAME_LENGTH = 200  # the limit of names in records
_WAITING_KINDS = {StepKind.STAGE: "stage", StepKind.MERGE: "fan_out", StepKind.CHILD: "child", StepKind.SLEEP: "sleep"}
_DEFINITION = "__temporal_workflow_definition"  # the SDK sets it on the class and on its `run` method


class Steps:
    """Restores each recorded step, or shows and records it while it is executed.

    Attributes:
        recorded: The outcomes that the run starts with.
    """

    def __init__(
        self,
        run: Run,
        limits: ContinueAfter,
        carries: Mapping[str, Callable[[], JsonValue]],
        record_interventions: Callable[[], Awaitable[None]],
    ) -> None:
        self.recorded = RecordedOutcomes(run)
        self._run = run
        self._limits = limits
        self._carries = carries
        self._record_interventions = record_interventions

    async def begin(self, name: str, kind: StepKind) -> tuple[int, Outcome | None]:
        """Number the next step; return its recorded outcome, or prepare to execute it."""
        if len(name) > _MAX_NAME_LENGTH or not has_text(name) or has_lone_surrogate(name):
            raise ValueError(
                f"a {kind.value} needs a name of 1 to {_MAX_NAME_LENGTH} characters, not only blanks, without half a "
                f"surrogate pair; {name[:40]!r} has {len(name)}"
            )
        self.recorded.is_excused = True
        self.check()
        if is_closed() or self._run.input.fit.misfit:
            await workflow.wait_condition(lambda: False)  # no step begins after the run's end or its suspension
        await self._run.roll_backs.catch_up()
        self.recorded.is_excused = False
        self._run.steps += 1
        seq = self._run.steps
        outcome = await self.recorded.restore_step(seq, name, kind)
        if outcome is None:
            await self.recorded.wait_for_edit()
            self.apply_edit()
            await self._record_interventions()
            await self._run.roll_backs.catch_up()  # a reset may go back to this task
            if self._run.is_idle and self._run.lab is None:
                await self.recorded.continue_if_long(self._limits, self._carries)
            self._run.visibility.enter_step(name)
        return seq, outcome

    def check(self) -> None:
        """Raise an error if the input is unusable, or if the run has ended in the lab."""
        self._run.input.check()
        if self._run.lab is not None:
            self._run.lab.check(self._run.state.outcomes)

    async def sleep(self, seq: int, name: str, duration: timedelta) -> None:
        """Sleep, but not in the lab."""
        if self._run.lab is None:
            await workflow.sleep(duration, summary=f"step {seq}: sleeps: {name}"[:200])
        self._run.visibility.add_seconds(LONG_ENOUGH)

    def apply_edit(self) -> None:
        """Apply and publish the edit of a fork."""
        edit = self.recorded.apply_edit()
        if edit is not None:
            self._run.publish(edit)

    @contextmanager
    def under_way(self, kind: StepKind, name: str, seq: int, until: datetime | None = None) -> Iterator[None]:
        """Show a step as in progress while the block runs, and record its failure."""
        waiting = Waiting(kind=_WAITING_KINDS[kind], name=name, seq=seq, since=workflow.now(), until=until)
        self._run.under_way[seq] = waiting
        try:
            with self.record_failure(kind, name, seq):
                yield
        finally:
            del self._run.under_way[seq]

    @contextmanager
    def record_failure(self, kind: StepKind, name: str, seq: int) -> Iterator[None]:
        """Record the outcome if the step in the block fails or is canceled, by the code or with its run."""
        try:
            yield
        except StageFailedError as error:
            self._run.publish(self._run.state.record_failure(seq, name, kind, str(error)))
            self._run.visibility.add_seconds(LONG_ENOUGH)
            raise
        except asyncio.CancelledError:
            why = "canceled by the pipeline" if workflow.cancellation_reason() is None else CANCELED_WITH_RUN
            self._run.publish(self._run.state.record_failure(seq, name, kind, why, canceled=True))
            raise


def stage_results(outcome: Outcome) -> list[StageResult]:
    """Return the result of a stage, or of each branch of a fan-out in order."""
    if outcome.kind is not StepKind.MERGE:
        entry = outcome.entries[0]
        return [StageResult(baton_patch=entry.effective, output=outcome.value, spend=entry.spend)]
    outputs = outcome.value if isinstance(outcome.value, list) else []
    return [
        StageResult(baton_patch=entry.patch, output=output, spend=entry.spend)
        for entry, output in zip(outcome.entries, outputs, strict=False)
    ]


def is_pipeline(value: object) -> TypeGuard[type]:
    """Return whether a value is a workflow class, not merely derived from one."""
    return isinstance(value, type) and _DEFINITION in vars(value)


def workflow_type(pipeline: Callable[..., Any] | str) -> str:
    """Return the workflow type that a name, a workflow class or its `run` method stands for."""
    name = pipeline if isinstance(pipeline, str) else getattr(getattr(pipeline, _DEFINITION, None), "name", None)
    if name is None:
        raise TypeError(
            f"a pipeline is named by its `run` method or its workflow type; {pipeline!r} is neither: "
            "its class needs @workflow.defn, and the method @workflow.run"
        )
    return check_server_name("workflow type", name)


def check_server_name(what: str, name: str) -> str:
    """Return a name that the server accepts; it rejects a task with any other again and again, without an event."""
    if has_lone_surrogate(name) or not 0 < len(name.encode()) <= MAX_SERVER_NAME_BYTES or name.startswith("/_sys/"):
        raise ValueError(
            f"a {what} needs 1 to {MAX_SERVER_NAME_BYTES:,} bytes, without half a surrogate pair, and may not begin "
            f"with '/_sys/'; {name[:40]!r} has {len(name):,} characters"
        )
    return name


def check_task_queue(name: str | None) -> str | None:
    """Return the name of a task queue that the server accepts; none stands for the pipeline's own."""
    return check_server_name("task queue", name) if name else None
