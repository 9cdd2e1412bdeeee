"""`baton show`: one run on a page; its heading, its baton, what it waits for, what one may do now."""

import shlex
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text
from temporalio.client import Client

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
from baton.client import RunRecord, RunStatus, Step, StepStatus, read_run
from baton.core.baton import Baton
from baton.core.history import Spend
from baton.core.messages import Waiting
from baton.core.rendering import render
from baton.runs.client_changes import for_display
from baton.runs.client_decide import shown_whole
from baton.runs.client_list import SUSPENDED
from baton.runs.client_standing import standing, standings
from baton.runs.client_waiting import Waits, waits
from baton.wire.money import format_usd
from baton.wire.text import format_duration, quantity

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
    session.show(heading(record, waited))
    if step:
        session.show("", Text.assemble("right after step ", (f"{step.seq} {step.name}", "bold"), ":"), "")
        session.show(baton_card(record.baton_after(step)))
        return
    if baton := baton_rows(record.baton)[1:]:  # the goal is in the heading
        session.show(*baton)
    if record.result is not None and record.result.output is not None:
        session.show("", *output_rows(record))
    card = waits_card(record, waited) if waited else None
    if card:
        session.show("", card)
    if hints := repair_hints(record):
        session.show("", *hints)


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


def glyph(step: Step) -> Text:
    """Return the sign of how a step stands; an approval that ended with a no has that of a failure."""
    denied = step.approved is False and step.status is StepStatus.DONE
    return GLYPHS[StepStatus.FAILED if denied else step.status]


def verdict(step: Step) -> str:
    """Return how an approval was decided, in a word."""
    return "approved" if step.approved else "denied"


def heading(run: RunRecord, waits: Waits | None = None) -> RenderableType:
    """Return who the run is and how it stands: four lines at most, and its notes."""
    found = [*standings(run, waits, format_time)]
    status = found[0].status
    began, took = run.first_began or run.began, format_duration(run.took)
    facts = [
        f"since {format_time(began)}" if run.ended is None else format_time(began),
        *([f"reset {format_time(run.reset, run.began)}"] if run.reset else []),
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
        plain(run.baton.goal, "italic"),
        Text(" · ".join(facts), "dim"),
        plain(_fork_note(run), "dim") if origin else None,
        plain(found[0].sentence, "red") if run.failure and run.failure.upper() != status else None,
        *(plain(one.sentence, "yellow") for one in found if one.status == SUSPENDED),
        *(plain(f"note: {note.text}", "yellow") for note in run.notes),
    )


def spent(spend: Spend) -> list[str]:
    """Return what was spent, as far as anything was."""
    parts = [format_usd(spend.micro_usd)] if spend.micro_usd else []
    if spend.prompt_tokens or spend.completion_tokens:
        parts.append(f"{spend.prompt_tokens:,} tokens read, {spend.completion_tokens:,} written")
    return parts


def budget_left(run: RunRecord) -> list[str]:
    """Return what is left of the budget, if the run has one."""
    left, ceiling = run.left_micro_usd, run.ceiling_micro_usd
    if left is None or ceiling is None:
        return []
    if left < 0:
        return [f"{format_usd(-left)} over the budget of {format_usd(ceiling)}"]
    looks_whole = left != ceiling and format_usd(left) == format_usd(ceiling)
    return [f"{format_usd(left, places=6) if looks_whole else format_usd(left)} of {format_usd(ceiling)} left"]


def _fork_note(run: RunRecord) -> str:
    origin = run.start.origin
    assert origin is not None  # noqa: S101 - asked for forked runs only
    by = f" by {origin.by}" if origin.by else ""
    why = f": {origin.why}" if origin.why else ""
    return f"forked from {origin.workflow_id} before {origin.at!r}{by}{why}"


def baton_markdown(baton: Baton) -> str:
    """Return the baton as markdown, whole."""
    return render(baton, max_tokens=_WITHOUT_END, emphasis=frozenset(type(baton).model_fields))


def baton_card(baton: Baton) -> RenderableType:
    """Return the baton for a terminal."""
    return stack(*baton_rows(baton))


def baton_rows(baton: Baton) -> list[RenderableType]:
    """Return the baton for a terminal, its goal first: the lines of the markdown, with hanging indents."""
    table = make_grid()
    rows: list[RenderableType] = []
    for line in baton_markdown(for_display(baton)).splitlines()[2:]:
        if line.startswith("- "):
            table.add_row("·", plain(line[2:]))
            continue
        if table.row_count:
            rows.append(table)
            table = make_grid()
        label, _, rest = line.removeprefix("**").partition(":**")
        rows.append(Text.assemble(plain(f"{label}:" if label else "", "bold"), plain(rest)))
    return [*rows, table] if table.row_count else rows


def waits_card(run: RunRecord, waits: Waits) -> RenderableType:
    """Return what the run waits for, and the commands that help; what suspends it is said in its heading."""
    rows: list[RenderableType] = []
    for one in standings(run, waits, format_time):
        if one.status != SUSPENDED:
            rows.append(plain(one.sentence, "yellow" if one.needs_you else ""))
            rows += asked_rows(run.workflow_id, one.asked) if one.asked else []
            rows += [Command(f"  {command}") for command in one.commands]
    return stack(*rows)


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


def repair_hints(run: RunRecord) -> list[Command]:
    """Return the commands that help with a run that failed."""
    return [Command(one) for one in standing(run).commands] if run.status is RunStatus.FAILED else []
