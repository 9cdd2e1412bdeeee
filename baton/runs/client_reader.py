"""From a workflow's event history to a `RunRecord`: steps, costs, and the baton after every stage, with no worker."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from pydantic import ValidationError
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from baton.budget.billing import Bill, billed_before
from baton.compression.rules import COMPRESS, Compressed
from baton.core.baton import Baton
from baton.core.history import CompensationRecord, Outcome, Spend, StepKind, find_spend, find_top_up
from baton.core.messages import Missing, PipelineInput, PipelineResult, RollBacks, StageInput, StageReturn
from baton.core.state import PipelineState
from baton.errors import HistoryError, PatchError
from baton.handoff.pending import HandoffDecision
from baton.runs.client_events import (
    APPROVAL_TIMER,
    CHILD_ID,
    SLEEP_TIMER,
    decoded,
    detail,
    first_baton,
    innermost,
    is_missing,
    is_refusal,
    made_ready,
    open_timers,
    parsed,
    stage_input,
    step_of_summary,
    time_of,
    timer_name,
    with_failures,
    words_of,
)
from baton.runs.client_executions import describe, history
from baton.runs.client_record import Note, Reset, RunRecord, RunStatus, Step, StepStatus, streams_of
from baton.wire.names import HANDOFF_CHUNK, ROLLED_BACK, WAIT_FOR_WORKER


async def read_run(client: Client, workflow_id: str, run_id: str | None = None) -> RunRecord:
    """Return a run, rebuilt from its event history alone.

    Args:
        client: A client with Baton's data converter, as `BatonPlugin` sets it.
        workflow_id: The workflow.
        run_id: Which of its runs; the newest by default.

    Returns:
        The record.

    Raises:
        HistoryError: The workflow is not a pipeline.
        temporalio.service.RPCError: There is no such workflow, or the server cannot be asked.
    """
    run_id, events = await history(client, workflow_id, run_id)
    run = await rebuild(workflow_id, run_id, events, client.data_converter)
    run.first_began = await first_began(client, run)
    return run


async def first_began(client: Client, run: RunRecord) -> datetime | None:
    """Return when the first run of a chain that continued as new started; None if the server no longer has it."""
    if run.previous_run_id is None or run.first_run_id is None:
        return run.began
    try:
        return (await describe(client, run.workflow_id, run.first_run_id)).start_time
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


async def rebuild(workflow_id: str, run_id: str, events: Sequence[HistoryEvent], converter: DataConverter) -> RunRecord:
    """Return the run that ``events`` tell of.

    Args:
        workflow_id: The workflow the events are of.
        run_id: The run, or empty to take it from the first event.
        events: All events of the run so far, in order.
        converter: Decodes the payloads.

    Returns:
        The record.

    Raises:
        HistoryError: The events are not those of a pipeline.
    """
    texts = await decoded(events, converter)
    events = await with_failures(events, converter)
    start = parsed(PipelineInput, texts.get(events[0].event_id)) if events else None
    if start is None:
        raise HistoryError(f"workflow {workflow_id!r} was not started with a PipelineInput; it is not a Baton pipeline")
    started = events[0].workflow_execution_started_event_attributes
    try:
        state = PipelineState(first_baton(start, events, texts))
    except ValidationError:
        state = PipelineState(Baton(goal="(unusable input)"))
    run = RunRecord(
        workflow_id=workflow_id,
        run_id=run_id or started.original_execution_run_id,
        pipeline=started.workflow_type.name,
        start=start,
        state=state,
        began=time_of(events[0]),
        first_run_id=started.first_execution_run_id or None,
        previous_run_id=started.continued_execution_run_id or None,
        notes=[Note(time_of(events[0]), one.note) for one in start.roll_backs],
        last_event=events[-1].event_id,
        read_at=time_of(events[-1]),
    )
    fold(run, events, texts, made_ready(events, texts))
    run.timers = open_timers(events, texts) if run.status is RunStatus.RUNNING else []
    return run


def fold(run: RunRecord, events: Sequence[HistoryEvent], texts: dict[int, bytes], ready: dict[int, int]) -> None:
    """Fill the record of a run, which has its beginning alone, from its events."""
    _Fold(run, texts, ready).over(events)


class _Fold:
    """Goes over the events once, in order, and fills the record."""

    def __init__(self, run: RunRecord, texts: dict[int, bytes], ready: dict[int, int]) -> None:
        self._run = run
        self._texts = texts
        self._ready = ready
        self._steps: dict[int, Step] = {}
        self._given: dict[int, StageInput] = {}
        self._returned: dict[int, StageReturn] = {}
        self._sent: dict[tuple[int, int], list[str]] = {}
        self._batons: list[Baton] = [run.state.baton]
        self._arrived: list[StageReturn] = []
        self._due: list[tuple[StageReturn, datetime]] = []
        self._children: dict[int, Step] = {}
        self._clock = run.began or _EPOCH
        self._branches: dict[tuple[int, str], StageReturn] = {}
        self._compressions: dict[int, int] = {}
        self._cancelled_by = ""
        self._child_ends: dict[int, HistoryEvent] = {}
        self._settlements: set[int] = set()
        self._waits_for: dict[int, str] = {}
        self._missing: dict[int, str] = {}

    def over(self, events: Sequence[HistoryEvent]) -> None:
        """Fill the record from all events."""
        for outcome in self._run.start.outcomes:
            self._take(outcome, StepStatus.TAKEN_OVER)
        self._run.billed = billed_before(self._run.start)
        self._parse(events)
        self._run.streams = streams_of(events, self._given, self._returned)
        for event in events:
            if handler := _HANDLERS.get(event.WhichOneof("attributes") or ""):
                handler(self, event)
        self._settle()
        if self._run.status is RunStatus.RUNNING:
            self._make_due(time_of(events[-1]))
            self._settle()
            self._run.missing = [*dict.fromkeys(self._missing.values())]
        self._run.steps = [self._steps[seq] for seq in sorted(self._steps)]
        if self._run.status in (RunStatus.FAILED, RunStatus.TERMINATED, RunStatus.CANCELED, RunStatus.TIMED_OUT):
            for step in self._run.steps:
                if step.status is StepStatus.RUNNING:
                    step.status, step.ended = StepStatus.FAILED, self._run.ended

    def _parse(self, events: Sequence[HistoryEvent]) -> None:
        """Parse what stages were sent and returned; a refused return is one whose step was sent out again."""
        for event in events:
            match event.WhichOneof("attributes"):
                case "activity_task_scheduled_event_attributes":
                    self._parse_scheduled(event)
                case "activity_task_failed_event_attributes" if is_refusal(event):
                    if (returned := parsed(StageReturn, self._text(event))) and self._is_of_a_stage(event):
                        self._returned[event.event_id] = returned
                case "activity_task_completed_event_attributes":
                    returned = parsed(StageReturn, self._text(event))
                    if returned is not None and self._is_of_a_stage(event):
                        self._bill(event, returned.seq, returned.stage, returned.spend, models=returned.models)
                        self._returned[event.event_id] = returned
                        self._sent.setdefault((returned.seq, returned.attempt), [])
                    seq = self._compressions.get(event.activity_task_completed_event_attributes.scheduled_event_id)
                    if seq is not None and (made := parsed(Compressed, self._text(event))):
                        self._bill(event, seq, "", made.spend)

    def _parse_scheduled(self, event: HistoryEvent) -> None:
        """Parse what a stage was sent, or what one of Baton's own activities is for."""
        name, text = event.activity_task_scheduled_event_attributes.activity_type.name, self._text(event)
        if name == COMPRESS:
            self._compressions[event.event_id] = step_of_summary(text)
        elif name == ROLLED_BACK:
            self._settlements.add(event.event_id)
        elif name == WAIT_FOR_WORKER:
            if missing := parsed(Missing, text):
                self._waits_for[event.event_id] = missing.text
        elif given := stage_input(text):
            self._given[event.event_id] = given
            self._sent[given.seq, given.attempt] = given.findings

    def _is_of_a_stage(self, event: HistoryEvent) -> bool:
        """Return whether an activity was sent what a stage is sent: any activity may return what looks like a patch."""
        return getattr(event, event.WhichOneof("attributes") or "").scheduled_event_id in self._given

    def _bill(
        self,
        event: HistoryEvent,
        seq: int,
        stage: str,
        spend: Spend,
        *,
        models: Mapping[str, Spend] | None = None,
        elsewhere: bool = False,
    ) -> None:
        """Note that something was charged."""
        if not spend:
            return
        self._run.billed += spend
        self._run.bills.append(Bill(seq, stage, spend, event.event_id, time_of(event), models or {}, elsewhere))

    def _text(self, event: HistoryEvent) -> bytes | None:
        return self._texts.get(event.event_id)

    def _settle(self, before: int | None = None) -> None:
        """Apply what is due, all of it or up to the ``before``-th outcome."""
        while self._due and (before is None or len(self._run.state.outcomes) < before):
            self._apply(*self._due.pop(0))

    def _make_due(self, at: datetime) -> None:
        """Let the workflow take over, at a time of its own, what has arrived."""
        self._due += [(returned, at) for returned in self._arrived]
        self._arrived = []

    def _apply(self, returned: StageReturn, at: datetime) -> None:
        """Apply what a stage returned, unless the workflow refused it."""
        step = self._steps[returned.seq]
        if returned.verdict is not None:
            step.failure = f"its handoff was not accepted: {returned.verdict.reason}: {returned.verdict.details}"
            return
        again = self._sent.get((returned.seq, returned.attempt + 1))
        if returned.findings or again is not None:
            step.failure = "; ".join(returned.findings or again or []) or "refused; it was sent out again"
            return
        try:
            base = self._batons[min(returned.after, len(self._batons) - 1)]
            self._run.state.record_stage(returned, at, base=base)
        except PatchError as error:
            step.status, step.failure = StepStatus.FAILED, "; ".join(error.findings)
        else:
            self._batons.append(self._run.state.baton)
            self._run.accepted.append((len(self._run.state.outcomes) - 1, returned))
            step.status, step.failure = StepStatus.DONE, None

    def _take(self, outcome: Outcome, status: StepStatus) -> None:
        """Take over a recorded outcome."""
        self._run.state.restore(outcome)
        self._batons.append(self._run.state.baton)
        if outcome.kind is StepKind.EDIT:
            return
        step = self._steps.setdefault(outcome.seq, Step(outcome.seq, outcome.name, outcome.kind))
        step.name, step.kind, step.status = outcome.name, outcome.kind, status
        if outcome.failure is not None:
            if step.kind is not StepKind.STAGE or not (step.failure and outcome.failure.endswith(f": {step.failure}")):
                step.failure = outcome.failure  # else the attempt said it already, without the name of the stage
            step.status = StepStatus.FAILED
            return
        if step.ended is None or step.kind not in (StepKind.CHILD, StepKind.MERGE):
            step.ended = max((entry.timestamp for entry in outcome.entries), default=None)
        step.began = step.began or step.ended
        if outcome.kind is StepKind.APPROVAL and isinstance(outcome.value, dict):
            step.approved = outcome.value.get("approved") is True

    def task_started(self, event: HistoryEvent) -> None:
        self._settle()
        self._clock = time_of(event)

    def task_completed(self, event: HistoryEvent) -> None:
        self._run.suspended = None
        self._make_due(self._clock)

    def task_failed(self, event: HistoryEvent) -> None:
        failed = event.workflow_task_failed_event_attributes
        if failed.base_run_id:
            self._run.reset = time_of(event)
            self._run.resets.append(Reset(event.event_id, failed.base_run_id, failed.failure.message))
            self._note(event, f"reset from run {failed.base_run_id}: {failed.failure.message}")
        elif failed.cause != _OVERTAKEN:
            self._run.suspended = innermost(failed.failure)

    def _note(self, event: HistoryEvent, text: str) -> None:
        self._run.notes.append(Note(time_of(event), text))

    def stage_scheduled(self, event: HistoryEvent) -> None:
        if event.event_id in self._waits_for:
            self._missing[event.event_id] = self._waits_for[event.event_id]
        given = self._given.get(event.event_id)
        if given is None:
            return
        self._run.inputs.append(given)
        task = event.activity_task_scheduled_event_attributes.workflow_task_completed_event_id
        task = min(task, self._ready.get(given.seq, task))
        kind = StepKind.MERGE if given.branch else StepKind.STAGE
        step = self._steps.get(given.seq)
        if step is None:
            self._steps[given.seq] = Step(given.seq, given.stage, kind, began=time_of(event), reset_event=task)
        elif given.attempt > 1:
            step.attempts = max(step.attempts, given.attempt)
            if step.status is StepStatus.FAILED:  # and it was sent again
                step.status, step.failure, step.ended = StepStatus.RUNNING, None, None
        elif given.branch:
            step.name = f"{step.name}+{given.stage}"[:200]

    def stage_failed(self, event: HistoryEvent) -> None:
        if event.event_id in self._returned:
            self.stage_completed(event)
            return
        attributes = getattr(event, event.WhichOneof("attributes") or "")
        self._missing.pop(attributes.scheduled_event_id, None)
        if given := self._given.get(attributes.scheduled_event_id):
            step = self._steps[given.seq]
            if is_missing(event):
                self._bill(event, given.seq, given.stage, find_spend(detail(self._text(event))))
                return
            step.status, step.ended = StepStatus.FAILED, time_of(event)
            step.failure = innermost(attributes.failure) or "timed out"
            self._bill(event, given.seq, given.stage, find_spend(detail(self._text(event))))

    def stage_canceled(self, event: HistoryEvent) -> None:
        """Note that nothing is waited for any more, if that was what was cancelled."""
        self._missing.pop(event.activity_task_canceled_event_attributes.scheduled_event_id, None)

    def stage_completed(self, event: HistoryEvent) -> None:
        """Note what a stage returned; it takes effect in the workflow's next task."""
        returned = self._returned.get(event.event_id)
        if returned is None:
            self._missing.pop(event.activity_task_completed_event_attributes.scheduled_event_id, None)
            self._learned(event)
            return
        if returned.anchor is not None:
            self._run.anchors.append(returned.anchor)
        step = self._steps[returned.seq]
        step.ended = time_of(event)
        step.attempts = max(step.attempts, returned.attempt)
        step.tokens_read += returned.tokens_read
        if returned.tokens_read:
            self._run.tokens_read[returned.seq, returned.stage] = returned.tokens_read
            self._run.prompts[returned.seq, returned.stage] = returned.prompt
        if returned.branch:
            self._branches[returned.seq, returned.stage] = returned
            return
        self._arrived.append(returned)

    def _learned(self, event: HistoryEvent) -> None:
        """Note what the run was charged for what a roll-back left."""
        if event.activity_task_completed_event_attributes.scheduled_event_id in self._settlements:
            told = parsed(RollBacks, self._text(event))
            for one in told.made if told else []:
                self._bill(event, max(self._steps, default=0) + 1, "", one.left, elsewhere=True)

    def memo(self, event: HistoryEvent) -> None:
        outcome = parsed(Outcome, self._text(event))
        if outcome is None:
            if undone := parsed(CompensationRecord, self._text(event)):
                self._run.undone_since = min(undone.undone_since, self._run.undone_since or undone.undone_since)
                if undone.by_hand is not None:
                    self._note(event, undone.by_hand)
            return
        if outcome.failure is not None:  # then nothing of what the stage returned was applied
            self._due = [(one, at) for one, at in self._due if one.seq != outcome.seq]
        self._settle(outcome.order)
        if outcome.kind is StepKind.CHILD and outcome.failure is None:
            brought = PipelineResult.model_validate(outcome.value)
            # It is billed as it ended: a run that is rolled back to right after that takes it over again.
            self._run.topped_up_micro_usd += brought.topped_up_micro_usd
            told_by = self._child_ends.get(outcome.seq, event)
            self._bill(told_by, outcome.seq, outcome.name, brought.billed or brought.spend, elsewhere=True)
        names = [entry.stage_id for entry in outcome.entries if entry.kind is StepKind.BRANCH]
        branches = [self._branches[outcome.seq, name] for name in names if (outcome.seq, name) in self._branches]
        self._run.accepted += [(outcome.order, branch) for branch in branches]
        events = [event for branch in branches for event in branch.events]
        self._take(outcome.model_copy(update={"events": events}) if events else outcome, StepStatus.DONE)

    def timer_started(self, event: HistoryEvent) -> None:
        name = timer_name(self._text(event))
        for kind, pattern in ((StepKind.APPROVAL, APPROVAL_TIMER), (StepKind.SLEEP, SLEEP_TIMER)):
            if found := pattern.fullmatch(name):
                timer = event.timer_started_event_attributes
                task = timer.workflow_task_completed_event_id
                step = self._begin(int(found[1]), found[2], kind, event, task)
                step.until = time_of(event) + timer.start_to_fire_timeout.ToTimedelta()

    def child_initiated(self, event: HistoryEvent) -> None:
        attributes = event.start_child_workflow_execution_initiated_event_attributes
        named = CHILD_ID.match(attributes.workflow_id)
        if named:
            task = attributes.workflow_task_completed_event_id
            step = self._begin(int(named[2]), named[1], StepKind.CHILD, event, task)
            self._children[event.event_id] = step

    def _begin(self, seq: int, name: str, kind: StepKind, event: HistoryEvent, task: int) -> Step:
        """Note that a step began that is not a stage."""
        self._steps[seq] = Step(seq, name, kind, began=time_of(event), reset_event=task)
        return self._steps[seq]

    def child_started(self, event: HistoryEvent) -> None:
        attributes = event.child_workflow_execution_started_event_attributes
        execution = attributes.workflow_execution
        self._run.children.append((execution.workflow_id, execution.run_id, attributes.initiated_event_id))

    def child_completed(self, event: HistoryEvent) -> None:
        """Note when it was; the pipeline may take it over again, much later, in a run that was rolled back."""
        self.child_ended(event)
        attributes = event.child_workflow_execution_completed_event_attributes
        step = self._children.get(attributes.initiated_event_id)
        if step is not None:
            step.ended = time_of(event)
            self._child_ends[step.seq] = event

    def child_ended(self, event: HistoryEvent) -> None:
        attributes = getattr(event, event.WhichOneof("attributes") or "")
        self._run.ended_children[attributes.initiated_event_id] = event.event_id

    def child_failed(self, event: HistoryEvent) -> None:
        self.child_ended(event)
        attributes = event.child_workflow_execution_failed_event_attributes
        step = self._children.get(attributes.initiated_event_id)
        if step is not None:
            step.status, step.ended = StepStatus.FAILED, time_of(event)
            step.failure = innermost(attributes.failure)
            told = detail(self._text(event))
            self._run.topped_up_micro_usd += find_top_up(told)
            self._bill(event, step.seq, step.name, find_spend(told), elsewhere=True)

    def signaled(self, event: HistoryEvent) -> None:
        name = event.workflow_execution_signaled_event_attributes.signal_name
        text = self._text(event)
        if name == HANDOFF_CHUNK and text is not None:
            self._run.chunks.append(text)

    def update_accepted(self, event: HistoryEvent) -> None:
        """Note what a person decided about a handoff, and what they put into the budget."""
        if decision := parsed(HandoffDecision, self._text(event)):
            self._run.decided.append((time_of(event), decision))
            self._run.topped_up_micro_usd += decision.micro_usd

    def completed(self, event: HistoryEvent) -> None:
        self._close(event, RunStatus.COMPLETED, None)
        self._run.result = result = parsed(PipelineResult, self._text(event))
        if result is not None:  # the pipeline counted itself, what compressing conversations cost as well
            self._run.billed = result.billed or result.spend

    def failed(self, event: HistoryEvent) -> None:
        failure = event.workflow_execution_failed_event_attributes.failure
        self._close(event, RunStatus.FAILED, words_of(failure))
        self._run.billed = find_spend(detail(self._text(event))) or self._run.billed  # as of a completed one

    def terminated(self, event: HistoryEvent) -> None:
        self._close(event, RunStatus.TERMINATED, event.workflow_execution_terminated_event_attributes.reason)

    def cancel_requested(self, event: HistoryEvent) -> None:
        self._cancelled_by = event.workflow_execution_cancel_requested_event_attributes.cause

    def canceled(self, event: HistoryEvent) -> None:
        self._close(event, RunStatus.CANCELED, self._cancelled_by or "canceled")

    def timed_out(self, event: HistoryEvent) -> None:
        self._close(event, RunStatus.TIMED_OUT, "the run exceeded its timeout")

    def continued(self, event: HistoryEvent) -> None:
        self._close(event, RunStatus.CONTINUED_AS_NEW, None)
        attributes = event.workflow_execution_continued_as_new_event_attributes
        self._run.next_run_id = attributes.new_execution_run_id

    def _close(self, event: HistoryEvent, status: RunStatus, failure: str | None) -> None:
        """Note how the run ended."""
        self._settle()
        self._run.status, self._run.failure, self._run.ended = status, failure, time_of(event)
        self._run.suspended = None


_OVERTAKEN = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND  # a signal came in between
_EPOCH = datetime.fromtimestamp(0, UTC)

_HANDLERS: dict[str, Callable[[_Fold, HistoryEvent], None]] = {
    f"{name}_event_attributes": handler
    for name, handler in {
        "workflow_task_started": _Fold.task_started,
        "workflow_task_completed": _Fold.task_completed,
        "workflow_task_failed": _Fold.task_failed,
        "activity_task_scheduled": _Fold.stage_scheduled,
        "activity_task_completed": _Fold.stage_completed,
        "activity_task_failed": _Fold.stage_failed,
        "activity_task_timed_out": _Fold.stage_failed,
        "activity_task_canceled": _Fold.stage_canceled,
        "workflow_properties_modified": _Fold.memo,
        "timer_started": _Fold.timer_started,
        "start_child_workflow_execution_initiated": _Fold.child_initiated,
        "child_workflow_execution_started": _Fold.child_started,
        "child_workflow_execution_completed": _Fold.child_completed,
        "child_workflow_execution_failed": _Fold.child_failed,
        "child_workflow_execution_canceled": _Fold.child_ended,
        "child_workflow_execution_timed_out": _Fold.child_ended,
        "child_workflow_execution_terminated": _Fold.child_ended,
        "workflow_execution_signaled": _Fold.signaled,
        "workflow_execution_update_accepted": _Fold.update_accepted,
        "workflow_execution_completed": _Fold.completed,
        "workflow_execution_failed": _Fold.failed,
        "workflow_execution_terminated": _Fold.terminated,
        "workflow_execution_cancel_requested": _Fold.cancel_requested,
        "workflow_execution_canceled": _Fold.canceled,
        "workflow_execution_timed_out": _Fold.timed_out,
        "workflow_execution_continued_as_new": _Fold.continued,
    }.items()
}
