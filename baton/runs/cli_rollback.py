"""`baton rollback`."""

import shlex
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from baton.cli.command import command
from baton.cli.completion import complete_stage
from baton.cli.output import Command, plain, stack
from baton.cli.session import Session, who_is
from baton.cli.targets import STAGE_HELP, RunArgument, Target, WhoOption, WhyOption, YesOption
from baton.client import RollbackPoint, Step, find_point, roll_back
from baton.runs.cli_cards import spent
from baton.wire.counting import counted

_SHOWN = 12


@command
async def rollback(
    session: Session,
    run: RunArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="STAGE",
            help=f"The first stage to execute again: {STAGE_HELP}.",
            autocompletion=complete_stage,
            show_default=False,
        ),
    ],
    why: WhyOption,
    who: WhoOption = None,
    yes: YesOption = False,
) -> None:
    """Roll a run back to right before a stage; it continues from there.

    Shows what will run again and what it cost, and asks for confirmation; without a terminal, --yes is required.
    The stage and everything after it are executed again, even if the run has ended. Decisions that came later
    are asked for again, and children that were started later are terminated. What stages did outside is not undone.
    """
    target, by = Target.of(run), who_is(who)
    client = await session.client()
    with session.progress("reading the history"):
        point = await find_point(client, target.workflow_id, to, target.run_id)
    if not session.json:
        session.err.print(_preview(point))
    session.confirm(f"roll {target.workflow_id!r} back?", yes=yes, otherwise="nothing was rolled back")
    with session.progress("rolling back"):
        done = await roll_back(client, target.workflow_id, to, by=by, why=why, run_id=target.run_id)
    if session.json:
        session.write_json(
            {
                "workflow_id": target.workflow_id,
                "run_id": done.run_id,
                "from_run_id": done.from_run_id,
                "seq": done.step.seq,
                "name": done.step.name,
                "event": done.event,
                "also_again": done.also_again,
                "stopped_children": done.stopped_children,
            }
        )
        return
    step = plain(f"{done.step.seq} {done.step.name}", "bold")
    session.show(Text.assemble(plain(target.workflow_id, "bold cyan"), " rolled back to before ", step))
    for child in done.stopped_children:
        session.show(plain(f"  terminated its child {child}", "yellow"))
    session.show(Command(f"baton watch {shlex.quote(target.workflow_id)}"))


def _preview(point: RollbackPoint) -> RenderableType:
    """Return what a roll-back will do: the steps that run again, the children it stops, the money that stays spent."""
    again, newest = point.again, point.newest
    left = len(again) - _SHOWN
    cost = " · ".join(spent(point.spent) or ["nothing"])
    return stack(
        Text.assemble(
            plain(newest.workflow_id, "bold cyan"),
            f" ({newest.status.value}) goes back to before ",
            plain(f"{point.step.seq} {point.step.name}", "bold"),
        ),
        *(_step(one) for one in again[:_SHOWN]),
        plain(f"  and {counted(left, 'step')} more", "dim") if left > 0 else None,
        plain(f"  {counted(len(again), 'step')} will run again; they cost {cost}, which stays charged", "yellow"),
        *(plain(f"  child {child} will be terminated if it is open", "yellow") for child in point.children),
    )


def _step(step: Step) -> Text:
    """Return one step that will run again."""
    return plain(f"  {step.seq} {step.name} ({step.kind.value}, {step.status.value})", "dim")
