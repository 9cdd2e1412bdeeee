"""The record of a run, rebuilt from its event history: steps, batons, decisions, streams, its end."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue
from temporalio.client import Client
from temporalio.converter import DataConverter

from baton.budget.billing import Bill, billed_before
from baton.core.artifacts import ArtifactRef
from baton.core.baton import Baton
from baton.core.history import HistoryEntry, Spend, StepKind, snapshots
from baton.core.messages import PipelineInput, PipelineResult, PromptPart, StageInput, StageReturn
from baton.core.patching import PatchRules, patch_effect
from baton.core.questions import Question, Settled
from baton.core.state import PipelineState
from baton.core.steering import SteeringNote
from baton.core.streaming import Streamed
from baton.errors import HistoryError
from baton.personal.records import merge_payloads
from baton.runs.client_events import HandoffDeadline, Timer, parse_child_id, pending_handoffs
from baton.runs.client_executions import describe
from baton.wire.json_values import JsonFields, as_json
from baton.wire.store_clock import now_utc
from baton.wire.text import elapsed

if TYPE_CHECKING:  # it imports this module
    from baton.runs.client_attempts import StageAttempt

StreamPositions = Mapping[str, tuple[int, int]]
"""By activity: the last attempt that was read, and the position in its stream."""


@dataclass(frozen=True)
class StepStream:
    """The stream of one activity."""

    activity: str
    seq: int
    stage: str
    event: int | None
    at: datetime
    content: Streamed | None = None


async def read_open_streams(
    client: Client, workflow_id: str, run_id: str, streams: Sequence[StepStream]
) -> list[StepStream]:
    """Return the open streams with their content so far."""
    open_streams = {stream.activity: stream for stream in streams if stream.event is None}
    updated = []
    for pending in (await describe(client, workflow_id, run_id)).details.pending_activities:
        stream = open_streams.get(pending.activity_id)
        if stream is not None and (
            content := await _parse_heartbeat(pending.heartbeat_details.payloads, client.data_converter)
        ):
            at = pending.last_heartbeat_time.ToDatetime(stream.at.tzinfo)
            updated.append(StepStream(stream.activity, stream.seq, stream.stage, None, at, content))
    return updated


async def _parse_heartbeat(payloads: Sequence[object], converter: DataConverter) -> Streamed | None:
    """Return the stream in a heartbeat's details, if any."""
    details = await converter.decode(payloads) if payloads else []  # type: ignore[arg-type]
    return next((content for detail in details if (content := Streamed.from_json(detail))), None)


def new_parts(stream: StepStream, positions: StreamPositions) -> Iterator[tuple[bool, str, str, str, tuple[int, int]]]:
    """Yield each new part of a stream: whether it restarts the stream, kind, text, tool and position."""
    if stream.content is None:
        return
    attempt, position = positions.get(stream.activity, (0, 0))
    if stream.content.attempt < attempt:  # the heartbeat of an earlier attempt
        return
    restarted = stream.content.attempt > attempt
    for part, end in stream.content.after(0 if restarted else position):
        yield restarted and position > 0, part.kind.value, part.text, part.tool, (stream.content.attempt, end)
        restarted = False


def brief_question(asked: Question) -> dict[str, Any]:
    """Return a question in short, as JSON: its id and title, who decides, how many must, and until when."""
    who, until = asked.who, as_json(asked.until)
    return {"id": asked.id, "title": asked.title, "who": who, "needs": asked.needs, "until": until}


_CONTAINERS = (list, dict, set)
_EPOCH = datetime.fromtimestamp(0, UTC)


class RunStatus(StrEnum):
    """The status of a run, as Temporal names it."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    TERMINATED = "TERMINATED"
    TIMED_OUT = "TIMED_OUT"
    CONTINUED_AS_NEW = "CONTINUED_AS_NEW"

    @property
    def is_stopped(self) -> bool:
        """Whether somebody ended the run: it was cancelled or terminated."""
        return self in (RunStatus.CANCELED, RunStatus.TERMINATED)


class StepStatus(StrEnum):
    """The status of a step."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    REUSED = "reused"


@dataclass(frozen=True)
class Step(JsonFields):
    """One step of a run: a stage, a fan-out, an approval, a child or a sleep.

    Attributes:
        seq: Its number in the pipeline, from 1.
        name: The name of the stage, the fan-out's stages, the approval or the child.
        kind: The kind of step.
        status: Whether it runs, is done, failed, or was reused from an earlier run.
        began: When it was scheduled.
        ended: When it ended.
        until: The deadline of an approval, or the end of a sleep.
        reset_event: The event to reset to, to be right before the step; None if it is in another run.
        attempts: How often the stage was attempted because its patch was refused.
        retries: How often an attempt was retried, because it raised or its worker stopped responding.
        retried: Why, the last time; empty if none was retried.
        tokens_read: Tokens of the stage's prompts.
        failure: Why it failed, or the last finding against it.
        approved: How an approval was decided; None while it is pending, and for any other step.
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
    retries: int = 0
    retried: str = ""
    tokens_read: int = 0
    failure: str | None = None
    approved: bool | None = None

    @property
    def verdict(self) -> str:
        """An approval's decision in one word; `decided` if it was about a handoff."""
        return "decided" if self.approved is None else "approved" if self.approved else "denied"


@dataclass(frozen=True)
class Note(JsonFields):
    """A fact about a run for its operator, such as a roll-back.

    Attributes:
        at: When it happened.
        text: One line.
    """

    at: datetime
    text: str


@dataclass(frozen=True)
class PauseChange(JsonFields):
    """That a run was paused or unpaused, by whom and why."""

    at: datetime
    is_paused: bool
    by: str
    why: str

    @property
    def text(self) -> str:
        """One line."""
        return f"{'paused' if self.is_paused else 'unpaused'} by {self.by}{f': {self.why}' if self.why else ''}"


@dataclass(frozen=True)
class TranscriptRef(JsonFields):
    """The artifact with the transcript of an attempt of a stage, by its hash."""

    attempt: int
    hash: str


@dataclass(frozen=True)
class Reset:
    """A roll-back, or another reset, as the server records it."""

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
        start: Its input.
        state: The baton, its history and outcomes.
        steps: The steps, ordered by number.
        timers: The running timers, the oldest first; none once the run has ended.
        asked: What it asks people, as it was published, the nearest deadline first; see `questions`.
        status: The status of the run.
        began: When the run started.
        first_run_id: The first run of the chain that continued as new up to this run.
        first_began: When that run started, if the server still has it.
        reset: When it was last rolled back, or reset in another way; None if it never was.
        resets: All resets, in order.
        ended: When it closed.
        failure: Why it failed, was canceled or was terminated.
        suspended: Why the worker's code cannot continue it: it does not fit the history, does not know the pipeline,
            or a payload needs a key. The server retries; None if the last try succeeded.
        missing: What stages need and no worker has: the run is suspended until one has it.
        lacking: The numbers of the steps of these stages.
        result: Its result.
        children: Workflow id, run id and initiating event of every child.
        ended_children: By the initiating event of a child, the event of its end.
        previous_run_id: The run it continues, if it continued as new.
        next_run_id: The run that continues it.
        notes: Roll-backs, those of the runs that it continues included, and failed compensations, in order.
        pauses: Each time that it was paused or unpaused, in order.
        undone_since: The first step whose effects outside were undone; None if none were.
        last_event: The last event that was read.
        read_at: The time of that event.
        skew: How far the reader's clock is ahead of the server's; zero once the run has ended.
        anchors: Heads of the task's audit chain, in the order in which activities returned them: stored here,
            outside the ledger, they show whether it was cut or rewritten (`ChainHead.from_anchor`).
        sent: The inputs of its stages by activity, in order.
        attempts: The attempts of its stages by the event that scheduled them, in order.
        accepted: The returns that the pipeline accepted, in order, each with the order of its outcome.
        tokens_read: Tokens of the stages' prompts, by step number and the name of the step, branch or item.
        prompts: The parts of these prompts, likewise.
        transcripts: The transcripts of these stages, likewise, one for each attempt that left one.
        billed: The total cost: refused attempts, branches of a failed fan-out, stages that raised, compressed
            conversations and spend that a roll-back abandoned included.
        bills: The charges of this run, one for each event that has one.
        top_ups: Top-ups of its budget, in this run and in children that ended: the event, and millionths of a dollar.
        settled: How questions were answered, by question: those about handoffs, and of approvals those by update,
            also before the outcome is recorded.
        steering: The notes that people sent to agents at work, in order; see `was_shown`.
        chunks: The sealed chunks of streamed handoffs that it received by signal, in order.
        streams: The output of its stages that stream.
        rules: The rules for patches that its code published.
    """

    workflow_id: str
    run_id: str
    pipeline: str
    start: PipelineInput
    state: PipelineState
    steps: list[Step] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    asked: list[Question] = field(default_factory=list)
    settled: dict[str, Settled] = field(default_factory=dict)
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
    lacking: set[int] = field(default_factory=set)
    result: PipelineResult | None = None
    children: list[tuple[str, str, int]] = field(default_factory=list)
    ended_children: dict[int, int] = field(default_factory=dict)
    previous_run_id: str | None = None
    next_run_id: str | None = None
    notes: list[Note] = field(default_factory=list)
    pauses: list[PauseChange] = field(default_factory=list)
    undone_since: int | None = None
    last_event: int = 0
    read_at: datetime = _EPOCH
    skew: timedelta = timedelta(0)
    anchors: list[str] = field(default_factory=list)
    sent: dict[str, StageInput] = field(default_factory=dict)
    attempts: "dict[int, StageAttempt]" = field(default_factory=dict)
    accepted: list[tuple[int, StageReturn]] = field(default_factory=list)
    tokens_read: dict[tuple[int, str], int] = field(default_factory=dict)
    prompts: dict[tuple[int, str], list[PromptPart]] = field(default_factory=dict)
    transcripts: dict[tuple[int, str], tuple[TranscriptRef, ...]] = field(default_factory=dict)
    billed: Spend = field(default_factory=Spend)
    bills: list[Bill] = field(default_factory=list)
    top_ups: list[tuple[int, int]] = field(default_factory=list)
    steering: list[SteeringNote] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    streams: list[StepStream] = field(default_factory=list)
    rules: PatchRules = field(default_factory=PatchRules)

    def copy(self) -> "RunRecord":
        """Return a record with containers of its own, so that a change of one does not change the other."""
        own: dict[str, Any] = {name: value.copy() for name, value in vars(self).items() if type(value) in _CONTAINERS}
        return replace(self, **own, state=self.state.copy())

    def note_transcript(self, attempt: StageInput | StageReturn, digest: str | None) -> None:
        """Note the transcript of an attempt of a stage, if it left one."""
        if digest is not None:
            key = attempt.seq, attempt.title
            self.transcripts[key] = (*self.transcripts.get(key, ()), TranscriptRef(attempt.attempt, digest))

    @property
    def inputs(self) -> list[StageInput]:
        """The inputs of its stages, in order."""
        return [*self.sent.values()]

    @property
    def at_work(self) -> list[StageInput]:
        """The newest inputs of the stages of steps in progress, in order; branches that have ended included."""
        working = {step.seq for step in self.steps if step.status is StepStatus.RUNNING}
        return [*{(sent.seq, sent.title): sent for sent in self.inputs if sent.seq in working}.values()]

    def was_shown(self, note: SteeringNote) -> bool | None:
        """Return whether a note in `steering` was shown to its agent; None while its step is at work."""
        if any(shown.id == note.id for entry in self.state.entries for shown in entry.steered):
            return True
        return None if any(sent.seq == note.seq for sent in self.at_work) else False

    @property
    def baton(self) -> Baton:
        """The baton now, or at the end."""
        return self.state.baton

    @property
    def artifacts(self) -> list[ArtifactRef]:
        """The artifacts of the baton, then those with turns that a compressed conversation refers to."""
        older = {ref.id: ref for sent in self.inputs for ref in sent.older}
        return [*self.baton.artifacts, *older.values()]

    @property
    def took(self) -> timedelta | None:
        """How long it has run: since it began, or since its last reset, because it may have ended before that."""
        return elapsed(self.reset or self.first_began or self.began, self.ended or self.now)

    @property
    def now(self) -> datetime:
        """The current time by the server's clock, which the run's times are of."""
        return now_utc() - self.skew

    @property
    def personal_data(self) -> dict[str, JsonValue]:
        """The personal data of its input and its stages, sealed; `Vault.open` opens it."""
        handoffs: Any = self.start.carried.get("handoffs", {})
        relay = handoffs.get("relay") or {}
        sealed = merge_payloads(relay.get("personal_data", {}), self.start.personal_data)
        for _, result in self.accepted:
            sealed = merge_payloads(sealed, result.personal_data or {})
        return sealed

    @property
    def ceiling_micro_usd(self) -> int | None:
        """Its budget, top-ups included; None if it was started without one."""
        budget = self.start.budget
        return None if budget is None else budget.ceiling_micro_usd + sum(micro_usd for _, micro_usd in self.top_ups)

    @property
    def left_micro_usd(self) -> int | None:
        """The unspent part of its budget, reservations ignored; None if it was started without one."""
        budget, ceiling = self.start.budget, self.ceiling_micro_usd
        if budget is None or ceiling is None:
            return None
        return ceiling - budget.before.micro_usd - self.billed.micro_usd

    @property
    def children_by_step(self) -> dict[int, list[tuple[str, str, int]]]:
        """Its `children` by the number of the step that started them."""
        by_step: dict[int, list[tuple[str, str, int]]] = {}
        for child in self.children:
            if started_by := parse_child_id(child[0]):
                by_step.setdefault(started_by[1], []).append(child)
        return by_step

    def ended_child(self, step: Step) -> int | None:
        """Return the event of the end of a step's child, or None if the history has none."""
        own = [initiated for _, _, initiated in self.children_by_step.get(step.seq, ())]
        ends = [self.ended_children.get(initiated) for initiated in own if initiated >= (step.reset_event or 0)]
        return next((end for end in ends if end is not None), None)

    def billed_by(self, event: int) -> Spend:
        """Return the run's cost up to and including an event.

        Args:
            event: The event's id.
        """
        return sum((bill.spend for bill in self.bills if bill.event <= event), start=billed_before(self.start))

    def topped_up_by(self, event: int) -> int:
        """Return what people added to the budget in earlier runs and up to an event, in millionths of a dollar.

        Args:
            event: The event's id.
        """
        before = self.start.budget.topped_up_micro_usd if self.start.budget else 0
        return before + sum(micro_usd for at, micro_usd in self.top_ups if at <= event)

    @property
    def task_id(self) -> str | None:
        """The task's id: given at the start, or made by the pipeline; None before the first stage if none was given."""
        ids = [self.start.task_id, *(stage_input.task_id for stage_input in self.inputs[:1])]
        return next(filter(None, ids), None) or (self.result.task_id if self.result else None)

    @property
    def handed(self) -> list[StageInput]:
        """The inputs of stages that had a contract or made a prompt, in order."""
        return [sent for sent in self.inputs if sent.contract is not None or (sent.seq, sent.title) in self.prompts]

    @property
    def refused(self) -> dict[tuple[int, str], list[str]]:
        """Why attempts were refused, in order, by step number and the name of the step, branch or item."""
        reasons: dict[tuple[int, str], list[str]] = {}
        for sent in filter(lambda sent: sent.findings, self.inputs):
            known, reason = reasons.setdefault((sent.seq, sent.title), []), "; ".join(sent.findings)
            if reason not in known[-1:]:  # else the attempt in between raised, or answered the same
                known.append(reason)
        return reasons

    @property
    def pending_handoffs(self) -> list[HandoffDeadline]:
        """The handoffs that are waiting for a person, the oldest first."""
        return pending_handoffs(self.timers)

    @property
    def questions(self) -> list[Question]:
        """The open questions, the nearest deadline first, with the digest that an answer names.

        The digest covers the baton; votes on another baton no longer count.
        """
        questions = []
        for question in self.asked:
            current = question.digest_with(self.baton.digest) if question.is_whole else question.digest
            votes = question.votes if question.digest == current else []
            questions.append(question.model_copy(update={"digest": current, "votes": votes}))
        return questions

    @property
    def approvals(self) -> list[Question]:
        """The open questions that are approvals."""
        return [question for question in self.questions if question.handoff is None]

    @property
    def answers(self) -> list[Settled]:
        """How its questions were answered, by people or by the deadline, in order."""
        values = [outcome.value for outcome in self.state.outcomes if outcome.kind is StepKind.APPROVAL]
        recorded = [Settled.model_validate(value) for value in values if isinstance(value, dict)]
        by_question = self.settled | {settled.question: settled for settled in recorded}
        return sorted(by_question.values(), key=lambda settled: settled.at)

    @property
    def handoff_decisions(self) -> list[Settled]:
        """What people decided about handoffs that waited, in order."""
        return [settled for settled in self.answers if settled.handoff_id is not None]

    def answer_to(self, question: str) -> Settled | None:
        """Return how a question was answered; None if it was not."""
        return next((settled for settled in self.answers if settled.question == question), None)

    @property
    def history(self) -> list[tuple[HistoryEntry, Baton]]:
        """Every change with the full baton after it."""
        return list(snapshots(self.state.initial, self.state.entries))

    def step(self, reference: str) -> Step:
        """Return a step by number or name.

        Args:
            reference: A step's number, or its name: the last step of that name, or `name:2` for the second.

        Returns:
            The step.

        Raises:
            HistoryError: The step does not exist; the message lists the steps.
        """
        name, _, nth = reference.rpartition(":")
        if reference.isdecimal():
            matches = [step for step in self.steps if step.seq == int(reference)]
        else:
            matches = [step for step in self.steps if step.name == reference]
            if not matches and name and nth.isdecimal():
                matches = [step for step in self.steps if step.name == name][int(nth) - 1 : int(nth)]
        if not matches:
            available = ", ".join(f"{step.seq} {step.name}" for step in self.steps) or "none yet"
            raise HistoryError(f"run {self.workflow_id!r} has no step {reference!r}; its steps are: {available}")
        return matches[-1]

    @property
    def earlier(self) -> tuple[str, str] | None:
        """The workflow and run that this run continues or was forked from, or None."""
        if self.previous_run_id is not None:
            return self.workflow_id, self.previous_run_id
        origin = self.start.origin
        return None if origin is None else (origin.workflow_id, origin.run_id)

    def point(self, name: str) -> tuple[str, Baton]:
        """Return the title and the baton of a point: `start`, `now`, or right after a step (a reference for `step`).

        Raises:
            HistoryError: The step does not exist, or it has not ended.
        """
        if name == START:
            return "before the first step", self.state.initial
        if name == NOW:
            return "now" if self.ended is None else "at the end", self.baton
        step = self.step(name)
        return f"after step {step.seq} {step.name}", self.baton_after(step)

    def check_patch(self, patch: Mapping[str, JsonValue], state: PipelineState | None = None) -> None:
        """Check a patch by the rules of every baton, and those that the pipeline's code published.

        Args:
            patch: The patch.
            state: The state to which it would be applied; the current one by default.

        Raises:
            PatchError: It would be refused.
        """
        state = self.state if state is None else state
        patch_effect(state.baton, patch, replace(state.stage_rules(), protected=self.rules.protected))

    def took_over(self, step: Step) -> bool:
        """Return whether the run was started with the step's outcome."""
        return any(outcome.seq == step.seq for outcome in self.start.outcomes)

    def baton_after(self, step: Step) -> Baton:
        """Return the baton right after a step.

        Raises:
            HistoryError: The step has not ended.
        """
        around = self.around.get(step.seq)
        if around is None:
            raise HistoryError(f"step {step.seq} ({step.name!r}) has not ended; its status is {step.status.value}")
        return around[1]

    def baton_before(self, step: Step) -> Baton:
        """Return the baton right before a step took effect; people's earlier edits are included."""
        return self.around.get(step.seq, (self.baton,))[0]

    @property
    def around(self) -> dict[int, tuple[Baton, Baton]]:
        """The batons right before and right after each step that took effect; edits are not part of a step."""
        batons: dict[int, tuple[Baton, Baton]] = {}
        previous = self.state.initial
        for entry, current in self.history:
            if entry.kind is not StepKind.EDIT:
                batons[entry.seq] = (batons[entry.seq][0] if entry.seq in batons else previous, current)
            previous = current
        return batons

    def to_json_object(self) -> dict[str, Any]:
        """Return the record as JSON, for `--json` and for other programs."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        budget = {"micro_usd": self.ceiling_micro_usd, "left_micro_usd": self.left_micro_usd}
        return {
            **as_json(plain),
            "task_id": self.task_id,
            "pending_handoffs": as_json(self.pending_handoffs),
            "budget": budget if self.start.budget else None,
            "spend": as_json(self.state.spend),
            "steps": as_json(self.steps),
            "baton": as_json(self.baton),
        }


START, NOW = "start", "now"
"""The names of two points: before the first step, and now or at the end."""

_PLAIN = (
    *("workflow_id", "run_id", "pipeline", "status", "began", "first_began", "reset", "ended", "failure", "suspended"),
    "missing",
    *("timers", "notes", "pauses", "undone_since", "billed", "steering"),
)
