"""A run as one picture: who carried the baton and when, what it cost, where it waited and where it fell.

A lane is a carrier: an agent, a person, another pipeline. The picture has a bounded size, however long the run is.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from baton import Spend, StepKind
from baton.client import RunRecord, Step, StepStatus
from baton.client.faces import Branch, StageAttempt
from baton.console.scale import BETWEEN, Scale, is_wait

_MAX_LANES = 10
_MAX_HANDOVERS = 120
_TONES = ("wait", "work", "running", "failed wait", "failed")
_MANY = 200  # stretches
_MIN_BAR, _MIN_GAP, _MIN_GAP_OF_MANY = 0.4, 0.25, 1.0  # percent of the width
_MIN_WAIT = timedelta(seconds=1)  # a shorter wait between two attempts, or for a worker, is not drawn


@dataclass(frozen=True)
class Stretch:
    """A time in which somebody had the baton."""

    carrier: str
    kind: str  # `agent`, `person`, `pipeline` or `pause`
    start: datetime
    end: datetime
    tone: str = "work"  # one of `_TONES`
    fell: bool = False  # whether the attempt was refused or failed


@dataclass(frozen=True)
class Bar:
    """A stretch, or several that touch, in percent of the picture's width."""

    x: float
    width: float
    tone: str


@dataclass
class Lane:
    """A carrier with what they did."""

    name: str
    kind: str
    who: str = ""  # the person who decided
    bars: list[Bar] = field(default_factory=list)
    falls: list[float] = field(default_factory=list)
    held: timedelta = timedelta()
    spend: Spend = field(default_factory=Spend)
    refused: int = 0  # attempts that were refused or failed
    waits: bool = False  # whether it is waited for now


@dataclass(frozen=True)
class Handover:
    """The baton's way from the carriers of a step to those of the next."""

    x: float  # when the next carriers have it
    since: Sequence[tuple[int, float]]  # the lanes that had it, and when each had done its part
    to: Sequence[int]  # the lanes that receive it; none if the same carrier keeps it

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last lane that it passes."""
        lanes = [lane for lane, _ in self.since] + [*self.to]
        return min(lanes), max(lanes)


@dataclass(frozen=True)
class Track:
    """The picture."""

    lanes: Sequence[Lane]
    handovers: Sequence[Handover]
    folded: Sequence[tuple[float, timedelta]]
    worked: timedelta  # while any carrier was at work
    waited: timedelta  # the rest of the run
    label: str  # the picture in words


def make_track(
    run: RunRecord, scale: Scale, branches: Mapping[int, Sequence[Branch]], spends: Mapping[int, Spend]
) -> Track:
    """Return the picture of a run.

    Args:
        run: The run.
        scale: Its scale of time.
        branches: The stages of its steps.
        spends: What each step cost.
    """
    legs = [(step, _stretches(run, step, branches.get(step.seq, ()))) for step in run.steps]
    legs = sorted(((step, own) for step, own in legs if own), key=lambda leg: leg[1][0].start)
    lanes = _make_lanes(stretch for _, own in legs for stretch in own)
    _add_spends(lanes, run, branches, spends)
    deciders = {entry.stage_id: entry.by for entry in run.state.entries if entry.kind is StepKind.APPROVAL and entry.by}
    places = {name: index for index, name in enumerate(lanes)}
    drawn = lanes
    if len(lanes) > _MAX_LANES:
        at_once = {stretch.carrier for step, own in legs if step.kind is StepKind.MERGE for stretch in own}
        drawn, places = _join_lanes(lanes, at_once)
    stretches: dict[str, list[Stretch]] = {}
    names = [*drawn]
    for stretch in (stretch for _, own in legs for stretch in own):
        stretches.setdefault(names[places[stretch.carrier]], []).append(stretch)
    gap = _MIN_GAP_OF_MANY if sum(map(len, stretches.values())) > _MANY else _MIN_GAP
    for name, lane in drawn.items():
        _draw(lane, stretches.get(name, ()), scale, gap)
        lane.who = deciders.get(name, "")
    everything = [stretch for own in stretches.values() for stretch in own]
    worked = _covered((stretch.start, stretch.end) for stretch in everything if "wait" not in stretch.tone)
    whole = max((run.ended or run.now) - (run.began or run.read_at), worked)
    folded = [(scale.at(start) / 10, end - start) for start, end in scale.folded[:50]]
    ordered = [*drawn.values()]
    return Track(ordered, _handovers(legs, places, scale), folded, worked, whole - worked, _describe(ordered))


def _stretches(run: RunRecord, step: Step, branches: Sequence[Branch]) -> list[Stretch]:
    """Return who had the baton in a step, and when; a reused step has no carrier."""
    if step.began is None or step.status is StepStatus.REUSED:
        return []
    end = step.ended or run.ended or run.now
    if branches:
        pending = any(handoff.seq == step.seq for handoff in run.pending_handoffs)
        alone = len(branches) == 1
        return [
            stretch
            for branch in branches
            for stretch in _of_branch(branch, end, pending)
            if alone or stretch.tone != "wait"
        ]
    kind = {StepKind.APPROVAL: "person", StepKind.SLEEP: "pause"}.get(step.kind, "pipeline")
    failed = step.status is StepStatus.FAILED or step.approved is False
    tone = "wait" if is_wait(step) else "running" if step.ended is None else "work"
    if failed:
        tone = "failed wait" if tone == "wait" else "failed"
    return [Stretch(_carrier(step), kind, step.began, max(end, step.began), tone, failed)]


def _carrier(step: Step) -> str:
    """Return who has the baton in a step that is not a stage: a pipeline's name, or the name of the step."""
    prefix = next((prefix for prefix in BETWEEN if is_wait(step) and step.name.startswith(prefix)), "")
    return step.name.removeprefix(prefix)


def _of_branch(branch: Branch, end: datetime, pending: bool) -> list[Stretch]:
    """Return the attempts of a stage, and the waits between them."""
    carrier, stretches = branch.attempts[0].sent.stage, list[Stretch]()
    free = branch.attempts[0].scheduled
    for number, attempt in enumerate(branch.attempts, 1):
        start, stop = attempt.began or attempt.scheduled, attempt.ended or branch.ended or end
        if start - free > _MIN_WAIT:
            stretches.append(Stretch(carrier, "agent", free, start, "wait"))
        fell = _fell(attempt, number < len(branch.attempts))
        tone = "failed" if attempt.failure else "running" if attempt.ended is None and branch.ended is None else "work"
        stretches.append(Stretch(carrier, "agent", start, max(start, stop), tone, fell))
        free = max(start, stop)
    if pending and end - free > _MIN_WAIT:
        stretches.append(Stretch(carrier, "agent", free, end, "wait"))
    return stretches


def _fell(attempt: StageAttempt, again: bool) -> bool:
    """Return whether an attempt was refused or failed; the pipeline itself may have refused what a worker accepted."""
    return bool(attempt.failure or attempt.findings or again)


def _make_lanes(stretches: Iterable[Stretch]) -> dict[str, Lane]:
    """Return the carriers in the order in which they had the baton first."""
    lanes: dict[str, Lane] = {}
    for stretch in stretches:
        lane = lanes.setdefault(stretch.carrier, Lane(stretch.carrier, stretch.kind))
        lane.held += stretch.end - stretch.start
        lane.refused += stretch.fell
    return lanes


def _add_spends(
    lanes: Mapping[str, Lane], run: RunRecord, branches: Mapping[int, Sequence[Branch]], spends: Mapping[int, Spend]
) -> None:
    """Add what each carrier cost: attempts to their stage, all else of a step to its carrier."""
    for step in run.steps:
        own = branches.get(step.seq, ())
        for branch in own:
            if lane := lanes.get(branch.attempts[0].sent.stage):
                lane.spend += branch.spend
        if not own and (spend := spends.get(step.seq)) and (lane := lanes.get(_carrier(step))):
            lane.spend += spend


def _join_lanes(lanes: Mapping[str, Lane], at_once: Collection[str]) -> tuple[dict[str, Lane], dict[str, int]]:
    """Return the lanes that tell most and one of all others, and the place of each carrier.

    They are those that carried the baton alone, then those of branches that fell, then those that had it longest.
    """

    def order(lane: Lane) -> tuple[bool, bool, timedelta]:
        return lane.name in at_once, not lane.refused, -lane.held

    most = {lane.name for lane in sorted(lanes.values(), key=order)[: _MAX_LANES - 1]}
    drawn = {name: lane for name, lane in lanes.items() if name in most}
    others = [lane for name, lane in lanes.items() if name not in most]
    joined = Lane(f"{len(others)} others", "agent")
    for lane in others:
        joined.spend += lane.spend
        joined.refused += lane.refused
    drawn[""] = joined
    places = {name: index for index, name in enumerate(drawn)}
    return drawn, {name: places.get(name, len(drawn) - 1) for name in lanes}


def _draw(lane: Lane, stretches: Sequence[Stretch], scale: Scale, gap: float) -> None:
    """Set the bars of a lane, failures over work; those of a kind with a smaller gap between them become one."""
    bars: list[Bar] = []
    for stretch in sorted(stretches, key=lambda stretch: (_TONES.index(stretch.tone), stretch.start)):
        x, end = scale.at(stretch.start) / 10, scale.at(stretch.end) / 10
        last = bars[-1] if bars else None
        if last and last.tone == stretch.tone and x - last.x - last.width < gap:
            bars[-1] = Bar(last.x, max(last.width, end - last.x), last.tone)
        else:
            bars.append(Bar(min(x, 100 - _MIN_BAR), max(_MIN_BAR, end - x), stretch.tone))
        lane.waits = lane.waits or (stretch.tone == "wait" and stretch.end >= scale.ended)
    lane.bars = [Bar(round(bar.x, 2), round(bar.width, 2), bar.tone) for bar in bars]
    for end in sorted(scale.at(stretch.end) / 10 for stretch in stretches if stretch.fell):
        if not lane.falls or end - lane.falls[-1] > gap:
            lane.falls.append(end)
    lane.held = _covered((stretch.start, stretch.end) for stretch in stretches)


def _covered(times: Iterable[tuple[datetime, datetime]]) -> timedelta:
    """Return how much time intervals cover together."""
    covered, until = timedelta(), None
    for start, end in sorted(times):
        if until is None or end > until:
            covered += end - (start if until is None else max(start, until))
            until = end
    return covered


def _handovers(
    legs: Sequence[tuple[Step, Sequence[Stretch]]], places: Mapping[str, int], scale: Scale
) -> list[Handover]:
    """Return the baton's way; nothing if it would be a blur."""
    handovers: list[Handover] = []
    before: dict[int, float] = {}
    for _, stretches in legs:
        x, ends = scale.at(stretches[0].start) / 10, dict[int, float]()
        for stretch in stretches:
            lane = places[stretch.carrier]
            ends[lane] = max(ends.get(lane, 0.0), scale.at(stretch.end) / 10)
        to = sorted(ends.keys() - before.keys())
        if before and (to or ends.keys() != before.keys() or x - max(before.values()) > _MIN_GAP):
            handovers.append(Handover(x, [(lane, min(end, x)) for lane, end in before.items()], to))
        if len(handovers) > _MAX_HANDOVERS:
            return []
        before = ends
    return handovers


def _describe(lanes: Sequence[Lane]) -> str:
    """Return the picture in words; the table of steps below it has all of it."""
    fell = [lane.name for lane in lanes if lane.falls]
    waits = [lane.name for lane in lanes if lane.waits]
    carried = f"Who carried the baton: {', '.join(lane.name for lane in lanes) or 'nobody yet'}."
    return "".join(
        [
            carried,
            f" It fell with {', '.join(fell)}." if fell else "",
            f" It waits with {', '.join(waits)}." if waits else "",
        ]
    )
