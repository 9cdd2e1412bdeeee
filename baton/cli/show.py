"""`baton show`: one run on a page: its heading, its baton, what it waits for, the commands that help."""

import shlex
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from baton import Baton, Spend, render
from baton.cli.output import (
    STATUS_STYLES,
    Command,
    block,
    format_time,
    json_text,
    make_grid,
    plain,
    quoted,
    stack,
)
from baton.cli.session import AtOption, RunArgument, Session, Target, command
from baton.client import (
    Question,
    RunRecord,
    RunStatus,
    Step,
    StepStatus,
    Waits,
    read_run,
    standing,
    waits,
)
from baton.client.faces import SUSPENDED, for_display, standings
from baton.wire.money import format_usd
from baton.wire.text import format_duration, quantity

_MAX_OUTPUT_LENGTH = 2_000  # characters


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
    if asked:
        _show_approvals(session, record)
        return
    with session.progress("asking what it waits for"):
        pending = await waits(client, record)
    step = record.step(at) if at else None
    baton = record.baton_after(step) if step else record.baton
    if session.json:
        session.write_json(_as_json(record, pending, step))
    elif markdown:
        session.write(baton_markdown(baton))
    else:
        _print(session, record, pending, step)


def _show_approvals(session: Session, record: RunRecord) -> None:
    approvals = record.approvals
    if session.json:
        session.write_json(approvals)
    elif not approvals:
        session.note("no approval is open")
    for approval in [] if session.json else approvals:
        session.show(plain(approval.title, "bold yellow"), *approval_rows(record.workflow_id, approval))


def _print(session: Session, record: RunRecord, waits: Waits | None, step: Step | None) -> None:
    session.show(heading(record, waits))
    if step:
        session.show("", Text.assemble("right after step ", (f"{step.seq} {step.name}", "bold"), ":"), "")
        session.show(baton_card(record.baton_after(step)))
        return
    if baton := baton_rows(record.baton)[1:]:  # the goal is in the heading
        session.show(*baton)
    if record.result is not None and record.result.output is not None:
        session.show("", *output_rows(record))
    card = waits_card(record, waits) if waits else None
    if card:
        session.show("", card)
    if hints := repair_hints(record):
        session.show("", *hints)


def output_rows(record: RunRecord) -> list[RenderableType]:
    """Return the beginning of the run's output, and the command for the rest."""
    assert record.result is not None  # noqa: S101 - called for runs with a result only
    text = json_text(record.result.output, lines=True)
    rows: list[RenderableType] = [Text.assemble(("Output: ", "bold"), plain(text[:_MAX_OUTPUT_LENGTH]))]
    if (remaining := len(text) - _MAX_OUTPUT_LENGTH) > 0:
        rows.append(plain(f"… and {remaining:,} characters more, in the member `output` of", "dim"))
        rows.append(Command(f"  baton show {shlex.quote(f'{record.workflow_id}/{record.run_id}')} --json"))
    return rows


def _as_json(record: RunRecord, waits: Waits | None, step: Step | None) -> dict[str, Any]:
    page = record.to_json_object()
    page["output"] = record.result.output if record.result else None
    page["standings"] = [*standings(record, waits)]
    page["waiting_for"] = waits.pending if waits else []
    page["task_queue"] = waits.task_queue if waits else None
    page["has_worker"] = waits.has_worker if waits else None
    page["pinned_to"] = waits.build._asdict() if waits and waits.build else None
    page["paused"] = {"by": waits.pause.by, "why": waits.pause.why} if waits and waits.pause else None
    if step:
        page["at"] = {"seq": step.seq, "name": step.name}
        page["baton"] = record.baton_after(step).to_json_object()
    return page


_UNLIMITED = 10**9

GLYPHS = {
    StepStatus.RUNNING: Text("●", "cyan"),
    StepStatus.DONE: Text("✓", "green"),
    StepStatus.FAILED: Text("✗", "bold red"),
    StepStatus.REUSED: Text("↷", "dim"),
}
"""The sign for each status of a step."""


def glyph(step: Step) -> Text:
    """Return the sign for a step's status; a denied approval has the sign of a failure."""
    denied = step.approved is False and step.status is StepStatus.DONE
    return GLYPHS[StepStatus.FAILED if denied else step.status]


_FATES = {True: "shown", False: "not shown", None: "on its way"}


def heading(run: RunRecord, waits: Waits | None = None) -> RenderableType:
    """Return a run's name and standing, in four lines at most, and its notes."""
    all_standings = [*standings(run, waits, format_time)]
    status = all_standings[0].status
    began, took = run.first_began or run.began, format_duration(run.took)
    facts = [
        f"since {format_time(began)}" if run.ended is None else format_time(began),
        *([f"reset {format_time(run.reset, run.began)}"] if run.reset else []),
        f"for {took}" if run.ended is None else f"took {took}",
        quantity(len(run.steps), "step"),
        *(format_spend(run.billed) or ["$0.00 spent"]),
        *budget_left(run),
    ]
    title = Text.assemble(
        plain(run.pipeline, "bold"), "  ", plain(run.workflow_id, "bold cyan"), "  ", (status, STATUS_STYLES[status])
    )
    origin = run.start.origin
    return stack(
        title,
        plain(run.baton.goal, "italic"),
        Text(" · ".join(facts), "dim"),
        plain(_fork_note(run), "dim") if origin else None,
        plain(all_standings[0].sentence, "red") if run.failure and run.failure.upper() != status else None,
        *(plain(line.sentence, "yellow") for line in all_standings if line.status == SUSPENDED),
        *(plain(f"note: {note.text}", "yellow") for note in run.notes),
        *(plain(f"{_FATES[run.was_shown(note)]}: {note.line}: {note.text}") for note in run.steering),
    )


def format_spend(spend: Spend) -> list[str]:
    """Return the parts of a spend that are not zero, as texts."""
    parts = [format_usd(spend.micro_usd)] if spend.micro_usd else []
    if spend.prompt_tokens or spend.completion_tokens:
        parts.append(f"{spend.prompt_tokens:,} tokens read, {spend.completion_tokens:,} written")
    return parts


def budget_left(run: RunRecord) -> list[str]:
    """Return the rest of the budget, or nothing without one."""
    remaining, ceiling = run.left_micro_usd, run.ceiling_micro_usd
    if remaining is None or ceiling is None:
        return []
    if remaining < 0:
        return [f"{format_usd(-remaining)} over the budget of {format_usd(ceiling)}"]
    looks_unspent = remaining != ceiling and format_usd(remaining) == format_usd(ceiling)
    return [
        f"{format_usd(remaining, places=6) if looks_unspent else format_usd(remaining)} of {format_usd(ceiling)} left"
    ]


def _fork_note(run: RunRecord) -> str:
    origin = run.start.origin
    assert origin is not None  # noqa: S101 - called for forked runs only
    by = f" by {origin.by}" if origin.by else ""
    why = f": {origin.why}" if origin.why else ""
    return f"forked from {origin.workflow_id} before {origin.at!r}{by}{why}"


def baton_markdown(baton: Baton) -> str:
    """Return the whole baton as markdown."""
    return render(baton, max_tokens=_UNLIMITED, emphasis=frozenset(type(baton).model_fields))


def baton_card(baton: Baton) -> RenderableType:
    """Return the baton for a terminal."""
    return stack(*baton_rows(baton))


def baton_rows(baton: Baton) -> list[RenderableType]:
    """Return the baton for a terminal, goal first, with hanging indents."""
    table = make_grid()
    rows: list[RenderableType] = []
    for line in baton_markdown(for_display(baton)).splitlines()[2:]:
        if line.startswith("- "):
            table.add_row("·", plain(line[2:]))
            continue
        if table.row_count:
            rows.append(table)
            table = make_grid()
        label, _, text = line.removeprefix("**").partition(":**")
        rows.append(Text.assemble(plain(f"{label}:" if label else "", "bold"), plain(text)))
    return [*rows, table] if table.row_count else rows


def waits_card(run: RunRecord, waits: Waits) -> RenderableType:
    """Return what the run waits for, and the commands that help; the heading has the reasons of a suspension."""
    rows: list[RenderableType] = []
    for entry in standings(run, waits, format_time):
        if entry.status != SUSPENDED:
            rows.append(plain(entry.sentence, "yellow" if entry.needs_you else ""))
            if entry.asked and not entry.asked.handoff:
                rows += approval_rows(run.workflow_id, entry.asked)
            rows += [Command(f"  {command}") for command in entry.commands]
    return stack(*rows)


def approval_rows(workflow_id: str, approval: Question) -> list[RenderableType]:
    """Return an approval's texts and question, and the commands for longer texts."""
    rows: list[RenderableType] = []
    for shown in approval.shows:
        rows.append(plain(f"  {shown.title}:", "bold"))
        rows.append(_diff(shown.text) if shown.form == "diff" else quoted(shown.text))
        if shown.artifact is not None:
            rows.append(Command(f"    baton artifact cat {shlex.quote(workflow_id)} {shlex.quote(shown.artifact.id)}"))
        elif not shown.is_whole:
            remaining = f"    … and {shown.length - len(shown.text):,} characters more:"
            rows += [plain(remaining, "dim"), Command(f"    baton show {shlex.quote(workflow_id)} --asked")]
    if approval.asks:
        rows += [plain("  the question:", "bold"), quoted(approval.asks, "bold")]
    rows += decider_rows(approval)
    if fields := form_fields(approval):
        made = {name: f"={json_text(one['default'], lines=True)}" for name, one in fields.items() if "default" in one}
        named = [f"{name}{made.get(name, '')}" for name in fields]
        rows.append(plain(f"  the answer's fields: {', '.join(named)} (--set NAME=VALUE)", "dim"))
    return rows


def decider_rows(question: Question) -> list[RenderableType]:
    """Return who may decide a question and how many must, if not any one person, and the votes so far."""
    rows: list[RenderableType] = []
    if question.needs > 1 or question.who or question.proof:
        verb = "agree" if question.handoff else "approve"
        people = f"{question.needs} people have to {verb}" if question.needs > 1 else "one person decides"
        who = f", of {', '.join(question.who)}" if question.who else ""
        rows.append(plain(f"  {people}{who}{', signed with their key (--key)' if question.proof else ''}", "dim"))
    for vote in question.votes:
        data = "" if vote.data is None else f" with {json_text(vote.data, lines=True)}"
        rows.append(plain(f"  {vote.verb} by {vote.who}{data}{f': {vote.why}' if vote.why else ''}", "green"))
    return rows


def form_fields(approval: Question) -> dict[str, dict[str, Any]]:
    """Return the fields of an approval's form, each with its JSON Schema."""
    members = (approval.form or {}).get("properties", {})
    return {name: schema for name, schema in members.items() if isinstance(schema, dict)}


def _diff(text: str) -> Text:
    lines = Text()
    for number, line in enumerate(text.splitlines()):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        lines.append_text(block(f"{chr(10) if number else ''}  │ {line}", style))
    return lines


def repair_hints(run: RunRecord) -> list[Command]:
    """Return the commands that repair a failed run."""
    return [Command(command) for command in standing(run).commands] if run.status is RunStatus.FAILED else []
