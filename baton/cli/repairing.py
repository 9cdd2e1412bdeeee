"""`baton rollback`: a run, taken back."""

import shlex
from typing import Annotated

import typer
from rich.text import Text

from baton.cli.completion import complete_stage
from baton.cli.output import Command, plain
from baton.cli.running import command
from baton.cli.session import Session, who_is
from baton.cli.targets import STAGE_HELP, RunArgument, Target, WhoOption, WhyOption
from baton.client import roll_back


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
) -> None:
    """Take a run back to right before a stage, and let it go on from there.

    The stage and all that came after are executed again, also in a run that has ended. Decisions that came
    later are asked for anew, and children that were started later are terminated. What stages did in the
    world outside is not undone.
    """
    target, by = Target.of(run), who_is(who)
    client = await session.client()
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
    step = f"{done.step.seq} {done.step.name}"
    session.show(
        Text.assemble(plain(target.workflow_id, "bold cyan"), " is back before ", plain(step, "bold"), " and goes on")
    )
    if done.also_again:
        names = ", ".join(done.also_again)
        session.show(plain(f"  runs again, too, because it shares a task with that step: {names}", "yellow"))
    for child in done.stopped_children:
        session.show(plain(f"  terminated its child {child}", "yellow"))
    session.show(Command(f"baton watch {shlex.quote(target.workflow_id)}"))
