"""`baton rollback`, `baton cancel`, `baton pause` and `baton unpause`."""

import shlex
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text
from temporalio.client import Client
from temporalio.service import RPCError

from baton.cli.listing import parse_status
from baton.cli.operations import fact_lines, operate
from baton.cli.options import ExitCode
from baton.cli.output import Command, make_table, plain, stack
from baton.cli.session import (
    STAGE_HELP,
    AllOption,
    LimitOption,
    OptionalRunArgument,
    PipelineOption,
    RunArgument,
    Session,
    Target,
    WhoOption,
    WhyOption,
    YesOption,
    command,
    parse_selection,
    resolve_user,
)
from baton.cli.show import format_spend, heading
from baton.client import (
    Cancel,
    CancelPreview,
    ListedRun,
    Pause,
    RollBack,
    RollbackPreview,
    RolledBackRun,
    RunFilter,
    Step,
    Unpause,
    list_runs,
)
from baton.client.faces import map_concurrently
from baton.errors import HistoryError, PipelineError
from baton.wire.text import quantity

_MAX_SHOWN_STEPS = 12


@command
async def rollback(
    session: Session,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="STAGE",
            help=f"The first stage to execute again: {STAGE_HELP}.",
            show_default=False,
        ),
    ],
    why: WhyOption,
    run: OptionalRunArgument = None,
    who: WhoOption = None,
    yes: YesOption = False,
    every: AllOption = False,
    pipeline: PipelineOption = None,
    status: Annotated[
        str, typer.Option("--status", metavar="STATUS", help="With --all: only runs with this status.")
    ] = "FAILED",
    limit: LimitOption = 100,
) -> None:
    """Roll a run back to right before a stage; it continues from there.

    Shows what will run again and what it cost, and asks for confirmation; without a terminal, --yes is required.
    The stage and everything after it are executed again, even if the run has ended. Later decisions are asked for
    again, and children started later are terminated. Effects of stages outside are not undone. With --all, every
    failed run that has the stage is rolled back.
    """
    target, by = parse_selection(run, every), resolve_user(who)
    client = await session.client()
    if target is not None:
        operation = RollBack(client, target.workflow_id, to, target.run_id)
        question = f"roll {target.workflow_id!r} back?"
        _report(
            session,
            target.workflow_id,
            await operate(session, operation, question, by=by, why=why, yes=yes, render=_render),
        )
        return
    with session.progress("reading the histories"):
        previews = await _preview_all(session, client, to, RunFilter(pipeline, parse_status(status)), limit)
    if not session.json:
        session.err.print(_render_all([preview for _, preview in previews]))
    session.confirm(f"roll {quantity(len(previews), 'run')} back?", yes=yes, otherwise=RollBack.nothing_done)
    await _roll_back_all(session, previews, to, by, why)


async def _preview_all(
    session: Session, client: Client, to: str, run_filter: RunFilter, limit: int
) -> list[tuple[RollBack, RollbackPreview]]:
    """Return the roll-back of each selected run; runs without the stage are skipped with a note."""
    runs = [run async for run in list_runs(client, run_filter, limit=limit)]

    async def preview(run: ListedRun) -> tuple[RollBack, RollbackPreview] | str:
        operation = RollBack(client, run.workflow_id, to)
        try:
            return operation, await operation.preview()
        except HistoryError as error:
            return str(error)

    results = await map_concurrently(preview, runs)
    for result in results:
        if isinstance(result, str):
            session.note(f"left out: {result}")
    previews = [result for result in results if not isinstance(result, str)]
    if not previews:
        raise PipelineError(f"no selected run has a stage {to!r}; `baton list` shows the runs")
    return previews


async def _roll_back_all(
    session: Session, previews: list[tuple[RollBack, RollbackPreview]], to: str, by: str, why: str
) -> None:
    rows, failed = [], 0
    for operation, preview in previews:  # one after the other: each may begin work that costs money
        row: dict[str, Any] = {"workflow_id": operation.workflow_id}
        try:
            with session.progress(f"rolling back {operation.workflow_id}"):
                result = await operation.commit(preview.mark, by=by, why=why)
            rows.append({**row, "run_id": result.run_id})
        except (PipelineError, HistoryError, RPCError) as error:
            failed += 1
            rows.append({**row, "refused": str(error)})
            session.say(f"{operation.workflow_id}: {error}", "red")
    if session.json:
        session.write_json(rows)
    else:
        session.show(plain(f"{quantity(len(previews) - failed, 'run')} rolled back to before {to}", "green"))
    if failed:
        raise typer.Exit(ExitCode.FAILURE)


def _report(session: Session, workflow_id: str, result: RolledBackRun) -> None:
    if session.json:
        session.write_json(
            {
                "workflow_id": workflow_id,
                "run_id": result.run_id,
                "from_run_id": result.from_run_id,
                "seq": result.step.seq,
                "name": result.step.name,
                "event": result.event,
                "also_again": result.also_again,
                "stopped_children": result.stopped_children,
            }
        )
        return
    step = plain(f"{result.step.seq} {result.step.name}", "bold")
    session.show(Text.assemble(plain(workflow_id, "bold cyan"), " rolled back to before ", step))
    for child in result.stopped_children:
        session.show(plain(f"  terminated its child {child}", "yellow"))
    session.show(Command(f"baton watch {shlex.quote(workflow_id)}"))


def _render_all(previews: list[RollbackPreview]) -> RenderableType:
    table = make_table(
        "run", "status", "back to before", "steps again", "undoes", "they cost", right=("steps again", "undoes")
    )
    for point in [preview.point for preview in previews]:
        table.add_row(
            plain(point.newest.workflow_id, "bold"),
            plain(point.newest.status.value),
            plain(f"{point.step.seq} {point.step.name}"),
            str(len(point.again)),
            quantity(len(point.undone), "decision"),
            plain(" · ".join(format_spend(point.spent)) or "nothing"),
        )
    return table


def _render(preview: RollbackPreview) -> RenderableType:
    """Return what a roll-back will do, with the first steps that run again."""
    again = preview.point.again
    remaining = len(again) - _MAX_SHOWN_STEPS
    return stack(
        plain(preview.title, "bold"),
        *(_step_line(step) for step in again[:_MAX_SHOWN_STEPS]),
        plain(f"  and {quantity(remaining, 'step')} more", "dim") if remaining > 0 else None,
        *fact_lines(preview),
    )


def _step_line(step: Step) -> Text:
    return plain(f"  {step.seq} {step.name} ({step.kind.value}, {step.status.value})", "dim")


@command
async def cancel(
    session: Session, run: RunArgument, why: WhyOption, who: WhoOption = None, yes: YesOption = False
) -> None:
    """Ask a run to cancel; its compensations run, and its children are asked too.

    Shows the run and asks for confirmation; without a terminal, --yes is required. Needs a worker to take effect.
    """
    target, by = Target.of(run), resolve_user(who)
    operation = Cancel(await session.client(), target.workflow_id, target.run_id)

    def render(preview: CancelPreview) -> RenderableType:
        return stack(heading(preview.run), *fact_lines(preview))

    question = f"cancel {target.workflow_id!r}?"
    run_id = await operate(session, operation, question, by=by, why=why, yes=yes, render=render)
    if session.json:
        session.write_json({"workflow_id": target.workflow_id, "run_id": run_id})
    else:
        session.show(Text.assemble(plain(target.workflow_id, "bold cyan"), " was asked to cancel"))


@command
async def pause(
    session: Session, run: RunArgument, why: WhyOption, who: WhoOption = None, yes: YesOption = False
) -> None:
    """Pause a run: no step begins and nothing can be decided until it is unpaused.

    Shows the run and asks for confirmation; without a terminal, --yes is required. Works while no worker is there.
    """
    target = Target.of(run)
    operation = Pause(await session.client(), target.workflow_id, target.run_id)
    await _operate_on(session, operation, "paused", resolve_user(who), why, yes=yes)


@command
async def unpause(
    session: Session, run: RunArgument, why: WhyOption, who: WhoOption = None, yes: YesOption = False
) -> None:
    """Let a paused run continue.

    Shows who paused it and asks for confirmation; without a terminal, --yes is required.
    """
    target = Target.of(run)
    operation = Unpause(await session.client(), target.workflow_id, target.run_id)
    await _operate_on(session, operation, "unpaused", resolve_user(who), why, yes=yes)


async def _operate_on(session: Session, operation: Pause | Unpause, done: str, by: str, why: str, *, yes: bool) -> None:
    verb, workflow_id = done.removesuffix("d"), operation.workflow_id
    run_id = await operate(session, operation, f"{verb} {workflow_id!r}?", by=by, why=why, yes=yes)
    if session.json:
        session.write_json({"workflow_id": workflow_id, "run_id": run_id})
    else:
        session.show(Text.assemble(plain(workflow_id, "bold cyan"), f" is {done}"))
