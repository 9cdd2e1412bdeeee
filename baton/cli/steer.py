"""`baton steer`: a note for an agent at work."""

from typing import Annotated

import typer

from baton.cli.operations import operate
from baton.cli.output import plain
from baton.cli.session import RunArgument, Session, Target, WhoOption, YesOption, command, resolve_user
from baton.client import Steer


@command
async def steer(
    session: Session,
    run: RunArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The note, at most 500 characters.", show_default=False)],
    step: Annotated[
        str | None, typer.Option("--step", metavar="STEP", help="The step, branch or item; else the only one.")
    ] = None,
    who: WhoOption = None,
    yes: YesOption = False,
) -> None:
    """Send a note to an agent at work.

    The agent is shown it, such as "use EUR", before its next request, if its stage takes notes (steer=True). The
    note, who sent it and whether it was shown are in the history and in the ledger. If the step ends before, the note
    is recorded as not shown; `baton show RUN` says so. A note gives an agent no tools.
    """
    target, by = Target.of(run), resolve_user(who)
    client = await session.client()
    operation = Steer(client, target.workflow_id, text, step, target.run_id)
    note = await operate(session, operation, f"send this note to {target.workflow_id!r}?", by=by, yes=yes)
    if session.json:
        session.write_json(note.to_json_object())
        return
    session.show(plain(f"{note.line} is shown before its next request; `baton show {run}` says whether it was"))
