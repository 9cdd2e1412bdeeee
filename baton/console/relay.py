"""A run as a relay: its steps on a timeline, and the details of a step."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from baton import HistoryEntry, Spend, StepKind
from baton.client import Explanation, RunRecord, Step, StepStatus
from baton.client.faces import Change, StageInput, StageReturn, changes, explain_in, remarks, with_before
from baton.console.content import Content, value_content
from baton.errors import HistoryError
from baton.wire.text import elapsed

Message = Mapping[str, Any]

WIDTH = 1000
"""The width of the timeline, in its own units."""
_FOLDED_SHARE = 0.06  # the maximum width of a wait, as a share of all work
_MIN_FOLDED_SECONDS = 2.0
_MIN_BAR_WIDTH = 4.0
_WAITS = (StepKind.APPROVAL, StepKind.SLEEP)
_HANDOFF_PREFIX = "hand off to "  # the prefix of steps that send handoffs to other pipelines
_CHILD_STEP = re.compile(r"\.step(\d+)\.[0-9a-f]{8}$")


class Scale:
    """Maps times to positions on the timeline. Work keeps its proportions; a long wait is folded."""

    def __init__(self, began: datetime, ended: datetime, work: Iterable[tuple[datetime, datetime]]) -> None:
        merged: list[tuple[datetime, datetime]] = []
        for start, end in sorted(work):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        times = sorted({began, ended, *(time for pair in merged for time in pair)})
        busy = sum(((end - start).total_seconds() for start, end in merged), 0.0)
        max_wait = max(busy * _FOLDED_SHARE, 0.001)
        starts = {start for start, _ in merged}
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


@dataclass(frozen=True)
class Hop:
    """One step of the relay."""

    step: Step
    x: float  # the start of its bar
    width: float  # the width of its bar
    waits: bool  # whether it is a wait, not work
    took: timedelta | None
    spend: Spend  # rejected attempts included
    changes: list[Change] = field(default_factory=list)  # additions first
    edits: list[tuple[HistoryEntry, list[Change]]] = field(default_factory=list)  # by people, before the step
    by: str = ""  # who decided the approval
    why: str = ""  # the reason of the decision
    children: list[tuple[str, str]] = field(default_factory=list)  # workflow and run ids of started pipelines
    handoffs: Sequence[Message] = ()  # sent to other pipelines
    warnings: int = 0
    pending: str | None = None  # why its handoff waits for a person; None if it does not


@dataclass(frozen=True)
class Relay:
    """A page of a run's steps."""

    hops: list[Hop]
    first: int  # the index of the first hop among all steps
    count: int  # the number of all steps
    folded: list[tuple[float, timedelta]]  # position and length of each folded wait


def make_relay(
    run: RunRecord,
    first: int | None = None,
    limit: int = 100,
    handoffs: Mapping[int, Sequence[Message]] | None = None,
) -> Relay:
    """Return up to ``limit`` steps of a run, from index ``first`` or the newest, with the handoffs that each sent."""
    steps = run.steps
    last_first = max(0, len(steps) - limit)
    first = last_first if first is None else max(0, min(first, last_first))
    selected = steps[first : first + limit]
    scale = _scale(run)
    entries: dict[int, list[tuple[HistoryEntry, Mapping[str, Any]]]] = {}
    for entry, before in with_before(run):
        entries.setdefault(entry.seq, []).append((entry, before))
    spends = spend_by_step(run)
    children: dict[int, list[tuple[str, str]]] = {}
    for child_id, run_id, _ in run.children:
        if match := _CHILD_STEP.search(child_id):
            children.setdefault(int(match[1]), []).append((child_id, run_id))
    pending = {handoff.seq: handoff.why for handoff in run.pending_handoffs}
    hops = [
        replace(
            _hop(run, step, scale, entries.get(step.seq, []), spends.get(step.seq, Spend())),
            children=children.get(step.seq, []),
            handoffs=(handoffs or {}).get(step.seq, ()),
            pending=pending.get(step.seq),
        )
        for step in selected
    ]
    folded = [(scale.at(start), end - start) for start, end in scale.folded[:50]]
    return Relay(hops, first, len(steps), folded)


def _scale(run: RunRecord) -> Scale:
    began = run.began or run.read_at
    ended = run.ended or run.now
    work = [
        (step.began, step.ended or ended)
        for step in run.steps
        if step.began and step.kind not in _WAITS and step.status is not StepStatus.REUSED
    ]
    return Scale(min([began, *(start for start, _ in work)]), max([ended, *(end for _, end in work)]), work)


def _hop(
    run: RunRecord, step: Step, scale: Scale, entries: Sequence[tuple[HistoryEntry, Mapping[str, Any]]], spend: Spend
) -> Hop:
    reused = step.status is StepStatus.REUSED
    x = scale.at(step.began) if step.began and not reused else 0.0
    end = scale.at(step.ended or run.ended or run.now) if step.began and not reused else 0.0
    width = max(_MIN_BAR_WIDTH, end - x)
    edits = [(entry, changes(entry, before)) for entry, before in entries if entry.kind is StepKind.EDIT]
    own = [(entry, before) for entry, before in entries if entry.kind is not StepKind.EDIT]
    own_changes = [
        change for entry, before in own if entry.kind is not StepKind.BRANCH for change in changes(entry, before)
    ]
    decided = next((entry for entry, _ in own if entry.kind is StepKind.APPROVAL), None)
    return Hop(
        step=step,
        x=min(x, WIDTH - width) if not reused else 0.0,
        width=width if not reused else 0.0,
        waits=step.kind in _WAITS,
        took=None if reused else elapsed(step.began, step.ended),
        spend=spend,
        changes=sorted(own_changes, key=lambda change: change.sign == "-"),
        edits=edits,
        by=(decided.by or "") if decided else "",
        why=(decided.why or "") if decided else "",
        warnings=sum(len(remarks(entry)) for entry, _ in own),
    )


def handoffs_by_step(run: RunRecord, messages: Mapping[str, Message]) -> dict[int, list[Message]]:
    """Return the handoffs to other pipelines by the step that sent them, or under 0 if it is unknown."""
    to_stages = {stage_input.handoff_id for stage_input in run.inputs}
    answers = {
        outcome.seq: json.dumps(outcome.value)
        for outcome in run.state.outcomes
        if outcome.name.startswith(_HANDOFF_PREFIX)
    }
    unanswered = [
        step for step in run.steps if step.name.startswith(_HANDOFF_PREFIX) and answers.get(step.seq, "null") == "null"
    ]
    sent: dict[int, list[Message]] = {}
    for handoff_id, message in messages.items():
        if handoff_id in to_stages:
            continue
        answered = [seq for seq, text in answers.items() if json.dumps(handoff_id) in text]
        agent = str(message["toAgent"].get("agentType"))
        candidates = [step.seq for step in unanswered if agent in step.name.removeprefix(_HANDOFF_PREFIX).split("+")]
        sent.setdefault(next(iter([*answered, *candidates]), 0), []).append(message)
    return sent


def spend_by_step(run: RunRecord) -> dict[int, Spend]:
    """Return the spend of each step in this run, or in the earlier run if a fork reused the step."""
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

    name: str
    tokens: int  # of the complete part
    shown: int  # tokens that the agent saw
    why: str  # what was omitted, if anything
    x: float  # the start of its bar
    width: float  # the width of its bar
    tone: int  # the colour of its bar, 1 to 5


@dataclass(frozen=True)
class Work:
    """What one stage of a step did."""

    name: str
    sent: list[StageInput]  # one input for each attempt
    returned: StageReturn | None = None
    window: list[Part] = field(default_factory=list)  # its agent's context window
    explanation: Explanation | None = None
    calls: Sequence[Mapping[str, Any]] = field(default_factory=list)  # tool calls with their results
    inputs: list[tuple[str, Content]] = field(default_factory=list)  # by name
    output: Content | None = None  # beside the patch
    message: Message | None = None  # the handoff to the stage

    @property
    def refusals(self) -> list[tuple[int, list[str]]]:
        """The number and the findings of each rejected attempt."""
        return [(stage_input.attempt - 1, stage_input.findings) for stage_input in self.sent if stage_input.findings]


def collect_work(run: RunRecord, step: Step, messages: Mapping[str, Message]) -> list[Work]:
    """Return the work of each stage of a step."""
    if step.kind not in (StepKind.STAGE, StepKind.MERGE):
        return []
    sent: dict[str, list[StageInput]] = {}
    for stage_input in run.inputs:
        if stage_input.seq == step.seq:
            sent.setdefault(stage_input.title, []).append(stage_input)
    returned = {stage_return.title: stage_return for _, stage_return in run.accepted if stage_return.seq == step.seq}
    for name in returned:
        sent.setdefault(name, [])
    return [_work(run, step, name, stage_inputs, returned.get(name), messages) for name, stage_inputs in sent.items()]


def _work(
    run: RunRecord,
    step: Step,
    name: str,
    sent: list[StageInput],
    returned: StageReturn | None,
    messages: Mapping[str, Message],
) -> Work:
    try:
        explanation = explain_in(run, name, {step.seq})
    except HistoryError:
        explanation = None
    last = sent[-1] if sent else None
    events = returned.events if returned else []
    calls = [event for event in events if str(event.get("type", "")).startswith("tool_")]
    return Work(
        name=name,
        sent=sent,
        returned=returned,
        window=_window(run, step.seq, name),
        explanation=explanation,
        calls=calls or (returned.tool_calls if returned else []),
        inputs=[(key, value_content(value)) for key, value in (last.inputs if last else {}).items()],
        output=value_content(returned.output) if returned and returned.output is not None else None,
        message=messages.get(last.handoff_id) if last else None,
    )


def _window(run: RunRecord, seq: int, stage: str) -> list[Part]:
    """Return the parts of a context window, laid out as a bar."""
    parts = run.prompts.get((seq, stage), [])
    total = sum(part.shown for part in parts) or 1
    bars: list[Part] = []
    x = 0.0
    for index, part in enumerate(parts):
        width = round(WIDTH * part.shown / total, 1)
        bars.append(Part(part.name, part.tokens, part.shown, part.why, round(x, 1), width, index % 5 + 1))
        x += width
    return bars
