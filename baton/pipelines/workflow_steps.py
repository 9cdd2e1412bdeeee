"""The steps of a run: its input, numbered steps, and recorded outcomes."""

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeGuard, cast
from uuid import UUID

from pydantic import JsonValue, ValidationError
from temporalio import workflow

from baton.budget.workflow import BudgetAccount
from baton.core.baton import Baton
from baton.core.fit import Fit
from baton.core.history import CANCELED_WITH_RUN, Outcome, StepKind
from baton.core.messages import PipelineInput, StageResult, Waiting
from baton.core.pages import PAGE, write_pages
from baton.core.past import Heir, SealCheck
from baton.core.patching import PatchRules, PublishedTerms
from baton.core.state import PipelineState
from baton.errors import PayloadTooLargeError, PipelineError, StageFailedError
from baton.handoff.relay import HandoffTerms, Relay
from baton.handoff.workflow_coordinator import relay_for
from baton.runtime.workflow_handlers import RunHandlers
from baton.runtime.workflow_visibility import is_closed, upsert_memo
from baton.wire.json_values import has_lone_surrogate
from baton.wire.names import FIT, MEMO_OUTCOME, MEMO_TERMS, SEALS
from baton.wire.records import Record
from baton.wire.text import describe_faults, describe_recorded_faults, list_faults

_UNUSABLE = "(unusable input)"


def run_fit() -> Fit:
    """Return whether the running code fits its run, which the worker keeps.

    Raises:
        TypeError: The worker has no `BatonPlugin`; it fails the workflow task, not the run.
    """
    fit = workflow.extern_functions().get(FIT)
    if fit is None:
        raise TypeError("the worker has no BatonPlugin: connect its client with plugins=[BatonPlugin()]")
    return cast("Fit", fit())


async def suspend(fit: Fit, why: str) -> NoReturn:
    """Suspend the run because its code does not fit; this never returns to that code."""
    fit.suspend(why)
    while True:
        await workflow.wait_condition(lambda: False)


class RunInput:
    """The input of a run, which may be unusable.

    Attributes:
        start: The workflow's argument, or a substitute.
        fit: Whether the code fits the run.
    """

    def __init__(self, start: PipelineInput | bytes | None) -> None:
        self.fit = run_fit()
        self._fault: Exception | None = None
        if start is None or isinstance(start, bytes):  # which the SDK accepts for any type
            actual = "null" if start is None else "bytes (encoding binary/plain)"
            self._fault = PipelineError(
                f'the pipeline was started with {actual}; expected JSON: an object with a goal, such as {{"goal": "…"}}'
            )
            start = PipelineInput(goal=_UNUSABLE)
        try:
            start.check_past()
        except ValidationError as error:
            self._fault = PipelineError(f"the pipeline cannot start from this input: {describe_faults(error)}")
            start = start.without_past()
        if why := _past_fault(start, self.fit):
            self._fault = self._fault or PipelineError(why)
            start = start.without_past()
        self.start = start

    def task_id(self) -> str:
        """Return the task id of the input, or one derived from the run, which a roll-back keeps."""
        if self.start.task_id:
            return self.start.task_id
        info = workflow.info()
        seed = f"baton task {info.namespace} {info.workflow_id} {info.original_execution_run_id}"
        return str(UUID(bytes=hashlib.sha256(seed.encode()).digest()[:16], version=4))

    def baton(self, kind: type[Baton]) -> Baton:
        """Return the first baton, or a placeholder if the input is unusable."""
        try:
            return self.start.first_baton(kind)
        except ValidationError as error:
            if self.start.continued or self.start.recorded_count:
                recorded = describe_recorded_faults(error, {**self.start.baton, "goal": self.start.goal})
                self.fit.suspend(
                    f"the run's first baton does not fit {kind.__name__}: {recorded}. {remedy(self.start)}"
                )
                return kind(goal=_UNUSABLE)
            why = describe_faults(error)
            if any(fault["type"] == "extra_forbidden" for fault in list_faults(error)):
                why += f". Its baton type is {kind.__name__}; additional fields need `baton_type=…`"
            self._fault = self._fault or PipelineError(f"the pipeline cannot start from this input: {why}")
            return kind(goal=_UNUSABLE)

    def carried(self, name: str, form: type[Record] | None) -> dict[str, Any]:
        """Return carried state of a form; the input is unusable if it does not fit."""
        state: Any = self.start.carried.get(name, {})
        try:
            if form is not None and state:
                form.model_validate_json(json.dumps(state), by_alias=True, by_name=False)
        except ValidationError as error:
            self._fault = self._fault or PipelineError(
                f"the pipeline cannot start from this input: carried.{name} is malformed: {describe_faults(error)}"
            )
            return {}
        return dict(state)

    def read_page(self, page: str) -> list[Outcome]:
        """Return the recorded steps of a page; the input is unusable if it is malformed."""
        try:
            return self.start.read_page(page)
        except PipelineError as error:
            self._fault = PipelineError(f"the pipeline cannot start from this input: {error}")
            raise self._fault from None

    def relay(self, task_id: str, terms: HandoffTerms) -> Relay | None:
        """Return the relay, if this worker signs handoffs and the input is usable."""
        if self._fault is not None:
            return None
        try:
            return relay_for(self.start, task_id, terms)
        except PipelineError as error:
            self._fault = error
            return None

    def check(self) -> None:
        """Raise the error of an unusable input."""
        if self._fault is not None:
            raise self._fault


def remedy(start: PipelineInput) -> str:
    """Return what to do about code that does not fit a run."""
    again = "" if start.continued else "; or fork at an earlier step"
    return f"The run continues once workers have code that fits{again}"


FORK_WINDOW = timedelta(minutes=5)
"""How far a fork's start may be from the time of its seal; after that its past cannot be sent to the same id again."""
_REPLAYED = "ReplayNamespace"  # the SDK's Replayer has neither the run's namespace nor its id
_SENTENCE = (
    "the run was given a past (recorded steps, carried state or an edit), and {}. Only a worker, or `baton fork` with "
    "the deployment's keys, may write one; others start a run with goal, baton, params and inputs"
)


def _past_fault(start: PipelineInput, fit: Fit) -> str:
    """Return why a run may not have its past, empty if it may; suspend the run where its workers cannot know."""
    info = workflow.info()
    if not start.has_past or SEALS not in workflow.extern_functions() or info.namespace == _REPLAYED:
        return ""
    seal = start.seal
    if seal is None:
        # A run that another one continues, or that has gone on, began before its workers had safeguards.
        if info.continued_run_id is not None or workflow.unsafe.is_replaying():
            fit.suspend(_SENTENCE.format("it is not sealed: it was written while safeguards were off"))
        return _SENTENCE.format("it is not sealed")
    if seal.unknown_key:
        fault = f"its seal cannot be verified: {seal.fault}"
        fit.suspend(f"{_SENTENCE.format(fault)}. The run continues once workers have the key")
        return fault
    fault = seal.fault or _heir_fault(start.heir, seal)
    return _SENTENCE.format(fault) if fault else ""


def _heir_fault(heir: Heir | None, seal: SealCheck) -> str:
    """Return why a past was not written for this run; empty if it was."""
    info = workflow.info()
    if heir is None or (heir.namespace, heir.workflow_id) != (info.namespace, info.workflow_id):
        return "it was written for another run"
    if heir.run_id is None:
        if seal.at is not None and abs(info.workflow_start_time - seal.at) <= FORK_WINDOW:
            return ""
        return (
            f"it was sealed at {seal.at}, more than {FORK_WINDOW} from this run's start: fork again, from a machine "
            "whose clock is right"
        )
    writers = [info.first_execution_run_id, info.parent.run_id if info.parent else None]
    return "" if heir.run_id in writers else "it was written for another run"


def publish_terms(initial: Baton, rules: PatchRules) -> None:
    """Publish the baton's additional fields and its rules in the memo, for readers without the pipeline's code."""
    members = initial.to_json_object()
    additional = {name: members[name] for name in members if name not in Baton.FIELDS}
    terms = PublishedTerms(fields=additional, freeze_goal=rules.freeze_goal, protected=sorted(rules.protected))
    if terms != PublishedTerms():
        workflow.upsert_memo({MEMO_TERMS: terms})


_PATIENCE = timedelta(seconds=10)
_MIN_RUN_TIME = timedelta(seconds=1)  # the server stalls runs that continue as new more often


@dataclass(frozen=True)
class ContinueAfter:
    """When a pipeline continues as new; it may do so before any step.

    Attributes:
        events: The length of the run's history, in events.
        bytes: The size of the run's history, in bytes.
    """

    events: int = 3_200
    bytes: int = 2_000_000


_MAX_RESTORED = PAGE  # steps in one workflow task, which has two seconds


class RecordedOutcomes:
    """The outcomes that a run starts with, restored in the order in which they happened.

    Attributes:
        is_excused: Whether something else than its code may end the run before they are restored.
    """

    def __init__(self, run_input: RunInput, state: PipelineState, account: BudgetAccount) -> None:
        self._run_input = run_input
        self._start = start = run_input.start
        self._fit = run_input.fit
        self._state = state
        self._account = account
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
        self._account.charge_recorded(outcome)
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

    async def continue_if_long(
        self, limits: ContinueAfter, task_id: str, carries: Mapping[str, Callable[[], JsonValue]]
    ) -> None:
        """Continue as new if the history is long; the next run resumes at this step."""
        info = workflow.info()
        # What the recorded steps take does not count: a run that it makes long would continue for ever.
        long = (
            info.get_current_history_length() - self._slice_events >= limits.events
            or info.get_current_history_size() - self._first_bytes >= limits.bytes
            or info.is_continue_as_new_suggested()
        )
        if not long or workflow.now() - info.start_time < _MIN_RUN_TIME:
            return
        # The next run would not get the cancellation, and would wait for ever in the step that was canceled here.
        if workflow.cancellation_reason() is not None:
            return
        await workflow.wait_condition(workflow.all_handlers_finished)
        update = {
            **write_pages(self._state.outcomes, self._start.pages),
            "edit": None,
            "task_id": task_id,
            "continued": self._start.continued + 1,
            "carried": {
                **{name: carry() for name, carry in carries.items()},
                **self._account.carried(self._state.spend_without_edits),
            },
            "budget": self._account.budget if self._account.limited else None,
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
        workflow.continue_as_new(next_start)

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
            outcomes = page if isinstance(page, list) else self._run_input.read_page(page)
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
    """Restores each recorded step, or shows and records it while it is executed."""

    def __init__(
        self,
        run_input: RunInput,
        handlers: RunHandlers,
        state: PipelineState,
        recorded: RecordedOutcomes,
        continue_if_long: Callable[[], Awaitable[None]],
        record_interventions: Callable[[], Awaitable[None]],
    ) -> None:
        self._run_input = run_input
        self._handlers = handlers
        self._state = state
        self._recorded = recorded
        self._continue_if_long = continue_if_long
        self._record_interventions = record_interventions

    async def begin(self, name: str, kind: StepKind) -> tuple[int, Outcome | None]:
        """Number the next step; return its recorded outcome, or prepare to execute it."""
        if not 0 < len(name) <= _MAX_NAME_LENGTH or has_lone_surrogate(name):
            raise ValueError(
                f"a {kind.value} needs a name of 1 to {_MAX_NAME_LENGTH} characters, without half a surrogate pair; "
                f"{name[:40]!r} has {len(name)}"
            )
        self._recorded.is_excused = True
        self._run_input.check()
        if is_closed() or self._run_input.fit.misfit:
            await workflow.wait_condition(lambda: False)  # no step begins after the run's end or its suspension
        await self._handlers.roll_backs.catch_up()
        self._recorded.is_excused = False
        self._handlers.steps += 1
        seq = self._handlers.steps
        outcome = await self._recorded.restore_step(seq, name, kind)
        if outcome is None:
            await self._recorded.wait_for_edit()
            self.apply_edit()
            await self._record_interventions()
            await self._handlers.roll_backs.catch_up()  # a reset may go back to this task
            if self._handlers.is_idle:
                await self._continue_if_long()
            self._handlers.visibility.enter_step(name)
        return seq, outcome

    def apply_edit(self) -> None:
        """Apply and publish the edit of a fork."""
        edit = self._recorded.apply_edit()
        if edit is not None:
            publish(edit)

    @contextmanager
    def under_way(self, kind: StepKind, name: str, seq: int, until: datetime | None = None) -> Iterator[None]:
        """Show a step as in progress while the block runs, and record its failure."""
        waiting = Waiting(kind=_WAITING_KINDS[kind], name=name, seq=seq, since=workflow.now(), until=until)
        self._handlers.under_way[seq] = waiting
        try:
            with self.record_failure(kind, name, seq):
                yield
        finally:
            del self._handlers.under_way[seq]

    @contextmanager
    def record_failure(self, kind: StepKind, name: str, seq: int) -> Iterator[None]:
        """Record the outcome if the step in the block fails or is canceled, by the code or with its run."""
        try:
            yield
        except StageFailedError as error:
            publish(self._state.record_failure(seq, name, kind, str(error)))
            self._handlers.visibility.add_seconds(LONG_ENOUGH)
            raise
        except asyncio.CancelledError:
            why = "canceled by the pipeline" if workflow.cancellation_reason() is None else CANCELED_WITH_RUN
            publish(self._state.record_failure(seq, name, kind, why, canceled=True))
            raise


def publish(outcome: Outcome) -> None:
    """Publish an outcome in the memo, for readers without a worker; the history has its events elsewhere."""
    upsert_memo({MEMO_OUTCOME: outcome.model_copy(update={"events": []}) if outcome.events else outcome})


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
