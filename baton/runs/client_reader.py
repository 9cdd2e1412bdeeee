"""Rebuilds a `RunRecord` from a workflow's event history, with no worker: steps, costs, the baton after every stage."""

import json
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
from baton.core.messages import Decided, Missing, PipelineInput, PipelineResult, StageInput, StageReturn
from baton.core.past import RollBacks
from baton.core.pending import HandoffDecision
from baton.core.questions import ASKED, OpenQuestions, Question
from baton.core.state import PipelineState
from baton.errors import BatonError, HistoryError, PatchError, PipelineError, UnreadableRunError
from baton.runs.client_events import (
    APPROVAL_TIMER,
    CHILD_ID,
    SLEEP_TIMER,
    decode_failures,
    decode_payloads,
    failure_text,
    find_handoff_tasks,
    first_baton,
    innermost_message,
    is_missing_resource,
    is_refusal,
    open_timers,
    parse_details,
    parse_record,
    parse_stage_input,
    parse_step_number,
    time_of,
    timer_name,
)
from baton.runs.client_executions import describe, history
from baton.runs.client_record import Note, Reset, RunRecord, RunStatus, Step, StepStatus, find_streams
from baton.wire.names import DECIDE, HANDOFF_CHUNK, MEMO_QUESTIONS, ROLLED_BACK, WAIT_FOR_WORKER
from baton.wire.text import describe_faults


async def read_run(client: Client, workflow_id: str, run_id: str | None = None) -> RunRecord:
    """Return a run, rebuilt from its event history alone.

    Args:
        client: A client with Baton's data converter, as `BatonPlugin` sets it.
        workflow_id: The workflow.
        run_id: The run; the newest by default.

    Returns:
        The record.

    Raises:
        HistoryError: The workflow is not a pipeline.
        UnreadableRunError: It is, but the run's records are malformed.
        temporalio.service.RPCError: There is no such workflow, or the server is unreachable.
    """
    run_id, events = await history(client, workflow_id, run_id)
    run = await rebuild(workflow_id, run_id, events, client.data_converter)
    run.first_began = await find_chain_start(client, run)
    return run


async def find_chain_start(client: Client, run: RunRecord) -> datetime | None:
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
    """Return the run that ``events`` record.

    Args:
        workflow_id: The workflow of the events.
        run_id: The run; empty to take it from the first event.
        events: All events of the run so far, in order.
        converter: Decodes the payloads.

    Returns:
        The record.

    Raises:
        HistoryError: The events are not those of a pipeline.
        UnreadableRunError: They are, but the run's records are malformed.
    """
    texts = await decode_payloads(events, converter)
    events = await decode_failures(events, converter)
    start = _parse_start(workflow_id, texts.get(events[0].event_id) if events else None)
    try:
        return _rebuild(workflow_id, run_id, start, events, texts)
    except HistoryError:
        raise
    except (BatonError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UnreadableRunError(
            f"the run of workflow {workflow_id!r} cannot be read: its records contradict each other "
            f"({type(error).__name__}: {str(error)[:_MAX_FAULT_LENGTH]})"
        ) from error


_MAX_FAULT_LENGTH = 300


def _parse_start(workflow_id: str, text: bytes | None) -> PipelineInput:
    """Return the input that a run was started with."""
    try:
        start = PipelineInput.model_validate_json(text or b"")
        start.check_past()
        return start.model_copy(update={"outcomes": start.recorded(), "pages": []})
    except ValidationError as error:
        faults = describe_faults(error, "input")
    except PipelineError as error:
        faults = str(error)
    try:
        members = json.loads(text or b"")
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict) or not members.keys() & PipelineInput.model_fields.keys():
        raise HistoryError(f"workflow {workflow_id!r} was not started with a PipelineInput; it is not a Baton pipeline")
    raise UnreadableRunError(f"workflow {workflow_id!r} was started with a malformed PipelineInput: {faults}")


def _rebuild(
    workflow_id: str, run_id: str, start: PipelineInput, events: Sequence[HistoryEvent], texts: dict[int, bytes]
) -> RunRecord:
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
        notes=[Note(time_of(events[0]), roll_back.note) for roll_back in start.roll_backs],
        last_event=events[-1].event_id,
        read_at=time_of(events[-1]),
    )
    fold = _Fold(run, texts, find_handoff_tasks(events, texts))
    fold.process(events)
    run.timers = open_timers(events, texts) if run.status is RunStatus.RUNNING else []
    run.questions = fold.open_questions()
    return run


class _Fold:
    """Fills a record from events, once and in order."""

    def __init__(self, run: RunRecord, texts: dict[int, bytes], handoff_tasks: dict[int, int]) -> None:
        self._run = run
        self._texts = texts
        self._handoff_tasks = handoff_tasks
        self._steps: dict[int, Step] = {}
        self._stage_inputs: dict[int, StageInput] = {}
        self._stage_returns: dict[int, StageReturn] = {}
        self._findings: dict[tuple[int, int], list[str]] = {}
        self._batons: list[Baton] = [run.state.baton]
        self._arrived_returns: list[StageReturn] = []
        self._due_returns: list[tuple[StageReturn, datetime]] = []
        self._children: dict[int, Step] = {}
        self._clock = run.began or _EPOCH
        self._branches: dict[tuple[int, str], StageReturn] = {}
        self._compressions: dict[int, int] = {}
        self._cancelled_by = ""
        self._child_ends: dict[int, HistoryEvent] = {}
        self._settlements: set[int] = set()
        self._wait_reasons: dict[int, str] = {}
        self._missing: dict[int, str] = {}
        self._questions: dict[str, Question] = {}
        self._decisions: set[int] = set()  # the events that accepted one about an approval

    def process(self, events: Sequence[HistoryEvent]) -> None:
        for outcome in self._run.start.outcomes:
            self._restore(outcome, StepStatus.TAKEN_OVER)
        self._run.billed = billed_before(self._run.start)
        self._parse(events)
        self._run.streams = find_streams(events, self._stage_inputs, self._stage_returns)
        for event in events:
            if handler := _HANDLERS.get(event.WhichOneof("attributes") or ""):
                handler(self, event)
        self._settle()
        if self._run.status is RunStatus.RUNNING:
            self._mark_due(time_of(events[-1]))
            self._settle()
            self._run.missing = [*dict.fromkeys(self._missing.values())]
        self._run.steps = [self._steps[seq] for seq in sorted(self._steps)]
        if self._run.status in (RunStatus.FAILED, RunStatus.TERMINATED, RunStatus.CANCELED, RunStatus.TIMED_OUT):
            for step in self._run.steps:
                if step.status is StepStatus.RUNNING:
                    step.status, step.ended = StepStatus.FAILED, self._run.ended

    def _parse(self, events: Sequence[HistoryEvent]) -> None:
        """Parse the inputs and returns of stages."""
        for event in events:
            match event.WhichOneof("attributes"):
                case "activity_task_scheduled_event_attributes":
                    self._parse_scheduled(event)
                case "activity_task_failed_event_attributes" if is_refusal(event):
                    if (result := parse_record(StageReturn, self._text(event))) and self._is_from_stage(event):
                        self._stage_returns[event.event_id] = result
                case "activity_task_completed_event_attributes":
                    result = parse_record(StageReturn, self._text(event))
                    if result is not None and self._is_from_stage(event):
                        self._bill(event, result.seq, result.stage, result.spend, models=result.models)
                        self._stage_returns[event.event_id] = result
                        self._findings.setdefault((result.seq, result.attempt), [])
                    seq = self._compressions.get(event.activity_task_completed_event_attributes.scheduled_event_id)
                    if seq is not None and (compressed := parse_record(Compressed, self._text(event))):
                        self._bill(event, seq, "", compressed.spend)

    def _parse_scheduled(self, event: HistoryEvent) -> None:
        """Parse the input of a stage, or of one of Baton's own activities."""
        name, text = event.activity_task_scheduled_event_attributes.activity_type.name, self._text(event)
        if name == COMPRESS:
            self._compressions[event.event_id] = parse_step_number(text)
        elif name == ROLLED_BACK:
            self._settlements.add(event.event_id)
        elif name == WAIT_FOR_WORKER:
            if missing := parse_record(Missing, text):
                self._wait_reasons[event.event_id] = missing.text
        elif stage_input := parse_stage_input(text):
            self._stage_inputs[event.event_id] = stage_input
            self._findings[stage_input.seq, stage_input.attempt] = stage_input.findings

    def _is_from_stage(self, event: HistoryEvent) -> bool:
        """Return whether the activity had a stage's input: any activity may return what looks like a patch."""
        return getattr(event, event.WhichOneof("attributes") or "").scheduled_event_id in self._stage_inputs

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
        if not spend:
            return
        self._run.billed += spend
        self._run.bills.append(Bill(seq, stage, spend, event.event_id, time_of(event), models or {}, elsewhere))

    def _text(self, event: HistoryEvent) -> bytes | None:
        return self._texts.get(event.event_id)

    def _settle(self, order: int | None = None) -> None:
        """Apply the due returns, all of them or up to an outcome's order."""
        while self._due_returns and (order is None or len(self._run.state.outcomes) < order):
            self._apply(*self._due_returns.pop(0))

    def _mark_due(self, at: datetime) -> None:
        """Mark the arrived returns as due, at the time of the workflow's task."""
        self._due_returns += [(result, at) for result in self._arrived_returns]
        self._arrived_returns = []

    def _apply(self, result: StageReturn, at: datetime) -> None:
        """Apply a stage's return, unless the workflow refused it."""
        step = self._steps[result.seq]
        if result.verdict is not None:
            step.failure = f"its handoff was not accepted: {result.verdict.reason}: {result.verdict.details}"
            return
        next_findings = self._findings.get((result.seq, result.attempt + 1))
        if result.findings or next_findings is not None:
            step.failure = "; ".join(result.findings or next_findings or []) or "refused; it was sent out again"
            return
        try:
            base = self._batons[min(result.after, len(self._batons) - 1)]
            self._run.state.record_stage(result, at, base=base)
        except PatchError as error:
            step.status, step.failure = StepStatus.FAILED, "; ".join(error.findings)
        else:
            self._batons.append(self._run.state.baton)
            self._run.accepted.append((len(self._run.state.outcomes) - 1, result))
            step.status, step.failure = StepStatus.DONE, None

    def _restore(self, outcome: Outcome, status: StepStatus) -> None:
        self._run.state.restore(outcome)
        self._batons.append(self._run.state.baton)
        if outcome.kind is StepKind.EDIT:
            return
        step = self._steps.setdefault(outcome.seq, Step(outcome.seq, outcome.name, outcome.kind))
        step.name, step.kind, step.status = outcome.name, outcome.kind, status
        if outcome.failure is not None:
            if step.kind is not StepKind.STAGE or not (step.failure and outcome.failure.endswith(f": {step.failure}")):
                step.failure = outcome.failure  # else the attempt has the same failure, without the stage's name
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
        self._mark_due(self._clock)

    def task_failed(self, event: HistoryEvent) -> None:
        failure_attributes = event.workflow_task_failed_event_attributes
        if failure_attributes.base_run_id:
            self._run.reset = time_of(event)
            self._run.resets.append(
                Reset(event.event_id, failure_attributes.base_run_id, failure_attributes.failure.message)
            )
            self._note(event, f"reset from run {failure_attributes.base_run_id}: {failure_attributes.failure.message}")
        elif failure_attributes.cause != _UNHANDLED_COMMAND:
            self._run.suspended = innermost_message(failure_attributes.failure)

    def _note(self, event: HistoryEvent, text: str) -> None:
        self._run.notes.append(Note(time_of(event), text))

    def stage_scheduled(self, event: HistoryEvent) -> None:
        if event.event_id in self._wait_reasons:
            self._missing[event.event_id] = self._wait_reasons[event.event_id]
        is_asked = event.activity_task_scheduled_event_attributes.activity_type.name == ASKED
        if is_asked and (question := parse_record(Question, self._text(event))):
            self._questions[question.id] = question
        stage_input = self._stage_inputs.get(event.event_id)
        if stage_input is None:
            return
        self._run.inputs.append(stage_input)
        task = event.activity_task_scheduled_event_attributes.workflow_task_completed_event_id
        task = min(task, self._handoff_tasks.get(stage_input.seq, task))
        kind = StepKind.MERGE if stage_input.branch else StepKind.STAGE
        step = self._steps.get(stage_input.seq)
        if step is None:
            self._steps[stage_input.seq] = Step(
                stage_input.seq, stage_input.stage, kind, began=time_of(event), reset_event=task
            )
        elif stage_input.attempt > 1:
            step.attempts = max(step.attempts, stage_input.attempt)
            if step.status is StepStatus.FAILED:  # now retried
                step.status, step.failure, step.ended = StepStatus.RUNNING, None, None
        elif stage_input.branch:
            step.name = f"{step.name}+{stage_input.stage}"[:200]

    def stage_failed(self, event: HistoryEvent) -> None:
        if event.event_id in self._stage_returns:
            self.stage_completed(event)
            return
        attributes = getattr(event, event.WhichOneof("attributes") or "")
        self._missing.pop(attributes.scheduled_event_id, None)
        if stage_input := self._stage_inputs.get(attributes.scheduled_event_id):
            step = self._steps[stage_input.seq]
            if is_missing_resource(event):
                self._bill(event, stage_input.seq, stage_input.stage, find_spend(parse_details(self._text(event))))
                return
            step.status, step.ended = StepStatus.FAILED, time_of(event)
            step.failure = innermost_message(attributes.failure) or "timed out"
            self._bill(event, stage_input.seq, stage_input.stage, find_spend(parse_details(self._text(event))))

    def stage_canceled(self, event: HistoryEvent) -> None:
        self._missing.pop(event.activity_task_canceled_event_attributes.scheduled_event_id, None)

    def stage_completed(self, event: HistoryEvent) -> None:
        """Record a stage's return; it takes effect in the workflow's next task."""
        result = self._stage_returns.get(event.event_id)
        if result is None:
            self._missing.pop(event.activity_task_completed_event_attributes.scheduled_event_id, None)
            self._bill_abandoned(event)
            return
        if result.anchor is not None:
            self._run.anchors.append(result.anchor)
        step = self._steps[result.seq]
        step.ended = time_of(event)
        step.attempts = max(step.attempts, result.attempt)
        step.tokens_read += result.tokens_read
        if result.tokens_read:
            self._run.tokens_read[result.seq, result.stage] = result.tokens_read
            self._run.prompts[result.seq, result.stage] = result.prompt
        if result.branch:
            self._branches[result.seq, result.stage] = result
            return
        self._arrived_returns.append(result)

    def _top_up(self, event: HistoryEvent, micro_usd: int) -> None:
        if micro_usd:
            self._run.top_ups.append((event.event_id, micro_usd))

    def _bill_abandoned(self, event: HistoryEvent) -> None:
        """Charge the spend that roll-backs abandoned, and credit the top-ups."""
        if event.activity_task_completed_event_attributes.scheduled_event_id in self._settlements:
            roll_backs = parse_record(RollBacks, self._text(event))
            for roll_back in roll_backs.made if roll_backs else []:
                self._bill(event, max(self._steps, default=0) + 1, "", roll_back.left, elsewhere=True)
                self._top_up(event, roll_back.topped_up_micro_usd)

    def open_questions(self) -> list[Question]:
        """Return the questions whose deadlines are running, the nearest first."""
        approvals = {int(match[1]) for timer in self._run.timers if (match := APPROVAL_TIMER.fullmatch(timer.name))}
        handoffs = {handoff.handoff_id for handoff in self._run.pending_handoffs}
        questions = [
            question
            for question in self._questions.values()
            if (question.id in handoffs if question.handoff else question.seq in approvals)
        ]
        return sorted(questions, key=lambda question: question.until)

    def memo(self, event: HistoryEvent) -> None:
        if MEMO_QUESTIONS in event.workflow_properties_modified_event_attributes.upserted_memo.fields:
            published = parse_record(OpenQuestions, self._text(event))
            for question in published.questions if published else ():
                if question.is_whole or question.id not in self._questions:
                    self._questions[question.id] = question
            return
        outcome = parse_record(Outcome, self._text(event))
        if outcome is None:
            if compensation := parse_record(CompensationRecord, self._text(event)):
                self._run.undone_since = min(
                    compensation.undone_since, self._run.undone_since or compensation.undone_since
                )
                if compensation.by_hand is not None:
                    self._note(event, compensation.by_hand)
            return
        if outcome.failure is not None:  # then the stage's return was not applied
            self._due_returns = [(result, at) for result, at in self._due_returns if result.seq != outcome.seq]
        self._settle(outcome.order)
        if outcome.kind is StepKind.CHILD and outcome.failure is None:
            child_result = PipelineResult.model_validate(outcome.value)
            # Billed when it ended: a run rolled back to right after that records the outcome a second time.
            end_event = self._child_ends.get(outcome.seq, event)
            self._top_up(end_event, child_result.topped_up_micro_usd)
            self._bill(end_event, outcome.seq, outcome.name, child_result.billed or child_result.spend, elsewhere=True)
        names = [entry.stage_id for entry in outcome.entries if entry.kind is StepKind.BRANCH]
        branches = [self._branches[outcome.seq, name] for name in names if (outcome.seq, name) in self._branches]
        self._run.accepted += [(outcome.order, branch) for branch in branches]
        events = [event for branch in branches for event in branch.events]
        self._restore(outcome.model_copy(update={"events": events}) if events else outcome, StepStatus.DONE)

    def timer_started(self, event: HistoryEvent) -> None:
        name = timer_name(self._text(event))
        for kind, pattern in ((StepKind.APPROVAL, APPROVAL_TIMER), (StepKind.SLEEP, SLEEP_TIMER)):
            if match := pattern.fullmatch(name):
                timer = event.timer_started_event_attributes
                task = timer.workflow_task_completed_event_id
                step = self._begin_step(int(match[1]), match[2], kind, event, task)
                step.until = time_of(event) + timer.start_to_fire_timeout.ToTimedelta()

    def child_initiated(self, event: HistoryEvent) -> None:
        attributes = event.start_child_workflow_execution_initiated_event_attributes
        match = CHILD_ID.match(attributes.workflow_id)
        if match:
            task = attributes.workflow_task_completed_event_id
            step = self._begin_step(int(match[2]), match[1], StepKind.CHILD, event, task)
            self._children[event.event_id] = step

    def _begin_step(self, seq: int, name: str, kind: StepKind, event: HistoryEvent, task: int) -> Step:
        self._steps[seq] = Step(seq, name, kind, began=time_of(event), reset_event=task)
        return self._steps[seq]

    def child_started(self, event: HistoryEvent) -> None:
        attributes = event.child_workflow_execution_started_event_attributes
        execution = attributes.workflow_execution
        self._run.children.append((execution.workflow_id, execution.run_id, attributes.initiated_event_id))

    def child_completed(self, event: HistoryEvent) -> None:
        """Record the time; after a roll-back the pipeline may record the outcome much later."""
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
            step.failure = innermost_message(attributes.failure)
            details = parse_details(self._text(event))
            self._top_up(event, find_top_up(details))
            self._bill(event, step.seq, step.name, find_spend(details), elsewhere=True)

    def signaled(self, event: HistoryEvent) -> None:
        name = event.workflow_execution_signaled_event_attributes.signal_name
        text = self._text(event)
        if name == HANDOFF_CHUNK and text is not None:
            self._run.chunks.append(text)

    def update_accepted(self, event: HistoryEvent) -> None:
        """Record a person's decision about a handoff, and their top-up."""
        if event.workflow_execution_update_accepted_event_attributes.accepted_request.input.name == DECIDE:
            self._decisions.add(event.event_id)
        if decision := parse_record(HandoffDecision, self._text(event)):
            self._run.decided.append((time_of(event), decision))
            self._top_up(event, decision.micro_usd)

    def update_completed(self, event: HistoryEvent) -> None:
        """Record how an approval was decided; its outcome follows in a later workflow task."""
        accepted = event.workflow_execution_update_completed_event_attributes.accepted_event_id
        reply = parse_record(Decided, self._text(event)) if accepted in self._decisions else None
        if reply is not None and not reply.missing:
            self._run.replies[reply.question] = reply

    def completed(self, event: HistoryEvent) -> None:
        self._close(event, RunStatus.COMPLETED, None)
        self._run.result = result = parse_record(PipelineResult, self._text(event))
        if result is not None:  # the pipeline's own total, compressed conversations included
            self._run.billed = result.billed or result.spend

    def failed(self, event: HistoryEvent) -> None:
        failure = event.workflow_execution_failed_event_attributes.failure
        self._close(event, RunStatus.FAILED, failure_text(failure))
        self._run.billed = find_spend(parse_details(self._text(event))) or self._run.billed  # the pipeline's own total

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
        self._settle()
        self._run.status, self._run.failure, self._run.ended = status, failure, time_of(event)
        self._run.suspended = None


_UNHANDLED_COMMAND = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND  # a signal arrived meanwhile
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
        "workflow_execution_update_completed": _Fold.update_completed,
        "workflow_execution_completed": _Fold.completed,
        "workflow_execution_failed": _Fold.failed,
        "workflow_execution_terminated": _Fold.terminated,
        "workflow_execution_cancel_requested": _Fold.cancel_requested,
        "workflow_execution_canceled": _Fold.canceled,
        "workflow_execution_timed_out": _Fold.timed_out,
        "workflow_execution_continued_as_new": _Fold.continued,
    }.items()
}
