"""`baton show`: one run on a page; its heading, its baton, what it waits for, what one may do now."""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text
from temporalio.client import Client

from baton.cli.output import (
    STATUS_STYLES,
    Command,
    block,
    dollars,
    grid,
    json_text,
    moment,
    plain,
    quoted,
    stack,
)
from baton.cli.session import AtOption, RunArgument, Session, Target, command
from baton.client import RunRecord, RunStatus, Step, StepStatus, read_run
from baton.core.baton import Baton
from baton.core.history import HistoryEntry, Spend, StepKind
from baton.core.messages import PipelineStatus, Waiting
from baton.core.rendering import render
from baton.runs.client_decide import shown_whole
from baton.runs.client_events import HandoffDeadline, Timer
from baton.runs.client_executions import PAUSED, Pause, unpause
from baton.runs.client_list import SUSPENDED
from baton.runs.client_waiting import Pending, Waits, waits
from baton.wire.text import between, length, quantity

_LONGEST_OUTPUT = 2_000  # characters


@command
async def show(
    session: Session,
    run: RunArgument,
    at: AtOption = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Only the baton, as the markdown agents read.")] = False,
    asked: Annotated[bool, typer.Option("--asked", help="Only the open approvals, with all that they show.")] = False,
) -> None:
    """Show a run: its baton, its status, and what it waits for.

    With --at, the baton as it was right after a stage. Needs no worker, and works on runs that ended.
    """
    target = Target.of(run)
    client = await session.client()
    with session.progress("reading the history"):
        record = await read_run(client, target.workflow_id, target.run_id)
        waited = await waits(client, record)
    if asked:
        await _show_asked(session, client, record, waited)
        return
    step = record.step(at) if at else None
    baton = record.baton_after(step) if step else record.baton
    if session.json:
        session.write_json(_as_json(record, waited, step))
    elif markdown:
        session.write(baton_markdown(baton))
    else:
        _print(session, record, waited, step)


async def _show_asked(session: Session, client: Client, record: RunRecord, waited: Waits | None) -> None:
    """Write the open approvals with the whole texts that they show."""
    handle = client.get_workflow_handle(record.workflow_id)
    found = [one.asked for one in waited.pending if one.asked] if waited else []
    whole = [await shown_whole(handle, one) for one in found]
    if session.json:
        session.write_json(whole)
    elif not whole:
        session.note("no approval is open, or no worker answers")
    for one in [] if session.json else whole:
        session.show(plain(one.name, "bold yellow"), *asked_rows(record.workflow_id, one))


def _print(session: Session, record: RunRecord, waited: Waits | None, step: Step | None) -> None:
    """Write the page."""
    session.show(heading(record, waited), "")
    if step:
        session.show(Text.assemble("right after step ", (f"{step.seq} {step.name}", "bold"), ":"), "")
        session.show(baton_card(record.baton_after(step)))
        return
    session.show(baton_card(record.baton, goal=record.baton.goal != record.start.goal))
    if record.result is not None and record.result.output is not None:
        session.show("", *output_rows(record))
    card = waits_card(record, waited) if waited else None
    if card:
        session.show("", card)
    for hint in repair_hints(record):
        session.show(hint)


def output_rows(record: RunRecord) -> list[RenderableType]:
    """Return the run's output, as much as fits on a page, and the command for the rest."""
    assert record.result is not None  # noqa: S101 - asked for runs with a result only
    text = json_text(record.result.output, lines=True)
    shown = Text.assemble(("Output: ", "bold"), plain(text[:_LONGEST_OUTPUT]))
    left = len(text) - _LONGEST_OUTPUT
    if left <= 0:
        return [shown]
    whole = f"baton show {shlex.quote(f'{record.workflow_id}/{record.run_id}')} --json"
    return [shown, plain(f"… and {left:,} characters more, in the member `output` of", "dim"), Command(f"  {whole}")]


def _as_json(record: RunRecord, waited: Waits | None, step: Step | None) -> dict[str, Any]:
    page = record.to_json_object()
    page["output"] = record.result.output if record.result else None
    page["waiting_for"] = waited.pending if waited else []
    page["task_queue"] = waited.task_queue if waited else None
    page["has_worker"] = waited.has_worker if waited else None
    page["pinned_to"] = waited.build._asdict() if waited and waited.build else None
    page["fault"] = waited.fault if waited else None
    page["paused"] = {"by": waited.pause.by, "why": waited.pause.why} if waited and waited.pause else None
    if step:
        page["at"] = {"seq": step.seq, "name": step.name}
        page["baton"] = record.baton_after(step).to_json_object()
    return page


_WITHOUT_END = 10**9

GLYPHS = {
    StepStatus.RUNNING: Text("●", "cyan"),
    StepStatus.DONE: Text("✓", "green"),
    StepStatus.FAILED: Text("✗", "bold red"),
    StepStatus.TAKEN_OVER: Text("↷", "dim"),
}
"""A sign for each way a step may stand."""


_UNUSUAL_TRIES = 3  # a worker that was killed costs one, another that takes over at the same moment a second


def glyph(step: Step) -> Text:
    """Return the sign of how a step stands; an approval that ended with a no has that of a failure."""
    denied = step.approved is False and step.status is StepStatus.DONE
    return GLYPHS[StepStatus.FAILED if denied else step.status]


def verdict(step: Step) -> str:
    """Return how an approval was decided, in a word."""
    return "approved" if step.approved else "denied"


def heading(run: RunRecord, waits: Waits | None = None) -> RenderableType:
    """Return who the run is and how it stands: four lines at most, and its notes."""
    status = standing(run, waits)
    ended = run.ended or datetime.now(UTC)
    began = run.first_began or run.began
    took = length(between(run.reset or began, ended))  # it did nothing between its end and its roll-back
    facts = [
        f"since {moment(began)}" if run.ended is None else moment(began),
        *([f"reset {moment(run.reset, run.began)}"] if run.reset else []),
        f"for {took}" if run.ended is None else f"took {took}",
        quantity(len(run.steps), "step"),
        *(spent(run.billed) or ["$0.00 spent"]),
        *budget_left(run),
    ]
    title = Text.assemble(
        plain(run.pipeline, "bold"), "  ", plain(run.workflow_id, "bold cyan"), "  ", (status, STATUS_STYLES[status])
    )
    origin = run.start.origin
    return stack(
        title,
        plain(run.start.goal, "italic"),
        Text(" · ".join(facts), "dim"),
        plain(_fork_note(run), "dim") if origin else None,
        plain(_ended(run, run.failure), "red") if run.failure and run.failure.upper() != status else None,
        plain(suspension(run.suspended, waits), "yellow") if run.suspended else None,
        *(plain(missing(one), "yellow") for one in run.missing),
        plain(_misfit(waits.fault), "yellow") if waits and waits.fault and not run.suspended else None,
        plain(_unanswered(waits), "yellow") if waits and waits.tries >= _UNUSUAL_TRIES and not run.suspended else None,
        *(plain(f"note: {note}", "yellow") for note in run.notes),
    )


def _ended(run: RunRecord, why: str) -> str:
    """Return why a run did not complete; one that somebody ended has not failed."""
    how = {RunStatus.FAILED: "failed: ", RunStatus.TERMINATED: "terminated: "}
    return f"{how.get(run.status, '')}{why}"


def suspension(reason: str, waits: Waits | None = None) -> str:
    """Return why the worker's code cannot continue a run, and what follows from that."""
    tries = f" {waits.tries} times" if waits and waits.tries > 1 else ""
    return (
        f"its worker's code has failed{tries}: {reason}. The run continues by itself once a worker has code that fits"
    )


def missing(text: str) -> str:
    """Return what no worker had, and what follows from that."""
    return f"no worker can go on with it: {text}. Nothing was lost; it continues by itself once a worker has that"


def _misfit(fault: str) -> str:
    """Return what it means that a worker cannot go through the history of a run that waits."""
    return f"its worker's code cannot continue it: {fault}. No decision is possible until a worker has code that fits"


def _unanswered(waits: Waits) -> str:
    """Return what it means that no worker answers when it is given a run."""
    return (
        f"it was given to a worker {waits.tries} times without an answer: the worker died of it, or code of a "
        "pipeline or stage blocks it; see the worker's log"
    )


def standing(run: RunRecord, waits: Waits | None = None) -> str:
    """Return the run's status in one word, or why it does not continue by itself."""
    if waits and waits.pause:
        return PAUSED
    if run.suspended or run.missing:
        return SUSPENDED
    if run.pending_handoffs:
        return PipelineStatus.PENDING_HANDOFF.value
    open_steps = [step for step in run.steps if step.status is StepStatus.RUNNING]
    asks = any(step.kind is StepKind.APPROVAL for step in open_steps)
    asks = asks or any(one.kind is StepKind.APPROVAL for one in (waits.pending if waits else []))
    return "WAITING" if asks and run.status is RunStatus.RUNNING else run.status.value


def spent(spend: Spend) -> list[str]:
    """Return what was spent, as far as anything was."""
    parts = [dollars(spend.micro_usd)] if spend.micro_usd else []
    if spend.prompt_tokens or spend.completion_tokens:
        parts.append(f"{spend.prompt_tokens:,} tokens read, {spend.completion_tokens:,} written")
    return parts


def budget_left(run: RunRecord) -> list[str]:
    """Return what is left of the budget, if the run has one."""
    left, ceiling = run.left_micro_usd, run.ceiling_micro_usd
    if left is None or ceiling is None:
        return []
    if left < 0:
        return [f"{dollars(-left)} over the budget of {dollars(ceiling)}"]
    looks_whole = left != ceiling and dollars(left) == dollars(ceiling)
    return [f"{dollars(left, places=6) if looks_whole else dollars(left)} of {dollars(ceiling)} left"]


def _fork_note(run: RunRecord) -> str:
    origin = run.start.origin
    assert origin is not None  # noqa: S101 - asked for forked runs only
    by = f" by {origin.by}" if origin.by else ""
    why = f": {origin.why}" if origin.why else ""
    return f"forked from {origin.workflow_id} before {origin.at!r}{by}{why}"


def baton_markdown(baton: Baton) -> str:
    """Return the baton as markdown, whole."""
    return render(baton, max_tokens=_WITHOUT_END, emphasis=frozenset(type(baton).model_fields))


def baton_card(baton: Baton, *, goal: bool = True) -> RenderableType:
    """Return the baton for a terminal: the same lines as the markdown, with hanging indents."""
    table = grid()
    rows: list[RenderableType] = []
    for line in baton_markdown(baton).splitlines()[2 if goal else 4 :]:
        if line.startswith("- "):
            table.add_row("·", plain(line[2:]))
            continue
        if table.row_count:
            rows.append(table)
            table = grid()
        label, _, rest = line.removeprefix("**").partition(":**")
        rows.append(Text.assemble(plain(f"{label}:" if label else "", "bold"), plain(rest)))
    return stack(*rows, table)


def waits_card(run: RunRecord, waits: Waits) -> RenderableType | None:
    """Return what the run waits for, and the commands that help."""
    held = {one.seq for one in run.pending_handoffs}
    rows = [_pending_handoff(run, one) for one in run.pending_handoffs]
    rows += [_pending(run, one) for one in waits.pending if one.seq not in held]
    rows += [_timer(run, one) for one in run.timers if not one.is_of_a_step]
    if waits.pause:
        rows.append(_paused(run, waits.pause))
    elif not waits.has_worker:
        rows.append(_nobody(run, waits))
    return stack(*rows) if rows else None


def _paused(run: RunRecord, pause: Pause) -> RenderableType:
    """Return by whom and why the run is paused, and the command that unpauses it."""
    told = f"paused by {pause.by} at {moment(pause.since, run.began)}{f': {pause.why}' if pause.why else ''}"
    return stack(
        plain(f"{told}; nothing runs and nothing can be decided until it is unpaused:", "yellow"),
        Command(unpause(run.workflow_id)),
    )


def _nobody(run: RunRecord, waits: Waits) -> RenderableType:
    """Return that no worker can continue the run, and what helps."""
    queue, build, unchosen = shlex.quote(waits.task_queue), waits.build, waits.unchosen
    if unchosen is not None:
        if unchosen.current is None:
            told = "none of their builds is current, so none is given the run. Make one current:"
        else:
            told = (
                f"none is of the current build {unchosen.current}, so none is given the run. Start one "
                "of that build, or make theirs current:"
            )
        return stack(
            plain(f"workers poll the task queue {queue}, but {told}", "yellow"),
            Command(unchosen.remedy),
        )
    if build is None:
        return plain(f"no worker polls the task queue {queue}; the run cannot continue until one does", "yellow")
    move = (
        f"temporal workflow update-options --workflow-id {shlex.quote(run.workflow_id)} "
        f"--versioning-override-behavior pinned --versioning-override-deployment-name {shlex.quote(build.deployment)} "
        "--versioning-override-build-id BUILD"
    )
    return stack(
        plain(
            f"no worker of build {build.id}, to which the run is pinned, polls the task queue {queue}. Start one, or "
            "move the run to another build whose code fits it:",
            "yellow",
        ),
        Command(move),
    )


def _pending_handoff(run: RunRecord, one: HandoffDeadline) -> RenderableType:
    """Return a handoff that waits for a person."""
    step = next((step for step in run.steps if step.seq == one.seq), None)
    until = f" since {moment(one.since, run.began)}, until {moment(one.until, datetime.now(UTC))}"
    return stack(
        Text.assemble(
            f"the handoff to step {one.seq}",
            plain(f" {step.name}" if step else "", "bold yellow"),
            " waits for a person:",
            plain(f" {one.why}" if one.why else "", "red"),
            (until, "dim"),
        ),
        plain(f"  {step.failure}", "yellow") if step and step.failure else None,
        Command(f"  baton inbox show {shlex.quote(run.workflow_id)}"),
    )


def _timer(run: RunRecord, one: Timer) -> RenderableType:
    """Return what a timer is for: the answer of another pipeline, chunks of a stream, a pause of the pipeline's own."""
    until = f": since {moment(one.since, run.began)}, until {moment(one.until, datetime.now(UTC))}"
    return Text.assemble("waits for ", plain(one.name or "a timer", "bold cyan"), (until, "dim"))


def _pending(run: RunRecord, one: Pending) -> RenderableType:
    """Return one thing that is waited for."""
    since = f" since {moment(one.since, run.began)}"
    if one.kind is StepKind.APPROVAL:
        until = f", until {moment(one.until, datetime.now(UTC))}" if one.until else ""
        return stack(
            Text.assemble("waits for a decision: ", plain(one.name, "bold yellow"), (f"{since}{until}", "dim")),
            *(asked_rows(run.workflow_id, one.asked) if one.asked else []),
            *(Command(f"  {line}") for line in decision_hints(run, one.name)),
        )
    if one.kind is StepKind.SLEEP:
        until = f", until {moment(one.until, datetime.now(UTC))}" if one.until else ""
        return Text.assemble("sleeps: ", plain(one.name, "bold cyan"), (f"{since}{until}", "dim"))
    line = Text.assemble(
        "waits for ", one.kind.value, " ", plain(one.name, "bold cyan"), (f": {_state(one)}{since}", "dim")
    )
    failure = plain(f"  the last try failed: {one.failure}", "yellow") if one.failure else None
    if one.is_lost:
        target = shlex.quote(run.workflow_id)
        told = plain("  it ended before this run was reset, so the run is never told: begin it again", "yellow")
        return stack(line, told, Command(f"  baton rollback {target} --to {one.seq} --why '…'"))
    return stack(line, failure, Command(f"  baton show {shlex.quote(one.run)}") if one.run else None)


def asked_rows(workflow_id: str, asked: Waiting) -> list[RenderableType]:
    """Return what an approval shows and asks: texts with a bar before each line, and the command for the rest."""
    rows: list[RenderableType] = []
    for one in asked.shows:
        rows.append(plain(f"  {one.title}:", "bold"))
        rows.append(_diff(one.text) if one.form == "diff" else quoted(one.text))
        if one.artifact is not None:
            rows.append(Command(f"    baton artifact cat {shlex.quote(workflow_id)} {shlex.quote(one.artifact.id)}"))
        elif not one.is_whole:
            left = f"    … and {one.length - len(one.text):,} characters more:"
            rows += [plain(left, "dim"), Command(f"    baton show {shlex.quote(workflow_id)} --asked")]
    if asked.asks:
        rows += [plain("  the question:", "bold"), quoted(asked.asks, "bold")]
    if asked.needs > 1 or asked.who or asked.proof:
        people = f"{asked.needs} people have to approve" if asked.needs > 1 else "one person decides"
        who = f", of {', '.join(asked.who)}" if asked.who else ""
        rows.append(plain(f"  {people}{who}{', signed with their key (--key)' if asked.proof else ''}", "dim"))
    for vote in asked.votes:
        answer = "" if vote.answer is None else f" with {json_text(vote.answer, lines=True)}"
        rows.append(plain(f"  approved by {vote.who}{answer}{f': {vote.why}' if vote.why else ''}", "green"))
    if fields := form_fields(asked):
        rows.append(plain(f"  a yes fills in: {', '.join(fields)} (--set NAME=VALUE)", "dim"))
    return rows


def form_fields(asked: Waiting) -> dict[str, dict[str, Any]]:
    """Return the fields that a yes fills in, each with its JSON Schema; texts of a schema are data."""
    members = (asked.answer or {}).get("properties", {})
    return {name: schema for name, schema in members.items() if isinstance(schema, dict)}


def _diff(text: str) -> Text:
    """Return a diff, with what comes and what goes in their colours."""
    lines = Text()
    for number, line in enumerate(text.splitlines()):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        lines.append_text(block(f"{chr(10) if number else ''}  │ {line}", style))
    return lines


def _state(one: Pending) -> str:
    """Return how far a stage is, or how a child stands."""
    if one.stands not in (None, "RUNNING"):
        return f"it is {one.stands},"
    if one.kind not in (StepKind.STAGE, StepKind.BRANCH):
        return "at work"
    which = f"try {one.tries} " if one.tries > 1 else ""
    if one.next_try:
        return f"{which}due at {moment(one.next_try, one.since)},"
    return f"{which}at work" if one.at_work else f"{which}not begun"


def decision_hints(run: RunRecord, approval: str) -> list[str]:
    """Return how to decide: the commands for yes and no."""
    several = sum(step.kind is StepKind.APPROVAL and step.status is StepStatus.RUNNING for step in run.steps) > 1
    which = f" {shlex.quote(approval)}" if several else ""
    target = shlex.quote(run.workflow_id)
    return [f"baton approve {target}{which} --why '…'", f"baton deny {target}{which} --why '…'"]


def repair_hints(run: RunRecord) -> list[Text | Command]:
    """Return what one may do about a run that failed."""
    failed = [step for step in run.steps if step.status is StepStatus.FAILED]
    if run.status is not RunStatus.FAILED or not failed:
        return []
    why = run.failure or ""
    told = [step for step in failed if step.failure and step.failure in why]  # not one after which the code went on
    last = ([step for step in told if step.name in why] or told or failed[:1])[-1]
    target, seq = shlex.quote(run.workflow_id), last.seq
    undone: list[Text | Command] = []
    if run.undone_since is not None and run.undone_since < seq:
        seq = run.undone_since
        undone = [plain(f"what the steps from {seq} on did outside was undone: go back to before them", "dim")]
    return [
        *undone,
        Command(f"again from there:  baton rollback {target} --to {seq} --why '…'"),
        Command(f"or as a new run:   baton fork {target} --at {seq} --patch @fix.json"),
    ]


def with_before(run: RunRecord) -> list[tuple[HistoryEntry, Mapping[str, Any]]]:
    """Return each history entry with the baton, as JSON, right before it."""
    before = run.state.initial
    pairs: list[tuple[HistoryEntry, Mapping[str, Any]]] = []
    for entry, after in run.history:
        pairs.append((entry, before.to_json_object()))
        before = after
    return pairs
