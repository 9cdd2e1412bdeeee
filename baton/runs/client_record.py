"""A run as its event history tells it: steps, batons, people, streams, ends. Needs no worker, and no pipeline code."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_jsonable_python
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import DataConverter

from baton.budget.billing import Bill, billed_before
from baton.core.baton import Baton
from baton.core.history import HistoryEntry, Spend, StepKind, snapshots
from baton.core.messages import PipelineInput, PipelineResult, PromptPart, StageInput, StageReturn
from baton.core.state import PipelineState
from baton.core.streaming import Streamed, decode_parts
from baton.errors import HistoryError
from baton.handoff.pending import HandoffDecision
from baton.personal.records import merged
from baton.runs.client_events import HandoffDeadline, Timer, pending_handoffs, time_of
from baton.runs.client_executions import describe
from baton.wire.text import elapsed

Heard = Mapping[str, tuple[int, int]]
"""By activity, which of its runs was heard last, and up to which place."""


@dataclass(frozen=True)
class StepStream:
    """The stream of one activity."""

    activity: str
    seq: int
    stage: str
    event: int | None
    at: datetime
    said: Streamed | None = None


def streams_of(
    events: Sequence[HistoryEvent], given: Mapping[int, StageInput], returned: Mapping[int, StageReturn]
) -> list[StepStream]:
    """Return the streams that a history tells of, in the order in which their activities were scheduled."""
    streams: dict[int, StepStream] = {}
    attempts: dict[int, int] = {}
    for event in events:
        attributes = getattr(event, event.WhichOneof("attributes") or "", None)
        scheduled: int = getattr(attributes, "scheduled_event_id", 0)
        if (sent := given.get(event.event_id)) is not None and sent.stream:
            id = event.activity_task_scheduled_event_attributes.activity_id
            streams[event.event_id] = StepStream(id, sent.seq, sent.stage, None, time_of(event))
        elif scheduled not in streams:
            continue
        elif event.HasField("activity_task_started_event_attributes"):
            attempts[scheduled] = event.activity_task_started_event_attributes.attempt
        elif not event.HasField("activity_task_cancel_requested_event_attributes"):
            one, answer = streams[scheduled], returned.get(event.event_id)
            said = None if answer is None else Streamed(attempts.get(scheduled, 1), decode_parts(answer.streamed))
            streams[scheduled] = StepStream(one.activity, one.seq, one.stage, event.event_id, time_of(event), said)
    return [*streams.values()]


async def live(client: Client, workflow_id: str, run_id: str, streams: Sequence[StepStream]) -> list[StepStream]:
    """Return what the open ones of some streams have said by now."""
    wanted = {one.activity: one for one in streams if one.event is None}
    found = []
    for pending in (await describe(client, workflow_id, run_id)).details.pending_activities:
        one = wanted.get(pending.activity_id)
        if one is not None and (said := await _said(pending.heartbeat_details.payloads, client.data_converter)):
            at = pending.last_heartbeat_time.ToDatetime(one.at.tzinfo)
            found.append(StepStream(one.activity, one.seq, one.stage, None, at, said))
    return found


async def _said(payloads: Sequence[object], converter: DataConverter) -> Streamed | None:
    """Return the stream in the details of a heartbeat, if it has one."""
    details = await converter.decode(payloads) if payloads else []  # type: ignore[arg-type]
    return next((said for one in details if (said := Streamed.from_json(one))), None)


def unheard(stream: StepStream, heard: Heard) -> Iterator[tuple[bool, str, str, str, tuple[int, int]]]:
    """Yield what is new in a stream."""
    if stream.said is None:
        return
    attempt, place = heard.get(stream.activity, (0, 0))
    if stream.said.attempt < attempt:  # the heartbeat of a run before the one that was heard
        return
    again = stream.said.attempt > attempt
    for part, end in stream.said.after(0 if again else place):
        yield again and place > 0, part.kind.value, part.text, part.tool, (stream.said.attempt, end)
        again = False


_EPOCH = datetime.fromtimestamp(0, UTC)


class RunStatus(StrEnum):
    """How a run stands, in Temporal's words."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    TERMINATED = "TERMINATED"
    TIMED_OUT = "TIMED_OUT"
    CONTINUED_AS_NEW = "CONTINUED_AS_NEW"


class StepStatus(StrEnum):
    """How a step stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    TAKEN_OVER = "taken over"


@dataclass
class Step:
    """One step of a run: a stage, a fan-out, an approval, a child or a sleep.

    Attributes:
        seq: Its number in the pipeline, from 1.
        name: The name of the stage, of the fan-out's stages, of the approval or the child.
        kind: What kind of step it is.
        status: Whether it runs, is done, failed, or was taken over from an earlier run.
        began: When it was scheduled.
        ended: When it ended.
        until: The deadline of an approval, or the end of a sleep.
        reset_event: The event a reset goes to, to be right before the step; None if it is in another run.
        attempts: How often it was sent out because of refused patches.
        tokens_read: Tokens of the prompts it was given.
        failure: Why it failed, or the last finding against it.
        approved: How an approval was decided, yes or no; None while it waits, and of any other step.
    """

    seq: int
    name: str
    kind: StepKind
    status: StepStatus = StepStatus.RUNNING
    began: datetime | None = None
    ended: datetime | None = None
    until: datetime | None = None
    reset_event: int | None = None
    attempts: int = 1
    tokens_read: int = 0
    failure: str | None = None
    approved: bool | None = None


@dataclass(frozen=True)
class Note:
    """What an operator should know of a run.

    Attributes:
        at: When it happened.
        text: One line.
    """

    at: datetime
    text: str


@dataclass(frozen=True)
class Reset:
    """A roll-back, or another reset, as the server tells of it."""

    event: int
    base_run_id: str
    reason: str


@dataclass
class RunRecord:
    """A run, rebuilt from its events.

    Attributes:
        workflow_id: The workflow.
        run_id: The run.
        pipeline: The workflow's type.
        start: What it was started with.
        state: The baton, its history and outcomes, as the run has them.
        steps: The steps, in order of their numbers.
        timers: The timers that run, the oldest first; none in a run that has ended.
        status: How the run stands.
        began: When the run started.
        first_run_id: The first run of the chain that continued as new up to this one.
        first_began: When that started, if the server still has it.
        reset: When it was last rolled back, or reset in another way; None if it never was.
        resets: Each time that this was done, in order.
        ended: When it closed.
        failure: Why it failed, was terminated or was left.
        suspended: Why the worker's code cannot continue it: it does not fit the history, does not know the pipeline,
            or a payload needs a key. The server has it tried again until it can; None if the last try succeeded.
        missing: What no worker had that was asked: the run is suspended until one has it, and unharmed.
        result: What it returned.
        children: Workflow id, run id and initiating event of every child that was started.
        ended_children: By the initiating event of a child, the event that tells its end.
        previous_run_id: The run it continues, if it continued as new.
        next_run_id: The run that continues it.
        notes: Roll-backs, those of the runs that it continues too, and compensations that failed, in order.
        undone_since: The first of the steps whose effects outside were undone; None if none were.
        last_event: The last event that was read.
        read_at: When that happened.
        anchors: Heads of the task's audit chain, in the order in which stages brought them back: kept here,
            outside the ledger, they show whether it was cut or rewritten (`ChainHead.from_anchor`).
        inputs: What its stages were sent, in order.
        accepted: What its stages returned and the pipeline took over, in order, each with its outcome's place.
        tokens_read: What the prompts of its stages had, by step number and stage.
        prompts: The parts of these prompts, by the same.
        billed: What was charged: refused attempts, branches of a failed fan-out, stages that raised, compressed
            conversations and what a roll-back left included.
        bills: What of it was charged in this run, one for each event that tells it.
        topped_up_micro_usd: What people put into its budget, in this run and in children that ended.
        decided: What people decided about handoffs that waited, with the time of it.
        chunks: The sealed chunks of streamed handoffs that it was signaled, in order.
        streams: What its stages said while they worked, where people wanted to read that.
    """

    workflow_id: str
    run_id: str
    pipeline: str
    start: PipelineInput
    state: PipelineState
    steps: list[Step] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    status: RunStatus = RunStatus.RUNNING
    began: datetime | None = None
    first_run_id: str | None = None
    first_began: datetime | None = None
    reset: datetime | None = None
    resets: list[Reset] = field(default_factory=list)
    ended: datetime | None = None
    failure: str | None = None
    suspended: str | None = None
    missing: list[str] = field(default_factory=list)
    result: PipelineResult | None = None
    children: list[tuple[str, str, int]] = field(default_factory=list)
    ended_children: dict[int, int] = field(default_factory=dict)
    previous_run_id: str | None = None
    next_run_id: str | None = None
    notes: list[Note] = field(default_factory=list)
    undone_since: int | None = None
    last_event: int = 0
    read_at: datetime = _EPOCH
    anchors: list[str] = field(default_factory=list)
    inputs: list[StageInput] = field(default_factory=list)
    accepted: list[tuple[int, StageReturn]] = field(default_factory=list)
    tokens_read: dict[tuple[int, str], int] = field(default_factory=dict)
    prompts: dict[tuple[int, str], list[PromptPart]] = field(default_factory=dict)
    billed: Spend = field(default_factory=Spend)
    bills: list[Bill] = field(default_factory=list)
    topped_up_micro_usd: int = 0
    decided: list[tuple[datetime, HandoffDecision]] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    streams: list[StepStream] = field(default_factory=list)

    @property
    def baton(self) -> Baton:
        """The baton now, or at the end."""
        return self.state.baton

    @property
    def took(self) -> timedelta | None:
        """How long it has worked: since it began, or was reset, for it may have ended before that."""
        return elapsed(self.reset or self.first_began or self.began, self.ended or datetime.now(UTC))

    @property
    def personal_data(self) -> dict[str, JsonValue]:
        """What it knows of people, sealed as `Vault.open` takes it: what it was started with, and what stages wrote."""
        handoffs: Any = self.start.carried.get("handoffs", {})
        relay = handoffs.get("relay") or {}
        known = merged(relay.get("personal_data", {}), self.start.personal_data)
        for _, returned in self.accepted:
            known = merged(known, returned.personal_data or {})
        return known

    @property
    def ceiling_micro_usd(self) -> int | None:
        """Its budget with what people added; None if it was started without one."""
        budget = self.start.budget
        return None if budget is None else budget.ceiling_micro_usd + self.topped_up_micro_usd

    @property
    def left_micro_usd(self) -> int | None:
        """What is left of its budget, reservations not counted; None if it was started without one."""
        budget, ceiling = self.start.budget, self.ceiling_micro_usd
        if budget is None or ceiling is None:
            return None
        return ceiling - budget.before.micro_usd - self.billed.micro_usd

    def ended_child(self, step: Step) -> int | None:
        """Return the event that tells the end of a step's child, or None if the run does not know it."""
        ends = [
            self.ended_children.get(initiated)
            for child, _, initiated in self.children
            if f".step{step.seq}." in child and initiated >= (step.reset_event or 0)
        ]
        return next((end for end in ends if end is not None), None)

    def billed_by(self, event: int) -> Spend:
        """Return what the run was charged by an event of its history, this one included.

        Args:
            event: The event's id.
        """
        return sum((bill.spend for bill in self.bills if bill.event <= event), start=billed_before(self.start))

    @property
    def task_id(self) -> str | None:
        """The task: what the run was started with, or the name that the pipeline gave it, as soon as a step tells it.

        None if it was started without one, and no stage has begun.
        """
        told = [self.start.task_id, *(given.task_id for given in self.inputs[:1])]
        return next(filter(None, told), None) or (self.result.task_id if self.result else None)

    @property
    def handed(self) -> list[StageInput]:
        """What stages were sent with a contract, or made a prompt of, in order."""
        return [one for one in self.inputs if one.contract is not None or (one.seq, one.stage) in self.prompts]

    @property
    def pending_handoffs(self) -> list[HandoffDeadline]:
        """The handoffs that wait for a person, the oldest first."""
        return pending_handoffs(self.timers)

    @property
    def history(self) -> list[tuple[HistoryEntry, Baton]]:
        """Every change with the full baton after it."""
        return list(snapshots(self.state.initial, self.state.entries))

    def step(self, reference: str) -> Step:
        """Return the step that a person means.

        Args:
            reference: A step's number, or its name; of several with one name the last, or `name:2` for the
                second of them.

        Returns:
            The step.

        Raises:
            HistoryError: There is no such step; the message lists those there are.
        """
        name, _, nth = reference.rpartition(":")
        if reference.isdecimal():
            found = [step for step in self.steps if step.seq == int(reference)]
        elif name and nth.isdecimal():
            found = [step for step in self.steps if step.name == name][int(nth) - 1 : int(nth)]
        else:
            found = [step for step in self.steps if step.name == reference]
        if not found:
            known = ", ".join(f"{step.seq} {step.name}" for step in self.steps) or "none yet"
            raise HistoryError(f"run {self.workflow_id!r} has no step {reference!r}; its steps are: {known}")
        return found[-1]

    @property
    def earlier(self) -> tuple[str, str] | None:
        """The workflow and run that this run continues, or that it was forked from; None if it is neither."""
        if self.previous_run_id is not None:
            return self.workflow_id, self.previous_run_id
        origin = self.start.origin
        return None if origin is None else (origin.workflow_id, origin.run_id)

    def point(self, name: str) -> tuple[str, Baton]:
        """Return the title and the baton of a point: `start`, `now`, or a step as `step` takes it, right after it.

        Raises:
            HistoryError: There is no such step, or it has not ended.
        """
        if name == START:
            return "before the first step", self.state.initial
        if name == NOW:
            return "now" if self.ended is None else "at the end", self.baton
        step = self.step(name)
        return f"after step {step.seq} {step.name}", self.baton_after(step)

    def took_over(self, step: Step) -> bool:
        """Return whether a step happened before this run, which was started with its outcome."""
        return any(outcome.seq == step.seq for outcome in self.start.outcomes)

    def baton_after(self, step: Step) -> Baton:
        """Return the baton as it was right after a step.

        Raises:
            HistoryError: The step has not ended.
        """
        around = self.around.get(step.seq)
        if around is None:
            raise HistoryError(f"step {step.seq} ({step.name!r}) has not ended; its status is {step.status.value}")
        return around[1]

    def baton_before(self, step: Step) -> Baton:
        """Return the baton as it was right before a step took effect, what a person edited before it included."""
        return self.around.get(step.seq, (self.baton,))[0]

    @property
    def around(self) -> dict[int, tuple[Baton, Baton]]:
        """The batons right before and right after each step that took effect; an edit is not part of its step."""
        found: dict[int, tuple[Baton, Baton]] = {}
        before = self.state.initial
        for entry, after in self.history:
            if entry.kind is not StepKind.EDIT:
                found[entry.seq] = (found[entry.seq][0] if entry.seq in found else before, after)
            before = after
        return found

    def to_json_object(self) -> dict[str, Any]:
        """Return the record as JSON, for `--json` and for other programs."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        budget = {"micro_usd": self.ceiling_micro_usd, "left_micro_usd": self.left_micro_usd}
        return {
            **to_jsonable_python(plain),
            "task_id": self.task_id,
            "pending_handoffs": to_jsonable_python(self.pending_handoffs),
            "budget": budget if self.start.budget else None,
            "spend": self.state.spend.model_dump(mode="json"),
            "steps": to_jsonable_python(self.steps),
            "baton": self.baton.to_json_object(),
        }


START, NOW = "start", "now"
"""What stands for the baton before the first step, and as it is now or at the end."""

_PLAIN = (
    *("workflow_id", "run_id", "pipeline", "status", "began", "first_began", "reset", "ended", "failure", "suspended"),
    "missing",
    *("timers", "notes", "undone_since", "billed"),
)
