"""`baton explain`: what an agent was given, what was left out and why."""

from typing import Annotated

import typer
from rich.markdown import Markdown

from baton.cli.session import Session, command
from baton.cli.targets import RunArgument, Target
from baton.runs.client_explanation import explain_run

StageArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STAGE", help="The stage: its name, its step's number, or name:2 for the second. By default the last."
    ),
]


@command
async def explain(session: Session, run: RunArgument, stage: StageArgument = None) -> None:
    """Explain a stage: what its agent saw, what was left out and why.

    Each fact is listed with its source and its confidence, then the tools and the cost in tokens. Reads the run's
    history: no worker is needed, and ended runs are explained too. What was left out is named by event and reason,
    never by its content.

    The exit code is 1 if no stage was given a contract or made a prompt.
    """
    target = Target.of(run)
    client = await session.client()
    with session.progress("reading the history"):
        found = await explain_run(client, target.workflow_id, target.run_id, stage)
    if session.json:
        session.write_json({**found.model_dump(mode="json"), "times_fewer": found.times_fewer})
    elif session.out.is_terminal:
        session.show(Markdown(found.to_markdown()))
    else:
        session.write(found.to_markdown())
