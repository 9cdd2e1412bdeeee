"""How a run stands, in sentences that say why, each with the commands that help."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from baton.core.history import StepKind
from baton.core.messages import Waiting
from baton.runs.client_executions import PAUSED, unpause
from baton.runs.client_list import SUSPENDED
from baton.runs.client_record import RunRecord, RunStatus, Step, StepStatus
from baton.runs.client_waiting import Pending, Waits
from baton.wire.money import format_usd
from baton.wire.text import format_duration, format_time, quantity

_UNUSUAL_TRIES = 3  # a worker that was killed costs one, another that takes over at the same moment a second

Written = Callable[[datetime], str]
"""How a sentence has a time."""


@dataclass(frozen=True)
class Standing:
    """How a run stands, or one of the things that it waits for.

    Attributes:
        status: One word: Temporal's status, or `WAITING`, `PENDING_HANDOFF`, `SUSPENDED`, `PAUSED`.
        sentence: How it stands and why.
        waits_for: What it waits for, in a few words.
        whom: For whom it waits, where it does for people.
        until: The deadline of what it waits for.
        commands: The commands that help.
        needs_you: Whether it needs a person to continue.
        repair: The step to which one goes back to repair it.
        asked: All that an approval asks and shows, if a worker was there to say so.
    """

    status: str
    sentence: str
    waits_for: str = ""
    whom: str = ""
    until: datetime | None = None
    commands: tuple[str, ...] = ()
    needs_you: bool = False
    repair: int | None = None
    asked: Waiting | None = field(default=None, compare=False)


def standing(run: RunRecord, waits: Waits | None = None, written: Written = format_time) -> Standing:
    """Return how a run stands: the gravest reason why it does not continue by itself comes first."""
    first = next(standings(run, waits, written))
    others = len(waits.pending) - 1 if waits else 0
    if first.needs_you or others < 1:
        return first
    return replace(first, sentence=f"{first.sentence} {quantity(others, 'other step')} at work.")


def standings(run: RunRecord, waits: Waits | None = None, written: Written = format_time) -> Iterator[Standing]:
    """Yield how a run stands: of an open one all that it waits for, the gravest first."""
    if run.status is not RunStatus.RUNNING:
        yield _ended(run)
        return
    found = [*_obstacles(run, waits, written)]
    held = {one.seq for one in run.pending_handoffs}
    for one in waits.pending if waits else ():
        if one.kind is not StepKind.APPROVAL and one.seq not in held:
            found.append(_at_work(run, one, written))
    for timer in run.timers:
        if not timer.is_of_a_step:
            name = timer.name or "a timer"
            found.append(Standing("RUNNING", f"Waits for {name}, until {written(timer.until)}.", name, "", timer.until))
    yield from found or [Standing("RUNNING", "At work: its next step has not begun.", "its worker")]


def suspended(reason: str, tries: int = 1) -> str:
    """Return the sentence on a run that its worker's code cannot continue."""
    times = f" {tries} times" if tries > 1 else ""
    return f"Suspended: its worker's code has failed{times}: {reason}. It continues by itself once code fits."


def lacks(text: str) -> str:
    """Return the sentence on a run for which no worker has what it needs."""
    return f"Suspended: no worker can do its stage: {text}. It continues by itself once a worker has that."


def _obstacles(run: RunRecord, waits: Waits | None, written: Written) -> Iterator[Standing]:
    """Yield what keeps a run from continuing by itself, the gravest first."""
    target = shlex.quote(run.workflow_id)
    if waits and waits.pause:
        why = f": {waits.pause.why}" if waits.pause.why else ""
        yield Standing(
            PAUSED,
            f"Paused by {waits.pause.by} since {written(waits.pause.since)}{why}. Nothing runs or can be decided.",
            "to be unpaused",
            commands=(unpause(run.workflow_id),),
            needs_you=True,
        )
    if reason := run.suspended or (waits.fault if waits else None):
        yield Standing(
            SUSPENDED,
            suspended(reason, waits.tries if waits else 1),
            "code that fits",
            commands=(f"baton replay {target} --module MODULE",),
            needs_you=True,
        )
    for text in run.missing:
        yield Standing(SUSPENDED, lacks(text), "a worker that can do its stage", needs_you=True)
    for one in run.pending_handoffs:
        step = next((step for step in run.steps if step.seq == one.seq), None)
        name = f"{one.seq} {step.name}" if step else str(one.seq)
        failure = step.failure if step and step.failure else ""
        told = failure.removeprefix("its handoff was not accepted").removeprefix(": ") or one.why
        yield Standing(
            "PENDING_HANDOFF",
            f"Waits for a person until {written(one.until)}: the handoff to step {name} was not accepted"
            f"{f': {told}' if told else ''}.",
            f"a decision on the handoff to {name}",
            until=one.until,
            commands=(f"baton inbox show {target}",),
            needs_you=True,
        )
    asked = {one.seq: one for one in waits.pending} if waits else {}
    for step in run.steps:
        if step.kind is StepKind.APPROVAL and step.status is StepStatus.RUNNING:
            yield _approval(run, step, asked.get(step.seq), written)
    if waits and not waits.has_worker and not waits.pause:
        yield _nobody(run, waits)
    if waits and waits.tries >= _UNUSUAL_TRIES and not run.suspended:
        yield Standing(
            "RUNNING",
            f"Its worker was asked {waits.tries} times without an answer: it died, or its code blocks. See its log.",
            "its worker",
            needs_you=True,
        )


def _approval(run: RunRecord, step: Step, pending: Pending | None, written: Written) -> Standing:
    """Return that a run waits for a decision, and for whose."""
    asked = pending.asked if pending else None
    whom = ""
    if asked:
        people = ", ".join(asked.who) or "anybody"
        done = f" ({len(asked.votes)} of {asked.needs} approved)" if asked.needs > 1 else ""
        whom = f"{people}{done}"
    until = f", until {written(step.until)}" if step.until else ""
    by = f", by {whom}" if whom else ""
    target, which = shlex.quote(run.workflow_id), shlex.quote(step.name)
    return Standing(
        "WAITING",
        f"Waits for the decision {step.name!r}{by}{until}.",
        f"a decision: {step.name}",
        whom,
        step.until,
        tuple(f"baton {word} {target} {which} --why '…'" for word in ("approve", "deny")),
        needs_you=True,
        asked=asked,
    )


def _nobody(run: RunRecord, waits: Waits) -> Standing:
    """Return that no worker can continue the run, and what helps."""
    queue, of = waits.task_queue, ""
    move: tuple[str, ...] = ()
    if waits.unchosen is not None:
        current = waits.unchosen.current
        which = f"none is of the current build {current}" if current else "none of their builds is current"
        sentence = f"Workers poll task queue {queue!r}, but {which}, so none is given the run."
        return Standing("RUNNING", sentence, "a worker", commands=(waits.unchosen.remedy,), needs_you=True)
    if waits.build:
        of = f" of build {waits.build.id}, to which the run is pinned,"
        move = (
            f"temporal workflow update-options --workflow-id {shlex.quote(run.workflow_id)} "
            "--versioning-override-behavior pinned "
            f"--versioning-override-deployment-name {shlex.quote(waits.build.deployment)} "
            "--versioning-override-build-id BUILD",
        )
    sentence = f"No worker{of} is polling task queue {queue!r}; the run cannot progress until one does."
    return Standing("RUNNING", sentence, "a worker", commands=move, needs_you=True)


def _at_work(run: RunRecord, one: Pending, written: Written) -> Standing:
    """Return what is under way."""
    name = f"step {one.seq} {one.name}"
    failed = f" The last try failed: {one.failure}." if one.failure else ""
    commands: tuple[str, ...] = ()
    if one.is_lost:
        told, short = f"Waits for {name}, which ended before the run was reset and is lost.", one.name
        commands = (f"baton rollback {shlex.quote(run.workflow_id)} --to {one.seq} --why '…'",)
    elif one.kind is StepKind.CHILD:
        stands = f", which is {one.stands}" if one.stands else ""
        told, short = f"Waits for the child of {name}{stands}.", f"child {one.name}{stands}"
        commands = (f"baton show {shlex.quote(one.run)}",) if one.run and one.stands not in (None, "RUNNING") else ()
    elif one.kind is StepKind.SLEEP:
        told, short = f"Sleeps in {name}{f' until {written(one.until)}' if one.until else ''}.", one.name
    elif one.next_try:
        told = f"Retries {name}: try {one.tries} is due at {written(one.next_try)}.{failed}"
        short = f"a retry of {one.name}"
    else:
        tries = f", try {one.tries}" if one.tries > 1 else ""
        told = f"{'At work on' if one.at_work else 'Waits for a worker to begin'} {name}{tries}.{failed}"
        short = one.name if one.at_work else f"a worker for {one.name}"
    return Standing("RUNNING", told, short, commands=commands)


def _ended(run: RunRecord) -> Standing:
    """Return how a run ended, and what repairs it."""
    spent = f", {format_usd(run.billed.micro_usd)} spent" if run.billed.micro_usd else ""
    facts = f"{quantity(len(run.steps), 'step')} in {format_duration(run.took)}{spent}"
    match run.status:
        case RunStatus.COMPLETED:
            return Standing(run.status.value, f"Completed: {facts}.")
        case RunStatus.CONTINUED_AS_NEW:
            return Standing(run.status.value, f"Continued as run {run.next_run_id} after {facts}.")
        case RunStatus.FAILED:
            undone = f" What its steps from {run.undone_since} on did outside was undone." if run.undone_since else ""
            return Standing(
                run.status.value,
                f"Failed: {run.failure}. {facts}.{undone}",
                commands=_repairs(run),
                repair=failed_step(run),
            )
        case _:
            how = run.status.value.replace("_", " ").capitalize()
            why = f": {run.failure}" if run.failure and run.failure.upper() != run.status.value else ""
            return Standing(run.status.value, f"{how}{why}. {facts}.")


def failed_step(run: RunRecord) -> int | None:
    """Return the step to which one goes back in a run that failed: where it failed, or before what was undone."""
    why = run.failure or ""
    denied = [step for step in run.steps if step.approved is False and f"{step.name!r} was denied" in why]
    failed = [step for step in run.steps if step.status is StepStatus.FAILED or step in denied]
    if run.status is not RunStatus.FAILED or not failed:
        return None
    # Not one after which the code went on.
    told = [step for step in failed if step in denied or (step.failure and step.failure in why)]
    last = ([step for step in told if step.name in why] or told or failed[:1])[-1]
    return min(last.seq, run.undone_since or last.seq)


def _repairs(run: RunRecord) -> tuple[str, ...]:
    seq = failed_step(run)
    if seq is None:
        return ()
    target = shlex.quote(run.workflow_id)
    return (f"baton rollback {target} --to {seq} --why '…'", f"baton fork {target} --at {seq} --patch @fix.json")
