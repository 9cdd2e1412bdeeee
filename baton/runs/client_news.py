"""What happened between two readings of a run."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from baton.core.history import HistoryEntry, StepKind
from baton.runs.client_record import Heard, RunRecord, RunStatus, Step, StepStatus, StepStream, unheard


class NewsKind(StrEnum):
    """What a piece of news is about."""

    RUN_STARTED = "run_started"
    RUN_GOES_ON = "run_goes_on"
    RUN_SUSPENDED = "run_suspended"
    WAITS_FOR_WORKER = "waits_for_worker"
    RUN_ENDED = "run_ended"
    STEP_STARTED = "step_started"
    STEP_REFUSED = "step_refused"
    HANDOFF_WAITS = "handoff_waits"
    STEP_DONE = "step_done"
    STEP_FAILED = "step_failed"
    STEP_UNDONE = "step_undone"
    TAKEN_OVER = "taken_over"
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
        kind: What it is about.
        at: When.
        text: What happened, for people: the goal, a failure, a note, a status. Of a stage that streams, the next piece
            of its text, the arguments of a tool as JSON, or what it answered.
        step: The step it is about.
        tool: The tool that was called or answered.
        entries: What a finished step changed.
    """

    kind: NewsKind
    at: datetime
    text: str = ""
    step: Step | None = None
    entries: list[HistoryEntry] = field(default_factory=list)
    tool: str = ""

    def to_json_object(self) -> dict[str, Any]:
        """Return the news as JSON; members that say nothing are left out."""
        step = self.step
        seconds = (step.ended - step.began).total_seconds() if step and step.began and step.ended else None
        members: dict[str, Any] = {
            "what": self.kind.value,
            "at": self.at.isoformat(),
            "text": self.text or None,
            "seq": step.seq if step else None,
            "name": step.name if step else None,
            "tool": self.tool or None,
            "kind": step.kind.value if step else None,
            "attempts": step.attempts if step else None,
            "seconds": seconds,
            "approved": step.approved if step else None,
            "entries": [entry.model_dump(mode="json") for entry in self.entries] or None,
        }
        return {name: value for name, value in members.items() if value is not None}


_ENDS = (NewsKind.STEP_DONE, NewsKind.STEP_REFUSED, NewsKind.STEP_FAILED)


def news_of(before: RunRecord | None, after: RunRecord, at: datetime, *, goes_on: bool = False) -> list[News]:
    """Return what happened to a run from one reading to the next, in the order it happened."""
    told = _Told(before, at)
    news = [
        *told.run(after),
        *told.undone(after),
        *told.steps(after),
        *told.handoffs(after),
        *told.notes(after),
        *told.suspended(after),
    ]
    news.sort(key=lambda one: one.at)
    if goes_on:
        return [one for one in news if one.kind is not NewsKind.STEP_FAILED]
    if after.status is not RunStatus.RUNNING and not told.ended(after):
        news.append(News(NewsKind.RUN_ENDED, after.ended or at, _ending(after)))
    return news


def streamed_news(run: RunRecord, stream: StepStream, heard: Heard) -> Iterator[tuple[News, tuple[int, int]]]:
    """Yield what is new in a stream, each piece with the place up to which it was heard then."""
    step = next((one for one in run.steps if one.seq == stream.seq), None)
    for again, kind, text, tool, place in unheard(stream, heard):
        if again:
            yield News(NewsKind.STREAM_RESTARTED, stream.at, step=step), (place[0], 0)
        yield News(NewsKind(kind), stream.at, text, step, tool=tool), place


def with_streams(news: list[News], before: RunRecord | None, after: RunRecord, heard: Heard) -> list[News]:
    """Return the news with what is new in the streams that have ended since, before the news of their steps' ends."""
    known = {(one.activity, one.event) for one in before.streams if one.event} if before else set()
    if before is not None and before.run_id != after.run_id and not after.resets:
        known = set()  # the run continued as new, and its numbers begin again
    since = after.resets[-1].event if before and before.run_id != after.run_id and after.resets else after.last_event
    told = [*news]
    for stream in after.streams:
        if stream.event is not None and ((stream.activity, stream.event) not in known or stream.event > since):
            pieces = [piece for piece, _ in streamed_news(after, stream, heard)]
            ends = (at for at, one in enumerate(told) if one.step and one.step.seq == stream.seq and one.kind in _ENDS)
            place = next(ends, len(told))
            told[place:place] = pieces
    return told


class _Told:
    """What was told up to the earlier reading."""

    def __init__(self, before: RunRecord | None, now: datetime) -> None:
        self._before = before
        self._now = now
        self._steps = {step.seq: step for step in before.steps} if before else {}
        self._entries = _by_step(before) if before else {}

    def ended(self, after: RunRecord) -> bool:
        before = self._before
        return before is not None and before.run_id == after.run_id and before.status is after.status

    def run(self, after: RunRecord) -> Iterator[News]:
        """Yield that the run began, or continues as another."""
        before = self._before
        if before is None:
            yield News(NewsKind.RUN_STARTED, after.began or self._now, after.start.goal)
        elif before.run_id != after.run_id:
            how = "continued as new" if before.next_run_id else "rolled back"
            yield News(NewsKind.RUN_GOES_ON, self._left_at(after), f"{how}; continues as run {after.run_id}")

    def suspended(self, after: RunRecord) -> Iterator[News]:
        """Yield that no worker can continue the run."""
        known = self._before.suspended if self._before and self._before.run_id == after.run_id else None
        if after.suspended not in (None, known):
            yield News(NewsKind.RUN_SUSPENDED, self._now, after.suspended)
        said = self._before.missing if self._before and self._before.run_id == after.run_id else []
        yield from (News(NewsKind.WAITS_FOR_WORKER, self._now, one) for one in after.missing if one not in said)

    def undone(self, after: RunRecord) -> Iterator[News]:
        """Yield the steps that a roll-back took away."""
        gone = sorted(self._entries.keys() - _by_step(after).keys())
        at = self._left_at(after)
        yield from (News(NewsKind.STEP_UNDONE, at, step=self._steps[seq]) for seq, _ in gone if seq in self._steps)

    def _left_at(self, after: RunRecord) -> datetime:
        """Return when a run took the place of the one before: at its reset, or when that one ended."""
        ended = self._before.ended if self._before else None
        return after.reset or ended or self._now

    def steps(self, after: RunRecord) -> Iterator[News]:
        entries = _by_step(after)
        taken = [step for step in after.steps if step.status is StepStatus.TAKEN_OVER]
        if taken and self._before is None:
            names = ", ".join(f"{step.seq} {step.name}" for step in taken)
            yield News(NewsKind.TAKEN_OVER, after.began or self._now, names)
        for key, edits in entries.items():
            if key[1] and not self._knows(key, edits):
                yield News(NewsKind.EDITED, edits[-1].timestamp, entries=edits)
        for step in after.steps:
            yield from self._step(step, entries.get((step.seq, False), []))

    def _step(self, step: Step, entries: list[HistoryEntry]) -> Iterator[News]:
        old = self._steps.get(step.seq)
        was = old.status if old else None
        match step.status:
            case StepStatus.RUNNING:
                if was is not StepStatus.RUNNING:
                    yield News(NewsKind.STEP_STARTED, step.began or self._now, step=step)
                if step.attempts > (old.attempts if old and was is StepStatus.RUNNING else 1):
                    yield News(NewsKind.STEP_REFUSED, step.ended or self._now, step.failure or "", step)
            case StepStatus.DONE if not self._knows((step.seq, False), entries) or self._is_again(old, step):
                yield News(NewsKind.STEP_DONE, step.ended or self._now, step=step, entries=entries)
            case StepStatus.FAILED if not (old and was is step.status and _same_failure(old, step)):
                yield News(NewsKind.STEP_FAILED, step.ended or self._now, step.failure or "", step)

    def _is_again(self, old: Step | None, step: Step) -> bool:
        """Return whether a step was executed again; of one that a run took over only its end is known."""
        if old is None or old.began == step.began:
            return False
        before = self._before.began if self._before else None
        return not (old.status is StepStatus.TAKEN_OVER and step.ended and before and step.ended <= before)

    def handoffs(self, after: RunRecord) -> Iterator[News]:
        """Yield the handoffs that came to wait for a person."""
        known = self._before.pending_handoffs if self._before else []
        steps = {step.seq: step for step in after.steps}
        for one in after.pending_handoffs:
            if one not in known:
                step = steps.get(one.seq)
                yield News(NewsKind.HANDOFF_WAITS, one.since, (step.failure if step else None) or one.why, step)

    def _knows(self, key: tuple[int, bool], entries: list[HistoryEntry]) -> bool:
        """Return whether the changes of a step were told; a reset gives the last step before it another time."""
        return _timeless(self._entries.get(key, [])) == _timeless(entries)

    def notes(self, after: RunRecord) -> Iterator[News]:
        left = [note.text for note in self._before.notes] if self._before else []
        for note in after.notes:
            known = next((one for one in left if one.endswith(note.text)), None)  # a continuing run says it in short
            if known is not None:
                left.remove(known)
            else:
                yield News(NewsKind.NOTE, note.at, note.text)


def _by_step(run: RunRecord) -> dict[tuple[int, bool], list[HistoryEntry]]:
    """Return a run's entries by step; a person's edits, which share a step's number, apart."""
    steps: dict[tuple[int, bool], list[HistoryEntry]] = {}
    for entry in run.state.entries:
        steps.setdefault((entry.seq, entry.kind is StepKind.EDIT), []).append(entry)
    return steps


def _timeless(entries: list[HistoryEntry]) -> list[dict[str, Any]]:
    """Return the entries without their times."""
    return [entry.model_dump(exclude={"timestamp"}) for entry in entries]


def _same_failure(old: Step, new: Step) -> bool:
    """Return whether a failure is the one that was told: the workflow puts words of its own before the attempt's."""
    is_open_fan_out = new.kind is StepKind.MERGE and new.began == old.began
    return (new.failure or "").endswith(old.failure or "") and (is_open_fan_out or new.ended in (old.ended, None))


def _ending(run: RunRecord) -> str:
    return f"{run.status.value}: {run.failure}" if run.failure else run.status.value
