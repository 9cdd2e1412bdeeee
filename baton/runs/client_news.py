"""The news of a run: what happened between two readings."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from baton.core.history import HistoryEntry, StepKind
from baton.core.questions import Question
from baton.runs.client_events import OUTSIDE_TIMER, Timer, pending_handoffs
from baton.runs.client_record import (
    Note,
    PauseChange,
    RunRecord,
    RunStatus,
    Step,
    StepStatus,
    StepStream,
    StreamPositions,
    brief_question,
    new_parts,
)
from baton.wire.json_values import as_json


class NewsKind(StrEnum):
    """The kind of a piece of news."""

    RUN_STARTED = "run_started"
    RUN_REPLACED = "run_replaced"
    RUN_SUSPENDED = "run_suspended"
    RUN_PAUSED = "run_paused"
    RUN_UNPAUSED = "run_unpaused"
    WAITS_FOR_WORKER = "waits_for_worker"
    RUN_ENDED = "run_ended"
    STEP_STARTED = "step_started"
    STEP_REFUSED = "step_refused"
    HANDOFF_WAITS = "handoff_waits"
    WAITS_OUTSIDE = "waits_outside"
    STEP_DONE = "step_done"
    STEP_FAILED = "step_failed"
    STEP_UNDONE = "step_undone"
    REUSED = "reused"
    EDITED = "edited"
    NOTE = "note"
    TEXT = "text"
    TOOL_CALLED = "tool_called"
    TOOL_ANSWERED = "tool_answered"
    STREAM_RESTARTED = "stream_restarted"


@dataclass(frozen=True)
class News:
    """One thing that happened.

    Attributes:
        kind: The kind of news.
        at: When it happened.
        text: The goal, a failure, a note, a status, or who paused or unpaused the run and why. From a stage that
            streams: the next piece of its text, a tool's arguments as JSON, or a tool's answer.
        step: The step it is about.
        tool: The tool that was called or answered.
        entries: The history entries of a finished step.
        question: What people are asked, of an approval that begins or a handoff that waits for a person.
    """

    kind: NewsKind
    at: datetime
    text: str = ""
    step: Step | None = None
    entries: list[HistoryEntry] = field(default_factory=list)
    tool: str = ""
    question: Question | None = None

    def to_json_object(self) -> dict[str, Any]:
        """Return the news as JSON, without empty members."""
        step = self.step
        seconds = (step.ended - step.began).total_seconds() if step and step.began and step.ended else None
        members: dict[str, Any] = {
            "what": self.kind.value,
            "at": as_json(self.at),
            "text": self.text or None,
            "seq": step.seq if step else None,
            "name": step.name if step else None,
            "tool": self.tool or None,
            "kind": step.kind.value if step else None,
            "attempts": step.attempts if step else None,
            "seconds": seconds,
            "approved": step.approved if step else None,
            "entries": as_json(self.entries) or None,
            "question": brief_question(self.question) if self.question else None,
        }
        return {name: value for name, value in members.items() if value is not None}


STEP_ENDS = (NewsKind.STEP_DONE, NewsKind.STEP_FAILED)
"""The ends of a step, but for a refusal."""
RUN_BOUNDS = (NewsKind.RUN_STARTED, NewsKind.RUN_ENDED)
"""What the first and the last event of a door's stream say without words."""
_ENDS = (*STEP_ENDS, NewsKind.STEP_REFUSED)


@dataclass(frozen=True)
class Reading:
    """What the news of a run compare: all of a run, or what a workflow task may have changed."""

    run_id: str
    goal: str
    status: RunStatus
    began: datetime | None
    ended: datetime | None
    reset: datetime | None
    failure: str | None
    next_run_id: str | None
    suspended: str | None
    missing: list[str]
    steps: list[Step]
    entries: list[HistoryEntry]
    notes: list[Note]
    pauses: list[PauseChange]
    timers: list[Timer]
    asked: list[Question]

    @classmethod
    def of(cls, run: RunRecord) -> "Reading":
        """Return the reading of a whole run."""
        return cls(
            run_id=run.run_id,
            goal=run.start.goal,
            status=run.status,
            began=run.began,
            ended=run.ended,
            reset=run.reset,
            failure=run.failure,
            next_run_id=run.next_run_id,
            suspended=run.suspended,
            missing=run.missing,
            steps=run.steps,
            entries=run.state.entries,
            notes=run.notes,
            pauses=run.pauses,
            timers=run.timers,
            asked=run.asked,
        )


@dataclass(frozen=True)
class Changes:
    """What a workflow task changed: its steps as they were before, and the run after it with only what is new."""

    before: list[Step]
    after: Reading
    cut: set[int]
    ended_streams: list[StepStream]


def compare(previous: Reading | None, current: Reading, at: datetime) -> list[News]:
    """Return what happened to a run from one reading to the next, in order."""
    diff = _RunDiff(previous, at)
    news = [
        *diff.run(current),
        *diff.undone(current),
        *diff.steps(current),
        *diff.handoffs(current),
        *diff.outside(current),
        *diff.notes(current),
        *diff.suspended(current),
        *diff.pauses(current),
    ]
    news.sort(key=lambda piece: piece.at)
    if current.status is not RunStatus.RUNNING and not diff.ended(current):
        news.append(News(NewsKind.RUN_ENDED, current.ended or at, _describe_end(current)))
    return news


def streamed_news(
    run: RunRecord, stream: StepStream, positions: StreamPositions
) -> Iterator[tuple[News, tuple[int, int]]]:
    """Yield the new pieces of a stream, each with the position after it."""
    step = next((step for step in run.steps if step.seq == stream.seq), None)
    for restarts, kind, text, tool, position in new_parts(stream, positions):
        if restarts:
            yield News(NewsKind.STREAM_RESTARTED, stream.at, step=step), (position[0], 0)
        yield News(NewsKind(kind), stream.at, text, step, tool=tool), position


def with_streams(
    news: list[News], run: RunRecord, ended: Iterable[StepStream], positions: StreamPositions
) -> list[News]:
    """Insert the new pieces of ended streams into the news, each before its step's end."""
    merged = [*news]
    for stream in ended:
        pieces = [piece for piece, _ in streamed_news(run, stream, positions)]
        ends = (piece.step and piece.step.seq == stream.seq and piece.kind in _ENDS for piece in merged)
        index = next((index for index, is_end in enumerate(ends) if is_end), len(merged))
        merged[index:index] = pieces
    return merged


class _RunDiff:
    """What happened since an earlier reading of a run; each method yields one kind of news."""

    def __init__(self, previous: Reading | None, now: datetime) -> None:
        self._previous = previous
        self._now = now
        self._steps = {step.seq: step for step in previous.steps} if previous else {}
        self._entries = _entries_by_step(previous) if previous else {}

    def ended(self, current: Reading) -> bool:
        previous = self._previous
        return previous is not None and previous.run_id == current.run_id and previous.status is current.status

    def run(self, current: Reading) -> Iterator[News]:
        previous = self._previous
        if previous is None:
            yield News(NewsKind.RUN_STARTED, current.began or self._now, current.goal)
        elif previous.run_id != current.run_id:
            how = "continued as new" if previous.next_run_id else "rolled back"
            yield News(NewsKind.RUN_REPLACED, self._replaced_at(current), f"{how}; continues as run {current.run_id}")

    def suspended(self, current: Reading) -> Iterator[News]:
        same_run = self._previous if self._previous and self._previous.run_id == current.run_id else None
        if current.suspended not in (None, same_run.suspended if same_run else None):
            yield News(NewsKind.RUN_SUSPENDED, self._now, current.suspended)
        for text in current.missing:
            if same_run is None or text not in same_run.missing:
                yield News(NewsKind.WAITS_FOR_WORKER, self._now, text)

    def pauses(self, current: Reading) -> Iterator[News]:
        known = self._previous.pauses if self._previous else []
        for change in current.pauses:
            if change not in known:
                kind = NewsKind.RUN_PAUSED if change.is_paused else NewsKind.RUN_UNPAUSED
                yield News(kind, change.at, change.text)

    def undone(self, current: Reading) -> Iterator[News]:
        removed = sorted(self._entries.keys() - _entries_by_step(current).keys())
        at = self._replaced_at(current)
        yield from (News(NewsKind.STEP_UNDONE, at, step=self._steps[seq]) for seq, _ in removed if seq in self._steps)

    def _replaced_at(self, current: Reading) -> datetime:
        """Return when a run replaced the earlier run: at its reset, or when the earlier run ended."""
        ended = self._previous.ended if self._previous else None
        return current.reset or ended or self._now

    def steps(self, current: Reading) -> Iterator[News]:
        entries = _entries_by_step(current)
        reused = [step for step in current.steps if step.status is StepStatus.REUSED]
        if reused and self._previous is None:
            names = ", ".join(f"{step.seq} {step.name}" for step in reused)
            yield News(NewsKind.REUSED, current.began or self._now, names)
        for key, edits in entries.items():
            if key[1] and not self._has_entries(key, edits):
                yield News(NewsKind.EDITED, edits[-1].timestamp, entries=edits)
        for step in current.steps:
            asked = next((asked for asked in current.asked if not asked.handoff and asked.seq == step.seq), None)
            yield from self._step_news(step, entries.get((step.seq, False), []), asked)

    def _step_news(self, step: Step, entries: list[HistoryEntry], asked: Question | None) -> Iterator[News]:
        old = self._steps.get(step.seq)
        old_status = old.status if old else None
        match step.status:
            case StepStatus.RUNNING:
                if old_status is not StepStatus.RUNNING:
                    yield News(NewsKind.STEP_STARTED, step.began or self._now, step=step, question=asked)
                if step.attempts > (old.attempts if old and old_status is StepStatus.RUNNING else 1):
                    yield News(NewsKind.STEP_REFUSED, step.ended or self._now, step.failure or "", step)
            case StepStatus.DONE if not self._has_entries((step.seq, False), entries) or self._was_repeated(old, step):
                yield News(NewsKind.STEP_DONE, step.ended or self._now, step=step, entries=entries)
            case StepStatus.FAILED if not (old and old_status is step.status and _same_failure(old, step)):
                yield News(NewsKind.STEP_FAILED, step.ended or self._now, step.failure or "", step)

    def _was_repeated(self, old: Step | None, step: Step) -> bool:
        """Return whether a step was executed again; a reused step has only its end."""
        if old is None or old.began == step.began:
            return False
        run_began = self._previous.began if self._previous else None
        return not (old.status is StepStatus.REUSED and step.ended and run_began and step.ended <= run_began)

    def handoffs(self, current: Reading) -> Iterator[News]:
        known = pending_handoffs(self._previous.timers) if self._previous else []
        steps = {step.seq: step for step in current.steps}
        questions = {asked.subject: asked for asked in current.asked}
        for deadline in pending_handoffs(current.timers):
            if deadline not in known:
                step, asked = steps.get(deadline.seq), questions.get(deadline.handoff_id)
                reason = (step.failure if step else None) or (asked.text if asked else None) or deadline.why
                yield News(NewsKind.HANDOFF_WAITS, deadline.since, reason, step, question=asked)

    def outside(self, current: Reading) -> Iterator[News]:
        known = self._previous.timers if self._previous else []
        for timer in current.timers:
            if timer not in known and OUTSIDE_TIMER.fullmatch(timer.name):
                yield News(NewsKind.WAITS_OUTSIDE, timer.since, f"waits for {timer.name}")

    def _has_entries(self, key: tuple[int, bool], entries: list[HistoryEntry]) -> bool:
        """Return whether a step's entries are known; times are ignored, because a reset changes the last step's."""
        return _without_times(self._entries.get(key, [])) == _without_times(entries)

    def notes(self, current: Reading) -> Iterator[News]:
        earlier_notes = [note.text for note in self._previous.notes] if self._previous else []
        for note in current.notes:
            # A run that continues as new has only the end of an earlier note.
            same_note = next((text for text in earlier_notes if text.endswith(note.text)), None)
            if same_note is not None:
                earlier_notes.remove(same_note)
            else:
                yield News(NewsKind.NOTE, note.at, note.text)


def _entries_by_step(run: Reading) -> dict[tuple[int, bool], list[HistoryEntry]]:
    """Return a run's entries by step and whether they are edits: an edit shares a step's number."""
    steps: dict[tuple[int, bool], list[HistoryEntry]] = {}
    for entry in run.entries:
        steps.setdefault((entry.seq, entry.kind is StepKind.EDIT), []).append(entry)
    return steps


def _without_times(entries: list[HistoryEntry]) -> list[dict[str, Any]]:
    return [entry.model_dump(exclude={"timestamp"}) for entry in entries]


def _same_failure(old: Step, new: Step) -> bool:
    """Return whether a failure is the same; the workflow's text of it contains the attempt's message."""
    is_open_fan_out = new.kind is StepKind.MERGE and new.began == old.began
    return (old.failure or "") in (new.failure or "") and (is_open_fan_out or new.ended in (old.ended, None))


def _describe_end(run: Reading) -> str:
    return f"{run.status.value}: {run.failure}" if run.failure else run.status.value
