"""A run as a relay: its steps on a timeline, and the details of a step."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from baton import HistoryEntry, Spend, StepKind
from baton.client import Explanation, RunRecord, Standing, Step, StepStatus
from baton.client.faces import (
    Branch,
    Change,
    StageAttempt,
    StageInput,
    StageReturn,
    changes,
    explain_in,
    find_branches,
    remarks,
    with_before,
)
from baton.console.content import Content, value_content
from baton.console.scale import WIDTH, Scale, is_wait, run_scale
from baton.console.track import Track, make_track
from baton.errors import HistoryError
from baton.wire.names import HAND_OFF
from baton.wire.text import elapsed

Message = Mapping[str, Any]

_MIN_BAR_WIDTH = 4.0
_MAX_MOMENTS, _MAX_NAMED = 500, 3


@dataclass(frozen=True)
class Leg:
    """A branch of a fan-out or an item of a map, on the run's timeline."""

    branch: Branch
    x: float
    width: float
    took: timedelta  # so far, if it runs


@dataclass(frozen=True)
class Hop:
    """One step of the relay."""

    step: Step
    x: float  # the start of its bar
    width: float  # the width of its bar
    took: timedelta | None  # so far, if it runs
    spend: Spend  # rejected attempts included
    waits: bool = False  # whether it is a wait, not work
    legs: Sequence[Leg] = ()  # its branches or items; empty for a single stage
    changes: list[Change] = field(default_factory=list)  # additions first
    edits: list[tuple[HistoryEntry, list[Change]]] = field(default_factory=list)  # by people, before the step
    by: str = ""  # who decided the approval
    why: str = ""  # the reason of the decision
    children: Sequence[tuple[str, str]] = ()  # workflow and run ids of started pipelines
    handoffs: Sequence[Message] = ()  # sent to other pipelines
    warnings: int = 0  # that somebody should look at
    pending: str | None = None  # why its handoff waits for a person; None if it does not

    @property
    def name(self) -> str:
        """The name of its step; that of many branches in short."""
        if len(self.legs) <= _MAX_NAMED or "+" not in self.step.name:
            return self.step.name
        return f"{self.legs[0].branch.title} and {len(self.legs) - 1} others"

    @property
    def status(self) -> str:
        """Its status in a word: that of its step, or `denied`, or `waiting` for what is waited for."""
        if self.step.approved is False:
            return "denied"
        waits = self.step.status is StepStatus.RUNNING and (self.waits or self.pending is not None)
        return "waiting" if waits else self.step.status.value

    @property
    def tally(self) -> list[tuple[str, int]]:
        """How many of its branches have each status, the failed first."""
        counts = Counter(leg.branch.status for leg in self.legs)
        order = (StepStatus.FAILED, StepStatus.RUNNING, StepStatus.DONE)
        return [(status.value, counts[status]) for status in order if counts[status]]


@dataclass(frozen=True)
class Unanswered:
    """A handoff to another pipeline without an answer yet."""

    message: Message
    x: float
    width: float
    took: timedelta | None  # so far


@dataclass(frozen=True)
class Relay:
    """A page of a run's steps, and the picture of all of them."""

    hops: list[Hop]
    first: int  # the index of the first hop among the steps that are listed
    listed: int  # the number of steps that are listed: all, or those that failed
    count: int  # the number of all steps
    failed: int  # the number of those that failed or were denied
    folded: list[tuple[float, timedelta]]  # position and length of each folded wait
    track: Track
    unanswered: Sequence["Unanswered"] = ()  # handoffs whose step is unknown until they are answered


@dataclass(frozen=True)
class Node:
    """A run inside the page or the report of another, with those inside it by workflow id."""

    run: RunRecord
    standing: Standing
    relay: Relay
    nodes: Mapping[str, "Node"] = field(default_factory=dict)


Changed = tuple[HistoryEntry, Mapping[str, Any]]
"""A history entry with the previous values of the fields that it changed."""


@dataclass(frozen=True)
class Layout:
    """What pages derive from a whole run, once for as long as it does not change."""

    run: RunRecord
    branches: Mapping[int, Sequence[Branch]]  # of each step, by its number; the spends, entries and children likewise
    spends: Mapping[int, Spend]
    entries: Mapping[int, Sequence[Changed]]
    children: Mapping[int, Sequence[tuple[str, str]]]  # workflow and run ids
    failed: Sequence[Step]  # the steps that failed or were denied
    scale: Scale
    track: Track


def make_layout(run: RunRecord) -> Layout:
    """Return the layout of a run."""
    branches, spends = find_branches(run), spend_by_step(run)
    entries: dict[int, list[Changed]] = {}
    for entry, before in with_before(run):
        entries.setdefault(entry.seq, []).append((entry, before))
    children = {
        seq: [(workflow_id, run_id) for workflow_id, run_id, _ in own] for seq, own in run.children_by_step.items()
    }
    failed = [step for step in run.steps if step.status is StepStatus.FAILED or step.approved is False]
    scale = run_scale(run, branches)
    return Layout(run, branches, spends, entries, children, failed, scale, make_track(run, scale, branches, spends))


def make_relay(
    layout: Layout,
    first: int | None = None,
    limit: int = 100,
    handoffs: Mapping[int, Sequence[Message]] | None = None,
    *,
    only_failed: bool = False,
) -> Relay:
    """Return up to ``limit`` steps of a run, from index ``first`` or the newest, with the handoffs that each sent.

    Args:
        layout: The run.
        first: The index of the first step; None for the newest.
        limit: How many steps.
        handoffs: The handoffs to other pipelines by the step that sent them.
        only_failed: Whether only steps that failed or were denied are listed.
    """
    run = layout.run
    steps = layout.failed if only_failed else run.steps
    last_first = max(0, len(steps) - limit)
    first = last_first if first is None else max(0, min(first, last_first))
    selected = steps[first : first + limit]
    is_page = len(selected) < len(steps) and not only_failed
    scale = run_scale(run, layout.branches, selected) if is_page else layout.scale
    pending = {handoff.seq: handoff.why for handoff in run.pending_handoffs}
    hops = [
        replace(
            _hop(run, step, scale, layout.entries.get(step.seq, []), layout.spends.get(step.seq, Spend())),
            legs=_legs(run, step, scale, layout.branches.get(step.seq, ())),
            waits=is_wait(step) and step.seq not in layout.branches,
            children=layout.children.get(step.seq, []),
            handoffs=(handoffs or {}).get(step.seq, ()),
            pending=pending.get(step.seq),
        )
        for step in selected
    ]
    folded = [(scale.at(start), end - start) for start, end in scale.folded[:50]]
    unanswered = [_unanswered(run, message, scale) for message in (handoffs or {}).get(0, ())]
    return Relay(hops, first, len(steps), len(run.steps), len(layout.failed), folded, layout.track, unanswered)


def _unanswered(run: RunRecord, message: Message, scale: Scale) -> Unanswered:
    end, sent_at = run.ended or run.now, _time_of(message)
    x = scale.at(sent_at or end)
    width = max(_MIN_BAR_WIDTH, scale.at(end) - x)
    return Unanswered(message, min(x, WIDTH - width), width, elapsed(sent_at, end))


def _legs(run: RunRecord, step: Step, scale: Scale, branches: Sequence[Branch]) -> list[Leg]:
    """Return the branches of a step on the timeline; a single stage is its step."""
    if step.kind is not StepKind.MERGE:
        return []
    legs = []
    for branch in branches:
        ended = branch.ended or run.ended or run.now
        x = scale.at(branch.began)
        width = max(_MIN_BAR_WIDTH, scale.at(ended) - x)
        legs.append(Leg(branch, min(x, WIDTH - width), width, ended - branch.began))
    return legs


def _hop(run: RunRecord, step: Step, scale: Scale, entries: Sequence[Changed], spend: Spend) -> Hop:
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
        took=None if reused else elapsed(step.began, step.ended or run.ended or run.now),
        spend=spend,
        changes=sorted(own_changes, key=lambda change: change.sign == "-"),
        edits=edits,
        by=(decided.by or "") if decided else "",
        why=(decided.why or "") if decided else "",
        warnings=sum(
            remark.sign == "!" for entry, _ in own if entry.kind is not StepKind.BRANCH for remark in remarks(entry)
        ),
    )


def handoffs_by_step(run: RunRecord, messages: Mapping[str, Message]) -> dict[int, list[Message]]:
    """Return the handoffs to other pipelines by the step that sent them, or under 0 if it is unknown."""
    to_stages = {stage_input.handoff_id for stage_input in run.inputs}
    answers = {
        outcome.seq: json.dumps(outcome.value) for outcome in run.state.outcomes if outcome.name.startswith(HAND_OFF)
    }
    unanswered = [
        step for step in run.steps if step.name.startswith(HAND_OFF) and answers.get(step.seq, "null") == "null"
    ]
    sent: dict[int, list[Message]] = {}
    for handoff_id, message in messages.items():
        if handoff_id in to_stages:
            continue
        answered = [seq for seq, text in answers.items() if json.dumps(handoff_id) in text]
        agent = str(message["toAgent"].get("agentType"))
        candidates = [step.seq for step in unanswered if agent in step.name.removeprefix(HAND_OFF).split("+")]
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
class TimedEvent:
    """A request or a call inside a stage, on its timeline."""

    x: float
    after: timedelta  # since the stage was sent
    text: str


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
    branch: Branch | None = None  # its attempts
    tries: Sequence[tuple[StageAttempt, float, float]] = ()  # its attempts on their own timeline
    moments: Sequence[TimedEvent] = ()  # what it asked and called, on this timeline

    @property
    def refusals(self) -> list[tuple[int, list[str]]]:
        """The number and the findings of each rejected attempt."""
        return [(stage_input.attempt - 1, stage_input.findings) for stage_input in self.sent if stage_input.findings]


def collect_work(layout: Layout, step: Step, messages: Mapping[str, Message]) -> list[Work]:
    """Return the work of each stage of a step."""
    run = layout.run
    if step.kind not in (StepKind.STAGE, StepKind.MERGE):
        return []
    sent: dict[str, list[StageInput]] = {}
    for stage_input in run.inputs:
        if stage_input.seq == step.seq:
            sent.setdefault(stage_input.title, []).append(stage_input)
    returned = {stage_return.title: stage_return for _, stage_return in run.accepted if stage_return.seq == step.seq}
    for name in returned:
        sent.setdefault(name, [])
    branches = {branch.title: branch for branch in layout.branches.get(step.seq, ())}
    works = [_work(run, step, name, stage_inputs, returned.get(name), messages) for name, stage_inputs in sent.items()]
    return [_timed(run, work, branches[work.name]) if work.name in branches else work for work in works]


def _timed(run: RunRecord, work: Work, branch: Branch) -> Work:
    """Return a stage's work with its attempts and requests on a timeline."""
    began = branch.began
    seconds = max(0.001, ((branch.ended or run.ended or run.now) - began).total_seconds())

    def at(time: datetime) -> float:
        return round(max(0.0, min(1.0, (time - began).total_seconds() / seconds)) * WIDTH, 1)

    tries = []
    for attempt in branch.attempts:
        x = at(attempt.began or attempt.scheduled)
        end = at(attempt.ended or branch.ended or run.now)
        tries.append((attempt, min(x, WIDTH - _MIN_BAR_WIDTH), max(_MIN_BAR_WIDTH, end - x)))
    events = [event for attempt in branch.attempts if attempt.returned for event in attempt.returned.events]
    timed = [(time, event) for event in events if (time := _time_of(event)) and time >= began]
    moments = [
        TimedEvent(at(time), time - began, f"{_event_type(event)} {event.get('toolName') or ''}")
        for time, event in sorted(timed, key=lambda pair: pair[0])
    ]
    return replace(work, branch=branch, tries=tries, moments=moments[:_MAX_MOMENTS])


def _event_type(event: Mapping[str, Any]) -> str:
    return str(event.get("type", "")).replace("_", " ")


def _time_of(event: Mapping[str, Any]) -> datetime | None:
    """Return the timestamp of an event or a message; agents may have written anything."""
    try:
        time = datetime.fromisoformat(str(event.get("timestamp")))
    except ValueError:
        return None
    return time if time.tzinfo else None


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
