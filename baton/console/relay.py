"""A run as a relay: its steps on a line in time, and a step opened."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from baton import HistoryEntry, Spend, StepKind
from baton.client import (
    Change,
    Explanation,
    RunRecord,
    StageInput,
    StageReturn,
    Step,
    StepStatus,
    changes,
    explain,
    remarks,
    with_before,
)
from baton.console.content import Content, value_content
from baton.errors import HistoryError
from baton.wire.text import elapsed

Message = Mapping[str, Any]

WIDTH = 1000
"""How wide the line of time is, in its own units."""
_FOLDED = 0.06  # of all work, the most that a wait takes of the line
_SHORTEST_FOLDED = 2.0  # seconds
_NARROWEST = 4.0
_WAITS = (StepKind.APPROVAL, StepKind.SLEEP)
_HANDS_OFF = "hand off to "  # how the steps that send messages to other pipelines are called
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
    """One step of the relay."""

    step: Step  # the step
    x: float  # where its bar begins on the line
    width: float  # how wide the bar is
    waits: bool  # whether it is a wait, not work
    took: timedelta | None  # how long it took
    spend: Spend  # what it was charged, refused attempts included
    changes: list[Change] = field(default_factory=list)  # what it changed, what came first
    edits: list[tuple[HistoryEntry, list[Change]]] = field(default_factory=list)  # by people, before it
    by: str = ""  # who decided, of an approval
    why: str = ""  # their reason
    children: list[tuple[str, str]] = field(default_factory=list)  # workflow and run of the pipelines that it started
    handoffs: Sequence[Message] = ()  # the messages that it sent to other pipelines
    warnings: int = 0  # how many things an operator should notice
    pending: str | None = None  # why its handoff waits for a person; None if it does not


@dataclass(frozen=True)
class Relay:
    """Some of a run's steps."""

    legs: list[Leg]  # the steps
    first: int  # the place of the first among all, from 0
    count: int  # how many there are in all
    folded: list[tuple[float, timedelta]]  # the waits that were folded: where each is on the line, and how long it was


def relay(
    run: RunRecord,
    first: int | None = None,
    most: int = 100,
    handoffs: Mapping[int, Sequence[Message]] | None = None,
) -> Relay:
    """Return so many steps of a run, from one on, the newest by default; each with the handoffs that it sent."""
    steps = run.steps
    last = max(0, len(steps) - most)
    begin = last if first is None else max(0, min(first, last))
    shown = steps[begin : begin + most]
    scale = _scale(run)
    entries: dict[int, list[tuple[HistoryEntry, Mapping[str, Any]]]] = {}
    for entry, before in with_before(run):
        entries.setdefault(entry.seq, []).append((entry, before))
    spends = spend_by_step(run)
    children: dict[int, list[tuple[str, str]]] = {}
    for child, run_id, _ in run.children:
        if found := _STEP_OF_CHILD.search(child):
            children.setdefault(int(found[1]), []).append((child, run_id))
    pending = {one.seq: one.why for one in run.pending_handoffs}
    legs = [
        replace(
            _leg(run, step, scale, entries.get(step.seq, []), spends.get(step.seq, Spend())),
            children=children.get(step.seq, []),
            handoffs=(handoffs or {}).get(step.seq, ()),
            pending=pending.get(step.seq),
        )
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
    run: RunRecord, step: Step, scale: Scale, entries: Sequence[tuple[HistoryEntry, Mapping[str, Any]]], spend: Spend
) -> Leg:
    taken = step.status is StepStatus.TAKEN_OVER
    x = scale.at(step.began) if step.began and not taken else 0.0
    end = scale.at(step.ended or run.ended or datetime.now(UTC)) if step.began and not taken else 0.0
    width = max(_NARROWEST, end - x)
    edits = [(entry, changes(entry, before)) for entry, before in entries if entry.kind is StepKind.EDIT]
    own = [(entry, before) for entry, before in entries if entry.kind is not StepKind.EDIT]
    found = [one for entry, before in own if entry.kind is not StepKind.BRANCH for one in changes(entry, before)]
    decided = next((entry for entry, _ in own if entry.kind is StepKind.APPROVAL), None)
    return Leg(
        step=step,
        x=min(x, WIDTH - width) if not taken else 0.0,
        width=width if not taken else 0.0,
        waits=step.kind in _WAITS,
        took=None if taken else elapsed(step.began, step.ended),
        spend=spend,
        changes=sorted(found, key=lambda one: one.sign == "-"),
        edits=edits,
        by=(decided.by or "") if decided else "",
        why=(decided.why or "") if decided else "",
        warnings=sum(len(remarks(entry)) for entry, _ in own),
    )


def sent_by_step(run: RunRecord, messages: Mapping[str, Message]) -> dict[int, list[Message]]:
    """Return the handoffs to other pipelines by the step that sent them; under 0 where the run does not tell."""
    to_stages = {given.handoff_id for given in run.inputs}
    answers = {one.seq: json.dumps(one.value) for one in run.state.outcomes if one.name.startswith(_HANDS_OFF)}
    unanswered = [
        one for one in run.steps if one.name.startswith(_HANDS_OFF) and answers.get(one.seq, "null") == "null"
    ]
    sent: dict[int, list[Message]] = {}
    for handoff_id, message in messages.items():
        if handoff_id in to_stages:
            continue
        answered = [seq for seq, text in answers.items() if json.dumps(handoff_id) in text]
        agent = str(message["toAgent"].get("agentType"))
        asked = [one.seq for one in unanswered if agent in one.name.removeprefix(_HANDS_OFF).split("+")]
        sent.setdefault(next(iter([*answered, *asked]), 0), []).append(message)
    return sent


def spend_by_step(run: RunRecord) -> dict[int, Spend]:
    """Return what each step was charged in this run; of a step that was taken over, what it cost back then."""
    sums: dict[int, Spend] = {}
    for bill in run.bills:
        sums[bill.seq] = sums.get(bill.seq, Spend()) + bill.spend
    for outcome in run.start.outcomes:
        spent = sum((entry.spend for entry in outcome.entries), start=Spend())
        sums[outcome.seq] = sums.get(outcome.seq, Spend()) + spent
    return sums


@dataclass(frozen=True)
class Part:
    """One part of a context window."""

    name: str  # the part
    tokens: int  # the tokens of all of it
    shown: int  # the tokens of what the agent saw
    why: str  # what was left out; empty where it is whole
    x: float  # where it begins in the bar
    width: float  # how wide it is there
    tone: int  # its colour, from 1 to 5


@dataclass(frozen=True)
class Work:
    """What one stage of a step did."""

    name: str  # the stage
    sent: list[StageInput]  # what it was sent, an entry for each attempt
    returned: StageReturn | None = None
    window: list[Part] = field(default_factory=list)  # the parts of its agent's context window
    explanation: Explanation | None = None
    calls: Sequence[Mapping[str, Any]] = field(default_factory=list)  # the tools it called, with what they answered
    inputs: list[tuple[str, Content]] = field(default_factory=list)  # what it worked on, by name
    output: Content | None = None  # what it returned beside the patch
    message: Message | None = None  # the handoff that brought its work

    @property
    def refusals(self) -> list[tuple[int, list[str]]]:
        """The findings against each attempt that was refused."""
        return [(one.attempt - 1, one.findings) for one in self.sent if one.findings]


def works(run: RunRecord, step: Step, messages: Mapping[str, Message]) -> list[Work]:
    """Return what each stage of a step did."""
    if step.kind not in (StepKind.STAGE, StepKind.MERGE):
        return []
    sent: dict[str, list[StageInput]] = {}
    for given in run.inputs:
        if given.seq == step.seq:
            sent.setdefault(given.stage, []).append(given)
    returned = {one.stage: one for _, one in run.accepted if one.seq == step.seq}
    for name in returned:
        sent.setdefault(name, [])
    return [_work(run, step, name, given, returned.get(name), messages) for name, given in sent.items()]


def _work(
    run: RunRecord,
    step: Step,
    name: str,
    sent: list[StageInput],
    returned: StageReturn | None,
    messages: Mapping[str, Message],
) -> Work:
    try:
        told = explain(run, name, {step.seq})
    except HistoryError:
        told = None
    last = sent[-1] if sent else None
    events = returned.events if returned else []
    calls = [one for one in events if str(one.get("type", "")).startswith("tool_")]
    return Work(
        name=name,
        sent=sent,
        returned=returned,
        window=_window(run, step.seq, name),
        explanation=told,
        calls=calls or (returned.tool_calls if returned else []),
        inputs=[(key, value_content(value)) for key, value in (last.inputs if last else {}).items()],
        output=value_content(returned.output) if returned and returned.output is not None else None,
        message=messages.get(last.handoff_id) if last else None,
    )


def _window(run: RunRecord, seq: int, stage: str) -> list[Part]:
    """Return the parts of a context window, as a bar of what was shown."""
    parts = run.prompts.get((seq, stage), [])
    whole = sum(part.shown for part in parts) or 1
    made: list[Part] = []
    x = 0.0
    for place, part in enumerate(parts):
        width = round(WIDTH * part.shown / whole, 1)
        made.append(Part(part.name, part.tokens, part.shown, part.why, round(x, 1), width, place % 5 + 1))
        x += width
    return made
