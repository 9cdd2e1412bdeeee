"""A run as a relay: its steps on a line in time, waits folded, with what each changed and cost."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from baton import HistoryEntry, Spend, StepKind
from baton.client import RunRecord, Step, StepStatus
from baton.console.words import between
from baton.wire.text import quantity

WIDTH = 1000
"""How wide the line of time is, in its own units."""
_FOLDED = 0.06  # of all work, the most that a wait takes of the line
_SHORTEST_FOLDED = 2.0  # seconds
_NARROWEST = 4.0
_WAITS = (StepKind.APPROVAL, StepKind.SLEEP)
_LONGEST = 160
_NAMES = {
    "current_state": "state",
    "decision_log": "decision",
    "constraints": "constraint",
    "work_scope": "scope",
    "artifacts": "artifact",
    "open_questions": "question",
}
_STEP_OF_CHILD = re.compile(r"\.step(\d+)\.[0-9a-f]{8}$")


class Scale:
    """From times to places on the line: work keeps its proportions, a wait is folded to a little."""

    def __init__(self, began: datetime, ended: datetime, work: Iterable[tuple[datetime, datetime]]) -> None:
        merged: list[tuple[datetime, datetime]] = []
        for start, end in sorted(work):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        times = sorted({began, ended, *(time for pair in merged for time in pair)})
        busy = sum(((end - start).total_seconds() for start, end in merged), 0.0)
        most = max(busy * _FOLDED, 0.001)
        starts = {start for start, _ in merged}
        self.folded: list[tuple[datetime, datetime]] = []
        self._times, self._places = [times[0]], [0.0]
        for start, end in pairwise(times):
            seconds = (end - start).total_seconds()
            if start not in starts and seconds > max(most, _SHORTEST_FOLDED):
                self.folded.append((start, end))
                seconds = most
            self._times.append(end)
            self._places.append(self._places[-1] + seconds)
        self._whole = self._places[-1] or 1.0

    def at(self, time: datetime) -> float:
        """Return the place of a time."""
        after = bisect_right(self._times, time)
        if after in (0, len(self._times)):
            place = self._places[after - 1] if after else 0.0
        else:
            start, end = self._times[after - 1 : after + 1]
            left, right = self._places[after - 1 : after + 1]
            place = left + (right - left) * ((time - start) / (end - start))
        return round(WIDTH * place / self._whole, 1)


@dataclass(frozen=True)
class Leg:
    """One step of the relay.

    Attributes:
        step: The step.
        x: Where its bar begins on the line.
        width: How wide the bar is.
        waits: Whether it is a wait, not work.
        took: How long it took.
        spend: What it was charged, refused attempts included.
        words: What it changed, in short.
        by: Who decided, of an approval.
        why: Their reason.
        children: Workflow and run of the pipelines that it started.
        warnings: How many things an operator should notice.
        pending: Why its handoff waits for a person; None if it does not.
    """

    step: Step
    x: float
    width: float
    waits: bool
    took: timedelta | None
    spend: Spend
    words: list[str] = field(default_factory=list)
    by: str = ""
    why: str = ""
    children: list[tuple[str, str]] = field(default_factory=list)
    warnings: int = 0
    pending: str | None = None


@dataclass(frozen=True)
class Relay:
    """Some of a run's steps.

    Attributes:
        legs: The steps.
        first: The place of the first among all, from 0.
        count: How many there are in all.
        folded: The waits that were folded: where each is on the line, and how long it was.
    """

    legs: list[Leg]
    first: int
    count: int
    folded: list[tuple[float, timedelta]]


def relay(run: RunRecord, first: int | None = None, most: int = 100) -> Relay:
    """Return so many steps of a run, from one on; the newest by default."""
    steps = run.steps
    last = max(0, len(steps) - most)
    begin = last if first is None else max(0, min(first, last))
    shown = steps[begin : begin + most]
    scale = _scale(run)
    entries: dict[int, list[HistoryEntry]] = {}
    for entry in run.state.entries:
        entries.setdefault(entry.seq, []).append(entry)
    spends = spend_by_step(run)
    children: dict[int, list[tuple[str, str]]] = {}
    for child, run_id, _ in run.children:
        if found := _STEP_OF_CHILD.search(child):
            children.setdefault(int(found[1]), []).append((child, run_id))
    pending = {one.seq: one.why for one in run.pending_handoffs}
    legs = [
        _leg(run, step, scale, entries.get(step.seq, []), spends.get(step.seq, Spend()), children, pending)
        for step in shown
    ]
    folded = [(scale.at(start), end - start) for start, end in scale.folded[:50]]
    return Relay(legs, begin, len(steps), folded)


def _scale(run: RunRecord) -> Scale:
    began = run.began or run.read_at
    ended = run.ended or datetime.now(UTC)
    work = [
        (step.began, step.ended or ended)
        for step in run.steps
        if step.began and step.kind not in _WAITS and step.status is not StepStatus.TAKEN_OVER
    ]
    return Scale(min([began, *(start for start, _ in work)]), max([ended, *(end for _, end in work)]), work)


def _leg(
    run: RunRecord,
    step: Step,
    scale: Scale,
    entries: Sequence[HistoryEntry],
    spend: Spend,
    children: dict[int, list[tuple[str, str]]],
    pending: dict[int, str],
) -> Leg:
    taken = step.status is StepStatus.TAKEN_OVER
    x = scale.at(step.began) if step.began and not taken else 0.0
    end = scale.at(step.ended or run.ended or datetime.now(UTC)) if step.began and not taken else 0.0
    width = max(_NARROWEST, end - x)
    mine = [entry for entry in entries if entry.kind is not StepKind.BRANCH]
    decided = next((entry for entry in mine if entry.kind is StepKind.APPROVAL), None)
    return Leg(
        step=step,
        x=min(x, WIDTH - width) if not taken else 0.0,
        width=width if not taken else 0.0,
        waits=step.kind in _WAITS,
        took=None if taken else between(step.began, step.ended),
        spend=spend,
        words=[word for entry in mine for word in change_words(entry)],
        by=(decided.by or "") if decided else "",
        why=(decided.why or "") if decided else "",
        children=children.get(step.seq, []),
        warnings=sum(len(entry.warnings) + len(entry.conflicts) + bool(entry.removed_constraints) for entry in entries),
        pending=pending.get(step.seq),
    )


def spend_by_step(run: RunRecord) -> dict[int, Spend]:
    """Return what each step was charged in this run; of a step that was taken over, what it cost back then."""
    sums: dict[int, Spend] = {}
    for bill in run.bills:
        sums[bill.seq] = sums.get(bill.seq, Spend()) + bill.spend
    for outcome in run.start.outcomes:
        spent = sum((entry.spend for entry in outcome.entries), start=Spend())
        sums[outcome.seq] = sums.get(outcome.seq, Spend()) + spent
    return sums


def change_words(entry: HistoryEntry) -> list[str]:
    """Return what an entry changed, a few words for each field."""
    words = []
    for name, value in entry.effective.items():
        label = _NAMES.get(name, name.replace("_", " "))
        items = value if isinstance(value, list) else [value]
        first = item_words(items[0]) if items else "none"
        more = f" (+{len(items) - 1})" if len(items) > 1 else ""
        words.append(f"{label}: {' '.join(first.split())[:_LONGEST]}{more}")
    return words


def item_words(value: object) -> str:
    """Return one entry of a field on a line."""
    if isinstance(value, dict) and "id" in value and "hash" in value:
        return f"{value['id']} ({value.get('type')})"
    if value is None:
        return "removed"
    return (
        value if isinstance(value, str) else quantity(len(value), "member") if isinstance(value, dict) else str(value)
    )
