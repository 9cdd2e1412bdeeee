"""The scale of a run's time: work keeps its proportions, a long wait is folded."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from baton import StepKind
from baton.client import RunRecord, Step, StepStatus
from baton.client.faces import Branch
from baton.wire.names import HAND_OFF, RECEIVE_AS, STREAM_TO

WIDTH = 1000
"""The width of a timeline, in its own units."""
_FOLDED_SHARE, _ALL_FOLDED_SHARE = 0.15, 0.5  # the maximum widths of a wait and of all waits, as shares of all work
_MIN_FOLDED_SECONDS = 0.5
_WAITS = (StepKind.APPROVAL, StepKind.SLEEP)
BETWEEN = (HAND_OFF, STREAM_TO, RECEIVE_AS)
"""How the names of steps begin that wait for another pipeline."""


class Scale:
    """Maps times to positions on the timeline."""

    def __init__(self, began: datetime, ended: datetime, work: Iterable[tuple[datetime, datetime]]) -> None:
        merged: list[tuple[datetime, datetime]] = []
        for start, end in sorted(work):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        times = sorted({began, ended, *(time for pair in merged for time in pair)})
        busy = sum(((end - start).total_seconds() for start, end in merged), 0.0)
        starts = {start for start, _ in merged}
        long = sum((end - start).total_seconds() > _MIN_FOLDED_SECONDS for start, end in _pauses(times, starts))
        max_wait = max(busy * min(_FOLDED_SHARE, _ALL_FOLDED_SHARE / max(1, long)), 0.001)
        self.ended = times[-1]
        self.folded: list[tuple[datetime, datetime]] = []
        self._times, self._places = [times[0]], [0.0]
        for start, end in pairwise(times):
            seconds = (end - start).total_seconds()
            if start not in starts and seconds > max(max_wait, _MIN_FOLDED_SECONDS):
                self.folded.append((start, end))
                seconds = max_wait
            self._times.append(end)
            self._places.append(self._places[-1] + seconds)
        self._length = self._places[-1] or 1.0

    def at(self, time: datetime) -> float:
        """Return the position of a time."""
        index = bisect_right(self._times, time)
        if index in (0, len(self._times)):
            place = self._places[index - 1] if index else 0.0
        else:
            start, end = self._times[index - 1 : index + 1]
            left, right = self._places[index - 1 : index + 1]
            place = left + (right - left) * ((time - start) / (end - start))
        return round(WIDTH * place / self._length, 1)


def _pauses(times: Sequence[datetime], starts: Collection[datetime]) -> Iterator[tuple[datetime, datetime]]:
    """Yield the times between work."""
    return ((start, end) for start, end in pairwise(times) if start not in starts)


def is_wait(step: Step) -> bool:
    """Return whether a step waits: for a person, a time, or another pipeline."""
    return step.kind in _WAITS or (step.kind is StepKind.STAGE and step.name.startswith(BETWEEN))


def run_scale(run: RunRecord, branches: Mapping[int, Sequence[Branch]], steps: Sequence[Step] | None = None) -> Scale:
    """Return the scale of a run, or of some of its steps.

    Their attempts, children and unfinished steps are work, all between them waits.
    """
    began, ended = run.began or run.read_at, run.ended or run.now
    part = [(step.began, step.ended or ended) for step in steps or () if step.began]
    if part:
        began, ended = min(start for start, _ in part), max(end for _, end in part)
    work: list[tuple[datetime, datetime]] = []
    for step in run.steps if steps is None else steps:
        if step.began is None or step.status is StepStatus.REUSED:
            continue
        end, own = step.ended or ended, branches.get(step.seq, ())
        for attempt in (attempt for branch in own for attempt in branch.attempts):
            start = attempt.began or attempt.scheduled
            work.append((start, max(start, attempt.ended or end)))
        if not own and not is_wait(step):
            work.append((step.began, max(step.began, end)))
    return Scale(min([began, *(start for start, _ in work)]), max([ended, *(end for _, end in work)]), work)
