"""The standing of a run: its status, the reason in one sentence, and the commands that help."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from baton.core.artifacts import find_lost
from baton.core.history import StepKind
from baton.core.people import GROUP_PREFIX, normalize_name
from baton.core.questions import Question
from baton.errors import ArtifactNotFoundError
from baton.runs.client_events import OUTSIDE_TIMER
from baton.runs.client_executions import PAUSED, unpause
from baton.runs.client_list import SUSPENDED
from baton.runs.client_record import RunRecord, RunStatus, Step, StepStatus, brief_question
from baton.runs.client_waiting import Pending, Waits
from baton.wire.json_values import as_json
from baton.wire.money import format_usd
from baton.wire.text import format_duration, format_time, quantity

_SUSPICIOUS_TRIES = 3  # a killed worker costs one try, its replacement may cost a second

_LOST = (
    "needs what the artifact store has lost: {}. It continues by itself once that is back; `baton cancel` gives it up."
)

TimeFormat = Callable[[datetime], str]
"""Formats a time in a sentence."""


@dataclass(frozen=True)
class Standing:
    """The standing of a run, or of one thing that it waits for.

    Attributes:
        status: One word: Temporal's status, or `WAITING`, `PENDING_HANDOFF`, `SUSPENDED`, `PAUSED`; the same as that
            of a list.
        sentence: The status and its reason.
        waits_for: What it waits for, in a few words.
        whom: The people it waits for, if any, or the agent outside.
        until: The deadline, or the end of a sleep.
        commands: The commands that help.
        needs_you: Whether it needs a person to continue.
        repair: The step to roll back to.
        asked: What people are asked.
        failure: Why an ended run failed or was stopped, if that is known.
    """

    status: str
    sentence: str
    waits_for: str = ""
    whom: str = ""
    until: datetime | None = None
    commands: tuple[str, ...] = ()
    needs_you: bool = False
    repair: int | None = None
    asked: Question | None = field(default=None, compare=False)
    failure: str = ""

    def to_json_object(self) -> dict[str, Any]:
        """Return it as JSON, with its question in short."""
        return {
            "status": self.status,
            "sentence": self.sentence,
            "waits_for": self.waits_for or None,
            "whom": self.whom or None,
            "until": as_json(self.until),
            "commands": [*self.commands],
            "needs_you": self.needs_you,
            "question": brief_question(self.asked) if self.asked else None,
        }


def standing(run: RunRecord, waits: Waits | None = None, time_format: TimeFormat = format_time) -> Standing:
    """Return the standing of a run: the gravest reason why it does not continue by itself."""
    first = next(standings(run, waits, time_format))
    other_steps = len(waits.pending) - 1 if waits else 0
    if first.needs_you or other_steps < 1:
        return first
    return replace(first, sentence=f"{first.sentence} {quantity(other_steps, 'other step')} at work.")


def standings(run: RunRecord, waits: Waits | None = None, time_format: TimeFormat = format_time) -> Iterator[Standing]:
    """Yield the standing of an ended run, or everything that an open run waits for, the gravest first."""
    if run.status is not RunStatus.RUNNING:
        yield _describe_end(run)
        return
    entries = [*_list_obstacles(run, waits, time_format)]
    escalated = {handoff.seq for handoff in run.pending_handoffs}
    for pending in waits.pending if waits else ():
        is_asked = pending.seq in escalated and pending.kind is not StepKind.BRANCH  # other branches are at work
        if pending.kind is not StepKind.APPROVAL and not is_asked:
            entries.append(_at_work(run, pending, time_format))
    for timer in run.timers:
        if not timer.is_of_a_step:
            name, outside = timer.name or "a timer", OUTSIDE_TIMER.fullmatch(timer.name)
            sentence = f"Waits for {name}, until {time_format(timer.until)}."
            entries.append(Standing("RUNNING", sentence, name, outside[1] if outside else "", timer.until))
    entries = entries or [Standing("RUNNING", "At work: its next step has not begun.", "its worker")]
    waits_outside = any(OUTSIDE_TIMER.fullmatch(timer.name) for timer in run.timers)
    for entry in entries:
        yield replace(entry, status="WAITING") if waits_outside and entry.status == "RUNNING" else entry


def suspension_sentence(reason: str, tries: int = 1) -> str:
    """Return the sentence for a run that its worker's code cannot continue."""
    if _is_loss(reason):
        return f"Suspended: it {_LOST.format(reason)}"
    times = f" {tries} times" if tries > 1 else ""
    return f"Suspended: its worker's code has failed{times}: {reason}. It continues by itself once code fits."


def _is_loss(reason: str) -> bool:
    """Return whether a workflow task failed because the artifact store lost one of its payloads."""
    kind, _, message = reason.partition(": ")
    return find_lost(kind, message) is not None


def missing_sentence(text: str) -> str:
    """Return the sentence for a run with a stage that no worker can execute, for want of a part or an artifact."""
    if find_lost(ArtifactNotFoundError.__name__, text):
        return f"Suspended: its stage {_LOST.format(text)}"
    return f"Suspended: no worker can do its stage: {text}. It continues by itself once a worker has that."


def _list_obstacles(run: RunRecord, waits: Waits | None, time_format: TimeFormat) -> Iterator[Standing]:
    """Yield what prevents a run from continuing by itself, the gravest first."""
    target = shlex.quote(run.workflow_id)
    if waits and waits.pause:
        why = f": {waits.pause.why}" if waits.pause.why else ""
        yield Standing(
            PAUSED,
            f"Paused by {waits.pause.by} since {time_format(waits.pause.since)}{why}. Nothing runs or can be decided.",
            "to be unpaused",
            commands=(unpause(run.workflow_id),),
            needs_you=True,
        )
    if reason := run.suspended:
        is_lost = _is_loss(reason)
        yield Standing(
            SUSPENDED,
            suspension_sentence(reason, waits.tries if waits else 1),
            "a lost artifact" if is_lost else "code that fits",
            commands=() if is_lost else (f"baton replay {target} --module MODULE",),
            needs_you=True,
        )
    if not (waits and waits.pause):  # then nothing can be decided
        yield from _list_questions(run, time_format)
    for text in run.missing:
        yield Standing(SUSPENDED, missing_sentence(text), "a worker that can do its stage", needs_you=True)
    if waits and not waits.has_worker and not waits.pause:
        yield _without_worker(run, waits)
    if waits and waits.tries >= _SUSPICIOUS_TRIES and not run.suspended:
        yield Standing(
            "RUNNING",
            f"Its worker was asked {waits.tries} times without an answer: it died, or its code blocks. See its log.",
            "its worker",
            needs_you=True,
        )


def _list_questions(run: RunRecord, time_format: TimeFormat) -> Iterator[Standing]:
    """Yield what the run asks people: the handoffs that wait for one, then the approvals."""
    target = shlex.quote(run.workflow_id)
    questions = {asked.handoff.handoff_id: asked for asked in run.questions if asked.handoff}
    for handoff in run.pending_handoffs:
        step = next((step for step in run.steps if step.seq == handoff.seq), None)
        name = f"{handoff.seq} {handoff.receiver}"
        failure = step.failure if step and step.failure else ""
        asked = questions.get(handoff.handoff_id)
        whom = _people(asked) if asked else ""
        detail = failure.removeprefix("its handoff was not accepted").removeprefix(": ")
        detail = detail or (asked.text if asked else "") or handoff.why
        deadline = asked.until if asked else handoff.until
        yield Standing(
            "PENDING_HANDOFF",
            f"Waits for a person until {time_format(deadline)}: the handoff to step {name} needs a decision"
            f"{f' by {whom}' if whom else ''}{f': {detail}' if detail else ''}.",
            f"a decision on the handoff to {name}",
            whom,
            until=deadline,
            commands=(f"baton inbox show {target}",),
            needs_you=True,
            asked=asked,
        )
    approvals = {asked.seq: asked.excerpt for asked in run.approvals}
    for step in run.steps:
        if step.kind is StepKind.APPROVAL and step.status is StepStatus.RUNNING:
            yield _approval(run, step, approvals.get(step.seq), time_format)


def _approval(run: RunRecord, step: Step, asked: Question | None, time_format: TimeFormat) -> Standing:
    whom = _people(asked) if asked else ""
    deadline = asked.until if asked else step.until  # the timer began a moment later
    until = f", until {time_format(deadline)}" if deadline else ""
    by = f", by {whom}" if whom else ""
    return Standing(
        "WAITING",
        f"Waits for the decision {step.name!r}{by}{until}.",
        f"a decision: {step.name}",
        whom,
        deadline,
        decision_commands(run.workflow_id, step.name, asked),
        needs_you=True,
        asked=asked,
    )


def _people(asked: Question) -> str:
    """Return who decides a question, and how many have."""
    verb = "agreed" if asked.handoff else "approved"
    done = f" ({len(asked.agreed)} of {asked.needs} {verb})" if asked.needs > 1 else ""
    return f"{', '.join(asked.who) or 'anybody'}{done}"


def decision_commands(workflow_id: str, approval: str, asked: Question | None) -> tuple[str, str]:
    """Return the commands that approve and deny, with `…` where the person fills in a value."""
    target = f"{shlex.quote(workflow_id)} {shlex.quote(approval)}"
    by, answer = (identity_option(asked), _answer_options(asked)) if asked else ("", "")
    return f"baton approve {target}{answer}{by} --why '…'", f"baton deny {target}{by} --why '…'"


def identity_option(asked: Question) -> str:
    """Return the option that says who decides, if not everybody may."""
    if asked.proof:
        return " --key KEY_FILE"
    if not asked.who:
        return ""
    voters = {normalize_name(vote.who) for vote in asked.votes}
    remaining = [name for name in asked.who if normalize_name(name) not in voters]
    is_known = len(remaining) == 1 and not remaining[0].startswith(GROUP_PREFIX)
    return f" --who {shlex.quote(remaining[0] if is_known else '…')}"


def _answer_options(asked: Question) -> str:
    """Return an option for each required field of an approval's form; in a quorum the leading answer is offered."""
    form, answered = asked.form or {}, asked.leading is not None
    names = form.get("required")
    if answered or not isinstance(names, list):
        return ""
    return "".join(f" --set {shlex.quote(f'{name}={_placeholder(form, str(name))}')}" for name in names)


def _placeholder(form: Mapping[str, Any], name: str) -> str:
    """Return what to type for a field: a text as it is, a list or an object as JSON."""
    schema = _member(_member(form, "properties"), name)
    named = str(_member(schema, "$ref") or "").rpartition("/")[2]
    kind = _member(_member(_member(form, "$defs"), named) or schema, "type")
    return '["…"]' if kind == "array" else '{"…": "…"}' if kind == "object" else "…"


def _member(value: Any, name: str) -> Any:
    """Return a member of a form, which anybody who starts runs may have written; None if there is none."""
    return value.get(name) if isinstance(value, Mapping) else None


def _without_worker(run: RunRecord, waits: Waits) -> Standing:
    queue, of_build = waits.task_queue, ""
    commands: tuple[str, ...] = ()
    if waits.unchosen is not None:
        current = waits.unchosen.current
        reason = f"none is of the current build {current}" if current else "none of their builds is current"
        sentence = f"Workers poll task queue {queue!r}, but {reason}, so none is given the run."
        return Standing("RUNNING", sentence, "a worker", commands=(waits.unchosen.remedy,), needs_you=True)
    if waits.build:
        of_build = f" of build {waits.build.id}, to which the run is pinned,"
        commands = (
            f"temporal workflow update-options --workflow-id {shlex.quote(run.workflow_id)} "
            "--versioning-override-behavior pinned "
            f"--versioning-override-deployment-name {shlex.quote(waits.build.deployment)} "
            "--versioning-override-build-id BUILD",
        )
    sentence = f"No worker{of_build} is polling task queue {queue!r}; the run cannot progress until one does."
    if waits.build and run.steps:
        sentence += " If that build is lost, move the run to another build, or begin it again on the current one."
        commands += (f"baton rollback {shlex.quote(run.workflow_id)} --to {run.steps[0].seq} --why '…'",)
    return Standing("RUNNING", sentence, "a worker", commands=commands, needs_you=True)


def _at_work(run: RunRecord, pending: Pending, time_format: TimeFormat) -> Standing:
    name = f"step {pending.seq} {pending.name}"
    last_failure = f" The last try failed: {pending.failure}." if pending.failure else ""
    commands: tuple[str, ...] = ()
    until: datetime | None = None
    if pending.is_lost:
        sentence, waits_for = f"Waits for {name}, which ended before the run was reset and is lost.", pending.name
        commands = (f"baton rollback {shlex.quote(run.workflow_id)} --to {pending.seq} --why '…'",)
    elif pending.kind is StepKind.CHILD:
        child_status = f", which is {pending.child_status}" if pending.child_status else ""
        sentence, waits_for = f"Waits for the child of {name}{child_status}.", f"child {pending.name}{child_status}"
        commands = (
            (f"baton show {shlex.quote(pending.run)}",)
            if pending.run and pending.child_status not in (None, "RUNNING")
            else ()
        )
    elif pending.kind is StepKind.SLEEP:
        until = pending.until
        sentence, waits_for = (
            f"Sleeps in {name}{f' until {time_format(pending.until)}' if pending.until else ''}.",
            pending.name,
        )
    elif pending.next_try:
        sentence = f"Retries {name}: try {pending.tries} is due at {time_format(pending.next_try)}.{last_failure}"
        waits_for = f"a retry of {pending.name}"
    else:
        attempt = f", try {pending.tries}" if pending.tries > 1 else ""
        sentence = (
            f"{'At work on' if pending.at_work else 'Waits for a worker to begin'} {name}{attempt}.{last_failure}"
        )
        waits_for = pending.name if pending.at_work else f"a worker for {pending.name}"
    return Standing("RUNNING", sentence, waits_for, until=until, commands=commands)


def _describe_end(run: RunRecord) -> Standing:
    spent = f", {format_usd(run.billed.micro_usd)} spent" if run.billed.micro_usd else ""
    failure = run.failure if run.failure and run.failure.upper() != run.status.value else ""
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
                commands=_repair_commands(run),
                repair=failed_step(run),
                failure=failure,
            )
        case _:
            how = run.status.value.replace("_", " ").capitalize()
            why = f": {failure}" if failure else ""
            return Standing(run.status.value, f"{how}{why}. {facts}.", failure=failure)


def failed_step(run: RunRecord) -> int | None:
    """Return the step to roll a failed run back to: the step that failed, or an earlier one that was undone."""
    why = run.failure or ""
    denied_steps = [step for step in run.steps if step.approved is False and f"{step.name!r} was denied" in why]
    failed_steps = [step for step in run.steps if step.status is StepStatus.FAILED or step in denied_steps]
    if run.status is not RunStatus.FAILED or not failed_steps:
        return None
    # Not a failed step that the pipeline's code handled.
    reasons = [step for step in failed_steps if step in denied_steps or (step.failure and step.failure in why)]
    culprit = ([step for step in reasons if step.name in why] or reasons or failed_steps[:1])[-1]
    return min(culprit.seq, run.undone_since or culprit.seq)


def _repair_commands(run: RunRecord) -> tuple[str, ...]:
    seq = failed_step(run)
    if seq is None:
        return ()
    target = shlex.quote(run.workflow_id)
    return (f"baton rollback {target} --to {seq} --why '…'", f"baton fork {target} --at {seq} --patch @fix.json")
