"""The fold of a run's events: one handler for each type of event."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from datetime import datetime

from pydantic import ValidationError
from temporalio.api.history.v1 import HistoryEvent

from baton.budget.billing import Bill, billed_before
from baton.compression.rules import COMPRESS, Compressed
from baton.core.baton import AnyBaton, Baton
from baton.core.history import CompensationRecord, Outcome, Spend, StepKind, find_spend, find_top_up, find_transcript
from baton.core.lab import find_lab_report
from baton.core.messages import MissingPart, PipelineInput, PipelineResult, StageInput, StageReturn
from baton.core.past import RollBacks
from baton.core.patching import PublishedTerms
from baton.core.questions import APPROVE, ASKED, DENY, Answer, OpenQuestions, Question, Settled
from baton.core.state import PipelineState
from baton.core.steering import SteeringNote
from baton.core.streaming import Streamed, decode_parts
from baton.errors import PatchError
from baton.ledger.records import RECORD
from baton.runs.client_attempts import StageAttempt
from baton.runs.client_events import (
    APPROVAL_TIMER,
    SLEEP_TIMER,
    DecodedEvent,
    Timer,
    failure_reason,
    failure_text,
    find_signal,
    handoff_step,
    innermost_message,
    is_failure_of_code,
    is_refusal,
    lacks_part,
    open_questions,
    parse_child_id,
    parse_details,
    parse_record,
    parse_stage_input,
    parse_step_number,
    parse_text,
    time_of,
    update_name,
    waits_of,
    without_attempt,
)
from baton.runs.client_news import Changes, Reading
from baton.runs.client_record import Note, PauseChange, Reset, RunRecord, RunStatus, Step, StepStatus, StepStream
from baton.wire.names import ANSWER, HANDOFF_CHUNK, MEMO_QUESTIONS, MEMO_TERMS, ROLLED_BACK, STEER, WAIT_FOR_WORKER


class Fold:
    """Fills a record from events, once and in order.

    Steps are replaced and never changed, so a copy of the fold shares them.
    """

    def __init__(self, workflow_id: str, run_id: str, start: PipelineInput, first: HistoryEvent) -> None:
        started = first.workflow_execution_started_event_attributes
        self.run = RunRecord(
            workflow_id=workflow_id,
            run_id=run_id or started.original_execution_run_id,
            pipeline=started.workflow_type.name,
            start=start,
            state=PipelineState(Baton(goal=_UNUSABLE)),
            began=time_of(first),
            first_run_id=started.first_execution_run_id or None,
            previous_run_id=started.continued_execution_run_id or None,
            notes=[Note(time_of(first), roll_back.note) for roll_back in start.roll_backs],
            billed=billed_before(start),
        )
        self.is_own = self.run.run_id == started.original_execution_run_id
        self._steps: dict[int, Step] = {}
        self._steps_before: dict[int, Step | None] = {}
        self._told_entries = 0
        self._told_notes = 0
        self._told_pauses = 0
        self._cut: set[int] = set()
        self._handoff_tasks: dict[int, int] = {}
        self._findings: dict[tuple[int, int], list[str]] = {}
        self._batons: list[Baton] = []
        self._arrived_returns: list[StageReturn] = []
        self._due_returns: list[tuple[StageReturn, datetime]] = []
        self._children: dict[int, int] = {}
        self._clock = time_of(first)
        self._branches: dict[tuple[int, str], StageReturn] = {}
        self._compressions: dict[int, int] = {}
        self._cancelled_by = ""
        self._child_ends: dict[int, HistoryEvent] = {}
        self._other_activities: dict[int, str] = {}
        self._missing: dict[int, MissingPart] = {}
        self._awaited: set[tuple[int, str | None]] = set()  # lost artifacts, by step
        self._questions: dict[str, Question] = {}  # the newest about each handoff, and all approvals
        self._updates: dict[int, str] = {}  # the names of accepted updates, by the event
        self._signals: list[tuple[int, Answer]] = []  # with answers
        self._topped_up: set[str] = set()  # the questions that updates answered
        self._timers: dict[int, Timer] = {}
        self._waits: dict[str, datetime] = {}  # for other pipelines, since when
        self._streams: dict[int, StepStream] = {}
        self._ended_streams: list[StepStream] = []
        self._has_terms = False
        self._begin(PublishedTerms())

    def _begin(self, terms: PublishedTerms) -> None:
        """Set the first baton and the rules, and restore the outcomes that the run started with."""
        start, baton = self.run.start, Baton(goal=_UNUSABLE)
        with suppress(ValidationError):
            baton = start.model_copy(update={"baton": {**start.baton, **terms.fields}}).first_baton(AnyBaton)
        self.run.state = PipelineState(baton)
        self.run.rules = terms.rules
        self._batons = [baton]
        for outcome in start.outcomes:
            self._restore(outcome, StepStatus.REUSED)

    def process(self, events: Iterable[DecodedEvent]) -> None:
        """Fold the next events."""
        for decoded in events:
            event = decoded.event
            self.run.last_event, self.run.read_at = event.event_id, time_of(event)
            if handler := _HANDLERS.get(event.WhichOneof("attributes") or ""):
                handler(self, event, decoded.text)

    def settle(self, order: int | None = None) -> None:
        """Apply the due returns, all of them or up to an outcome's order."""
        while self._due_returns and (order is None or len(self.run.state.outcomes) < order):
            self._apply(*self._due_returns.pop(0))

    def apply_arrived(self) -> "Fold":
        """Apply what has arrived as if a workflow task processed it now, and return the fold."""
        self.settle()
        if self.run.status is RunStatus.RUNNING:
            self._mark_due(self.run.read_at)
            self.settle()
        return self

    def copy(self) -> "Fold":
        """Return a fold that can process events without a change of this one."""
        fold = copy(self)
        vars(fold).update({name: value.copy() for name, value in vars(self).items() if isinstance(value, _CONTAINERS)})
        return fold

    def finish(self) -> RunRecord:
        """Return the record of all events so far; the fold is not used any more."""
        run = self.run
        run.steps = [self._steps[seq] for seq in sorted(self._steps)]
        run.bills.sort(key=lambda bill: bill.event)
        run.streams, run.timers, missing = [*self._streams.values()], self._timers_now(), self._missing_now()
        run.missing, run.lacking = [*dict.fromkeys(part.text for part in missing)], {part.seq for part in missing}
        run.asked = open_questions(self._questions.values(), run.timers)
        return run

    def take_changes(self) -> Changes:
        """Return what has changed since the last call."""
        run, seqs, timers = self.run, sorted(self._steps_before), self._timers_now()
        changes = Changes(
            [step for seq in seqs if (step := self._steps_before[seq])],
            replace(
                Reading.of(run),
                steps=[self._steps[seq] for seq in seqs],
                entries=run.state.entries[self._told_entries :],
                notes=run.notes[self._told_notes :],
                pauses=run.pauses[self._told_pauses :],
                timers=timers,
                asked=open_questions(self._questions.values(), timers),
                missing=[*dict.fromkeys(part.text for part in self._missing_now())],
            ),
            self._cut,
            self._ended_streams,
        )
        self._steps_before, self._cut, self._ended_streams = {}, set(), []
        self._told_entries, self._told_notes = len(run.state.entries), len(run.notes)
        self._told_pauses = len(run.pauses)
        return changes

    def _timers_now(self) -> list[Timer]:
        return [*self._timers.values()] if self.run.status is RunStatus.RUNNING else []

    def _missing_now(self) -> list[MissingPart]:
        return [*self._missing.values()] if self.run.status is RunStatus.RUNNING else []

    def _put(self, step: Step) -> None:
        self._steps_before.setdefault(step.seq, self._steps.get(step.seq))
        self._steps[step.seq] = step

    def _bill(
        self,
        event: HistoryEvent,
        seq: int,
        stage: str,
        spend: Spend,
        *,
        returned: StageReturn | None = None,
        elsewhere: bool = False,
    ) -> None:
        if not spend:
            return
        self.run.billed += spend
        self.run.bills.append(Bill(seq, stage, spend, event.event_id, time_of(event), elsewhere, returned))

    def _mark_due(self, at: datetime) -> None:
        """Mark the arrived returns as due, at the time of the workflow's task."""
        self._due_returns += [(result, at) for result in self._arrived_returns]
        self._arrived_returns = []

    def _apply(self, result: StageReturn, at: datetime) -> None:
        """Apply a stage's return, unless the workflow refused it."""
        step = self._steps[result.seq]
        if result.verdict is not None:
            failure = f"its handoff was not accepted: {result.verdict.reason}: {result.verdict.details}"
            self._put(replace(step, failure=failure))
            return
        next_findings = self._findings.get((result.seq, result.attempt + 1))
        if result.findings or next_findings is not None:
            failure = "; ".join(result.findings or next_findings or []) or "refused; it was sent out again"
            self._put(replace(step, failure=failure))
            return
        try:
            base = self._batons[min(result.after, len(self._batons) - 1)]
            self.run.state.record_stage(result, at, base=base)
        except PatchError as error:
            self._put(replace(step, status=StepStatus.FAILED, failure="; ".join(error.findings)))
        else:
            self._batons.append(self.run.state.baton)
            self.run.accepted.append((len(self.run.state.outcomes) - 1, result))
            self._put(replace(step, status=StepStatus.DONE, failure=None))

    def _restore(self, outcome: Outcome, status: StepStatus) -> None:
        self.run.state.restore(outcome)
        self._batons.append(self.run.state.baton)
        if outcome.kind is StepKind.EDIT:
            return
        began_in = self._handoff_tasks.get(outcome.seq) if outcome.kind is StepKind.APPROVAL else None
        step = self._steps.get(outcome.seq) or Step(outcome.seq, outcome.name, outcome.kind, reset_event=began_in)
        step = replace(step, name=outcome.name, kind=outcome.kind, status=status)
        waited = [since for name in waits_of(outcome) if (since := self._waits.pop(name, None))]
        if (failure := outcome.failure) is not None:
            if waited:
                step = replace(step, began=min(waited), ended=self._clock)
            if step.kind is StepKind.STAGE and step.failure and failure.endswith(f": {step.failure}"):
                failure = step.failure  # the attempt has the same failure, without the stage's name
            self._put(replace(step, status=StepStatus.FAILED, failure=failure))
            return
        ended, approved = step.ended, step.approved
        if ended is None or step.kind not in (StepKind.CHILD, StepKind.MERGE):
            ended = max((entry.timestamp for entry in outcome.entries), default=None)
        if outcome.kind is StepKind.APPROVAL and isinstance(outcome.value, dict):
            approved = {APPROVE: True, DENY: False}.get(str(outcome.value.get("choice")))
        self._put(replace(step, ended=ended, began=step.began or min(waited, default=ended), approved=approved))

    def _task_started(self, event: HistoryEvent, _: bytes | None) -> None:
        self._clock = time_of(event)

    def _task_completed(self, event: HistoryEvent, _: bytes | None) -> None:
        self.run.suspended = None
        self._mark_due(self._clock)

    def _task_failed(self, event: HistoryEvent, _: bytes | None) -> None:
        failure_attributes = event.workflow_task_failed_event_attributes
        if failure_attributes.base_run_id:
            self.is_own = self.is_own or failure_attributes.new_run_id == self.run.run_id
            self.run.reset = time_of(event)
            self.run.resets.append(
                Reset(event.event_id, failure_attributes.base_run_id, failure_attributes.failure.message)
            )
            self._note(event, f"reset from run {failure_attributes.base_run_id}: {failure_attributes.failure.message}")
        elif is_failure_of_code(event):
            self.run.suspended = innermost_message(failure_attributes.failure)

    def _note(self, event: HistoryEvent, text: str) -> None:
        self.run.notes.append(Note(time_of(event), text))

    def _activity_scheduled(self, event: HistoryEvent, text: bytes | None) -> None:
        attributes = event.activity_task_scheduled_event_attributes
        match attributes.activity_type.name:
            case name if name == COMPRESS:
                self._compressions[event.event_id] = seq = parse_step_number(text)
                if seq:
                    self._handoff_tasks.setdefault(seq, attributes.workflow_task_completed_event_id)
            case name if name in (ROLLED_BACK, RECORD):
                self._other_activities[event.event_id] = name
            case name if name == WAIT_FOR_WORKER:
                if missing := parse_record(MissingPart, text):
                    self._missing[event.event_id] = missing
                    self._awaited.add((missing.seq, missing.artifact))
            case name if name == ASKED and (question := parse_record(Question, text)):
                self._questions[question.subject] = question.completed(self._questions.get(question.subject))
            case _:
                if stage_input := parse_stage_input(text):
                    self._stage_scheduled(event, stage_input)

    def _stage_scheduled(self, event: HistoryEvent, sent: StageInput) -> None:
        attributes = event.activity_task_scheduled_event_attributes
        self.run.attempts[event.event_id] = StageAttempt(sent, time_of(event))
        self._findings[sent.seq, sent.attempt] = sent.findings
        self.run.sent[attributes.activity_id] = sent
        if sent.stream:
            self._streams[event.event_id] = StepStream(
                attributes.activity_id, sent.seq, sent.stage, None, time_of(event)
            )
        task = attributes.workflow_task_completed_event_id
        task = min(task, self._handoff_tasks.get(sent.seq, task))
        step = self._steps.get(sent.seq)
        if step is None:
            kind = StepKind.MERGE if sent.branch else StepKind.STAGE
            self._put(Step(sent.seq, sent.step_name or sent.stage, kind, began=time_of(event), reset_event=task))
        elif sent.attempt > 1 or (step.status is StepStatus.FAILED and not sent.branch):
            if step.status is StepStatus.FAILED:  # now retried
                step = replace(step, status=StepStatus.RUNNING, failure=None, ended=None)
            self._put(replace(step, attempts=max(step.attempts, sent.attempt)))
        elif sent.branch and sent.item is None:
            self._put(replace(step, name=f"{step.name}+{sent.stage}"[:200]))

    def _activity_started(self, event: HistoryEvent, _: bytes | None) -> None:
        attributes = event.activity_task_started_event_attributes
        if attempt := self.run.attempts.get(attributes.scheduled_event_id):
            self.run.attempts[attributes.scheduled_event_id] = attempt.begin(time_of(event), attributes.attempt)
        if attempt and attributes.attempt > 1:
            step, reason = self._steps[attempt.sent.seq], failure_reason(attributes.last_failure)
            self._put(replace(step, retries=step.retries + attributes.attempt - 1, retried=reason))

    def _activity_completed(self, event: HistoryEvent, text: bytes | None) -> None:
        scheduled = event.activity_task_completed_event_attributes.scheduled_event_id
        result = parse_record(StageReturn, text) if scheduled in self.run.attempts else None
        self._end_attempt(event, scheduled, result)
        if scheduled in self.run.attempts:
            if result is not None:
                self._bill(event, result.seq, result.stage, result.spend, returned=result)
                self._findings.setdefault((result.seq, result.attempt), [])
                self._stage_returned(event, result)
        elif scheduled in self._compressions:
            if compressed := parse_record(Compressed, text):
                self._bill(event, self._compressions[scheduled], "", compressed.spend)
        elif self._other_activities.get(scheduled) == ROLLED_BACK:
            self._bill_abandoned(event, text)
        elif scheduled in self._other_activities and (head := parse_text(text)):
            self.run.anchors.append(head)

    def _activity_failed(self, event: HistoryEvent, text: bytes | None) -> None:
        attributes = getattr(event, event.WhichOneof("attributes") or "")
        scheduled, failure = attributes.scheduled_event_id, innermost_message(attributes.failure) or "timed out"
        refusal = parse_record(StageReturn, text) if is_refusal(event) else None
        details = parse_details(text)
        spend = find_spend(details)
        self._end_attempt(event, scheduled, refusal, failure, *details)
        if refusal is not None:
            self._stage_returned(event, refusal)
        if refusal is not None or scheduled not in self.run.attempts:
            return
        sent = self.run.attempts[scheduled].sent
        self.run.note_transcript(sent, find_transcript(details))
        self._bill(event, sent.seq, sent.stage, spend)
        if not lacks_part(event, sent.seq, self._awaited):
            step = replace(self._steps[sent.seq], ended=time_of(event))  # if an item fails, the others continue
            self._put(step if sent.item else replace(step, status=StepStatus.FAILED, failure=failure))

    def _activity_canceled(self, event: HistoryEvent, _: bytes | None) -> None:
        self._end_attempt(event, event.activity_task_canceled_event_attributes.scheduled_event_id, None, "canceled")

    def _end_attempt(
        self, event: HistoryEvent, scheduled: int, answer: StageReturn | None, failure: str = "", *details: object
    ) -> None:
        self._missing.pop(scheduled, None)
        if scheduled in self.run.attempts:
            told = find_spend(details), find_lab_report(details)
            self.run.attempts[scheduled] = self.run.attempts[scheduled].end(time_of(event), answer, failure, *told)
        if stream := self._streams.get(scheduled):
            tries = self.run.attempts[scheduled].tries
            content = None if answer is None else Streamed(tries, decode_parts(answer.streamed))
            self._streams[scheduled] = replace(stream, event=event.event_id, at=time_of(event), content=content)
            self._ended_streams.append(self._streams[scheduled])

    def _stage_returned(self, event: HistoryEvent, result: StageReturn) -> None:
        """Record a stage's return; it takes effect in the workflow's next task."""
        self.run.note_transcript(result, result.journal)
        if result.anchor is not None:
            self.run.anchors.append(result.anchor)
        step = self._steps[result.seq]
        attempts, tokens = max(step.attempts, result.attempt), step.tokens_read + result.tokens_read
        self._put(replace(step, ended=time_of(event), attempts=attempts, tokens_read=tokens))
        if result.tokens_read:
            self.run.tokens_read[result.seq, result.title] = result.tokens_read
            self.run.prompts[result.seq, result.title] = result.prompt
        if result.branch:
            self._branches[result.seq, result.title] = result
            return
        self._arrived_returns.append(result)

    def _top_up(self, event: int, micro_usd: int) -> None:
        """Book a top-up at the event that delivered it: a run that is rolled back to after it counts it again."""
        if micro_usd:
            self.run.top_ups.append((event, micro_usd))

    def _bill_abandoned(self, event: HistoryEvent, text: bytes | None) -> None:
        """Charge the spend that roll-backs abandoned, and credit the top-ups."""
        roll_backs = parse_record(RollBacks, text)
        for roll_back in roll_backs.made if roll_backs else []:
            self._bill(event, max(self._steps, default=0) + 1, "", roll_back.left, elsewhere=True)
            self._top_up(event.event_id, roll_back.topped_up_micro_usd)

    def _memo(self, event: HistoryEvent, text: bytes | None) -> None:
        fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if MEMO_TERMS in fields:
            if not self._has_terms and (terms := parse_record(PublishedTerms, text)):
                self._has_terms = True
                self._begin(terms)
            return
        if MEMO_QUESTIONS in fields:
            published = parse_record(OpenQuestions, text)
            for question in published.questions if published else ():
                known = self._questions.get(question.subject)
                if question.is_whole or known is None or known.id != question.id:
                    self._questions[question.subject] = question
            if published and (settled := published.settled):
                self.run.settled.setdefault(settled.question, settled)  # an update's answer has the whole texts
                if settled.via != "update":
                    self._top_up(find_signal(settled, self._signals) or event.event_id, settled.micro_usd)
            return
        if (outcome := parse_record(Outcome, text)) is None:
            if compensation := parse_record(CompensationRecord, text):
                self.run.undone_since = min(
                    compensation.undone_since, self.run.undone_since or compensation.undone_since
                )
                if compensation.by_hand is not None:
                    self._note(event, compensation.by_hand)
            return
        if outcome.failure is not None:  # then the stage's return was not applied
            self._due_returns = [(result, at) for result, at in self._due_returns if result.seq != outcome.seq]
        self.settle(outcome.order)
        if outcome.kind is StepKind.CHILD and outcome.failure is None:
            child_result = PipelineResult.model_validate(outcome.value)
            # Billed when it ended: a run rolled back to right after that records the outcome a second time.
            end_event = self._child_ends.get(outcome.seq, event)
            self._top_up(end_event.event_id, child_result.topped_up_micro_usd)
            self._bill(end_event, outcome.seq, outcome.name, child_result.billed or child_result.spend, elsewhere=True)
        names = [entry.stage_id for entry in outcome.entries if entry.kind is StepKind.BRANCH]
        branches = [self._branches[outcome.seq, name] for name in names if (outcome.seq, name) in self._branches]
        self.run.accepted += [(outcome.order, branch) for branch in branches]
        events = [event for branch in branches for event in branch.events]
        self._restore(outcome.model_copy(update={"events": events}) if events else outcome, StepStatus.DONE)

    def _timer_started(self, event: HistoryEvent, text: bytes | None) -> None:
        attributes, name, since = event.timer_started_event_attributes, parse_text(text), time_of(event)
        until = since + attributes.start_to_fire_timeout.ToTimedelta()
        task = attributes.workflow_task_completed_event_id
        self._timers[event.event_id] = Timer(name, since, until)
        self._waits.setdefault(without_attempt(name), since)
        for kind, pattern in ((StepKind.APPROVAL, APPROVAL_TIMER), (StepKind.SLEEP, SLEEP_TIMER)):
            if match := pattern.fullmatch(name):
                self._put(Step(int(match[1]), match[2], kind, began=since, until=until, reset_event=task))
        if seq := handoff_step(name):
            self._handoff_tasks.setdefault(seq, task)

    def _timer_ended(self, event: HistoryEvent, _: bytes | None) -> None:
        attributes = getattr(event, event.WhichOneof("attributes") or "")
        self._timers.pop(attributes.started_event_id, None)

    def _child_initiated(self, event: HistoryEvent, _: bytes | None) -> None:
        attributes = event.start_child_workflow_execution_initiated_event_attributes
        if started_by := parse_child_id(attributes.workflow_id):
            (name, seq), task = started_by, attributes.workflow_task_completed_event_id
            self._put(Step(seq, name, StepKind.CHILD, began=time_of(event), reset_event=task))
            self._children[event.event_id] = seq

    def _child_started(self, event: HistoryEvent, _: bytes | None) -> None:
        attributes = event.child_workflow_execution_started_event_attributes
        execution = attributes.workflow_execution
        self.run.children.append((execution.workflow_id, execution.run_id, attributes.initiated_event_id))

    def _child_completed(self, event: HistoryEvent, _: bytes | None) -> None:
        """Record the time; after a roll-back the pipeline may record the outcome much later."""
        self._child_ended(event, None)
        initiated = event.child_workflow_execution_completed_event_attributes.initiated_event_id
        if (seq := self._children.get(initiated)) is not None:
            self._put(replace(self._steps[seq], ended=time_of(event)))
            self._child_ends[seq] = event

    def _child_ended(self, event: HistoryEvent, _: bytes | None) -> None:
        attributes = getattr(event, event.WhichOneof("attributes") or "")
        self.run.ended_children[attributes.initiated_event_id] = event.event_id

    def _child_failed(self, event: HistoryEvent, text: bytes | None) -> None:
        self._child_ended(event, None)
        attributes = event.child_workflow_execution_failed_event_attributes
        if (seq := self._children.get(attributes.initiated_event_id)) is not None:
            failure = innermost_message(attributes.failure)
            step = replace(self._steps[seq], status=StepStatus.FAILED, ended=time_of(event), failure=failure)
            self._put(step)
            details = parse_details(text)
            self._top_up(event.event_id, find_top_up(details))
            self._bill(event, step.seq, step.name, find_spend(details), elsewhere=True)

    def _signaled(self, event: HistoryEvent, text: bytes | None) -> None:
        name = event.workflow_execution_signaled_event_attributes.signal_name
        if name == HANDOFF_CHUNK and text is not None:
            self.run.chunks.append(text)
        elif name == ANSWER and (answer := parse_record(Answer, text)):
            self._signals.append((event.event_id, answer))

    def _update_accepted(self, event: HistoryEvent, _: bytes | None) -> None:
        self._updates[event.event_id] = update_name(event)

    def _update_completed(self, event: HistoryEvent, text: bytes | None) -> None:
        """Record how a question was answered; what follows from it comes in a later workflow task."""
        accepted = event.workflow_execution_update_completed_event_attributes.accepted_event_id
        name = self._updates.get(accepted)
        if name == STEER and (note := parse_record(SteeringNote, text)):
            self.run.steering.append(note)
        if name == ANSWER and (reply := parse_record(Settled, text)) and not reply.missing:
            self.run.settled[reply.question] = reply
            if reply.via == "update" and reply.question not in self._topped_up:  # not the reply to a repeated one
                self._topped_up.add(reply.question)
                self._top_up(accepted, reply.micro_usd)

    def _completed(self, event: HistoryEvent, text: bytes | None) -> None:
        self._close(event, RunStatus.COMPLETED, None)
        self.run.result = result = parse_record(PipelineResult, text)
        if result is not None:  # the pipeline's own total, compressed conversations included
            self.run.billed = result.billed or result.spend

    def _failed(self, event: HistoryEvent, text: bytes | None) -> None:
        failure = event.workflow_execution_failed_event_attributes.failure
        self._close(event, RunStatus.FAILED, failure_text(failure))
        self.run.billed = find_spend(parse_details(text)) or self.run.billed  # the pipeline's own total

    def _terminated(self, event: HistoryEvent, _: bytes | None) -> None:
        self._close(event, RunStatus.TERMINATED, event.workflow_execution_terminated_event_attributes.reason)

    def _cancel_requested(self, event: HistoryEvent, _: bytes | None) -> None:
        self._cancelled_by = event.workflow_execution_cancel_requested_event_attributes.cause

    def _canceled(self, event: HistoryEvent, _: bytes | None) -> None:
        self._close(event, RunStatus.CANCELED, self._cancelled_by or "canceled")

    def _timed_out(self, event: HistoryEvent, _: bytes | None) -> None:
        self._close(event, RunStatus.TIMED_OUT, "the run exceeded its timeout")

    def _paused(self, event: HistoryEvent, _: bytes | None) -> None:
        attributes = getattr(event, event.WhichOneof("attributes") or "")
        is_paused = event.HasField("workflow_execution_paused_event_attributes")
        self.run.pauses.append(PauseChange(time_of(event), is_paused, attributes.identity, attributes.reason))

    def _continued(self, event: HistoryEvent, _: bytes | None) -> None:
        self._close(event, RunStatus.CONTINUED_AS_NEW, None)
        self.run.next_run_id = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id

    def _close(self, event: HistoryEvent, status: RunStatus, failure: str | None) -> None:
        self.settle()
        self.run.status, self.run.failure, self.run.suspended, self.run.ended = status, failure, None, time_of(event)
        if status in (RunStatus.FAILED, RunStatus.TERMINATED, RunStatus.CANCELED, RunStatus.TIMED_OUT):
            for step in [step for step in self._steps.values() if step.status is StepStatus.RUNNING]:
                self._put(replace(step, status=StepStatus.FAILED, ended=time_of(event)))
                self._cut.add(step.seq)


_UNUSABLE = "(unusable input)"
_CONTAINERS = (list, dict, set, RunRecord)

_HANDLERS: dict[str, Callable[[Fold, HistoryEvent, bytes | None], None]] = {
    f"{name}_event_attributes": handler
    for name, handler in {
        "workflow_task_started": Fold._task_started,
        "workflow_task_completed": Fold._task_completed,
        "workflow_task_failed": Fold._task_failed,
        "activity_task_scheduled": Fold._activity_scheduled,
        "activity_task_started": Fold._activity_started,
        "activity_task_completed": Fold._activity_completed,
        "activity_task_failed": Fold._activity_failed,
        "activity_task_timed_out": Fold._activity_failed,
        "activity_task_canceled": Fold._activity_canceled,
        "workflow_properties_modified": Fold._memo,
        "timer_started": Fold._timer_started,
        "timer_fired": Fold._timer_ended,
        "timer_canceled": Fold._timer_ended,
        "start_child_workflow_execution_initiated": Fold._child_initiated,
        "child_workflow_execution_started": Fold._child_started,
        "child_workflow_execution_completed": Fold._child_completed,
        "child_workflow_execution_failed": Fold._child_failed,
        "child_workflow_execution_canceled": Fold._child_ended,
        "child_workflow_execution_timed_out": Fold._child_ended,
        "child_workflow_execution_terminated": Fold._child_ended,
        "workflow_execution_signaled": Fold._signaled,
        "workflow_execution_update_accepted": Fold._update_accepted,
        "workflow_execution_update_completed": Fold._update_completed,
        "workflow_execution_completed": Fold._completed,
        "workflow_execution_failed": Fold._failed,
        "workflow_execution_terminated": Fold._terminated,
        "workflow_execution_cancel_requested": Fold._cancel_requested,
        "workflow_execution_canceled": Fold._canceled,
        "workflow_execution_timed_out": Fold._timed_out,
        "workflow_execution_paused": Fold._paused,
        "workflow_execution_unpaused": Fold._paused,
        "workflow_execution_continued_as_new": Fold._continued,
    }.items()
}
