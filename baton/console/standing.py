"""How a run stands, in one sentence that says why, with the command that helps."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from baton import StepKind
from baton.client import Pending, RunRecord, RunStatus, Step, StepStatus, Waits, unpause
from baton.console.content import dollars, stamp
from baton.wire.text import between, length, quantity

_UNUSUAL_TRIES = 3


@dataclass(frozen=True)
class Standing:
    """How a run stands."""

    status: str  # one word: Temporal's status, or `WAITING`, `PENDING_HANDOFF`, `SUSPENDED`, `PAUSED`
    sentence: str  # how it stands and why
    waits_for: str = ""  # what it waits for, in a few words
    whom: str = ""  # for whom it waits, where it does for people
    until: datetime | None = None  # the deadline of what it waits for
    commands: tuple[str, ...] = ()  # the commands that help
    needs_you: bool = False  # whether it needs a person to continue
    repair: int | None = None  # the step to which one goes back to repair it


def standing(run: RunRecord, waits: Waits | None = None) -> Standing:
    """Return how a run stands: the gravest reason why it does not continue by itself comes first."""
    if run.status is not RunStatus.RUNNING:
        return _ended(run)
    for found in _obstacles(run, waits):
        return found
    at_work = [_at_work(run, one) for one in waits.pending] if waits else []
    for timer in run.timers if not at_work else ():
        if not timer.is_of_a_step:
            name = timer.name or "a timer"
            return Standing("RUNNING", f"Waits for {name}, until {stamp(timer.until)}.", name, until=timer.until)
    if not at_work:
        return Standing("RUNNING", "At work: its next step has not begun.", "its worker")
    first = at_work[0]
    more = f" {quantity(len(at_work) - 1, 'other step')} at work." if len(at_work) > 1 else ""
    return Standing("RUNNING", f"{first[0]}{more}", first[1], commands=first[2])


def _obstacles(run: RunRecord, waits: Waits | None) -> Iterator[Standing]:
    """Yield what keeps a run from continuing by itself, the gravest first."""
    target = shlex.quote(run.workflow_id)
    if waits and waits.pause:
        why = f": {waits.pause.why}" if waits.pause.why else ""
        yield Standing(
            "PAUSED",
            f"Paused by {waits.pause.by} since {stamp(waits.pause.since)}{why}. Nothing runs or can be decided.",
            "to be unpaused",
            commands=(unpause(run.workflow_id),),
            needs_you=True,
        )
    if run.suspended or (waits and waits.fault):
        tries = f" {waits.tries} times" if waits and waits.tries > 1 else ""
        reason = run.suspended or (waits.fault if waits else "")
        yield Standing(
            "SUSPENDED",
            f"Suspended: its worker's code has failed{tries}: {reason}. It continues by itself once code fits.",
            "code that fits",
            commands=(f"baton replay {target}",),
            needs_you=True,
        )
    for text in run.missing:
        yield Standing(
            "SUSPENDED",
            f"Suspended: no worker can do its stage: {text}. It continues by itself once one has that.",
            "a worker that can do its stage",
            needs_you=True,
        )
    for one in run.pending_handoffs:
        step = next((step for step in run.steps if step.seq == one.seq), None)
        name = f"{one.seq} {step.name}" if step else str(one.seq)
        told = " · ".join(filter(None, (one.why, step.failure if step else None)))
        yield Standing(
            "PENDING_HANDOFF",
            f"Waits for a person: the handoff to step {name} was not accepted{f': {told}' if told else ''}.",
            f"a decision on the handoff to {name}",
            until=one.until,
            commands=(f"baton inbox show {target}",),
            needs_you=True,
        )
    asked = {one.seq: one for one in waits.pending} if waits else {}
    for step in run.steps:
        if step.kind is StepKind.APPROVAL and step.status is StepStatus.RUNNING:
            yield _approval(run, step, asked.get(step.seq))
    if waits and not waits.has_worker:
        yield _nobody(waits)
    if waits and waits.tries >= _UNUSUAL_TRIES:
        yield Standing(
            "RUNNING",
            f"Its worker was asked {waits.tries} times without an answer: it died, or its code blocks. See its log.",
            "its worker",
            needs_you=True,
        )


def _approval(run: RunRecord, step: Step, pending: Pending | None) -> Standing:
    """Return that a run waits for a decision, and for whose."""
    asked = pending.asked if pending else None
    whom = ""
    if asked:
        people = ", ".join(asked.who) or "anybody"
        done = f" ({len(asked.votes)} of {asked.needs} approved)" if asked.needs > 1 else ""
        whom = f"{people}{done}"
    until = f", until {stamp(step.until)}" if step.until else ""
    of = f" of {whom}" if whom else ""
    target, which = shlex.quote(run.workflow_id), shlex.quote(step.name)
    return Standing(
        "WAITING",
        f"Waits for a decision{of}: {step.name}{until}.",
        f"a decision: {step.name}",
        whom,
        step.until,
        tuple(f"baton {word} {target} {which} --why '…'" for word in ("approve", "deny")),
        needs_you=True,
    )


def _nobody(waits: Waits) -> Standing:
    """Return that no worker can continue the run, and what helps."""
    queue = waits.task_queue
    if waits.unchosen is not None:
        current = waits.unchosen.current
        which = f"none is of the current build {current}" if current else "none of their builds is current"
        sentence = f"Workers poll task queue {queue!r}, but {which}, so none is given the run."
        return Standing("RUNNING", sentence, "a worker", commands=(waits.unchosen.remedy,), needs_you=True)
    of = f" of build {waits.build.id}, to which the run is pinned," if waits.build else ""
    sentence = f"No worker{of} is polling task queue {queue!r}; the run cannot progress until one does."
    return Standing("RUNNING", sentence, "a worker", needs_you=True)


def _at_work(run: RunRecord, one: Pending) -> tuple[str, str, tuple[str, ...]]:
    """Return what is under way: a sentence, a few words, and the commands that help."""
    name = f"step {one.seq} {one.name}"
    if one.is_lost:
        command = f"baton rollback {shlex.quote(run.workflow_id)} --to {one.seq} --why '…'"
        return f"Waits for {name}, which ended before the run was reset and is lost.", one.name, (command,)
    if one.kind is StepKind.CHILD:
        stands = f", which is {one.stands}" if one.stands else ""
        show = (f"baton show {shlex.quote(one.run)}",) if one.run and one.stands not in (None, "RUNNING") else ()
        return f"Waits for the child of {name}{stands}.", f"child {one.name}{stands}", show
    if one.kind is StepKind.SLEEP:
        until = f" until {stamp(one.until)}" if one.until else ""
        return f"Sleeps in {name}{until}.", one.name, ()
    failed = f" The last try failed: {one.failure}." if one.failure else ""
    if one.next_try:
        return f"Retries {name}: try {one.tries} is due at {stamp(one.next_try)}.{failed}", f"a retry of {one.name}", ()
    state = "At work on" if one.at_work else "Waits for a worker to begin"
    tries = f", try {one.tries}" if one.tries > 1 else ""
    return f"{state} {name}{tries}.{failed}", one.name if one.at_work else f"a worker for {one.name}", ()


def _ended(run: RunRecord) -> Standing:
    """Return how a run ended, and what repairs it."""
    took = length(between(run.first_began or run.began, run.ended))
    spent = f", {dollars(run.billed.micro_usd)} spent" if run.billed.micro_usd else ""
    facts = f"{quantity(len(run.steps), 'step')} in {took}{spent}"
    match run.status:
        case RunStatus.COMPLETED:
            return Standing(run.status.value, f"Completed: {facts}.")
        case RunStatus.CONTINUED_AS_NEW:
            return Standing(run.status.value, f"Continued as run {run.next_run_id} after {facts}.")
        case RunStatus.FAILED:
            return Standing(
                run.status.value, f"Failed: {run.failure}. {facts}.", commands=_repairs(run), repair=failed_step(run)
            )
        case _:
            how = run.status.value.replace("_", " ").capitalize()
            why = f": {run.failure}" if run.failure and run.failure.upper() != run.status.value else ""
            return Standing(run.status.value, f"{how}{why}. {facts}.")


def failed_step(run: RunRecord) -> int | None:
    """Return the step to which one goes back in a run that failed: where it failed, or before what was undone."""
    failed = [step for step in run.steps if step.status is StepStatus.FAILED]
    if run.status is not RunStatus.FAILED or not failed:
        return None
    why = run.failure or ""
    told = [step for step in failed if step.failure and step.failure in why]
    last = ([step for step in told if step.name in why] or told or failed[:1])[-1]
    return min(last.seq, run.undone_since or last.seq)


def _repairs(run: RunRecord) -> tuple[str, ...]:
    seq = failed_step(run)
    if seq is None:
        return ()
    target = shlex.quote(run.workflow_id)
    return (f"baton rollback {target} --to {seq} --why '…'", f"baton fork {target} --at {seq} --patch @fix.json")
