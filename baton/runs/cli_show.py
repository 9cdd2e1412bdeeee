"""`baton show`: one run on a page."""

import shlex
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text
from temporalio.client import Client

from baton.cli.output import Command, json_text, plain
from baton.cli.session import Session, command
from baton.cli.targets import AtOption, RunArgument, Target
from baton.client import RunRecord, Step, read_run
from baton.runs.cli_cards import asked_rows, baton_card, baton_markdown, heading, repair_hints, waits_card
from baton.runs.client_decide import shown_whole
from baton.runs.client_waiting import Waits, waits

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
    """Return the page as JSON."""
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
